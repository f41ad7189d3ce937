package etcd

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/store/storetest"
	"github.com/kemudi/kemudi/test/port"
	"github.com/kemudi/kemudi/test/wait"
)

// authority signs certificates of members.
type authority struct {
	dir     string
	key     *ecdsa.PrivateKey
	cert    *x509.Certificate
	issuing sync.Mutex
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "etcd-ca"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.key, a.cert = a.sign(t, template, "ca")
	return a
}

// sign writes a certificate and its key below the authority's directory.
func (a *authority) sign(t testing.TB, template *x509.Certificate, name string) (*ecdsa.PrivateKey, *x509.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	parent, by := template, key
	if a.key != nil {
		parent, by = a.cert, a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		name + ".crt": {Type: "CERTIFICATE", Bytes: der}, name + ".key": {Type: "PRIVATE KEY", Bytes: secret},
	} {
		if err := os.WriteFile(filepath.Join(a.dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return key, cert
}

// peer is a Peer at a port of the loopback that is the test's.
func (a *authority) peer(t testing.TB, name string) Peer {
	t.Helper()
	a.renew(t, name)
	file := func(ext string) string { return filepath.Join(a.dir, name+ext) }
	return Peer{
		Listen: "https://" + port.Address(t), CertFile: file(".crt"), KeyFile: file(".key"),
		CAFile: filepath.Join(a.dir, "ca.crt"), ServerName: "member",
	}
}

// issue makes sure that a certificate and its key are there.
func (a *authority) issue(t testing.TB, name string) (cert, key, ca string) {
	t.Helper()
	a.issuing.Lock()
	defer a.issuing.Unlock()
	file := func(name string) string { return filepath.Join(a.dir, name) }
	if _, err := os.Stat(file(name + ".key")); err != nil {
		a.renew(t, name)
	}
	return file(name + ".crt"), file(name + ".key"), file("ca.crt")
}

func (a *authority) renew(t testing.TB, name string) {
	t.Helper()
	a.sign(t, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{"member"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, name)
}

// within bounds what a test waits for.
func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), wait.Patience, errors.New("the test's time is over"))
	t.Cleanup(cancel)
	return ctx
}

// trio are the members of one store.
type trio struct {
	testing.TB
	sync    bool // they wait for the disk
	ca      *authority
	links   *links // between the members; nil: they reach each other by TLS
	options []Options
	servers []*Server
	stops   []func()
}

// newTrio grows one member to n.
func newTrio(t testing.TB, n int) *trio {
	t.Helper()
	return (&trio{TB: t, ca: newAuthority(t)}).grow(n)
}

// newTrioOver grows one member to n that reach each other by links.
func newTrioOver(t *testing.T, l *links, n int) *trio {
	t.Helper()
	return (&trio{TB: t, links: l}).grow(n)
}

func (tr *trio) grow(n int) *trio {
	tr.Helper()
	o := Options{Dir: tr.TempDir(), Name: "m0", NoSync: !tr.sync}
	s, stop := run(tr, o)
	o.Peer = tr.peer("m0")
	if err := s.SetPeer(within(tr), o.Peer); err != nil {
		tr.Fatal(err)
	}
	tr.options, tr.servers, tr.stops = []Options{o}, []*Server{s}, []func(){stop}
	tr.called(s)
	for range n - 1 {
		tr.join()
	}
	return tr
}

func (tr *trio) peer(name string) Peer {
	tr.Helper()
	if tr.links != nil {
		return tr.links.peer(name)
	}
	return tr.ca.peer(tr, name)
}

// called tells the links whose connections are a member's.
func (tr *trio) called(s *Server) {
	tr.Helper()
	if tr.links == nil {
		return
	}
	id, err := s.Self(within(tr))
	if err != nil {
		tr.Fatal(err)
	}
	tr.links.named(id, s.o.Name)
}

// join adds a member.
func (tr *trio) join() *Server {
	tr.Helper()
	name := fmt.Sprintf("m%d", len(tr.servers))
	peer := tr.peer(name)
	at, cluster, err := tr.servers[0].AddLearner(within(tr), name, peer.advertised())
	if err != nil {
		tr.Fatal(err)
	}
	if tr.links != nil {
		tr.links.named(at.ID, name)
	}
	o := Options{Dir: tr.TempDir(), Name: name, NoSync: !tr.sync, Peer: peer, Join: cluster}
	s, stop := run(tr, o)
	if err := tr.servers[0].Promote(within(tr), at.ID); err != nil {
		tr.Fatal(err)
	}
	tr.options, tr.servers, tr.stops = append(tr.options, o), append(tr.servers, s), append(tr.stops, stop)
	return s
}

// restart stops a member and starts it again.
func (tr *trio) restart(i int) *Server {
	tr.Helper()
	tr.stops[i]()
	tr.servers[i], tr.stops[i] = run(tr, tr.options[i])
	return tr.servers[i]
}

// leader is the place of the member that leads.
func (tr *trio) leader() int {
	tr.Helper()
	leads := -1
	eventually(tr, "a leader", func() bool {
		for i, s := range tr.servers {
			m, leave, err := s.here(tr.Context())
			if err != nil {
				continue
			}
			if m.srv.Leader() == m.srv.MemberID() {
				leads = i
			}
			leave()
		}
		return leads >= 0
	})
	return leads
}

func TestOneMemberGrowsToThreeAndBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca := newAuthority(t)
	s, stop := run(t, Options{Dir: dir, Name: "m0", NoSync: true})
	write(t, s, "/before", "x")
	stop()
	tr := &trio{TB: t, ca: ca}
	s, stop = run(t, Options{Dir: dir, Name: "m0", NoSync: true})
	tr.servers, tr.stops = []*Server{s}, []func(){stop}

	// Callers wait while the member is opened anew, and feeds go on.
	feed := make(chan string, 100_000)
	go func() {
		_ = s.Watch(t.Context(), "/", 1, func(changes []store.Change, _ int64) error {
			for _, c := range changes {
				feed <- c.Key
			}
			return nil
		})
	}()
	ended, quit := make(chan struct{}), make(chan struct{})
	n := 0
	go func() {
		defer close(ended)
		for ; ; n++ {
			select {
			case <-quit:
				return
			case <-time.After(5 * time.Millisecond):
				write(t, s, fmt.Sprintf("/during/%d", n), "x")
			}
		}
	}()
	if err := s.SetPeer(within(t), ca.peer(t, "m0")); err != nil {
		t.Fatal(err)
	}
	tr.join()
	tr.join()
	close(quit)
	<-ended
	for _, s := range tr.servers {
		page, err := s.List(within(t), "/during/", store.ListOptions{})
		if err != nil || len(page.KVs) != n {
			t.Errorf("got %d keys, %v; want %d", len(page.KVs), err, n)
		}
	}
	expectFeed(t, feed, n)
	write(t, tr.servers[2], "/third", "x")
	if kv, _, err := tr.servers[1].Get(within(t), "/third"); err != nil || kv.Rev == 0 {
		t.Errorf("read by the second what the third has answered: got %+v, %v", kv, err)
	}

	// One leaves by itself, the other is removed.
	if err := s.SetPeer(within(t), Peer{}); !errors.Is(err, ErrMember) {
		t.Errorf("a member of three without an address: got %v, want ErrMember", err)
	}
	for i, by := range []int{1: 1, 2: 0} {
		if i == 0 {
			continue
		}
		id, err := tr.servers[i].Self(within(t))
		if err != nil {
			t.Fatal(err)
		}
		if err := tr.servers[by].Remove(within(t), id); err != nil {
			t.Fatalf("remove %d by %d: %v", i, by, err)
		}
		select {
		case <-tr.servers[i].stopped:
		case <-within(t).Done():
			t.Fatalf("%d does not notice that it was removed", i)
		}
	}
	if err := s.SetPeer(within(t), Peer{}); err != nil {
		t.Fatal(err)
	}
	write(t, s, "/after", "x")
	stop()
	s, _ = run(t, Options{Dir: dir, Name: "m0", NoSync: true})
	c, err := s.Members(within(t))
	if err != nil || len(c.Members) != 1 || c.Members[0].URL != peerURL {
		t.Errorf("got members %+v, %v; want one", c, err)
	}
	page, err := s.List(within(t), "/during/", store.ListOptions{})
	if err != nil || len(page.KVs) != n {
		t.Errorf("after all: got %d keys, %v; want %d", len(page.KVs), err, n)
	}
}

// expectFeed expects the keys /during/0 to /during/n-1 in their order.
func expectFeed(t *testing.T, feed <-chan string, n int) {
	t.Helper()
	last := ""
	for want := 0; want < n; {
		key := <-feed
		if key == "/before" || key == last { // what was unknown may have been written twice
			continue
		}
		if key != fmt.Sprintf("/during/%d", want) {
			t.Fatalf("feed: got %s, want /during/%d", key, want)
		}
		last = key
		want++
	}
}

func TestAMemberThatNoneCanReachAddsNone(t *testing.T) {
	s, _ := run(t, Options{Dir: t.TempDir(), NoSync: true})
	if _, _, err := s.AddLearner(within(t), "m1", "https://127.0.0.1:1"); !errors.Is(err, ErrMember) {
		t.Errorf("got %v, want ErrMember", err)
	}
}

func TestOneOfSeveralPassesTheSuite(t *testing.T) {
	ca := newAuthority(t)
	storetest.Run(t, func(t *testing.T) store.Store {
		s, _ := run(t, Options{Dir: t.TempDir(), Name: "m0", NoSync: true, Peer: ca.peer(t, strings.ReplaceAll(t.Name(), "/", " "))})
		return s
	})
}

func TestOneGoesOnAloneWhenTheMajorityIsLost(t *testing.T) {
	t.Parallel()
	tr := newTrio(t, 3)
	for i := range 20 {
		write(t, tr.servers[0], fmt.Sprintf("/%d", i), "x")
	}
	if err := tr.servers[0].HandOver(within(t)); err != nil { // what it has lost is as good as any
		t.Fatal(err)
	}
	tr.stops[1]()
	tr.stops[2]()
	s := tr.servers[0]
	eventually(t, "no majority", func() bool { return errors.Is(tryWrite(within(t), s, "/lost", "x"), store.ErrNoMajority) })

	// It has been started again meanwhile, and has found nobody.
	tr.stops[0]()
	s, err := New(Options{Dir: tr.options[0].Dir, Name: "m0", NoSync: true, Peer: tr.options[0].Peer, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	if err := tryWrite(within(t), s, "/lost", "x"); !errors.Is(err, store.ErrNoMajority) {
		t.Errorf("write after a start without a majority: got %v, want ErrNoMajority", err)
	}
	if err := s.ForceNew(within(t)); err != nil {
		t.Fatal(err)
	}
	if c, err := s.Members(within(t)); err != nil || len(c.Members) != 1 {
		t.Errorf("got members %+v, %v; want one", c, err)
	}
	write(t, s, "/after", "x")
	page, err := s.List(within(t), "/", store.ListOptions{})
	if err != nil || len(page.KVs) != 21 {
		t.Errorf("got %d keys, %v; want 21", len(page.KVs), err)
	}

	// Those who are lost come back, are told that they are not members any more, and disturb nobody.
	for i := 1; i <= 2; i++ {
		o := tr.options[i]
		o.Log = slog.New(slog.DiscardHandler)
		back, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := back.Run(within(t)); !errors.Is(err, ErrRemoved) || !strings.Contains(err.Error(), o.Dir) {
			t.Errorf("a member that was given up: got %v, want ErrRemoved and what to do", err)
		}
	}
	write(t, s, "/after", "y")

	// New ones can join.
	tr.servers[0] = s
	write(t, tr.join(), "/joined", "x")
}

func TestAMemberThatWasRemovedStaysOut(t *testing.T) {
	t.Parallel()
	tr := newTrio(t, 2)
	id, err := tr.servers[1].Self(within(t))
	if err != nil {
		t.Fatal(err)
	}
	tr.stops[1]() // it does not hear of it
	// Two of two are needed to remove one.
	if err := tryWrite(within(t), tr.servers[0], "/a", "x"); err == nil {
		t.Error("one of two takes writes")
	}
	tr.restart(1)
	if err := tr.servers[0].Remove(within(t), id); err != nil {
		t.Fatal(err)
	}
	select {
	case <-tr.servers[1].stopped:
	case <-within(t).Done():
		t.Fatal("it does not notice that it was removed")
	}
	for range 2 { // it stays so
		o := tr.options[1]
		o.Log = slog.New(slog.DiscardHandler)
		s, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Run(within(t)); !errors.Is(err, ErrRemoved) {
			t.Errorf("start of a member that was removed: got %v, want ErrRemoved", err)
		}
	}
	if err := tr.servers[0].Remove(within(t), id); err != nil {
		t.Errorf("remove what is gone: %v", err)
	}
	self, err := tr.servers[0].Self(within(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.servers[0].Remove(within(t), self); !errors.Is(err, ErrMember) {
		t.Errorf("remove the last member: got %v, want ErrMember", err)
	}
}

func TestDataOfAnotherClusterIsRefused(t *testing.T) {
	other := t.TempDir()
	s, stop := run(t, Options{Dir: other, Name: "m1", NoSync: true})
	write(t, s, "/other", "x")
	stop()
	tr := newTrio(t, 1)
	peer := tr.peer("m1")
	_, cluster, err := tr.servers[0].AddLearner(within(t), "m1", peer.Listen)
	if err != nil {
		t.Fatal(err)
	}
	s, err = New(Options{Dir: other, Name: "m1", NoSync: true, Peer: peer, Join: cluster, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(within(t)); !errors.Is(err, ErrOtherCluster) || !strings.Contains(err.Error(), "empty data directory") {
		t.Errorf("got %v, want ErrOtherCluster and what to do", err)
	}
	s, _ = run(t, Options{Dir: other, Name: "m1", NoSync: true})
	if kv, _, err := s.Get(within(t), "/other"); err != nil || string(kv.Value) != "x" {
		t.Errorf("its own data afterwards: got %q, %v", kv.Value, err)
	}
}

func TestDataOfSeveralIsRefusedByWhoReachesNobody(t *testing.T) {
	t.Parallel()
	tr := newTrio(t, 2)
	tr.stops[0]()
	o := tr.options[0]
	o.Peer, o.Log = Peer{}, slog.New(slog.DiscardHandler)
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(within(t)); !errors.Is(err, ErrMember) || !strings.Contains(err.Error(), "cluster of 2 members") {
		t.Errorf("got %v, want ErrMember and how many there are", err)
	}
}

func TestStrangersAreNoMembers(t *testing.T) {
	tr := newTrio(t, 1)
	stranger := newAuthority(t).peer(t, "m1")
	at, cluster, err := tr.servers[0].AddLearner(within(t), "m1", stranger.Listen)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Options{Dir: t.TempDir(), Name: "m1", NoSync: true, Peer: stranger, Join: cluster, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(within(t)); err == nil || !strings.Contains(err.Error(), "join the other members") {
		t.Errorf("got %v, want a refusal", err)
	}
	write(t, tr.servers[0], "/a", "x")
	if err := tr.servers[0].Remove(within(t), at.ID); err != nil {
		t.Errorf("remove who never came: %v", err)
	}
}

func TestCertificatesOfMembersCanBeRenewed(t *testing.T) {
	t.Parallel()
	tr := newTrio(t, 2)
	for i := range tr.servers {
		tr.ca.renew(t, tr.options[i].Name)
	}
	tr.restart(1)
	write(t, tr.servers[1], "/a", "x")
}

func TestACleanStopHandsOver(t *testing.T) {
	t.Parallel()
	tr := newTrio(t, 3)
	old := tr.leader()
	write(t, tr.servers[old], "/a", "x")
	start := time.Now()
	tr.stops[old]()
	next := tr.servers[(old+1)%3]
	eventually(t, "a write after a clean stop of the leader", func() bool { return tryWrite(within(t), next, "/a", "y") == nil })
	t.Logf("writes again %s after the stop began", time.Since(start))
}

func TestBadPeersAreRefused(t *testing.T) {
	s, _ := run(t, Options{Dir: t.TempDir(), NoSync: true})
	for name, p := range map[string]Peer{
		"no address":         {CertFile: "a"},
		"no port":            {Listen: "https://127.0.0.1", CertFile: "a", KeyFile: "b", CAFile: "c"},
		"another protocol":   {Listen: "ftp://127.0.0.1:1", CertFile: "a", KeyFile: "b", CAFile: "c"},
		"no certificate":     {Listen: "https://127.0.0.1:1"},
		"no file":            {Listen: "https://" + port.Address(t), CertFile: "/nonexistent", KeyFile: "/nonexistent", CAFile: "/nonexistent"},
		"an address of none": {Listen: "https://192.0.2.1:2380", CertFile: "/nonexistent", KeyFile: "/nonexistent", CAFile: "/nonexistent"},
	} {
		if err := s.SetPeer(within(t), p); err == nil {
			t.Errorf("%s: got no error", name)
		}
		write(t, s, "/a", name) // all is as it was
	}
}
