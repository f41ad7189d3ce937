package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/containerd/v2/version"
	"github.com/containerd/plugin"

	"github.com/kemudi/kemudi/internal/task"
)

// Embedded is containerd inside this process.
type Embedded struct {
	o      Options
	shims  *sharing
	conn   *directConn
	images atomic.Pointer[Images]
	ready  chan struct{}
	fatal  chan string // the first fatal message of containerd; buffered so that the logger never waits
}

// New prepares the embedded runtime: it unpacks the programs that containerd
// needs, unless they are there, and routes containerd's messages to the log.
// It starts nothing.
func New(o Options) (*Embedded, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	start := time.Now()
	n, err := unpackPrograms(o.binDir())
	if err != nil {
		return nil, err
	}
	if err := writeSandboxSeccomp(o); err != nil {
		return nil, err
	}
	if n > 0 {
		o.Logger.Info("unpacked container runtime", "dir", o.binDir(), "programs", n, "took", time.Since(start))
	}
	version.Version = strings.TrimSuffix(version.Version, "+unknown") // what nodes show as their runtime's version
	shims := newSharing(o)
	e := &Embedded{o: o, shims: shims, conn: &directConn{around: shims.around}, ready: make(chan struct{}), fatal: make(chan string, 1)}
	routeLogs(o, func(message string) {
		select {
		case e.fatal <- message:
		default:
		}
	})
	return e, nil
}

// Ready is closed when CRI answers and the pause image is there.
func (e *Embedded) Ready() <-chan struct{} { return e.ready }

// CRI returns the runtime's interface, called directly, without a socket.
// While Run is not running, or not ready yet, its calls fail as unavailable.
func (e *Embedded) CRI() *CRI { return newCRI(e.conn) }

// Images manages images for people, without a socket. It is nil until Ready.
func (e *Embedded) Images() *Images { return e.images.Load() }

// Run serves the runtime until ctx ends. Containers go on running, before and
// after; Run finds those of an earlier process again. It may be called once,
// and fails with ErrInUse while another process runs on the same directory.
//
// After Run the process should end: containerd keeps its connections to the
// shims until then.
func (e *Embedded) Run(ctx context.Context) (err error) {
	lock, err := lockDir(ctx, e.o.lockFile())
	if err != nil {
		return err
	}
	defer lock.Close()
	for _, dir := range []string{e.o.stateDir(), e.o.shimSockets(), e.o.registriesDir()} {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return fmt.Errorf("start container runtime: %w", err)
		}
	}
	if err := makeShimCgroup(e.o); err != nil {
		return fmt.Errorf("start container runtime: %w", err)
	}
	if err := keepHome(e.o); err != nil {
		return fmt.Errorf("start container runtime: %w", err)
	}
	if err := repairBundles(e.o); err != nil {
		return fmt.Errorf("start container runtime: %w", err)
	}
	o := chooseSnapshotter(e.o)

	// The plugins outlive ctx: they stop after the servers did.
	pluginCtx, stopPlugins := context.WithCancel(context.WithoutCancel(ctx))
	defer stopPlugins()
	p, err := loadPlugins(pluginCtx, o)
	if err != nil {
		return fmt.Errorf("start container runtime: %w", err)
	}
	defer func() {
		stopPlugins()
		err = errors.Join(err, p.close())
	}()
	if err := sweepLeases(pluginCtx, p); err != nil {
		return fmt.Errorf("start container runtime: %w", err)
	}
	s, err := newServers(o, p, e.shims.around)
	if err != nil {
		return fmt.Errorf("start container runtime: %w", err)
	}
	g := task.NewGroup(ctx)
	s.serve(g)
	g.Go("container runtime", func(ctx context.Context) error {
		defer s.stop()
		return e.supervise(ctx, o, p)
	})
	return g.Wait()
}

// supervise makes the loaded containerd ready and watches it until ctx ends.
func (e *Embedded) supervise(ctx context.Context, o Options, p *plugged) error {
	if err := e.wait(ctx, p.ready...); err != nil { // for containers of an earlier process to be found again
		return err
	}
	sweep(ctx, o)
	instance, err := p.instance(plugins.GRPCPlugin, "cri")
	if err != nil {
		return err
	}
	cri, ok := instance.(criService)
	if !ok {
		return fmt.Errorf("containerd's CRI plugin is a %T and does not speak CRI v1", instance)
	}
	e.conn.connect(ctx, cri)
	defer e.conn.cut(shutdownPatience)

	client, err := inMemoryClient(ctx, p)
	if err != nil {
		return err
	}
	images := &Images{client: client, cri: e.CRI(), snapshotter: o.Snapshotter}
	if err := sweepNetworks(ctx, o, e.CRI()); err != nil {
		return err
	}
	if err := images.ensurePause(ctx); err != nil {
		return err
	}
	e.images.Store(images)
	close(e.ready)
	return e.wait(ctx, nil)
}

// wait waits for all channels to be closed; it gives up without an error when
// ctx ends, and with one when containerd does.
func (e *Embedded) wait(ctx context.Context, channels ...chan struct{}) error {
	for _, c := range channels {
		select {
		case <-c:
		case <-ctx.Done():
			return context.Cause(ctx)
		case message := <-e.fatal:
			return fmt.Errorf("container runtime stopped: %s", message)
		}
	}
	return nil
}

// shutdownPatience is how long calls that are being answered may take to end
// when the runtime does.
const shutdownPatience = 3 * time.Second

// inMemoryClient returns a containerd client whose calls are function calls.
func inMemoryClient(ctx context.Context, p *plugged) (*containerd.Client, error) {
	ic := plugin.NewContext(ctx, p.set, nil)
	client, err := containerd.New("", containerd.WithDefaultNamespace(Namespace), containerd.WithInMemoryServices(ic))
	if err != nil {
		return nil, fmt.Errorf("connect to embedded containerd: %w", err)
	}
	return client, nil
}
