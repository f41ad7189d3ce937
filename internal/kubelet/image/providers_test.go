package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/kubelet/fakecri"
	"github.com/kemudi/kemudi/internal/trace"
)

func write(t *testing.T, path, text string, mode fs.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// picky is a registry that lets in one user.
type picky struct {
	*fakecri.Runtime
	admits string
	tried  []string
}

func (p *picky) PullImage(ctx context.Context, in *runtimeapi.PullImageRequest, o ...grpc.CallOption) (*runtimeapi.PullImageResponse, error) {
	p.tried = append(p.tried, in.GetAuth().GetUsername())
	if in.GetAuth().GetUsername() != p.admits {
		return nil, errors.New("no")
	}
	return p.Runtime.PullImage(ctx, in, o...)
}

func users(k *Keyring, image string) (names []string) {
	for _, a := range k.Lookup(image) {
		names = append(names, a.Username+":"+a.Password)
	}
	return names
}

// provider answers as it is told to and notes what it was asked.
const provider = `#!/bin/sh
cat >> "$DIR/asked"
echo " $1 $GREETING" >> "$DIR/asked"
cat "$DIR/answer"
`

func TestProvidersAreAskedForCredentials(t *testing.T) {
	trace.Proves(t, "IMG-018/cloud-registries", "IMG-026")
	dir := t.TempDir()
	write(t, dir+"/bin/who", provider, 0o755)
	write(t, dir+"/config/one.yaml", `
apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- {name: who, apiVersion: credentialprovider.kubelet.k8s.io/v1, matchImages: ["*.cloud.example/team"], defaultCacheDuration: 1h, args: [get], env: [{name: GREETING, value: hello}, {name: DIR, value: `+dir+`}]}
`, 0o644)
	write(t, dir+"/config/README", "no configuration", 0o644)
	p, err := NewProviders(Config{ProviderConfig: dir + "/config", ProviderBinDir: dir + "/bin"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	answer := func(cacheKey, duration, auth string) {
		write(t, dir+"/answer", `{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"CredentialProviderResponse","cacheKeyType":"`+cacheKey+`",`+duration+`"auth":`+auth+`}`, 0o644)
	}
	lookup := func(image, want string) {
		t.Helper()
		k := &Keyring{}
		p.AddTo(t.Context(), k, image)
		if got := strings.Join(users(k, image), " "); got != want {
			t.Errorf("%s: got %q, want %q", image, got, want)
		}
	}
	request := func(image string) string {
		return `{"kind":"CredentialProviderRequest","apiVersion":"credentialprovider.kubelet.k8s.io/v1","image":"` + image + `"} get hello` + "\n"
	}
	answer("Image", `"cacheDuration":"0s",`, `{"a.cloud.example":{"username":"u","password":"1"},"b.example":{"username":"other","password":"1"}}`)
	lookup("a.cloud.example/else/app", "")
	lookup("cloud.example/team/app", "")
	lookup("a.cloud.example/team/app:1", "u:1")
	answer("Registry", "", `{"*.cloud.example":{"username":"u","password":"2"}}`)
	lookup("a.cloud.example/team/app:1", "u:2") // the answer before was good for once
	answer("Image", "", `{"*.cloud.example":{"username":"u","password":"3"}}`)
	lookup("a.cloud.example/team/app:2", "u:2")
	lookup("b.cloud.example/team/app:1", "u:3")
	for _, broken := range []string{"no JSON", `{}`, `{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"CredentialProviderResponse","cacheKeyType":"Never"}`} {
		write(t, dir+"/answer", broken, 0o644)
		lookup("c.cloud.example/team/app:1", "")
	}
	asked, err := os.ReadFile(dir + "/asked")
	if err != nil {
		t.Fatal(err)
	}
	want := request("a.cloud.example/team/app:1") + request("a.cloud.example/team/app:1") + request("b.cloud.example/team/app:1") + strings.Repeat(request("c.cloud.example/team/app:1"), 3)
	if string(asked) != want {
		t.Errorf("asked:\n%swant:\n%s", asked, want)
	}
}

func TestBadProvidersAreRefused(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/bin/who", "#!/bin/sh\n", 0o755)
	good := "name: who, matchImages: [a], defaultCacheDuration: 0s, apiVersion: credentialprovider.kubelet.k8s.io/v1"
	for _, tc := range []struct{ provider, want string }{
		{"name: ../who", "name must be that of a program"},
		{strings.Replace(good, "who", "none", 1), "no such file"},
		{strings.Replace(good, "[a]", "[]", 1), "matchImages is required"},
		{strings.Replace(good, "0s", "-1s", 1), "defaultCacheDuration is required"},
		{strings.Replace(good, "k8s.io/v1", "k8s.io/v7", 1), "apiVersion must be credentialprovider.kubelet.k8s.io/v1"},
		{good + "}, {" + good, "name is there twice"},
		{good + ", nonsense: 1", "unknown field"},
		{good + ", tokenAttributes: {serviceAccountTokenAudience: a}", "tokenAttributes is not supported"},
	} {
		write(t, dir+"/config.yaml", "{apiVersion: kubelet.config.k8s.io/v1, kind: CredentialProviderConfig, providers: [{"+tc.provider+"}]}", 0o644)
		_, err := NewProviders(Config{ProviderConfig: dir + "/config.yaml", ProviderBinDir: dir + "/bin"}, nil)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %s", tc.provider, err, tc.want)
		}
	}
	if _, err := NewProviders(Config{ProviderConfig: dir + "/none", ProviderBinDir: dir}, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: got %v", err)
	}
}

func TestCredentialsOfTheNodeAreInTheDocumentedPlaces(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", dir+"/home")
	t.Chdir(dir)
	places := []string{dir + "/root/config.json", dir + "/config.json", dir + "/home/.docker/config.json", dir + "/root/.dockercfg", dir + "/.dockercfg", dir + "/home/.dockercfg"}
	auths := func(i int) string { return fmt.Sprintf(`{"r.example":{"username":"%d","password":"p"}}`, i) }
	for i, path := range places {
		text := auths(i)
		if filepath.Ext(path) == ".json" {
			text = `{"auths":` + text + `}`
		}
		write(t, path, text, 0o600)
	}
	trace.Proves(t, "IMG-037", "IMG-038", "IMG-039", "IMG-041")
	for i, path := range places {
		k, err := NodeKeyring(dir + "/root")
		if got, want := users(k, "r.example/x"), []string{fmt.Sprintf("%d:p", i)}; err != nil || !slices.Equal(got, want) {
			t.Errorf("with %s: got %v, %v, want %v", path, got, err, want)
		}
		if i == 0 { // one that is broken is told and left out
			write(t, path, "{", 0o600)
			if k, err := NodeKeyring(dir + "/root"); err == nil || !strings.Contains(err.Error(), path) || !slices.Equal(users(k, "r.example/x"), []string{"1:p"}) {
				t.Errorf("with a broken %s: got %v", path, err)
			}
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}

	// Both the pod's and the node's are tried, the pod's first.
	trace.Proves(t, "IMG-050", "IMG-060")
	n := newNode()
	registry := &picky{Runtime: n.cri, admits: "node"}
	pod, node := &Keyring{}, &Keyring{}
	if err := errors.Join(pod.AddConfig([]byte(`{"auths":{"r.example":{"username":"pod"}}}`)), node.AddConfig([]byte(`{"auths":{"r.example":{"username":"node"}}}`))); err != nil {
		t.Fatal(err)
	}
	n.Puller = NewPuller(registry, Config{}, nil, func(context.Context, string) *Keyring { return node })
	r, err := n.Ensure(t.Context(), Request{Pod: "u1", Image: "r.example/x:1", Policy: v1.PullAlways, Secrets: func() *Keyring { return pod }, Event: func(string, string, string) {}})
	if err != nil || r.Ref == "" || !slices.Equal(registry.tried, []string{"pod", "node"}) {
		t.Errorf("got %+v, %v after trying %v", r, err, registry.tried)
	}
}
