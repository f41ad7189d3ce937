package cluster

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/internal/version"
)

// foreign serves a node's agent that is not ours on the loopback, with a certificate. It
// answers with the common name of its client's.
func (b *portBed) foreign(node string, cert tls.Certificate) {
	b.Helper()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.TLS.PeerCertificates[0].Subject.CommonName)
	}))
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAnyClientCert}
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	srv.StartTLS()
	b.Cleanup(srv.Close)
	nodes := client.For(b.s.plane.Admin(), core.Nodes)
	if _, err := nodes.Create(b.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}); err != nil && !apierrors.IsAlreadyExists(err) {
		b.Fatal(err)
	}
	n, err := nodes.Patch(b.Context(), "", node, "status", client.Patch{
		Type: types.MergePatchType,
		Data: fmt.Appendf(nil, `{"status":{"addresses":[{"type":"InternalIP","address":"127.0.0.1"}],"daemonEndpoints":{"kubeletEndpoint":{"Port":%d}}}}`, srv.Listener.Addr().(*net.TCPAddr).Port),
	})
	b.must(err)
	b.caughtUp(n)
}

// askAgent asks a node's agent as a server elsewhere does, and returns its answer or why there is none.
func (b *portBed) askAgent(node string) string {
	b.Helper()
	far := b.elsewhere()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return far.DialNode(ctx, node)
	}}}
	r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "http://node/", nil)
	b.must(err)
	res, err := c.Do(r)
	if err != nil {
		return err.Error()
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	b.must(err)
	return string(body)
}

// authority is one that is not the cluster's; file has its certificate.
func authority(t *testing.T) (other *pki.PKI, file string) {
	t.Helper()
	other, err := pki.Ensure(pki.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, other.CA.CertPEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	return other, file
}

func TestNodeAgentsAreVerifiedByTheAuthorityThatIsNamed(t *testing.T) {
	other, file := authority(t)
	b := newPortBed(t, func(o *Options) { o.Kubelets.CAFile = file })
	const ours = "kube-apiserver-kubelet-client"
	byName, err := other.NodeServing("n7", nil)
	b.must(err)
	byAddress, err := other.Pair("address", pki.Subject{Name: "an agent", Hosts: []string{"127.0.0.1"}, Server: true})
	b.must(err)
	neither, err := other.NodeServing("n9", []string{"192.0.2.9"})
	b.must(err)
	clusters, err := b.s.pki.NodeServing("n7", []string{"127.0.0.1"})
	b.must(err)
	for _, tc := range []struct {
		what string
		pair pki.Pair
		want string
	}{
		{"made out to the node", byName, ours},
		{"made out to its address", byAddress, ours},
		{"made out to another", neither, "x509: certificate is valid for n9"},
		{"signed by the cluster's own authority", clusters, "x509: certificate signed by unknown authority"},
	} {
		b.foreign("n7", tc.pair.TLS())
		trace.Proves(t, "COMM-016")
		if got := b.askAgent("n7"); !strings.Contains(got, tc.want) {
			t.Errorf("a certificate %s: got %s, want %s", tc.what, got, tc.want)
		}
	}
	b.must(os.WriteFile(file, b.s.pki.CA.CertPEM(), 0o600)) // without a restart
	if got := b.askAgent("n7"); got != ours {
		t.Errorf("after the file was replaced: got %s", got)
	}
}

// TestNodeAgentsAreNotVerifiedWhereNobodyIsToVouchForThem is what upstream does without
// the flag. Here it must be said.
func TestNodeAgentsAreNotVerifiedWhereNobodyIsToVouchForThem(t *testing.T) {
	other, _ := authority(t)
	b := newPortBed(t, func(o *Options) { o.Kubelets.Unverified = true })
	anybody, err := other.NodeServing("anybody", nil)
	b.must(err)
	b.foreign("n7", anybody.TLS())
	if got := b.askAgent("n7"); got != "kube-apiserver-kubelet-client" {
		t.Errorf("got %s", got)
	}
}

// TestAgentsOfOthersAreBelievedAsUpstreamDoes asks one by its own certificate, with no flag; one that says to be ours by the cluster's
// alone.
func TestAgentsOfOthersAreBelievedAsUpstreamDoes(t *testing.T) {
	other, _ := authority(t)
	b := newPortBed(t)
	own, err := other.NodeServing("n7", []string{"127.0.0.1"})
	b.must(err)
	b.foreign("n7", own.TLS())
	for _, c := range []struct{ version, want string }{
		{"v1.36.0", "kube-apiserver-kubelet-client"}, {"kwok-v0.8.0", "kube-apiserver-kubelet-client"}, {version.Alone(), "kube-apiserver-kubelet-client"},
		{version.Git(), "x509: certificate signed by unknown authority"},
	} {
		n, err := client.For(b.s.plane.Admin(), core.Nodes).Patch(t.Context(), "", "n7", "status", client.Patch{
			Type: types.MergePatchType, Data: fmt.Appendf(nil, `{"status":{"nodeInfo":{"kubeletVersion":%q}}}`, c.version),
		})
		b.must(err)
		b.caughtUp(n)
		if got := b.askAgent("n7"); !strings.Contains(got, c.want) {
			t.Errorf("an agent %s: got %s, want %s", c.version, got, c.want)
		}
	}
}

func TestServerShowsTheCertificateThatIsNamedToNodeAgents(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	other, _ := authority(t)
	write := func(name string) {
		pair, err := other.Pair(name, pki.Subject{Name: name, Client: true})
		if err != nil {
			t.Fatal(err)
		}
		text, err := pair.KeyPEM()
		if err != nil {
			t.Fatal(err)
		}
		for file, text := range map[string][]byte{cert: pair.CertPEM(), key: text} {
			if err := os.WriteFile(file+".new", text, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(file+".new", file); err != nil {
				t.Fatal(err)
			}
		}
	}
	write("first")
	b := newPortBed(t, func(o *Options) { o.Kubelets.CertFile, o.Kubelets.KeyFile = cert, key })
	pair, err := b.s.pki.NodeServing("n7", nil)
	b.must(err)
	b.foreign("n7", pair.TLS())
	for _, name := range []string{"first", "second"} {
		write(name)
		if got := b.askAgent("n7"); got != name {
			t.Errorf("got %s, want %s", got, name)
		}
	}
}

func TestNodesAddressOfThePreferredTypeIsTaken(t *testing.T) {
	t.Parallel()
	node := &corev1.Node{Status: corev1.NodeStatus{
		Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeHostName, Address: "n1"}, {Type: corev1.NodeExternalIP, Address: "fd00::1"},
			{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}, {Type: corev1.NodeInternalIP, Address: "fd00::2"},
		},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: 10250}},
	}}
	for kinds, want := range map[string]string{
		"": "10.0.0.1:10250", "ExternalIP,InternalIP": "[fd00::1]:10250", "InternalDNS,Hostname": "n1:10250", "ExternalDNS": "",
	} {
		k := Kubelets{AddressTypes: slices.DeleteFunc(strings.Split(kinds, ","), func(s string) bool { return s == "" })}
		if err := k.complete(); err != nil {
			t.Fatal(err)
		}
		if got := k.address(node); got != want {
			t.Errorf("%q: got %s, want %s", kinds, got, want)
		}
	}
}

func TestFlagsOfNodeAgentsThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, k := range map[string]Kubelets{
		`--kubelet-preferred-address-types: there is no type "Any"`:                          {AddressTypes: []string{"InternalIP", "Any"}},
		"--kubelet-certificate-authority: open /none":                                        {CAFile: "/none"},
		"--kubelet-certificate-authority " + empty + ": there is no certificate in it":       {CAFile: empty},
		"--kubelet-client-certificate and --kubelet-client-key go together":                  {CertFile: empty},
		"--kubelet-client-certificate and --kubelet-client-key: read credentials from /none": {CertFile: "/none", KeyFile: "/none"},
		"--kubelet-timeout must not be negative":                                             {Timeout: -time.Second},
	} {
		if err := k.complete(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if err := (&SSH{User: "root"}).check(); err == nil || err.Error() != "--ssh-user and --ssh-keyfile go together" {
		t.Errorf("got %v", err)
	}
}
