package baremetal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/kemudi/kemudi/internal/cloud/file"
)

// Name is the provider's.
const Name = "bare-metal"

// Cloud is the machines of an inventory, which is looked at with each call.
type Cloud struct {
	file      string
	inventory *file.Parsed[Inventory]
	mu        sync.Mutex // held while the state file is changed
	said      answers
}

var (
	_ cloudprovider.Interface    = (*Cloud)(nil)
	_ cloudprovider.InstancesV2  = machines{}
	_ cloudprovider.Routes       = routes{}
	_ cloudprovider.LoadBalancer = balancers{}
)

// Open returns the cloud of an inventory, which must be right now.
func Open(path string) (*Cloud, error) {
	if path == "" {
		return nil, errors.New("want a file with the inventory (--cloud-config)")
	}
	c := &Cloud{file: path, inventory: file.New(path, parse)}
	_, err := c.read()
	return c, err
}

// Initialize does nothing: the API is of no interest.
func (c *Cloud) Initialize(cloudprovider.ControllerClientBuilder, <-chan struct{}) {}

// LoadBalancer is the pool of addresses, if there is one.
func (c *Cloud) LoadBalancer() (cloudprovider.LoadBalancer, bool) {
	inv, err := c.read()
	return balancers{c}, err == nil && len(inv.Pool) > 0
}

// Instances are told by InstancesV2.
func (c *Cloud) Instances() (cloudprovider.Instances, bool) { return nil, false }

// InstancesV2 is the machines.
func (c *Cloud) InstancesV2() (cloudprovider.InstancesV2, bool) { return machines{c}, true }

// Zones are told by InstancesV2.
func (c *Cloud) Zones() (cloudprovider.Zones, bool) { return nil, false }

// Clusters are of no interest.
func (c *Cloud) Clusters() (cloudprovider.Clusters, bool) { return nil, false }

// Routes is what the hook of routes keeps, if there is one.
func (c *Cloud) Routes() (cloudprovider.Routes, bool) {
	inv, err := c.read()
	return routes{c}, err == nil && inv.Hooks.Routes != ""
}

// ProviderName is how provider IDs begin.
func (c *Cloud) ProviderName() string { return Name }

// HasClusterID says that the inventory is marked as a cluster's.
func (c *Cloud) HasClusterID() bool {
	inv, err := c.read()
	return err == nil && inv.ClusterID != ""
}

// machines tells of the machines.
type machines struct{ c *Cloud }

// What the hook of power prints.
const (
	powerOn  = "on"
	powerOff = "off"
	gone     = "gone"
)

// power asks for a machine's power. Without a hook all machines are on, and those that another hook
// has made are.
func (inv *Inventory) power(ctx context.Context, m *Machine) (string, error) {
	if inv.Hooks.Power == "" || m.made {
		return powerOn, nil
	}
	said, err := inv.Hooks.call(ctx, inv.Hooks.Power, "status", m.Name)
	if err != nil {
		return "", err
	}
	switch said {
	case powerOn, powerOff, gone:
		return said, nil
	}
	return "", fmt.Errorf("hook %s status %s: want on, off or gone, got %q", inv.Hooks.Power, m.Name, said)
}

// InstanceExists says whether a node's machine is in the inventory, and will come back.
func (m machines) InstanceExists(ctx context.Context, node *corev1.Node) (bool, error) {
	inv, err := m.c.read()
	if err != nil {
		return false, err
	}
	machine, err := inv.find(ctx, node)
	if machine == nil {
		return false, err
	}
	is, err := inv.power(ctx, machine)
	if err == nil {
		m.c.said.keep(machine.Name, is)
	}
	return is != gone, err
}

// InstanceShutdown says whether it is off.
func (m machines) InstanceShutdown(ctx context.Context, node *corev1.Node) (bool, error) {
	inv, err := m.c.read()
	if err != nil {
		return false, err
	}
	machine, err := inv.find(ctx, node)
	if machine == nil {
		return false, cmp.Or(err, cloudprovider.InstanceNotFound)
	}
	is, ok := m.c.said.take(machine.Name)
	if !ok {
		is, err = inv.power(ctx, machine)
	}
	return is == powerOff, err
}

// InstanceMetadata is what the inventory says of a node's machine.
func (m machines) InstanceMetadata(ctx context.Context, node *corev1.Node) (*cloudprovider.InstanceMetadata, error) {
	inv, err := m.c.read()
	if err != nil {
		return nil, err
	}
	machine, err := inv.find(ctx, node)
	if err != nil {
		return nil, err
	}
	if machine == nil {
		return nil, fmt.Errorf("%w: add a machine of the name %s to %s", cloudprovider.InstanceNotFound, node.Name, m.c.file)
	}
	return &cloudprovider.InstanceMetadata{
		ProviderID: machine.providerID(), InstanceType: machine.Type, NodeAddresses: machine.Addresses,
		Zone: machine.Zone, Region: machine.Region, AdditionalLabels: inv.labels(machine),
	}, nil
}

// routes keeps static routes, where the hook knows how.
type routes struct{ c *Cloud }

func (r routes) call(ctx context.Context, args ...string) (string, error) {
	inv, err := r.c.read()
	if err != nil {
		return "", err
	}
	return inv.Hooks.call(ctx, inv.Hooks.Routes, args...)
}

// ListRoutes returns all that the hook prints.
func (r routes) ListRoutes(ctx context.Context, _ string) (out []*cloudprovider.Route, err error) {
	text, err := r.call(ctx, "list")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if len(words) != 2 {
			return nil, fmt.Errorf("the hook of routes prints %q: want a range and a node", strings.TrimSpace(line))
		}
		out = append(out, &cloudprovider.Route{Name: strings.Join(words, " "), DestinationCIDR: words[0], TargetNode: types.NodeName(words[1])})
	}
	return out, nil
}

// CreateRoute adds one, by the addresses that the node has, or will have: what goes to a hook without
// an address would stay so.
func (r routes) CreateRoute(ctx context.Context, _, _ string, route *cloudprovider.Route) error {
	by := internal(route.TargetNodeAddresses)
	if len(by) == 0 {
		meta, err := machines(r).InstanceMetadata(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: string(route.TargetNode)}})
		if err != nil {
			return err
		}
		by = internal(meta.NodeAddresses)
	}
	if len(by) == 0 {
		return fmt.Errorf("node %s has no address of type %s: add one to its machine in %s", route.TargetNode, corev1.NodeInternalIP, r.c.file)
	}
	_, err := r.call(ctx, append([]string{"add", route.DestinationCIDR, string(route.TargetNode)}, by...)...)
	return err
}

// internal are the addresses that nodes have for each other.
func internal(all []corev1.NodeAddress) (ips []string) {
	for _, a := range all {
		if a.Type == corev1.NodeInternalIP {
			ips = append(ips, a.Address)
		}
	}
	return ips
}

// DeleteRoute removes one.
func (r routes) DeleteRoute(ctx context.Context, _ string, route *cloudprovider.Route) error {
	_, err := r.call(ctx, "delete", route.DestinationCIDR, string(route.TargetNode))
	return err
}
