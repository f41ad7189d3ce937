package node

import (
	"context"
	"log/slog"
	"maps"
	"runtime"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/api/coordination"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/api/storage"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/kubelet/evict"
	"github.com/kemudi/kemudi/internal/kubelet/machine"
)

// Options of a node. All but Labels, Taints, Reserved, Eviction and Devices are required.
type Options struct {
	Name      string
	Transport client.Transport
	Runtime   runtimeapi.RuntimeServiceClient
	Images    runtimeapi.ImageServiceClient
	Events    client.EventSink
	Log       *slog.Logger

	// Simulated says that there is no machine, and so there are no images to list.
	Simulated bool
	// ByHand says that people make the Node object; it is waited for.
	ByHand  bool
	Closed  bool // it registers as one that takes no pods yet
	Labels  map[string]string
	Taints  []v1.Taint
	Port    int    // of the agent's API
	Version string // of the agent, with a leading "v"
	Machine machine.Info

	// Addresses are the node's at first, the primary one first.
	Addresses []string
	// External says that a cloud knows what the node is: it registers with a taint that keeps
	// pods off until it has been told, and names no addresses but those that people have Said.
	External bool
	Said     []string
	// ProviderID is who the node is in its cloud; empty: others know.
	ProviderID string
	// Capacity is what the node knows that it has. Reserved are shares of it that pods
	// may not have, Eviction what must be left free.
	Capacity v1.ResourceList
	Reserved []v1.ResourceList
	Eviction evict.Thresholds
	// ImageChanges is how many images have been pulled or removed so far.
	ImageChanges func() int64
	// MostImages is how many images the status lists, the largest ones; 0: [MostImages], negative: all.
	MostImages int
	// Devices is what plugins have given the node for pods, all of it and what of it can be given to pods. Nil: nothing.
	Devices func() (capacity, allocatable v1.ResourceList)
	// StatusPeriod is how often the status is written although nothing has changed, as [ReportInterval]. Required.
	StatusPeriod time.Duration
}

// Node is one node of the API. Its methods may be called concurrently.
type Node struct {
	o        Options
	nodes    client.Client[*v1.Node]
	leases   client.Client[*coordinationv1.Lease]
	csiNodes client.Client[*storagev1.CSINode]
	cache    client.Reader[*v1.Node]

	changed chan struct{} // holds a token when the status is to be looked at

	mu struct {
		sync.Mutex
		addresses []string
		pressure  map[v1.NodeConditionType]bool
		drivers   map[string]registered // of CSI, by name
		inUse     []v1.UniqueVolumeName // volumes; nil: nobody has said
		goingDown bool                  // the machine is
		networkUp chan struct{}         // closed while the runtime can connect pods
	}
}

// New returns a node that the API does not hear of yet.
func New(o Options) *Node {
	n := &Node{
		o: o, nodes: client.For(o.Transport, core.Nodes), leases: client.For(o.Transport, coordination.Leases),
		csiNodes: client.For(o.Transport, storage.CSINodes),
		cache:    client.Cached(o.Transport, core.Nodes, "metadata.name="+o.Name),
		changed:  make(chan struct{}, 1),
	}
	n.mu.addresses, n.mu.drivers, n.mu.networkUp = o.Addresses, map[string]registered{}, make(chan struct{})
	return n
}

// Look has the node's status looked at, and written if it has changed. It does not wait.
func (n *Node) Look() {
	select {
	case n.changed <- struct{}{}:
	default: // it has been told
	}
}

// Seen is the node as the API had it when it was last heard of.
func (n *Node) Seen() (*v1.Node, bool) { return n.cache.Get("", n.o.Name) }

// Self is the node as Seen, or before that, its name, which is its UID as well: who describes a node looks for events of
// both.
func (n *Node) Self() *v1.Node {
	if node, ok := n.Seen(); ok {
		return node
	}
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.o.Name, UID: types.UID(n.o.Name)}}
}

// Get asks the API for the node.
func (n *Node) Get(ctx context.Context) (*v1.Node, error) { return n.nodes.Get(ctx, "", n.o.Name) }

// SetAddresses says that the node has other addresses now, the primary one first.
func (n *Node) SetAddresses(ips []string) {
	n.mu.Lock()
	n.mu.addresses = ips
	n.mu.Unlock()
	n.Look()
}

// Addresses are the node's addresses, which nobody may change.
func (n *Node) Addresses() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.addresses
}

// SetPressure says what the node is short of; nobody may change it any more.
func (n *Node) SetPressure(pressure map[v1.NodeConditionType]bool) {
	n.mu.Lock()
	changed := !maps.Equal(pressure, n.mu.pressure)
	n.mu.pressure = pressure
	n.mu.Unlock()
	if changed {
		n.Look()
	}
}

// SetGoingDown says whether the machine goes down.
func (n *Node) SetGoingDown(down bool) {
	n.mu.Lock()
	n.mu.goingDown = down
	n.mu.Unlock()
	n.Look()
}

// GoingDown reports whether the machine goes down.
func (n *Node) GoingDown() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.goingDown
}

// Pressure is what the node is short of.
func (n *Node) Pressure() map[v1.NodeConditionType]bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.pressure
}

// NetworkUp is closed when the runtime can connect pods.
func (n *Node) NetworkUp() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.networkUp
}

// tellNetwork tells whether the runtime can connect pods. Only the heartbeat calls it.
func (n *Node) tellNetwork(up bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	select {
	case <-n.mu.networkUp:
		if !up {
			n.mu.networkUp = make(chan struct{})
		}
	default:
		if up {
			close(n.mu.networkUp)
		}
	}
}

// Capacity is what the node has: what it knows of itself, what plugins have told it of, and the
// extended resources that others have told its status of.
func (n *Node) Capacity(reported v1.ResourceList) v1.ResourceList {
	out := n.o.Capacity.DeepCopy()
	for name, q := range reported {
		if _, own := out[name]; !own && check.IsExtendedResource(name) {
			out[name] = q.DeepCopy()
		}
	}
	maps.Copy(out, n.devices().capacity)
	return out
}

// devices is what plugins have given the node for pods.
type devices struct{ capacity, allocatable v1.ResourceList }

func (n *Node) devices() (d devices) {
	if n.o.Devices != nil {
		d.capacity, d.allocatable = n.o.Devices()
	}
	return d
}

// Allocatable is what is left of a capacity for pods: neither what is reserved
// for others nor what must be left free.
func (n *Node) Allocatable(capacity v1.ResourceList) v1.ResourceList {
	out := capacity.DeepCopy()
	take := func(name v1.ResourceName, reserved resource.Quantity) {
		if q, ok := out[name]; ok {
			q.Sub(reserved)
			if q.Sign() < 0 {
				q = resource.Quantity{Format: q.Format}
			}
			out[name] = q
		}
	}
	for _, list := range n.o.Reserved {
		for name, reserved := range list {
			take(name, reserved)
		}
	}
	for name, s := range map[v1.ResourceName]evict.Signal{v1.ResourceMemory: evict.MemoryAvailable, v1.ResourceEphemeralStorage: evict.NodeFSAvailable} {
		q := capacity[name]
		take(name, *resource.NewQuantity(evict.Held(n.o.Eviction, s, q.Value()), resource.BinarySI))
	}
	for name, pages := range capacity {
		if strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix) {
			take(v1.ResourceMemory, pages) // which cannot be used for anything else
		}
	}
	maps.Copy(out, n.devices().allocatable)
	return out
}

func (n *Node) labels() map[string]string {
	labels := map[string]string{
		v1.LabelHostname:          n.o.Name,
		v1.LabelOSStable:          runtime.GOOS,
		v1.LabelArchStable:        runtime.GOARCH,
		"beta.kubernetes.io/os":   runtime.GOOS,
		"beta.kubernetes.io/arch": runtime.GOARCH,
	}
	maps.Copy(labels, n.o.Labels)
	return labels
}
