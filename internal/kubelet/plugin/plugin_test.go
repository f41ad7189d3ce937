package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/test/wait"
)

// served is a plugin that serves registration at a socket.
type served struct {
	registerapi.UnimplementedRegistrationServer
	info *registerapi.PluginInfo
	told chan *registerapi.RegistrationStatus
	deaf chan struct{} // nil: it answers; else it answers when this is closed
}

func (p *served) GetInfo(ctx context.Context, _ *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	if p.deaf != nil {
		select {
		case <-p.deaf:
		case <-ctx.Done():
		}
	}
	return p.info, nil
}

func (p *served) NotifyRegistrationStatus(_ context.Context, s *registerapi.RegistrationStatus) (*registerapi.RegistrationStatusResponse, error) {
	p.told <- s
	return &registerapi.RegistrationStatusResponse{}, nil
}

// serve has the plugin serve at a path until the returned function is called.
func (p *served) serve(t *testing.T, path string) (stop func()) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	registerapi.RegisterRegistrationServer(s, p)
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(l) })
	stop = sync.OnceFunc(func() {
		s.Stop() // which removes the socket
		wg.Wait()
	})
	t.Cleanup(stop)
	return stop
}

// handler notes what it hears.
type handler struct {
	mu struct {
		sync.Mutex
		heard  []string
		refuse error
	}
}

func (h *handler) hear(what string, p Plugin) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.heard = append(h.mu.heard, fmt.Sprintf("%s %s %s %s %v", what, p.Name, filepath.Base(p.Socket), filepath.Base(p.Endpoint), p.Versions))
}

func (h *handler) Register(_ context.Context, p Plugin) error {
	h.hear("+", p)
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.refuse
}

func (h *handler) Deregister(p Plugin) { h.hear("-", p) }

func (h *handler) refuse(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.refuse = err
}

// heard waits until the handler has heard so much and no more.
func (h *handler) heard(t *testing.T, want ...string) {
	t.Helper()
	wait.Until(t, func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if !slices.Equal(h.mu.heard, want) {
			return fmt.Errorf("heard %q, want %q", h.mu.heard, want)
		}
		return nil
	})
}

// watched is a directory of plugins that is watched until the test ends, or the function is called.
func watched(t *testing.T, h *handler) (dir string, end func()) {
	t.Helper()
	top, err := os.MkdirTemp("", "plugin") // shorter than the test's name, as the path of a socket must be
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(top) })
	dir = filepath.Join(top, "plugins_registry")
	g := task.NewGroup(t.Context())
	g.Go("watch", func(ctx context.Context) error {
		return Watch(ctx, dir, map[string]Handler{CSI: h}, slog.New(slog.NewTextHandler(io.Discard, nil)))
	})
	end = sync.OnceFunc(func() {
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(end)
	wait.Until(t, func() error {
		_, err := os.Stat(dir)
		return err
	})
	return dir, end
}

func hostpath() *served {
	return &served{told: make(chan *registerapi.RegistrationStatus, 10), info: &registerapi.PluginInfo{Type: CSI, Name: "hostpath.csi.k8s.io", Endpoint: "/csi/csi.sock", SupportedVersions: []string{"1.0.0"}}}
}

func TestPluginIsRegisteredAsLongAsItsSocketIsThere(t *testing.T) {
	h := &handler{}
	dir, end := watched(t, h)
	p := hostpath()
	stop := p.serve(t, filepath.Join(dir, "hostpath-reg.sock"))
	h.heard(t, "+ hostpath.csi.k8s.io hostpath-reg.sock csi.sock [1.0.0]")
	if s := <-p.told; !s.PluginRegistered || s.Error != "" {
		t.Errorf("the plugin was told %v, want that it is registered", s)
	}
	stop()
	h.heard(t, "+ hostpath.csi.k8s.io hostpath-reg.sock csi.sock [1.0.0]", "- hostpath.csi.k8s.io hostpath-reg.sock csi.sock [1.0.0]")
	p.serve(t, filepath.Join(dir, "hostpath-reg.sock"))
	three := []string{"+ hostpath.csi.k8s.io hostpath-reg.sock csi.sock [1.0.0]", "- hostpath.csi.k8s.io hostpath-reg.sock csi.sock [1.0.0]", "+ hostpath.csi.k8s.io hostpath-reg.sock csi.sock [1.0.0]"}
	h.heard(t, three...)
	end() // G3
	h.heard(t, three...)
}

func TestSocketMadeAnewInItsPlaceIsAnotherPlugin(t *testing.T) {
	h := &handler{}
	dir, _ := watched(t, h)
	old, path := hostpath(), filepath.Join(dir, "reg.sock")
	old.serve(t, path)
	h.heard(t, "+ hostpath.csi.k8s.io reg.sock csi.sock [1.0.0]")
	next := hostpath()
	next.info.SupportedVersions = []string{"1.1.0"}
	next.serve(t, filepath.Join(dir, ".new"))
	if err := os.Rename(filepath.Join(dir, ".new"), path); err != nil {
		t.Fatal(err)
	}
	h.heard(t, "+ hostpath.csi.k8s.io reg.sock csi.sock [1.0.0]", "- hostpath.csi.k8s.io reg.sock csi.sock [1.0.0]", "+ hostpath.csi.k8s.io reg.sock csi.sock [1.1.0]")
}

func TestPluginsInDirectoriesThatComeLaterAreFound(t *testing.T) {
	h := &handler{}
	dir, _ := watched(t, h)
	below := filepath.Join(dir, "a", "b")
	if err := os.MkdirAll(below, 0o755); err != nil {
		t.Fatal(err)
	}
	p := hostpath()
	p.info.Endpoint = "" // it serves where it registers
	stop := p.serve(t, filepath.Join(below, "r"))
	h.heard(t, "+ hostpath.csi.k8s.io r r [1.0.0]")
	stop()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	h.heard(t, "+ hostpath.csi.k8s.io r r [1.0.0]", "- hostpath.csi.k8s.io r r [1.0.0]")
	wait.Until(t, func() error { // the directory itself comes back
		_, err := os.Stat(dir)
		return err
	})
	p.serve(t, filepath.Join(dir, "r"))
	h.heard(t, "+ hostpath.csi.k8s.io r r [1.0.0]", "- hostpath.csi.k8s.io r r [1.0.0]", "+ hostpath.csi.k8s.io r r [1.0.0]")
}

func TestRefusedPluginIsToldWhyAndTriedAgain(t *testing.T) {
	h := &handler{}
	dir, _ := watched(t, h)
	h.refuse(errors.New("no version in common"))
	p := hostpath()
	p.serve(t, filepath.Join(dir, "r"))
	if s := <-p.told; s.PluginRegistered || s.Error != "RegisterPlugin error -- plugin registration failed with err: no version in common" {
		t.Errorf("the plugin was told %v, want why it is refused", s)
	}
	h.refuse(nil)
	for s := range p.told {
		if s.PluginRegistered {
			break
		}
	}
}

func TestWhatIsNoPluginHoldsUpNobody(t *testing.T) {
	h := &handler{}
	dir, _ := watched(t, h)
	deaf := hostpath()
	deaf.deaf = make(chan struct{})
	defer close(deaf.deaf)
	deaf.serve(t, filepath.Join(dir, "deaf"))
	strange := hostpath()
	strange.info.Type = "Teapot"
	strange.serve(t, filepath.Join(dir, "strange"))
	if s := <-strange.told; s.PluginRegistered || s.Error != "RegisterPlugin error -- no handler registered for plugin type: Teapot at socket "+filepath.Join(dir, "strange") {
		t.Errorf("a plugin of an unknown type was told %v", s)
	}
	hostpath().serve(t, filepath.Join(dir, ".hidden"))
	if err := os.Symlink(filepath.Join(dir, ".hidden"), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	dead, err := net.Listen("unix", filepath.Join(dir, "dead")) // left behind by one that was killed
	if err != nil {
		t.Fatal(err)
	}
	dead.(*net.UnixListener).SetUnlinkOnClose(false)
	dead.Close()
	hostpath().serve(t, filepath.Join(dir, "good"))
	h.heard(t, "+ hostpath.csi.k8s.io good csi.sock [1.0.0]")
}
