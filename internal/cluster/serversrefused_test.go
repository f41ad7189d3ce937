package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/auth/authn"
	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/join"
	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/internal/up"
	"github.com/kemudi/kemudi/internal/version"
	"github.com/kemudi/kemudi/internal/worker/settings"
	"github.com/kemudi/kemudi/test/wait"
)

// TestMachinesThatCannotBeServersAreTold what to do, and nothing has changed on either side.
func TestMachinesThatCannotBeServersAreTold(t *testing.T) {
	t.Parallel()
	trace.Proves(t, "COMP-005")
	first := newOneServer(t, "n0").start()
	good := first.token(up.TokenOptions{Server: true, Life: time.Hour})
	other, err := pki.NewAuthority("other")
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(good, ".")
	revoked, used := first.token(up.TokenOptions{Server: true}), first.token(up.TokenOptions{Server: true, Uses: 1})
	if err := up.RevokeToken(t.Context(), first.access(), revoked[:6]); err != nil {
		t.Fatal(err)
	}
	secrets := first.client().CoreV1().Secrets(metav1.NamespaceSystem)
	secret, err := secrets.Get(t.Context(), "bootstrap-token-"+used[:6], metav1.GetOptions{})
	if err == nil {
		if secret, err = authn.UseBootstrapToken(secret, "somebody's"); err == nil {
			_, err = secrets.Update(t.Context(), secret, metav1.UpdateOptions{})
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	own := newOneServer(t, "n1").start() // has a cluster of its own
	if err := own.stop(); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		token string
		with  func(s *oneServer)
		want  string
	}{
		"a token that was revoked":     {token: revoked, want: "has ended or was revoked, or it is mistyped. Make another on a server: kemudi token create --for server"},
		"a token of another cluster":   {token: parts[0] + "." + parts[1] + "." + pki.Pin(other.Cert), want: "nothing secret was sent"},
		"a mistyped token":             {token: parts[0] + ".0000000000000000." + parts[2], want: "copy the token whole"},
		"a token that is used up":      {token: used, want: "is used up; make another on a server: kemudi token create --for server"},
		"a token for agents":           {token: first.token(up.TokenOptions{}), want: "which is for agents: join as one (kemudi agent), or make another on a server: kemudi token create --for server"},
		"no token":                     {want: "make a token on one (kemudi token create --for server) and start with --server and --token"},
		"a token and no server":        {token: good, with: func(s *oneServer) { s.o.Joining.Servers = nil }, want: "name one of them (--server)"},
		"the name of the first":        {token: good, with: func(s *oneServer) { s.o.NodeName = "n0" }, want: "there is a server called n0 already"},
		"an etcd elsewhere":            {token: good, with: func(s *oneServer) { s.o.Etcd.Servers = []string{"https://192.0.2.9:2379"} }, want: "--etcd-servers: the servers of this cluster keep the store themselves"},
		"a key of its own for tokens":  {token: good, with: func(s *oneServer) { s.o.Identity.SigningKey = filepath.Join(own.o.DataDir, "pki", "sa.key") }, want: "--service-account-signing-key-file: "},
		"data of a cluster of its own": {token: good, with: func(s *oneServer) { s.o.DataDir = own.o.DataDir }, want: "has the data of another cluster than that of token"},
		"such data, and no pin":        {token: parts[0] + "." + parts[1], with: func(s *oneServer) { s.o.DataDir = own.o.DataDir }, want: "has the data of a cluster already"},
		"data of an agent":             {token: good, with: func(s *oneServer) { makeDir(s.T, filepath.Join(s.o.DataDir, "identity")) }, want: "has the data of an agent"},
		"another domain":               {token: good, with: func(s *oneServer) { s.o.Joining.Said.ClusterDomain = "k8s.example" }, want: "--cluster-domain k8s.example: the cluster has cluster.local"},
		"plugins that the others lack": {token: good, with: func(s *oneServer) {
			s.told("enable-admission-plugins", func() { s.o.API.Plugins.Enable = []string{"AlwaysPullImages"} })
		}, want: "--enable-admission-plugins AlwaysPullImages: the other servers have none"},
		"a join that was cut off":          {with: func(s *oneServer) { s.o.Joining.Servers = nil; note(s, standing{Joining: true}) }, want: "start it again with --server and --token"},
		"a removal":                        {with: func(s *oneServer) { s.o.Joining.Servers = nil; note(s, standing{Removed: true}) }, want: "this server was removed from its cluster"},
		"another name than it joined with": {with: func(s *oneServer) { note(s, standing{Name: "web", Joined: true}) }, want: "start it with --node-name web"},
		"keys that are gone": {with: func(s *oneServer) {
			note(s, standing{Joined: true})
			text := []byte("clusterCIDRs: [10.244.0.0/16]\nserviceCIDRs: [10.96.0.0/16]\nclusterDNS: 10.96.0.10\nclusterDomain: cluster.local\n")
			if err := os.WriteFile(filepath.Join(s.o.DataDir, "cluster.yaml"), text, 0o600); err != nil {
				s.Fatal(err)
			}
		}, want: "put back a copy of one"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newOneServer(t, "n9").by(first, tc.token)
			if tc.with != nil {
				tc.with(s)
			}
			if got := s.begin().ends(); !strings.Contains(got, tc.want) {
				t.Errorf("got %s, want %s", got, tc.want)
			}
			if s.o.DataDir != own.o.DataDir {
				if _, err := os.Stat(filepath.Join(s.o.DataDir, "etcd")); err == nil {
					t.Error("it has a store")
				}
			}
		})
	}
	if got := first.members(); got != "n0 voter" {
		t.Errorf("got members %s, want n0 alone", got)
	}
	if _, err := os.Stat(filepath.Join(first.o.DataDir, memberFile)); err == nil {
		t.Error("the first server has become one of several")
	}
	if err := own.start().stop(); err != nil { // its cluster is as it was
		t.Error(err)
	}
}

func TestServersAreOneMinorVersionApartAtMost(t *testing.T) {
	first := newOneServer(t, "n0").start()
	token, err := join.ParseToken(first.token(up.TokenOptions{Server: true}))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []string{"v1.35.9", "v1.39.0", "new"} {
		ask := join.Server{Servers: []string{first.url()}, Token: token, Log: first.o.Logger}
		_, err := ask.Ask(t.Context(), join.ServerRequest{Name: "n1", Version: v, Key: "k", URL: "https://127.0.0.1:1"})
		if err == nil || !strings.Contains(err.Error(), "version") {
			t.Errorf("%s: got %v", v, err)
		}
	}
	if minor, err := version.Minor(version.Git()); err != nil || minor != 37 {
		t.Errorf("got minor version %d, %v, want 37: change the versions above as well", minor, err)
	}
}

func TestServerTakesOverWhatTheClusterIsLike(t *testing.T) {
	t.Parallel()
	first := newOneServer(t, "n0")
	first.o.Network.ClusterDomain = "k8s.example"
	first.o.Network.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.97.0.0/16")}
	first.o.Network.NodePorts = PortRange{First: 31000, Last: 31999}
	first.start()
	second := newOneServer(t, "n1").by(first, first.token(up.TokenOptions{Server: true})).start()
	service, err := second.client().CoreV1().Services("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
	if err != nil || service.Spec.ClusterIP != "10.97.0.1" {
		t.Errorf("got service %v, %v; want 10.97.0.1", service, err)
	}
	if err := second.stop(); err != nil {
		t.Error(err)
	}
	second.o.Joining.Said.ClusterDomain = "cluster.local"
	if got := second.begin().ends(); !strings.Contains(got, "--cluster-domain cluster.local: the cluster has k8s.example") {
		t.Errorf("told otherwise when it starts again: got %s", got)
	}
}

// oneOfTwo are two servers, of which the second has stopped after something was written.
func oneOfTwo(t *testing.T) (runs, stopped *oneServer) {
	t.Helper()
	first := newOneServer(t, "n0").start()
	second := newOneServer(t, "n1").by(first, first.token(up.TokenOptions{Server: true})).start()
	first.write("both")
	if err := second.stop(); err != nil {
		t.Error(err)
	}
	return first, second
}

func TestLastServerOfALostMajorityGoesOnAlone(t *testing.T) {
	t.Parallel()
	first, _ := oneOfTwo(t)
	machine := first.o.Machine
	if err := Recover(t.Context(), machine); err == nil || !strings.Contains(err.Error(), "stop it first (kemudi down)") {
		t.Errorf("while it runs: got %v", err)
	}
	if err := first.stop(); err != nil {
		t.Error(err)
	}
	first.begin() // and waits
	wait.Until(t, func() error {
		is, err := up.Status(t.Context(), up.Options{DataDir: machine.DataDir, RunDir: machine.RunDir})
		for _, want := range []string{"no majority of the 2 servers", "n1 (https://127.0.0.1:", "start them", "kemudi member recover"} {
			if err == nil && !strings.Contains(is.Problem, want) {
				err = fmt.Errorf("a server without a majority: got status %+v, want %s", is, want)
			}
		}
		return err
	})
	if err := first.stop(); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Recover(ctx, machine); err == nil {
		t.Error("it was done after it was interrupted")
	}
	if err := Recover(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	if err := Recover(t.Context(), machine); err == nil || !strings.Contains(err.Error(), "nothing to recover from") {
		t.Errorf("once more: got %v", err)
	}
	first.start().sees("both")
	first.write("alone")
	if got := first.members(); got != "n0 voter" {
		t.Errorf("got members %s, want n0 alone", got)
	}
	newOneServer(t, "n2").by(first, first.token(up.TokenOptions{Server: true})).start().sees("both", "alone")
}

// TestTheRemovalOfTheOtherOfTwoCountsAtTheNextStart removes one of two servers that is down: nobody agrees, until
// the one that stays is started anew.
func TestTheRemovalOfTheOtherOfTwoCountsAtTheNextStart(t *testing.T) {
	t.Parallel()
	first, second := oneOfTwo(t)
	for range 5 {
		if _, err := up.RemoveMember(t.Context(), first.access(), "n1"); err == nil || !strings.Contains(err.Error(), "kemudi member recover") {
			t.Errorf("remove the other one of two: got %v", err)
		}
		if err := first.stop(); err != nil {
			t.Error(err)
		}
		if !first.begin().waitsFor("n1") {
			break
		}
		// The removal stands in no log: when it came, n0 had missed n1 for so long that it led no more.
		second.start()
		<-first.ready
		if err := second.stop(); err != nil {
			t.Error(err)
		}
	}
	first.sees("both")
	first.write("alone")
	if got := first.members(); got != "n0 voter" {
		t.Errorf("got members %s, want n0 alone", got)
	}
	if said := second.begin().ends(); !strings.Contains(said, "was removed") {
		t.Errorf("who was removed ends with %q", said)
	}
}

// waitsFor reports, as soon as the server is ready or says what it waits for, whether that is another server.
func (s *oneServer) waitsFor(other string) (waits bool) {
	s.Helper()
	wait.Until(s.T, func() error {
		select {
		case <-s.ready:
			return nil
		default:
		}
		is, err := up.Status(s.Context(), up.Options{DataDir: s.o.DataDir, RunDir: s.o.RunDir})
		waits = err == nil && strings.Contains(is.Problem, other+" (https://")
		if err == nil && !waits {
			err = fmt.Errorf("%s is not ready, and says only %q", s.o.NodeName, is.Problem)
		}
		return err
	})
	return waits
}

func makeDir(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
}

// note gives a server that does not run a place.
func note(s *oneServer, at standing) {
	s.Helper()
	if err := newMembership(s.o.DataDir).set(at); err != nil {
		s.Fatal(err)
	}
}

// told sets an option as its flag does.
func (s *oneServer) told(flag string, set func()) {
	set()
	s.o.Say(func(name string) bool { return name == flag })
}

func TestServersDoAlikeWhatTheyAreToldOnce(t *testing.T) {
	off := map[string]bool{"batch/v1": false}
	first := newOneServer(t, "n0")
	first.told("runtime-config", func() { first.o.API.RuntimeConfig = off })
	first.o.API.Plugins.Enable = []string{"AlwaysPullImages"}
	first.o.Controllers.NodeIPAM.Bits4 = 26
	first.start()
	second := newOneServer(t, "n1").by(first, first.token(up.TokenOptions{Server: true})).start()
	serves := func(s *oneServer) bool {
		_, err := s.client().Discovery().ServerResourcesForGroupVersion("batch/v1")
		return err == nil
	}
	if serves(second) {
		t.Error("a server that joins serves what the others do not")
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "web", ImagePullPolicy: corev1.PullNever}}},
	}
	wait.Until(t, func() (err error) {
		if pod, err = second.client().CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err == nil && pod.Spec.Containers[0].ImagePullPolicy != corev1.PullAlways {
			t.Errorf("got %s: the plugin AlwaysPullImages is off on a server that joins", pod.Spec.Containers[0].ImagePullPolicy)
		}
		return err
	})

	if err := second.stop(); err != nil {
		t.Error(err)
	}
	second.o.Joining.Servers, second.o.Joining.Token = nil, join.Token{}
	second.told("runtime-config", func() { second.o.API.RuntimeConfig = map[string]bool{"batch/v1": true} })
	const want = "--runtime-config batch/v1=true: the other servers have batch/v1=false; "
	if why := second.begin().ends(); !strings.Contains(why, want) {
		t.Errorf("told otherwise while the first runs: got %s, want %s", why, want)
	}
	// The first, too, though it has begun the cluster; and what it is not told any more it goes on with.
	second.told("", func() { second.o.API.RuntimeConfig = nil })
	second.start()
	if err := first.stop(); err != nil {
		t.Error(err)
	}
	first.told("", func() {
		first.o.API.RuntimeConfig, first.o.API.Plugins.Enable, first.o.Controllers.NodeIPAM.Bits4 = nil, nil, 0
	})
	first.start()
	if serves(first) {
		t.Error("a server that is told nothing does what the others do not")
	}
	text, err := first.client().CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(t.Context(), settings.ConfigMap, metav1.GetOptions{})
	if err != nil || !strings.Contains(text.Data[settings.Key], `node-cidr-mask-size-ipv4: "26"`) {
		t.Errorf("got %v, %v", text, err)
	}
}

func TestAServerThatIsLeftAloneDoesWhatItIsTold(t *testing.T) {
	s := newOneServer(t, "n0")
	s.told("runtime-config", func() { s.o.API.RuntimeConfig = map[string]bool{"batch/v1": false} })
	if err := s.start().stop(); err != nil {
		t.Error(err)
	}
	s.told("", func() { s.o.API.RuntimeConfig = nil })
	s.start()
	if _, err := s.client().Discovery().ServerResourcesForGroupVersion("batch/v1"); err != nil {
		t.Errorf("batch/v1 is off after a start that does not say so: %v", err)
	}
}
