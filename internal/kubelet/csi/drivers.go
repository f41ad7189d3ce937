package csi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/kemudi/kemudi/internal/kubelet/backoff"
	"github.com/kemudi/kemudi/internal/kubelet/plugin"
	"github.com/kemudi/kemudi/internal/task"
)

// Node is told of the drivers that a node has.
type Node interface {
	// AddDriver shows a driver in the API, and topology as labels of the node.
	AddDriver(ctx context.Context, d storagev1.CSINodeDriver, topology map[string]string) error
	RemoveDriver(ctx context.Context, name string) error
}

// Drivers are the CSI drivers that are registered on a node. They may be used concurrently.
type Drivers struct {
	node    Node
	log     *slog.Logger
	metrics *metrics
	wake    chan struct{} // holds a token when there is something to remove
	turn    chan struct{} // holds a token: who has taken it out writes to the API

	mu struct {
		sync.Mutex
		drivers map[string]driver
		removed map[string]bool // drivers that the API still shows
		told    chan struct{}   // closed, and another, when a driver has come
	}
}

// driver is a driver that is registered.
type driver struct {
	plugin.Plugin
	version *version.Version
	gone    chan struct{} // closed when it is registered no more, or anew
	recount chan struct{} // holds a token when it is to be asked how many volumes it takes
}

var _ plugin.Handler = (*Drivers)(nil)

// NewDrivers returns a node's drivers, of which there are none yet. What they do is counted in reg, if there is one.
func NewDrivers(node Node, log *slog.Logger, reg prometheus.Registerer) *Drivers {
	d := &Drivers{node: node, log: log, metrics: newMetrics(reg), wake: make(chan struct{}, 1), turn: make(chan struct{}, 1)}
	d.turn <- struct{}{}
	d.mu.drivers, d.mu.removed, d.mu.told = map[string]driver{}, map[string]bool{}, make(chan struct{})
	return d
}

// Came returns a channel that is closed when the next driver has come.
func (d *Drivers) Came() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.told
}

// find returns the client of a driver.
func (d *Drivers) find(name string) (client, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	one, ok := d.mu.drivers[name]
	if !ok {
		return client{}, fmt.Errorf("driver name %s not found in the list of registered CSI drivers", name)
	}
	return d.client(one.Plugin), nil
}

func (d *Drivers) client(p plugin.Plugin) client {
	return client{endpoint: p.Endpoint, counted: d.metrics.called(p.Name)}
}

// Register takes a driver: it is asked what it is on this node, which the API then shows.
func (d *Drivers) Register(ctx context.Context, p plugin.Plugin) error {
	highest, err := d.check(p)
	if err != nil {
		return err
	}
	is, err := ask(ctx, d.client(p), p.Name)
	if err != nil {
		return err
	}
	leave, err := d.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if err := d.show(ctx, is); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if there, ok := d.mu.drivers[p.Name]; ok {
		close(there.gone)
	}
	d.mu.drivers[p.Name] = driver{Plugin: p, version: highest, gone: make(chan struct{}), recount: make(chan struct{}, 1)}
	delete(d.mu.removed, p.Name)
	close(d.mu.told)
	d.mu.told = make(chan struct{})
	return nil
}

// enter waits for the turn to write to the API; leave gives it up.
func (d *Drivers) enter(ctx context.Context) (leave func(), err error) {
	select {
	case <-d.turn:
		return func() { d.turn <- struct{}{} }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// self is what a driver says it is on this node.
type self struct {
	shown    storagev1.CSINodeDriver
	topology map[string]string
}

// ask asks a driver what it is on this node.
func ask(ctx context.Context, c client, name string) (self, error) {
	info, err := call(ctx, c, csipb.NodeClient.NodeGetInfo, &csipb.NodeGetInfoRequest{})
	if err != nil {
		return self{}, fmt.Errorf("error during CSI NodeGetInfo() call: %w", err)
	}
	is := self{storagev1.CSINodeDriver{Name: name, NodeID: info.NodeId}, info.GetAccessibleTopology().GetSegments()}
	for key := range is.topology {
		is.shown.TopologyKeys = append(is.shown.TopologyKeys, key)
	}
	slices.Sort(is.shown.TopologyKeys)
	if n := info.MaxVolumesPerNode; n > 0 {
		count := int32(min(n, math.MaxInt32))
		is.shown.Allocatable = &storagev1.VolumeNodeResources{Count: &count}
	}
	return is, nil
}

// show has the API show what a driver says it is. It is for who has the turn.
func (d *Drivers) show(ctx context.Context, is self) error {
	if err := d.node.AddDriver(ctx, is.shown, is.topology); err != nil {
		return fmt.Errorf("error updating CSINode object with CSI driver node info: %w", err)
	}
	return nil
}

// check refuses what cannot be used, and returns the highest version of the interface that the driver and
// this program have in common.
func (d *Drivers) check(p plugin.Plugin) (*version.Version, error) {
	if err := checkDriver(p.Name); err != nil {
		return nil, err
	}
	if !filepath.IsAbs(p.Endpoint) {
		return nil, fmt.Errorf("the endpoint %q of CSI driver %q is no absolute path", p.Endpoint, p.Name)
	}
	if len(p.Versions) == 0 {
		return nil, fmt.Errorf("ValidatePlugin for CSI driver %q failed. Plugin returned an empty list for supported versions", p.Name)
	}
	var highest *version.Version
	for _, text := range p.Versions {
		v, err := version.ParseGeneric(text)
		if err == nil && v.Major() == 1 && (highest == nil || highest.LessThan(v)) {
			highest = v
		}
	}
	if highest == nil {
		return nil, fmt.Errorf("ValidatePlugin for CSI driver %q failed. None of the versions specified %q are supported", p.Name, p.Versions)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if there, ok := d.mu.drivers[p.Name]; ok && there.Socket != p.Socket && highest.LessThan(there.version) {
		return nil, fmt.Errorf("ValidatePlugin for CSI driver %q failed. Another driver with the same name is already registered with a higher supported version: %q", p.Name, there.version)
	}
	return highest, nil
}

// checkDriver refuses a name that is none of a driver (S4).
func checkDriver(name string) error {
	lower := strings.ToLower(name)
	if why := validation.IsDNS1123Subdomain(lower); len(why) > 0 || len(name) > 63 || lower == strings.ToLower(devices) {
		return fmt.Errorf("%q is no name of a CSI driver", name)
	}
	return nil
}

// Deregister forgets a driver, and has it taken out of the API.
func (d *Drivers) Deregister(p plugin.Plugin) {
	d.mu.Lock()
	defer d.mu.Unlock()
	there := d.mu.drivers[p.Name]
	if there.Socket != p.Socket { // another has come in its place
		return
	}
	close(there.gone)
	delete(d.mu.drivers, p.Name)
	d.mu.removed[p.Name] = true
	select {
	case d.wake <- struct{}{}:
	default: // it has been told
	}
}

// Run tells of drivers that come, asks them anew as their CSIDrivers say, and takes those that are gone out of the API, until
// ctx ends.
func (d *Drivers) Run(ctx context.Context, came func(), follow Follow) error {
	g := task.NewGroup(ctx) // of what asks drivers anew
	has := counted{}
	for failures, next := 0, d.Came(); ; {
		d.count(g, has, follow)
		var again <-chan time.Time
		if failures > 0 {
			again = time.After(backoff.Call.After(failures))
		}
		select {
		case <-next:
			next = d.Came()
			came()
			continue
		case <-d.wake:
		case <-again:
		case <-g.Context().Done():
			return errors.Join(g.Wait(), context.Cause(ctx))
		}
		if err := d.remove(ctx); err != nil {
			d.log.Warn("take drivers out of CSINode", "err", err)
			failures++
			continue
		}
		failures = 0
	}
}

// remove takes those out of the API that are gone.
func (d *Drivers) remove(ctx context.Context) error {
	leave, err := d.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	d.mu.Lock()
	gone := slices.Sorted(maps.Keys(d.mu.removed)) // who comes back meanwhile waits for its turn
	d.mu.Unlock()
	var errs []error
	for _, name := range gone {
		if err := d.node.RemoveDriver(ctx, name); err != nil {
			errs = append(errs, err)
			continue
		}
		d.mu.Lock()
		delete(d.mu.removed, name)
		d.mu.Unlock()
	}
	return errors.Join(errs...)
}
