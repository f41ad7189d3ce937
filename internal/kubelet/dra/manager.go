package dra

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/api/dra"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/kubelet/backoff"
	"github.com/kemudi/kemudi/internal/task"
)

// Options of a Manager; all are required.
type Options struct {
	Dir       string // where the file with the claims is
	Node      string
	Transport client.Transport
	// Changed is told that a driver can be asked that could not be before, Pods of those of whose devices
	// something else is known than before. Neither may block.
	Changed func()
	Pods    func([]types.UID)

	Registry *prometheus.Registry
	Log      *slog.Logger
}

// How long drivers have.
const (
	callDeadline = 45 * time.Second // for one answer
	absence      = 30 * time.Second // to come back before their slices are deleted
	apiDeadline  = 30 * time.Second
)

// Manager knows the drivers of a node and what they have made ready. Its methods may be called
// concurrently; those of a nil one say that there are no claims.
type Manager struct {
	o       Options
	metrics *metrics
	api     client.Client[*resourcev1.ResourceClaim]
	lives   chan life
	waits   struct{ call, absence time.Duration }

	saving sync.Mutex // held while the file is written: of two writes the later state is the last
	mu     struct {
		sync.Mutex
		claims  map[types.NamespacedName]*claim
		busy    map[types.NamespacedName]chan struct{} // closed when who deals with the claim has done
		drivers map[string][]*driver                   // that are registered, the newest last
		health  map[string]map[place]health            // what drivers say
		wipes   map[string]*wipe                       // of slices of drivers that cannot be asked, by name
	}
}

// life is something that goes on beside its begin.
type life struct {
	name string
	run  func(context.Context) error
}

// New returns the claims of a node as the agent before this one has left them. What cannot be read of
// that is as if it had not been.
func New(o Options) *Manager {
	m := &Manager{o: o, api: client.For(o.Transport, dra.ResourceClaims), lives: make(chan life)}
	m.waits.call, m.waits.absence = callDeadline, absence
	m.mu.claims, m.mu.busy = map[types.NamespacedName]*claim{}, map[types.NamespacedName]chan struct{}{}
	m.mu.drivers, m.mu.wipes, m.mu.health = map[string][]*driver{}, map[string]*wipe{}, map[string]map[place]health{}
	m.metrics = newMetrics(o.Registry, m)
	list, err := readClaims(o.Dir)
	if err != nil {
		o.Log.Warn("read which claims are ready for pods; they may stay so", "err", err)
	}
	for _, c := range list {
		m.mu.claims[c.key()] = c
	}
	return m
}

// Run follows the drivers of the node until ctx ends.
func (m *Manager) Run(ctx context.Context) error {
	if err := os.MkdirAll(m.o.Dir, 0o755); err != nil {
		return fmt.Errorf("make directory of claims: %w", err)
	}
	g := task.NewGroup(ctx)
	// None has registered yet, and perhaps none will: what they offered is not to be had now.
	g.Go("old resource slices", func(ctx context.Context) error { return m.deleteSlices(ctx, "", nil) })
	for {
		select {
		case l := <-m.lives:
			g.Go(l.name, l.run)
		case <-g.Context().Done():
			return g.Wait()
		}
	}
}

// begin has something run beside, as long as the node does.
func (m *Manager) begin(ctx context.Context, l life) error {
	select {
	case m.lives <- l:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Keep takes back what is ready for pods that are not there any more.
func (m *Manager) Keep(ctx context.Context, there func(types.UID) bool) {
	if m == nil {
		return
	}
	gone := map[types.UID]bool{}
	m.mu.Lock()
	for _, c := range m.mu.claims {
		for uid := range c.PodUIDs {
			if !there(uid) {
				gone[uid] = true
			}
		}
	}
	m.mu.Unlock()
	for _, uid := range slices.Sorted(maps.Keys(gone)) {
		if m.begin(ctx, life{"claims of a pod that is gone", func(ctx context.Context) error { return m.unprepareLeft(ctx, uid) }}) != nil {
			return
		}
	}
}

// unprepareLeft takes the claims of a pod back that has nothing else on the node.
func (m *Manager) unprepareLeft(ctx context.Context, uid types.UID) error {
	for failures := 1; ; failures++ {
		err := m.Unprepare(ctx, uid)
		if err == nil || ctx.Err() != nil {
			return err
		}
		again := backoff.Call.After(failures)
		m.o.Log.Warn("take back claims of a pod that is gone", "uid", uid, "err", err, "retry", again)
		if err := task.Sleep(ctx, again); err != nil {
			return err
		}
	}
}

// save writes down the claims.
func (m *Manager) save() error {
	m.saving.Lock()
	defer m.saving.Unlock()
	m.mu.Lock()
	var list []*claim
	for _, name := range slices.SortedFunc(maps.Keys(m.mu.claims), compareNames) {
		list = append(list, m.mu.claims[name].clone())
	}
	m.mu.Unlock()
	return writeClaims(m.o.Dir, list)
}

func compareNames(a, b types.NamespacedName) int {
	return slices.Compare([]string{a.Namespace, a.Name}, []string{b.Namespace, b.Name})
}

// clone is a copy of which nothing changes when the claim does.
func (c *claim) clone() *claim {
	out := *c
	out.PodUIDs = maps.Clone(c.PodUIDs)
	out.DriverState = map[string]*driverState{}
	for name, s := range c.DriverState {
		out.DriverState[name] = &driverState{slices.Clone(s.Devices)}
	}
	return &out
}
