package loopback

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudprovider "k8s.io/cloud-provider"
	cloudapi "k8s.io/cloud-provider/api"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/cloud/scale"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/wholefile"
)

// World is what the file says. Pool, Pools and Faults are people's; the others are written by the cluster
// too, which loses the file's comments.
type World struct {
	// ClusterID marks what the cloud has as this cluster's.
	ClusterID string     `json:"clusterID,omitempty"`
	Machines  []Machine  `json:"machines,omitempty"`
	Routes    []Route    `json:"routes,omitempty"`
	Balancers []Balancer `json:"balancers,omitempty"`
	// Pool is what balancers get their addresses from: "192.0.2.0/28", "192.0.2.7-192.0.2.9".
	Pool []string `json:"pool,omitempty"`
	// Pools are machines that the cluster switches on and off, or makes and removes, as pods need them.
	Pools []scale.Pool `json:"pools,omitempty"`
	// RouteAddresses says that routes lead to the addresses of nodes, and are made anew when
	// these change.
	RouteAddresses bool `json:"routeAddresses,omitempty"`
	// Faults are what goes wrong, until they are taken out.
	Faults []Fault `json:"faults,omitempty"`
}

// Machine is one machine of the cloud. One that is taken out of the file is gone.
type Machine struct {
	Name      string               `json:"name"`         // of its node
	ID        string               `json:"id,omitempty"` // in the cloud; default its name
	Type      string               `json:"type,omitempty"`
	Zone      string               `json:"zone,omitempty"`
	Region    string               `json:"region,omitempty"`
	Addresses []corev1.NodeAddress `json:"addresses,omitempty"`
	Labels    map[string]string    `json:"labels,omitempty"` // beside those of zone, region and type
	Shutdown  bool                 `json:"shutdown,omitempty"`
	Pool      string               `json:"pool,omitempty"` // of Pools
	Made      bool                 `json:"made,omitempty"` // by the cluster: it is removed, not switched off
	// ProviderID is said in place of the one that follows from ID; "-": none.
	ProviderID string `json:"providerID,omitempty"`
}

// Route leads the pods of a node to it.
type Route struct {
	Name      string               `json:"name"`
	Node      string               `json:"node,omitempty"`
	CIDR      string               `json:"cidr"`
	Addresses []corev1.NodeAddress `json:"addresses,omitempty"`
	Blackhole bool                 `json:"blackhole,omitempty"`
}

// Balancer leads the traffic of a service to nodes.
type Balancer struct {
	Name    string                       `json:"name"`
	Service string                       `json:"service"` // namespace/name
	Ingress []corev1.LoadBalancerIngress `json:"ingress,omitempty"`
	Ports   []string                     `json:"ports,omitempty"` // 80/TCP to 30080
	Sources []string                     `json:"sources,omitempty"`
	Nodes   []string                     `json:"nodes,omitempty"`
}

// Fault is a call that goes wrong.
type Fault struct {
	Call string `json:"call"`         // of the interface, as InstanceMetadata; *: every
	Of   string `json:"of,omitempty"` // whose machine, route or service only: its name, CIDR, namespace/name
	// Error is what the call fails with. RetryAfter has it said when to try again; Elsewhere, that
	// another program does this; NotFound, that there is no such machine.
	Error      string          `json:"error,omitempty"`
	RetryAfter metav1.Duration `json:"retryAfter,omitzero"`
	Elsewhere  bool            `json:"elsewhere,omitempty"`
	NotFound   bool            `json:"notFound,omitempty"`
	Hangs      bool            `json:"hangs,omitempty"`  // until who asks gives up
	Empty      bool            `json:"empty,omitempty"`  // says nothing at all, and no error
	Panics     bool            `json:"panics,omitempty"` // with Error
	// Late is how long it takes to answer, whoever gives up meanwhile.
	Late metav1.Duration `json:"late,omitzero"`
}

// errEmpty has a call answer without anything.
var errEmpty = errors.New("nothing is said")

// fault does what goes wrong with a call, if anything does.
func (w *World) fault(ctx context.Context, call, of string) error {
	for _, f := range w.Faults {
		if f.Call != call && f.Call != "*" || f.Of != "" && f.Of != of {
			continue
		}
		switch {
		case f.Late.Duration > 0:
			if err := task.Sleep(context.WithoutCancel(ctx), f.Late.Duration); err != nil {
				return err
			}
			return nil
		case f.Panics:
			panic(f.Error) // as a vendor's program might
		case f.Hangs:
			<-ctx.Done()
			return context.Cause(ctx)
		case f.Elsewhere:
			return cloudprovider.ImplementedElsewhere
		case f.NotFound:
			return cloudprovider.InstanceNotFound
		case f.Empty:
			return errEmpty
		case f.RetryAfter.Duration > 0:
			return cloudapi.NewRetryError(f.Error, f.RetryAfter.Duration)
		}
		return errors.New(f.Error)
	}
	return nil
}

// load returns the world as it is now, shared and read-only.
func (c *Cloud) load() (World, error) {
	if c.world == nil { // it stands for all that there may be
		return World{}, errors.New("this loopback cloud has no file")
	}
	w, err := c.world.Get()
	if err != nil {
		return w, fmt.Errorf("loopback cloud %s: %w", c.file, err)
	}
	return w, nil
}

// parse makes a world of what a file says.
func parse(data []byte) (w World, err error) {
	if err := yaml.UnmarshalStrict(data, &w); err != nil {
		return w, err
	}
	return w, scale.Complete(w.Pools)
}

// read is load, unless the call is one that goes wrong.
func (c *Cloud) read(ctx context.Context, call, of string) (w World, err error) {
	if w, err = c.load(); err != nil {
		return w, err
	}
	return w, w.fault(ctx, call, of)
}

// change changes the world, in one piece.
func (c *Cloud) change(ctx context.Context, call, of string, by func(w *World) error) error {
	if w, err := c.load(); err != nil {
		return err
	} else if err := w.fault(ctx, call, of); err != nil { // which may take its time
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	w, err := c.world.Fresh()
	if err != nil {
		return fmt.Errorf("loopback cloud %s: %w", c.file, err)
	}
	if err := by(&w); err != nil {
		return err
	}
	return c.save(&w)
}

func (c *Cloud) save(w *World) error {
	data, err := yaml.Marshal(w)
	if err != nil {
		return fmt.Errorf("encode the loopback cloud: %w", err)
	}
	if err := wholefile.Replace(c.file, data, 0o644); err != nil {
		return fmt.Errorf("write the loopback cloud: %w", err)
	}
	return nil
}
