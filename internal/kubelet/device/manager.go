package device

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/types"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kemudi/kemudi/internal/kubelet/device/checkpoint"
	"github.com/kemudi/kemudi/internal/kubelet/plugin"
	"github.com/kemudi/kemudi/internal/task"
)

// Options of a Manager; all are required.
type Options struct {
	// Dir has the socket at which plugins register, their own, and the checkpoint.
	Dir string
	// Changed is called when the node has other devices than before, Pods with the pods whose devices
	// have changed, in health for example. Neither may block.
	Changed func()
	Pods    func([]types.UID)

	Registry *prometheus.Registry
	Log      *slog.Logger
}

// How long plugins have.
const (
	connectDeadline  = 10 * time.Second // to answer when they register
	allocateDeadline = 2 * time.Minute  // to prepare devices for a container
	preStartDeadline = pluginapi.KubeletPreStartContainerRPCTimeoutInSecs * time.Second
	absence          = 5 * time.Minute // to come back before the node has forgotten their resource
)

// Manager knows the device plugins of a node and who has which of their devices. Its methods may
// be called concurrently; those of a nil one say that there are no devices.
type Manager struct {
	pluginapi.UnimplementedRegistrationServer

	o       Options
	metrics *metrics
	lives   chan func(context.Context) error // what Run is to run
	waits   struct{ connect, allocate, preStart, absence time.Duration }

	saving sync.Mutex // held while the checkpoint is written: of two writes the later state is the last
	mu     struct {
		sync.Mutex
		resources map[string]*resource // by name
		gone      map[string]bool      // names of those that have been forgotten
		pods      map[types.UID]held
	}
}

// resource is what is known of the devices of one name. Manager.mu guards it.
type resource struct {
	by      *endpoint // who serves it, or has served it last; nil: nobody has since the agent began
	serves  bool      // by is there
	listed  bool      // by has said which devices there are
	devices map[string]*pluginapi.Device
}

// held is what a pod has, by container and resource.
type held map[string]map[string]*allocation

// allocation is what a container has of a resource.
type allocation struct {
	ids    []string // sorted
	nodes  checkpoint.DevicesPerNUMA
	answer *pluginapi.ContainerAllocateResponse // nil: the plugin is still being asked
}

// New returns the devices of a node as the agent before this one has left them. What cannot be
// read of that is as if it had not been.
func New(o Options) *Manager {
	m := &Manager{o: o, metrics: newMetrics(o.Registry), lives: make(chan func(context.Context) error)}
	m.waits.connect, m.waits.allocate, m.waits.preStart, m.waits.absence = connectDeadline, allocateDeadline, preStartDeadline, absence
	m.mu.resources, m.mu.gone, m.mu.pods = map[string]*resource{}, map[string]bool{}, map[types.UID]held{}
	if err := m.load(); err != nil {
		o.Log.Warn("read which devices pods have; device allocation info may not be up to date", "err", err)
	}
	return m
}

// Run serves the registration of plugins, and follows those that have registered, until ctx ends.
func (m *Manager) Run(ctx context.Context) error {
	l, err := m.listen()
	if err != nil {
		return err
	}
	g := task.NewGroup(ctx)
	s := grpc.NewServer()
	pluginapi.RegisterRegistrationServer(s, m)
	g.Go("registration", func(ctx context.Context) error { return plugin.Serve(ctx, s, l) })
	for _, name := range m.awaited() {
		g.Go("absent device plugin", func(ctx context.Context) error { return m.awaitReturn(ctx, name, nil) })
	}
	for {
		select {
		case life := <-m.lives:
			g.Go("device plugin", life)
		case <-g.Context().Done():
			return g.Wait()
		}
	}
}

// listen makes the socket of the registration anew: that it is new, and that their own are gone, tells
// plugins to register again.
func (m *Manager) listen() (net.Listener, error) {
	if err := os.MkdirAll(m.o.Dir, 0o750); err != nil {
		return nil, fmt.Errorf("make directory of device plugins: %w", err)
	}
	there, err := os.ReadDir(m.o.Dir)
	if err != nil {
		return nil, fmt.Errorf("look for old sockets of device plugins: %w", err)
	}
	for _, e := range there {
		if e.Type() != fs.ModeSocket {
			continue
		}
		if err := os.Remove(filepath.Join(m.o.Dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("remove old socket of a device plugin: %w", err)
		}
	}
	return net.Listen("unix", filepath.Join(m.o.Dir, filepath.Base(pluginapi.KubeletSocket)))
}

// awaited are the resources whose plugin has not registered since the agent began.
func (m *Manager) awaited() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	names := slices.Sorted(maps.Keys(m.mu.resources))
	return slices.DeleteFunc(names, func(name string) bool { return m.mu.resources[name].by != nil })
}

// Keep drops what is held for pods that are not there any more.
func (m *Manager) Keep(there func(types.UID) bool) {
	if m == nil {
		return
	}
	m.mu.Lock()
	gone := slices.DeleteFunc(slices.Sorted(maps.Keys(m.mu.pods)), there)
	m.mu.Unlock()
	for _, uid := range gone {
		m.Release(uid)
	}
}

// Release gives back the devices of a pod of which nothing runs any more.
func (m *Manager) Release(uid types.UID) {
	if m == nil {
		return
	}
	m.mu.Lock()
	_, had := m.mu.pods[uid]
	delete(m.mu.pods, uid)
	m.mu.Unlock()
	if !had {
		return
	}
	if err := m.Save(); err != nil {
		m.o.Log.Warn("note that a pod has given its devices back", "uid", uid, "err", err)
	}
}
