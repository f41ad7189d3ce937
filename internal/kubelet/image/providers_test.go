package image

import (
	"cmp"
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
		p.AddTo(t.Context(), k, image, nil)
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

func TestProvidersAreToldOfThePodsServiceAccount(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/bin/who", provider, 0o755)
	load := func(attributes string) *Providers {
		write(t, dir+"/config.yaml", `{apiVersion: kubelet.config.k8s.io/v1, kind: CredentialProviderConfig, providers: [{name: who, apiVersion: credentialprovider.kubelet.k8s.io/v1,
			matchImages: [r.example], defaultCacheDuration: 1h, env: [{name: DIR, value: `+dir+`}], tokenAttributes: {serviceAccountTokenAudience: cloud, `+attributes+`}}]}`, 0o644)
		p, err := NewProviders(Config{ProviderConfig: dir + "/config.yaml", ProviderBinDir: dir + "/bin"}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	write(t, dir+"/answer", `{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"CredentialProviderResponse","cacheKeyType":"Registry","auth":{"r.example":{"username":"u","password":"p"}}}`, 0o644)
	tokens := 0
	account := func(name string, annotations map[string]string) *Account {
		return &Account{
			Get: func(context.Context) (*v1.ServiceAccount, error) {
				return &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID("uid-" + name), Annotations: annotations}}, nil
			},
			Token: func(_ context.Context, audience string) (string, error) {
				tokens++
				return fmt.Sprintf("%s-%s-%d", audience, name, tokens), nil
			},
		}
	}
	// look is whose credentials are found for a pod of an account, and what the provider was asked for that.
	look := func(p *Providers, a *Account) (found, asked string) {
		t.Helper()
		_ = os.Remove(dir + "/asked")
		k := &Keyring{}
		p.AddTo(t.Context(), k, "r.example/app:1", a)
		for _, c := range k.Lookup("r.example/app:1") {
			found += fmt.Sprintf("%s %+v;", c.Username, c.used())
		}
		data, _ := os.ReadFile(dir + "/asked") // none: it was not asked
		_, rest, _ := strings.Cut(string(data), `"image":"r.example/app:1"`)
		return found, strings.TrimSpace(rest)
	}
	full := map[string]string{"role": "reader", "region": "x", "else": "1"}
	p := load("cacheType: ServiceAccount, requireServiceAccount: true, requiredServiceAccountAnnotationKeys: [role], optionalServiceAccountAnnotationKeys: [region]")
	for _, c := range []struct {
		what         string
		of           *Account
		found, asked string
	}{
		{"no account", nil, "", ""},
		{"no annotation", account("poor", nil), "", ""},
		{"one with both", account("a", full), "u {KubernetesSecrets:[] KubernetesServiceAccounts:[{UID:uid-a Namespace:team Name:a}] NodePodsAccessible:false};", `,"serviceAccountToken":"cloud-a-1","serviceAccountAnnotations":{"region":"x","role":"reader"}}`},
		{"the same again", account("a", full), "u {KubernetesSecrets:[] KubernetesServiceAccounts:[{UID:uid-a Namespace:team Name:a}] NodePodsAccessible:false};", ""},
		{"another one", account("b", map[string]string{"role": "w"}), "u {KubernetesSecrets:[] KubernetesServiceAccounts:[{UID:uid-b Namespace:team Name:b}] NodePodsAccessible:false};", `,"serviceAccountToken":"cloud-b-2","serviceAccountAnnotations":{"role":"w"}}`},
	} {
		if found, asked := look(p, c.of); found != c.found || asked != c.asked {
			t.Errorf("%s: found %q, asked %q, want %q and %q", c.what, found, asked, c.found, c.asked)
		}
	}
	p = load("cacheType: Token, requireServiceAccount: false")
	if found, asked := look(p, nil); found != "u {KubernetesSecrets:[] KubernetesServiceAccounts:[] NodePodsAccessible:true};" || asked != "}" {
		t.Errorf("a pod without account: found %q, asked %q", found, asked)
	}
	for _, want := range []string{"cloud-a-3", "cloud-a-4"} { // each pod is asked for
		if found, asked := look(p, account("a", full)); found != "u {KubernetesSecrets:[] KubernetesServiceAccounts:[] NodePodsAccessible:false};" || !strings.Contains(asked, want) {
			t.Errorf("by token: found %q, asked %q, want %s", found, asked, want)
		}
	}

	// An image that was pulled for an account may be used by its pods.
	n := newNode()
	n.Puller = NewPuller(n.cri, Config{}, NewRecords(t.TempDir()), func(_ context.Context, _ string, a *Account) *Keyring {
		k := &Keyring{}
		load("cacheType: ServiceAccount, requireServiceAccount: true").AddTo(t.Context(), k, "r.example/app:1", a)
		return k
	})
	for _, c := range []struct{ account, want string }{{"a", "Pulling"}, {"a", "Pulled"}, {"b", "Pulling"}} {
		first := ""
		r, err := n.Ensure(t.Context(), Request{
			Pod: "u1", Image: "r.example/app:1", Policy: v1.PullIfNotPresent, Account: account(c.account, full),
			Event: func(_, reason, _ string) { first = cmp.Or(first, reason) },
		})
		if err != nil || r.Ref == "" || first != c.want {
			t.Errorf("a pod of %s: got %+v, %v, the event %s, want %s", c.account, r, err, first, c.want)
		}
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
		{good + ", tokenAttributes: {cacheType: Token, requireServiceAccount: true}", "serviceAccountTokenAudience is required"},
		{good + ", tokenAttributes: {serviceAccountTokenAudience: a, cacheType: Token}", "requireServiceAccount is required"},
		{good + ", tokenAttributes: {serviceAccountTokenAudience: a, requireServiceAccount: true}", `cacheType "": want ServiceAccount or Token`},
		{good + ", tokenAttributes: {serviceAccountTokenAudience: a, cacheType: Token, requireServiceAccount: false, requiredServiceAccountAnnotationKeys: [x]}", "requireServiceAccount must be true"},
		{good + ", tokenAttributes: {serviceAccountTokenAudience: a, cacheType: Token, requireServiceAccount: true, requiredServiceAccountAnnotationKeys: [x], optionalServiceAccountAnnotationKeys: [x]}", `annotation key "x" is there twice`},
		{good + ", tokenAttributes: {serviceAccountTokenAudience: a, cacheType: Token, requireServiceAccount: true, requiredServiceAccountAnnotationKeys: [x y]}", `annotation key "x y"`},
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
	n.Puller = NewPuller(registry, Config{}, nil, func(context.Context, string, *Account) *Keyring { return node })
	r, err := n.Ensure(t.Context(), Request{Pod: "u1", Image: "r.example/x:1", Policy: v1.PullAlways, Secrets: func() *Keyring { return pod }, Event: func(string, string, string) {}})
	if err != nil || r.Ref == "" || !slices.Equal(registry.tried, []string{"pod", "node"}) {
		t.Errorf("got %+v, %v after trying %v", r, err, registry.tried)
	}
}
