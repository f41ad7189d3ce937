package up

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// adminFile is what a server leaves for its administrator.
func adminFile(t *testing.T, url string) string {
	t.Helper()
	c := api.NewConfig()
	c.Clusters["c"] = &api.Cluster{Server: url, CertificateAuthorityData: []byte("ca")}
	c.AuthInfos["u"] = &api.AuthInfo{ClientCertificateData: []byte("cert"), ClientKeyData: []byte("key")}
	c.Contexts["x"] = &api.Context{Cluster: "c", AuthInfo: "u"}
	c.CurrentContext = "x"
	file := filepath.Join(t.TempDir(), "admin.kubeconfig")
	if err := clientcmd.WriteToFile(*c, file); err != nil {
		t.Fatal(err)
	}
	return file
}

const others = `apiVersion: v1
kind: Config
current-context: work
preferences: {}
clusters:
- name: work
  cluster: {server: https://work:6443, certificate-authority: pki/ca.crt}
contexts:
- name: work
  context: {cluster: work, user: me, namespace: team}
users:
- name: me
  user: {token: secret}
`

func read(t *testing.T, file string) *api.Config {
	t.Helper()
	c, err := clientcmd.LoadFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestKeepsOtherContextsOfAKubeconfig(t *testing.T) {
	dir := t.TempDir()
	real, link := filepath.Join(dir, "real"), filepath.Join(dir, "config")
	if err := os.WriteFile(real, []byte(others), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", link); err != nil {
		t.Fatal(err)
	}
	for range 2 { // again is harmless
		if err := mergeKubeconfig(adminFile(t, "https://127.0.0.1:6443"), link); err != nil {
			t.Fatal(err)
		}
	}
	c := read(t, link)
	if c.CurrentContext != "kemudi" || len(c.Contexts) != 2 || c.Clusters["kemudi"].Server != "https://127.0.0.1:6443" {
		t.Errorf("merged: got current context %q, %d contexts, %+v", c.CurrentContext, len(c.Contexts), c.Clusters["kemudi"])
	}
	if gone, err := forgetKubeconfig(link); !gone || err != nil {
		t.Errorf("forget: got %v, %v", gone, err)
	}
	if gone, err := forgetKubeconfig(link); gone || err != nil {
		t.Errorf("forget again: got %v, %v", gone, err)
	}
	c = read(t, link)
	if w := c.Contexts["work"]; len(c.Contexts) != 1 || w == nil || w.Namespace != "team" || c.AuthInfos["me"].Token != "secret" || c.Clusters["work"].CertificateAuthority != "pki/ca.crt" {
		t.Errorf("others after merge and forget: got %+v", c)
	}
	info, err := os.Lstat(link)
	if err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link: got %v, %v; want it to be one still", info, err)
	}
	if info, err := os.Stat(real); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the file: got %v, %v; want mode 0640 as before", info, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("directory: got %v, %v; want the file and the link", entries, err)
	}
}

func TestMakesAPrivateKubeconfigWhereThereIsNone(t *testing.T) {
	file := filepath.Join(t.TempDir(), ".kube/config")
	if gone, err := forgetKubeconfig(file); gone || err != nil {
		t.Errorf("forget without a file: got %v, %v", gone, err)
	}
	if err := mergeKubeconfig(adminFile(t, "https://127.0.0.1:7443"), file); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v; want mode 0600", info, err)
	}
}

func TestLeavesABrokenKubeconfigAlone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, []byte("{this is: not yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := mergeKubeconfig(adminFile(t, "https://127.0.0.1:6443"), file); err == nil || !strings.Contains(err.Error(), "read "+file) {
		t.Errorf("got %v, want an error that names the file", err)
	}
	if data, _ := os.ReadFile(file); string(data) != "{this is: not yaml" {
		t.Errorf("the file was changed: %s", data)
	}
}
