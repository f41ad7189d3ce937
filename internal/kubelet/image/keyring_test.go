package image

import (
	"encoding/base64"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/trace"
)

func TestPullSecretsAreMergedAndMatchedByRegistry(t *testing.T) {
	trace.Proves(t, "IMG-039", "IMG-040", "IMG-061")
	enc := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	k := &Keyring{}
	for _, s := range []*v1.Secret{
		{Type: v1.SecretTypeDockerConfigJson, Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(`{"credsStore":"x","credHelpers":{"a.example":"y"},
			"auths":{"https://index.docker.io/v1/":{"auth":"` + enc("hub:p") + `"},"a.example":{"username":"a","password":"p"},"a.example/team":{"username":"team","password":"p"}}}`)}},
		{Type: v1.SecretTypeDockercfg, Data: map[string][]byte{v1.DockerConfigKey: []byte(`{"*.b.example:5000":{"username":"b","password":"p"}}`)}},
		{Type: v1.SecretTypeOpaque, Data: map[string][]byte{"x": []byte("y")}},
	} {
		if err := k.AddSecret(s); err != nil {
			t.Fatal(err)
		}
	}
	cases := []struct {
		image string
		want  []string
	}{
		{"busybox", []string{"hub"}},
		{"docker.io/me/app:1", []string{"hub"}},
		{"a.example/x", []string{"a"}},
		{"a.example/team/x@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", []string{"team", "a"}},
		{"r.b.example:5000/x", []string{"b"}},
		{"r.b.example/x", nil},
		{"c.example/x", nil},
	}
	for _, tc := range cases {
		var got []string
		for _, a := range k.Lookup(tc.image) {
			got = append(got, a.Username)
		}
		if len(got) != len(tc.want) {
			t.Errorf("%s: got %v, want %v", tc.image, got, tc.want)
			continue
		}
		for i := range got {
			if got[i] != tc.want[i] {
				t.Errorf("%s: got %v, want %v", tc.image, got, tc.want)
			}
		}
	}
}

func TestBrokenCredentialsAreRefused(t *testing.T) {
	for _, data := range []string{`{`, `{"auths":{"a":{"auth":"%%%"}}}`, `{"auths":{"a":{"auth":"bm9jb2xvbg=="}}}`} {
		if err := (&Keyring{}).AddConfig([]byte(data)); err == nil {
			t.Errorf("AddConfig(%s): got no error", data)
		}
	}
}
