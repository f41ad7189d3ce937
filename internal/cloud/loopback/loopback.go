package loopback

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/kemudi/kemudi/internal/cloud/file"
)

// Name is the provider's.
const Name = "loopback"

// Cloud is a cloud in a file, which is looked at with each call.
type Cloud struct {
	file  string
	world *file.Parsed[World]
	mu    sync.Mutex // held while the file is changed
}

var (
	_ cloudprovider.Interface    = (*Cloud)(nil)
	_ cloudprovider.InstancesV2  = machines{}
	_ cloudprovider.Routes       = routes{}
	_ cloudprovider.LoadBalancer = balancers{}
)

// Open returns the cloud that a file holds, which must be readable now.
func Open(path string) (*Cloud, error) {
	if path == "" {
		return nil, errors.New("want a file with its machines (--cloud-config)")
	}
	c := &Cloud{file: path, world: file.New(path, parse)}
	_, err := c.load()
	return c, err
}

// Initialize does nothing: the file is all there is.
func (c *Cloud) Initialize(cloudprovider.ControllerClientBuilder, <-chan struct{}) {}

// LoadBalancer is the balancers.
func (c *Cloud) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return balancers{c}, true }

// Instances are told by InstancesV2.
func (c *Cloud) Instances() (cloudprovider.Instances, bool) { return nil, false }

// InstancesV2 is the machines.
func (c *Cloud) InstancesV2() (cloudprovider.InstancesV2, bool) { return machines{c}, true }

// Zones are told by InstancesV2.
func (c *Cloud) Zones() (cloudprovider.Zones, bool) { return nil, false }

// Clusters are of no interest.
func (c *Cloud) Clusters() (cloudprovider.Clusters, bool) { return nil, false }

// Routes is the routes.
func (c *Cloud) Routes() (cloudprovider.Routes, bool) { return routes{c}, true }

// ProviderName is how provider IDs begin.
func (c *Cloud) ProviderName() string { return Name }

// HasClusterID says that what the file has is marked as a cluster's.
func (c *Cloud) HasClusterID() bool {
	w, err := c.load()
	return err == nil && w.ClusterID != ""
}

// machines tells of the machines.
type machines struct{ c *Cloud }

// find finds the machine of a node: by its ID if both have one, else by its name.
func (w *World) find(node *corev1.Node) *Machine {
	i := slices.IndexFunc(w.Machines, func(m Machine) bool {
		if node.Spec.ProviderID == "" || m.providerID() == "" {
			return m.Name == node.Name
		}
		return m.providerID() == node.Spec.ProviderID
	})
	if i < 0 {
		return nil
	}
	return &w.Machines[i]
}

func (m *Machine) providerID() string {
	switch {
	case m.ProviderID == "-":
		return ""
	case m.ProviderID != "":
		return m.ProviderID
	case m.ID != "":
		return Name + "://" + m.ID
	}
	return Name + "://" + m.Name
}

// InstanceExists says whether a node has a machine.
func (m machines) InstanceExists(ctx context.Context, node *corev1.Node) (bool, error) {
	w, err := m.c.read(ctx, "InstanceExists", node.Name)
	return err == nil && w.find(node) != nil, some(err)
}

// InstanceShutdown says whether it is off.
func (m machines) InstanceShutdown(ctx context.Context, node *corev1.Node) (bool, error) {
	w, err := m.c.read(ctx, "InstanceShutdown", node.Name)
	if err != nil {
		return false, some(err)
	}
	machine := w.find(node)
	if machine == nil {
		return false, cloudprovider.InstanceNotFound
	}
	return machine.Shutdown, nil
}

// InstanceMetadata is what the file says of a node's machine.
func (m machines) InstanceMetadata(ctx context.Context, node *corev1.Node) (*cloudprovider.InstanceMetadata, error) {
	w, err := m.c.read(ctx, "InstanceMetadata", node.Name)
	if err != nil {
		return nil, some(err)
	}
	machine := w.find(node)
	if machine == nil {
		return nil, fmt.Errorf("%w: the file has no machine for node %s", cloudprovider.InstanceNotFound, node.Name)
	}
	return &cloudprovider.InstanceMetadata{
		ProviderID: machine.providerID(), InstanceType: machine.Type, NodeAddresses: machine.Addresses,
		Zone: machine.Zone, Region: machine.Region, AdditionalLabels: machine.Labels,
	}, nil
}

// some is err, or nil if it stands for saying nothing.
func some(err error) error {
	if errors.Is(err, errEmpty) {
		return nil
	}
	return err
}

// routes keeps the routes.
type routes struct{ c *Cloud }

// ListRoutes returns all.
func (r routes) ListRoutes(ctx context.Context, _ string) ([]*cloudprovider.Route, error) {
	w, err := r.c.read(ctx, "ListRoutes", "")
	if err != nil {
		return nil, some(err)
	}
	var out []*cloudprovider.Route
	for _, have := range w.Routes {
		out = append(out, &cloudprovider.Route{
			Name: have.Name, TargetNode: nodeName(have.Node), DestinationCIDR: have.CIDR, Blackhole: have.Blackhole,
			EnableNodeAddresses: w.RouteAddresses, TargetNodeAddresses: have.Addresses,
		})
	}
	return out, nil
}

// CreateRoute adds one.
func (r routes) CreateRoute(ctx context.Context, cluster, hint string, route *cloudprovider.Route) error {
	return r.c.change(ctx, "CreateRoute", route.DestinationCIDR, func(w *World) error {
		made := Route{Name: strings.Join([]string{cluster, string(route.TargetNode), route.DestinationCIDR}, " "), Node: string(route.TargetNode), CIDR: route.DestinationCIDR}
		if hint == "" {
			return errors.New("the route has no hint for a name")
		}
		if slices.ContainsFunc(w.Routes, func(have Route) bool { return have.CIDR == made.CIDR && !have.Blackhole }) {
			return fmt.Errorf("there is a route to %s", made.CIDR)
		}
		if w.RouteAddresses {
			made.Addresses = route.TargetNodeAddresses
		}
		w.Routes = append(w.Routes, made)
		return nil
	})
}

// DeleteRoute removes one; one that is gone is no error.
func (r routes) DeleteRoute(ctx context.Context, _ string, route *cloudprovider.Route) error {
	return r.c.change(ctx, "DeleteRoute", route.DestinationCIDR, func(w *World) error {
		w.Routes = slices.DeleteFunc(w.Routes, func(have Route) bool { return have.Name == route.Name })
		return nil
	})
}
