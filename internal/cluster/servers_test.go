package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kemudi/kemudi/internal/inquiry"
	"github.com/kemudi/kemudi/internal/join"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/internal/up"
	"github.com/kemudi/kemudi/test/port"
	"github.com/kemudi/kemudi/test/wait"
)

// oneServer is a server without a node, on ports of the loopback link.
type oneServer struct {
	*testing.T
	o     Options
	g     *task.Group
	ready chan struct{}
}

func newOneServer(t *testing.T, name string) *oneServer {
	t.Helper()
	dir, err := os.MkdirTemp("", "k") // t.TempDir is too long for a run directory
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	local := netip.MustParseAddr("127.0.0.1")
	s := &oneServer{T: t, o: Options{
		Machine: Machine{
			DataDir: dir + "/data", RunDir: dir + "/run", NodeName: name, NodeIP: netip.MustParseAddr("192.0.2.1"), Logger: slog.New(slog.DiscardHandler),
		},
		NoNode: true, BindAddress: local, SecurePort: port.Reserve(t), Joining: Joining{PeerAddress: local, PeerPort: port.Reserve(t)},
	}}
	t.Cleanup(func() { _ = s.stop() })
	return s
}

// by has the server join others by a token when it starts next.
func (s *oneServer) by(other *oneServer, token string) *oneServer {
	s.Helper()
	s.o.Joining.Servers = []string{other.url()}
	if token != "" {
		var err error
		if s.o.Joining.Token, err = join.ParseToken(token); err != nil {
			s.Fatal(err)
		}
	}
	return s
}

func (s *oneServer) url() string { return fmt.Sprintf("https://127.0.0.1:%d", s.o.SecurePort) }

// begin starts the server, again if it has been stopped. What it was told of others it knows from then on.
func (s *oneServer) begin() *oneServer {
	s.Helper()
	s.ready = make(chan struct{})
	o, ready := s.o, s.ready
	o.Step = func(_ string, done bool) {
		if done {
			close(ready)
		}
	}
	s.g = task.NewGroup(s.Context())
	s.g.Go("server", func(ctx context.Context) error {
		if err := Run(ctx, o); err != nil {
			return err
		}
		return errEnded
	})
	return s
}

// start starts the server and waits until it serves.
func (s *oneServer) start() *oneServer {
	s.Helper()
	s.begin()
	select {
	case <-s.ready:
	case <-s.g.Context().Done():
		s.Fatalf("start %s: %v", s.o.NodeName, context.Cause(s.g.Context()))
	case <-time.After(wait.Patience):
		s.Fatalf("%s is not ready after %s", s.o.NodeName, wait.Patience)
	}
	return s
}

// ends waits until the server ends by itself, and returns why.
func (s *oneServer) ends() string {
	s.Helper()
	select {
	case <-s.g.Context().Done():
		return fmt.Sprint(s.g.Wait())
	case <-time.After(wait.Patience):
		s.Fatalf("%s still runs after %s", s.o.NodeName, wait.Patience)
		return ""
	}
}

// stop stops the server, if it runs.
func (s *oneServer) stop() error {
	if s.g == nil {
		return nil
	}
	s.g.Cancel(context.Canceled)
	if err := s.g.Wait(); !errors.Is(err, errEnded) {
		return err
	}
	return nil
}

// errEnded ends the group of a server that has ended without an error.
var errEnded = errors.New("it has ended")

func (s *oneServer) access() up.Access { return up.Access{DataDir: s.o.DataDir} }

func (s *oneServer) client() kubernetes.Interface {
	s.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", up.AdminKubeconfig(s.o.DataDir))
	if err != nil {
		s.Fatal(err)
	}
	config.QPS = -1
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		s.Fatal(err)
	}
	return c
}

// write makes a ConfigMap, as soon as the servers take writes.
func (s *oneServer) write(name string) {
	s.Helper()
	wait.Until(s, func() error {
		_, err := s.client().CoreV1().ConfigMaps("default").Create(s.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		switch {
		case apierrors.IsInvalid(err):
			s.Fatal(err)
		case apierrors.IsAlreadyExists(err): // the answer was lost
			return nil
		}
		return err
	})
}

// sees waits until the server has them all.
func (s *oneServer) sees(names ...string) {
	s.Helper()
	for _, name := range names {
		wait.Until(s, func() error {
			if _, err := s.client().CoreV1().ConfigMaps("default").Get(s.Context(), name, metav1.GetOptions{}); err != nil {
				return fmt.Errorf("read %s from %s: %w", name, s.o.NodeName, err)
			}
			return nil
		})
	}
}

// token makes a token for servers.
func (s *oneServer) token(o up.TokenOptions) string {
	s.Helper()
	t, err := up.CreateToken(s.Context(), s.access(), o)
	if err != nil {
		s.Fatal(err)
	}
	return t.Token
}

// members are the names of the servers, each with its role.
func (s *oneServer) members() string {
	s.Helper()
	list, err := up.Members(s.Context(), s.access())
	if err != nil {
		s.Fatal(err)
	}
	var text []string
	for _, m := range list {
		if m.Role == "leader" {
			m.Role = "voter"
		}
		text = append(text, m.Name+" "+m.Role)
	}
	return strings.Join(text, ", ")
}

func TestOneServerBecomesThreeAndOneAgain(t *testing.T) {
	t.Parallel()
	trace.Proves(t, "COMP-003", "COMP-005")
	first := newOneServer(t, "n0").start()
	if got := first.members(); got != "n0 voter" {
		t.Errorf("got members %s, want n0 alone", got)
	}
	if _, err := os.Stat(filepath.Join(first.o.DataDir, memberFile)); err == nil {
		t.Error("a single server notes that it is one of several")
	}
	first.write("before")
	token := first.token(up.TokenOptions{Server: true, Uses: 2, Life: time.Hour})

	second := newOneServer(t, "n1").by(first, token).start()
	second.sees("before")
	second.write("second")
	first.sees("second")
	third := newOneServer(t, "n2").by(second, token).start() // any server takes others in
	third.sees("before", "second")
	third.write("third")
	all := []*oneServer{first, second, third}
	for _, s := range all {
		s.sees("before", "second", "third")
		if got, want := s.members(), "n0 voter, n1 voter, n2 voter"; got != want {
			t.Errorf("got members %s, want %s", got, want)
		}
	}

	ask := func(asker string) error {
		return first.client().CoreV1().RESTClient().Get().AbsPath(inquiry.Path).Param("asker", asker).Do(t.Context()).Error()
	}
	for asker, want := range map[string]string{"": "hexadecimal", "it": "hexadecimal", "1f": ""} { // the last one asks for no connection
		if err := ask(asker); !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("how far the store is, asked by %q: got %v, want a bad request: %s", asker, err, want)
		}
	}

	checkSnapshot(t, first)

	// Two of three go on, and who comes back needs neither server nor token.
	if err := second.stop(); err != nil {
		t.Error(err)
	}
	first.write("without-the-second")
	second.o.Joining.Servers, second.o.Joining.Token = nil, join.Token{}
	second.o.Joining.PeerPort = port.Reserve(t) // nor the address that it had
	second.start().sees("before", "second", "third", "without-the-second")

	if _, err := up.RemoveMember(t.Context(), first.access(), "n2"); err != nil {
		t.Fatal(err)
	}
	const says = "this server was removed from its cluster"
	if why := third.ends(); !strings.Contains(why, says) {
		t.Errorf("a server that was removed ends with %s", why)
	}
	third.o.Joining.Servers, third.o.Joining.Token = nil, join.Token{}
	if why := third.begin().ends(); !strings.Contains(why, says) {
		t.Errorf("started again it ends with %s", why)
	}
	first.write("with-two")
	// The other one takes itself out.
	if _, err := up.RemoveMember(t.Context(), second.access(), "n1"); err != nil {
		t.Fatal(err)
	}
	if why := second.ends(); !strings.Contains(why, says) {
		t.Errorf("a server that removed itself ends with %s", why)
	}
	wait.Until(t, func() error {
		m, err := openMembership(first.o.DataDir)
		if err == nil && m.get().Several {
			err = errors.New("the first server still has a port for others")
		}
		return err
	})
	first.sees("before", "second", "third", "without-the-second", "with-two")
	first.write("alone")

	// Who was removed joins again by another token, and the first was never stopped.
	third.by(first, first.token(up.TokenOptions{Server: true})).start()
	third.sees("alone", "third")
	select {
	case <-first.g.Context().Done():
		t.Errorf("the first server has ended: %v", first.g.Wait())
	default:
	}
}
