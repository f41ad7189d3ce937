package cluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/auth/authn"
	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/client/https"
	"github.com/kemudi/kemudi/internal/controllers/certificates"
	"github.com/kemudi/kemudi/internal/join"
	"github.com/kemudi/kemudi/internal/up"
	"github.com/kemudi/kemudi/internal/version"
	"github.com/kemudi/kemudi/test/wait"
)

// candidate is one that joins, in a directory.
type candidate struct {
	*joinBed
	name, dir string
	version   string // of its program
	id        *join.Identity
	hosts     atomic.Pointer[[]string]
}

// machine returns one that is in no cluster.
func (b *joinBed) machine(name string) *candidate {
	b.Helper()
	m := &candidate{joinBed: b, name: name, dir: b.TempDir(), version: version.Git()}
	m.hosts.Store(&[]string{"192.0.2.7"})
	b.must(m.start("hardware of " + name))
	return m
}

// start reads the machine's identity again, as a start of the agent does.
func (m *candidate) start(hardware string) (err error) {
	m.id, err = join.Open(join.Options{Dir: m.dir, NodeName: m.name, Machine: hardware, Version: m.version, Hosts: func() []string { return *m.hosts.Load() }, Log: m.s.o.Logger})
	return err
}

// join joins by the token's text.
func (m *candidate) join(token string) error {
	m.Helper()
	var t join.Token
	if token != "" {
		var err error
		t, err = join.ParseToken(token)
		m.must(err)
	}
	ctx, cancel := context.WithTimeout(m.Context(), wait.Patience)
	defer cancel()
	return m.id.Join(ctx, []string{m.url}, t)
}

// api is client-go's client with the machine's certificate of now.
func (m *candidate) api() kubernetes.Interface {
	m.Helper()
	cert, err := os.ReadFile(filepath.Join(m.dir, "client.crt"))
	m.must(err)
	key, err := os.ReadFile(filepath.Join(m.dir, "client.key"))
	m.must(err)
	return m.client(rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: cert, KeyData: key}})
}

// register makes the machine's Node, ready and with its addresses, and waits until the
// cluster has noted its key.
func (m *candidate) register() {
	m.Helper()
	nodes := m.api().CoreV1().Nodes()
	node, err := nodes.Create(m.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.name}}, metav1.CreateOptions{})
	m.must(err)
	m.report(node.Name, corev1.ConditionTrue, "hardware of "+m.name)
	m.until("the key of "+m.name+" is noted", func() bool {
		node, err := client.For(m.s.plane.Admin(), core.Nodes).Get(m.Context(), "", m.name)
		return err == nil && len(authn.NodeKeys(node)) > 0
	})
}

// report writes the status of a node.
func (b *joinBed) report(name string, ready corev1.ConditionStatus, hardware string) {
	b.Helper()
	b.until("the status is written", func() bool {
		nodes := client.For(b.s.plane.Admin(), core.Nodes)
		node, err := nodes.Get(b.Context(), "", name)
		b.must(err)
		node = node.DeepCopy()
		node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.7"}, {Type: corev1.NodeHostName, Address: name}}
		node.Status.NodeInfo.SystemUUID = hardware
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, LastHeartbeatTime: metav1.Now()}}
		_, err = nodes.UpdateStatus(b.Context(), node)
		if !apierrors.IsConflict(err) {
			b.must(err)
		}
		return err == nil
	})
}

func (b *joinBed) until(what string, done func() bool) {
	b.Helper()
	wait.Until(b.T, func() error {
		if !done() {
			return fmt.Errorf("not so: %s", what)
		}
		return nil
	})
}

// create makes a token and returns its text.
func (b *joinBed) create(o up.TokenOptions) string {
	b.Helper()
	made, err := up.CreateToken(b.Context(), b.access(), o)
	b.must(err)
	return made.Token
}

// run keeps the certificates of the machine good until the test ends or stop is called.
func (m *candidate) run() (stop func()) {
	m.Helper()
	c := m.id.Cluster()
	t, err := https.New(https.Options{Servers: c.Servers, CA: c.CA, Certificate: m.id.Certificate, Backoff: 5 * time.Millisecond})
	m.must(err)
	ctx, cancel := context.WithCancel(m.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = t.Run(ctx) })
	wg.Go(func() {
		if err := m.id.Run(ctx, t); err != nil {
			m.Error(err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	m.Cleanup(stop)
	return stop
}

// serves says whether the serving certificate is for these hosts, and no others.
func (m *candidate) serves(hosts ...string) bool {
	cert, err := m.id.Serving()
	if err != nil {
		return false
	}
	has := slices.Clone(cert.Leaf.DNSNames)
	for _, ip := range cert.Leaf.IPAddresses {
		has = append(has, ip.String())
	}
	slices.Sort(has)
	return slices.Equal(has, hosts)
}

// refused checks that an error is for good, and says all of the texts.
func (b *joinBed) refused(what string, err error, texts ...string) {
	b.Helper()
	var final *join.Refusal
	if !errors.As(err, &final) {
		b.Errorf("%s: got %v, want a refusal", what, err)
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			b.Errorf("%s: got %q, want it to say %q", what, err, text)
		}
	}
}

// TestMachineHasAnIdentity joins, gets both certificates, keeps them over a restart
// without token or API, and gets a serving certificate for each change of addresses.
func TestMachineHasAnIdentity(t *testing.T) {
	b := newJoinBed(t)
	m := b.machine("n2")
	if _, err := m.id.Certificate(); err == nil || m.id.Joined() {
		t.Error("a new machine has a certificate")
	}
	b.refused("without a token", m.join(""), "kemudi token create")
	b.must(m.join(b.create(up.TokenOptions{Uses: 1})))
	m.register()
	stop := m.run()
	b.until("the serving certificate is there", func() bool { return m.serves("192.0.2.7", "n2") })
	serving, err := m.id.Serving()
	b.must(err)
	if err := serving.Leaf.CheckSignatureFrom(b.s.pki.CA.Cert); err != nil {
		t.Errorf("the serving certificate is not the cluster's: %v", err)
	}

	reg := prometheus.NewRegistry()
	reg.MustRegister(m.id.Metrics())
	found, err := reg.Gather()
	b.must(err)
	told := map[string]bool{}
	for _, f := range found {
		told[f.GetName()] = true
		if ttl := f.Metric[0].GetGauge().GetValue(); f.GetName() == "kubelet_certificate_manager_client_ttl_seconds" && ttl <= 0 {
			t.Errorf("the client certificate is good for %f s", ttl)
		}
	}
	if !told["kubelet_certificate_manager_client_ttl_seconds"] || !told["kubelet_certificate_manager_client_expiration_renew_errors"] || !told["kubelet_server_expiration_renew_errors"] {
		t.Errorf("got metrics %v", told)
	}

	// Nobody approves an address that the Node does not have; once it has, the request that waits is approved.
	m.hosts.Store(&[]string{"192.0.2.7", "198.51.100.9"})
	m.id.Changed()
	requests := b.client(b.admin()).CertificatesV1().CertificateSigningRequests()
	b.until("the request for the new address is there", func() bool {
		list, err := requests.List(t.Context(), metav1.ListOptions{FieldSelector: "spec.signerName=kubernetes.io/kubelet-serving"})
		b.must(err)
		return len(list.Items) == 2
	})
	nodes := client.For(b.s.plane.Admin(), core.Nodes)
	b.until("the Node says the address", func() bool {
		node, err := nodes.Get(t.Context(), "", "n2")
		b.must(err)
		if m.serves("192.0.2.7", "198.51.100.9", "n2") {
			t.Error("approved before the Node says the address")
		}
		node = node.DeepCopy()
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "198.51.100.9"})
		_, err = nodes.UpdateStatus(t.Context(), node)
		return err == nil
	})
	b.until("the serving certificate has the new address", func() bool { return m.serves("192.0.2.7", "198.51.100.9", "n2") })
	followed := regexp.MustCompile(`(?m)^apiserver_longrunning_requests\{.*resource="certificatesigningrequests".* [1-9]`)
	b.until("requests that are signed are not followed any more", func() bool {
		metrics, err := b.client(b.admin()).CertificatesV1().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
		b.must(err)
		return bytes.Contains(metrics, []byte("apiserver_longrunning_requests{")) && !followed.Match(metrics)
	})
	stop()

	key := m.file("client.key")
	b.must(m.start("hardware of n2"))
	b.must(m.join(""))
	if !m.serves("192.0.2.7", "198.51.100.9", "n2") || !bytes.Equal(key, m.file("client.key")) {
		t.Error("after a restart the machine is another")
	}
	if since := m.id.Silent(); !since.IsZero() {
		t.Errorf("got no answer since %s, want that there was one", since)
	}
	b.must(m.id.SetServers([]string{"https://127.0.0.1:1"})) // nobody is there
	b.must(m.start("hardware of n2"))
	if err := m.id.Join(t.Context(), nil, join.Token{}); err != nil || m.id.Silent().IsZero() {
		t.Errorf("without the API: %v, no answer since %s", err, m.id.Silent())
	}
	for _, e := range b.modes(m.dir) {
		if e.Perm()&0o077 != 0 {
			t.Errorf("others may read what the machine keeps: %s", e)
		}
	}
}

func (m *candidate) file(name string) []byte {
	m.Helper()
	data, err := os.ReadFile(filepath.Join(m.dir, name))
	m.must(err)
	return data
}

func (b *joinBed) modes(dir string) (modes []fs.FileMode) {
	b.Helper()
	entries, err := os.ReadDir(dir)
	b.must(err)
	for _, e := range entries {
		info, err := e.Info()
		b.must(err)
		modes = append(modes, info.Mode())
	}
	return modes
}

// admin is the administrator's access.
func (b *joinBed) admin() rest.Config {
	b.Helper()
	pair, err := b.s.pki.Admin()
	b.must(err)
	key, err := pair.KeyPEM()
	b.must(err)
	return rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: pair.CertPEM(), KeyData: key}}
}

// TestMachinesRenewTheirCertificates has certificates that are good for seconds.
func TestMachinesRenewTheirCertificates(t *testing.T) {
	b := newJoinBed(t, func(o *Options) { o.Controllers.Certificates = certificates.Options{Life: 4 * time.Second} })
	m := b.machine("n2")
	b.must(m.join(b.create(up.TokenOptions{Uses: 1})))
	m.register()
	key := m.file("client.key")
	m.run()
	b.until("there is a serving certificate", func() bool { return m.serves("192.0.2.7", "n2") })
	client, err := m.id.Certificate()
	b.must(err)
	serving, err := m.id.Serving()
	b.must(err)
	b.until("both are renewed", func() bool {
		c, err := m.id.Certificate()
		b.must(err)
		s, err := m.id.Serving()
		b.must(err)
		return c.Leaf.NotAfter.After(client.Leaf.NotAfter) && s.Leaf.NotAfter.After(serving.Leaf.NotAfter)
	})
	if !bytes.Equal(key, m.file("client.key")) {
		t.Error("the key is another")
	}
	if _, err := m.api().CoreV1().Nodes().Get(t.Context(), "n2", metav1.GetOptions{}); err != nil {
		t.Errorf("ask with the renewed certificate: %v", err)
	}
}

// TestDeletedNodeLosesItsAccess has a machine watch and ask when its Node is deleted.
func TestDeletedNodeLosesItsAccess(t *testing.T) {
	b := newJoinBed(t)
	m, other := b.machine("n2"), b.machine("n3")
	token := b.create(up.TokenOptions{})
	for _, m := range []*candidate{m, other} {
		b.must(m.join(token))
		m.register()
	}
	own := func(m *candidate) metav1.ListOptions {
		return metav1.ListOptions{FieldSelector: "metadata.name=" + m.name}
	}
	api, kept := m.api(), other.api()
	watch, err := api.CoreV1().Nodes().Watch(t.Context(), own(m))
	b.must(err)
	defer watch.Stop()
	others, err := kept.CoreV1().Nodes().Watch(t.Context(), own(other))
	b.must(err)
	defer others.Stop()
	b.must(b.client(b.admin()).CoreV1().Nodes().Delete(t.Context(), "n2", metav1.DeleteOptions{}))
	deleted := time.Now()
	timer := time.NewTimer(wait.Patience)
	defer timer.Stop()
	for open := true; open; {
		select {
		case _, open = <-watch.ResultChan():
		case <-timer.C:
			t.Fatal("the watch of the deleted node has not ended")
		}
	}
	b.until("the node is refused", func() bool {
		_, err := api.CoreV1().Nodes().Get(t.Context(), "n2", metav1.GetOptions{})
		return apierrors.IsUnauthorized(err)
	})
	t.Logf("the access ended within %s", time.Since(deleted))
	if _, err := api.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}, metav1.CreateOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("register again: got %v, want unauthorized", err)
	}
	if _, err := kept.CoreV1().Nodes().Get(t.Context(), "n3", metav1.GetOptions{}); err != nil {
		t.Errorf("the other node: %v", err)
	}
	select {
	case e, open := <-others.ResultChan():
		for open && e.Type == "ADDED" {
			select {
			case e, open = <-others.ResultChan():
			default:
				open, e.Type = true, ""
			}
		}
		if !open {
			t.Error("the watch of the other node has ended too")
		}
	default:
	}

	// It joins again by a token, with its key, and the old certificate stays void.
	b.must(m.start("hardware of n2"))
	b.refused("without a token", m.join(""), "was deleted", "kemudi token create", "kemudi reset")
	key := sha256.Sum256(m.file("client.key"))
	b.must(m.join(token))
	m.register()
	if sha256.Sum256(m.file("client.key")) != key {
		t.Error("the machine has another key")
	}
}

// TestCertificateOfAnOtherKeyIsRefused: who had the name before has it no more.
func TestCertificateOfAnOtherKeyIsRefused(t *testing.T) {
	b := newJoinBed(t)
	before, after := b.machine("n2"), b.machine("n2")
	token := b.create(up.TokenOptions{})
	b.must(before.join(token))
	before.register()
	old := before.api()
	b.must(b.client(b.admin()).CoreV1().Nodes().Delete(t.Context(), "n2", metav1.DeleteOptions{}))
	b.must(after.join(token))
	after.register()
	b.until("the key from before is refused", func() bool {
		_, err := old.CoreV1().Nodes().Get(t.Context(), "n2", metav1.GetOptions{})
		return apierrors.IsUnauthorized(err)
	})
	if _, err := after.api().CoreV1().Nodes().Get(t.Context(), "n2", metav1.GetOptions{}); err != nil {
		t.Errorf("the key of now: %v", err)
	}
	// A certificate that somebody made by hand is for another key too.
	pair, err := b.s.pki.NodeClient("n2")
	b.must(err)
	key, err := pair.KeyPEM()
	b.must(err)
	byHand := b.client(rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: pair.CertPEM(), KeyData: key}})
	if _, err := byHand.CoreV1().Nodes().Get(t.Context(), "n2", metav1.GetOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("a certificate made by hand: got %v, want unauthorized", err)
	}
}

// TestTwoMachinesCannotHaveOneName has machines join that are called as others are.
func TestTwoMachinesCannotHaveOneName(t *testing.T) {
	b := newJoinBed(t)
	token := b.create(up.TokenOptions{})
	first, second := b.machine("n2"), b.machine("n2")
	b.must(first.join(token))
	b.refused("before the first has registered", second.join(token), "n2", "--node-name")
	first.register()
	b.refused("while the first lives", second.join(token), "the node n2", "--node-name", "kubectl delete node n2")
	b.report("n2", corev1.ConditionUnknown, "hardware of n2")
	// The machine was installed anew.
	if err := second.join(token); err != nil {
		t.Errorf("when the first is not heard of: %v", err)
	}
	b.until("the first is refused", func() bool {
		_, err := first.api().CoreV1().Nodes().Get(t.Context(), "n2", metav1.GetOptions{})
		return apierrors.IsUnauthorized(err)
	})
}

// TestMachinesOfOtherVersionsAreRefused before they join, and when their program was changed.
func TestMachinesOfOtherVersionsAreRefused(t *testing.T) {
	b := newJoinBed(t)
	token := b.create(up.TokenOptions{})
	joined := b.machine("n2")
	b.must(joined.join(token))
	joined.register()
	minor, err := version.Minor(version.Git())
	b.must(err)
	for off, says := range map[int]string{1: "must not be newer than servers", -4: "may be 3 minor versions older", 0: "", -3: ""} {
		of := fmt.Sprintf("v1.%d.0+kemudi.9", minor+off)
		for _, m := range []*candidate{joined, b.machine(fmt.Sprintf("new%d", off+9))} {
			m.version = of
			b.must(m.start("hardware of " + m.name))
			before := m.files()
			err := m.join(token)
			if says == "" {
				if err != nil {
					t.Errorf("%s as %s: got %v", m.name, of, err)
				}
				continue
			}
			b.refused(m.name+" as "+of, err, says, of, version.Git())
			if after := m.files(); !maps.Equal(before, after) {
				t.Errorf("%s as %s: it has %d files, and had %d", m.name, of, len(after), len(before))
			}
		}
	}
}

// files are those of the machine's identity.
func (m *candidate) files() map[string]string {
	m.Helper()
	all := map[string]string{}
	entries, err := os.ReadDir(m.dir)
	m.must(err)
	for _, e := range entries {
		all[e.Name()] = string(m.file(e.Name()))
	}
	return all
}

// TestCopiedMachineIsRefused starts with the disk of another machine.
func TestCopiedMachineIsRefused(t *testing.T) {
	b := newJoinBed(t)
	m := b.machine("n2")
	b.must(m.join(b.create(up.TokenOptions{})))
	m.register()
	b.refused("a copy that runs beside it", errors.Join(m.start("other hardware"), m.join("")), "n2", "a copy", "kemudi reset")
	_, err := join.Open(join.Options{Dir: m.dir, NodeName: "n3"})
	b.refused("a copy with another name", err, "n3", "the node n2", "--node-name n2", "kubectl delete node n2", "kemudi reset")
	b.report("n2", corev1.ConditionUnknown, "hardware of n2")
	b.must(m.start("other hardware"))
	if err := m.join(""); err != nil {
		t.Errorf("the disk is in another machine, and the first does not run: %v", err)
	}
	b.report("n2", corev1.ConditionTrue, "other hardware")
	b.must(m.start("other hardware"))
	if err := m.join(""); err != nil {
		t.Errorf("its next start: %v", err)
	}
}

// TestTokensThatLetNobodyIn says for each what there is to do.
func TestTokensThatLetNobodyIn(t *testing.T) {
	t.Parallel()
	b, foreign := newJoinBed(t), newJoinBed(t)
	good := b.create(up.TokenOptions{})
	token, err := join.ParseToken(good)
	b.must(err)
	with := func(change func(*join.Token)) string {
		t := token
		change(&t)
		return t.String()
	}
	wrong := strings.Repeat("z", 16)
	used := b.create(up.TokenOptions{Uses: 1})
	b.must(b.machine("first").join(used))
	revoked, err := join.ParseToken(b.create(up.TokenOptions{}))
	b.must(err)
	b.must(up.RevokeToken(t.Context(), b.access(), revoked.ID))
	for _, c := range []struct {
		name, token string
		want        []string
	}{
		{"wrong secret", with(func(t *join.Token) { t.Secret = wrong }), []string{token.ID, "copy the token"}},
		{"wrong secret, no pin", with(func(t *join.Token) { t.Secret, t.Pin = wrong, "" }), []string{token.ID, "mistyped", "kemudi token create"}},
		{"of another cluster", foreign.create(up.TokenOptions{}), []string{"not the one", pki.Pin(b.s.pki.CA.Cert), pki.Pin(foreign.s.pki.CA.Cert), "kemudi token create"}},
		{"of another cluster, no pin", with(func(t *join.Token) { t.ID, t.Pin = "zzzzzz", "" }), []string{"zzzzzz", "another cluster's", "kemudi token create"}},
		{"revoked or ended", revoked.String(), []string{revoked.ID, "ended or was revoked", "kemudi token create"}},
		{"used up", used, []string{"used up", "good for 1", "kemudi token create"}},
	} {
		m := b.machine("n2")
		err := m.join(c.token)
		b.refused(c.name, err, c.want...)
		if parsed, _ := join.ParseToken(c.token); err != nil && strings.Contains(err.Error(), parsed.Secret) {
			t.Errorf("%s: %q has the secret in it", c.name, err)
		}
		if m.id.Joined() {
			t.Errorf("%s: the machine has joined", c.name)
		}
		if err := m.join(good); err != nil {
			t.Errorf("%s: with a good token then: %v", c.name, err)
		}
		m.register()
		b.must(b.client(b.admin()).CoreV1().Nodes().Delete(t.Context(), "n2", metav1.DeleteOptions{}))
	}
	joined := b.machine("n4")
	b.must(joined.join(good))
	b.refused("another cluster's, on a machine that has joined", joined.join(foreign.create(up.TokenOptions{})), "n4", "another cluster", "kemudi reset")
}

// TestNoMoreMachinesJoinAtATimeThanMay has many join by a token for a few.
func TestNoMoreMachinesJoinAtATimeThanMay(t *testing.T) {
	b := newJoinBed(t)
	const may, come = 3, 12
	text := b.create(up.TokenOptions{Uses: may})
	token, err := join.ParseToken(text)
	b.must(err)
	machines := make([]*candidate, come)
	for i := range machines {
		machines[i] = b.machine(fmt.Sprintf("m%d", i))
	}
	var in atomic.Int32
	var wg sync.WaitGroup
	for _, m := range machines {
		wg.Go(func() {
			err := m.id.Join(t.Context(), []string{b.url}, token)
			if err == nil {
				in.Add(1)
				return
			}
			b.refused(m.name, err, "used up")
		})
	}
	wg.Wait()
	if in.Load() != may {
		t.Errorf("%d machines have joined by a token for %d", in.Load(), may)
	}
	list, err := up.Tokens(t.Context(), b.access())
	b.must(err)
	if i := slices.IndexFunc(list, func(s up.TokenState) bool { return s.ID == token.ID }); i < 0 || *list[i].UsesLeft != 0 {
		t.Errorf("tokens %+v, want that none of the uses are left", list)
	}
}

// TestJoiningGoesOnFromEachStep has machines that were killed after each file they
// write: the next start joins, by the same use of the token if the key was made.
func TestJoiningGoesOnFromEachStep(t *testing.T) {
	b := newJoinBed(t)
	for _, c := range []struct {
		after string
		lost  []string // what was not written yet
		uses  int
	}{
		{"nothing", []string{"cluster.json", "client.key", "client.crt"}, 2},
		{"the record", []string{"client.key", "client.crt"}, 2},
		{"the key", []string{"client.crt"}, 1},
		{"the certificate", nil, 1},
	} {
		name := "after-" + fmt.Sprint(len(c.lost))
		m := b.machine(name)
		token := b.create(up.TokenOptions{Uses: c.uses})
		b.must(m.join(token))
		m.register() // what a killed machine has done last, at the latest
		if c.uses > 1 {
			b.report(name, corev1.ConditionUnknown, "hardware of "+name) // with its key it has lost its name
		}
		for _, file := range c.lost {
			b.must(os.Remove(filepath.Join(m.dir, file)))
		}
		b.must(os.WriteFile(filepath.Join(m.dir, ".client.crt.123"), []byte("half of it"), 0o600))
		b.must(m.start("hardware of " + name))
		if err := m.join(token); err != nil {
			t.Errorf("killed after %s: %v", c.after, err)
			continue
		}
		if _, err := m.api().CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			t.Errorf("killed after %s: ask for its Node: %v", c.after, err)
		}
	}
}
