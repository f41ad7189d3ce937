package baremetal

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/cloud/pool"
	"github.com/kemudi/kemudi/internal/cloud/scale"
)

// Inventory is what the file says.
type Inventory struct {
	// ClusterID marks the machines as this cluster's.
	ClusterID string    `json:"clusterID,omitempty"`
	Machines  []Machine `json:"machines,omitempty"`
	Hooks     Hooks     `json:"hooks,omitempty"`
	// Pools are machines that the cluster switches on and off, or makes and removes, as pods need them.
	Pools []scale.Pool `json:"pools,omitempty"`
	// Pool is what balancers get their addresses from: "192.0.2.0/28", "192.0.2.7-192.0.2.9".
	Pool []string `json:"pool,omitempty"`
	// State is the file in which the addresses are that balancers have; default the inventory's
	// path with .state behind it.
	State string `json:"state,omitempty"`
}

// Machine is one machine. One that is taken out of the inventory is gone for good.
type Machine struct {
	Name      string               `json:"name"`         // of its node
	ID        string               `json:"id,omitempty"` // such as its serial number; default its name
	Type      string               `json:"type,omitempty"`
	Zone      string               `json:"zone,omitempty"`
	Region    string               `json:"region,omitempty"`
	Addresses []corev1.NodeAddress `json:"addresses,omitempty"`
	Labels    map[string]string    `json:"labels,omitempty"`
	// Pool is the one of Pools that it is of: it is switched on for pods that fit nowhere, and off when it
	// has nothing to do.
	Pool string `json:"pool,omitempty"`
	made bool   // by the hook of machines
}

// Hooks are programs, by absolute paths. One that is not named is not needed.
type Hooks struct {
	// Power is called with "status" and a machine's name, and prints on, off, or gone for one
	// that will not come back; with "on" or "off" and the name of one of a pool.
	Power string `json:"power,omitempty"`
	// Machines is called with "list", and prints a line for each machine that it has made: its name, its pool and
	// its addresses; with "create", a pool and a name; with "delete" and a name.
	Machines string `json:"machines,omitempty"`
	// Routes is called with "list", and prints a line for each route: its range and the node; with "add", a
	// range, the node and its addresses; with "delete", a range and the node.
	Routes string `json:"routes,omitempty"`
	// Balancer is called with "ensure", an address, the service and the nodes, when a balancer or its
	// nodes change; with "delete", an address and the service.
	Balancer string `json:"balancer,omitempty"`
	// Timeout is how long one call may take; default 30 s.
	Timeout metav1.Duration `json:"timeout,omitzero"`
}

// defaultTimeout bounds a hook of an inventory that says nothing of it.
const defaultTimeout = 30 * time.Second

// read returns what the file says now, which is shared and read-only, or what is wrong with it.
func (c *Cloud) read() (Inventory, error) {
	inv, err := c.inventory.Get()
	if err != nil {
		return inv, fmt.Errorf("inventory %s: %w", c.file, err)
	}
	if inv.State == "" {
		inv.State = c.file + ".state"
	}
	return inv, nil
}

// parse makes an inventory of what a file says.
func parse(data []byte) (inv Inventory, err error) {
	if err := yaml.UnmarshalStrict(data, &inv); err != nil {
		return inv, err
	}
	if err := scale.Complete(inv.Pools); err != nil {
		return inv, err
	}
	if inv.Hooks.Timeout.Duration == 0 {
		inv.Hooks.Timeout.Duration = defaultTimeout
	}
	return inv, inv.check()
}

func (inv *Inventory) check() error {
	names, ids := map[string]bool{}, map[string]bool{}
	for i, m := range inv.Machines {
		if m.Name == "" {
			return fmt.Errorf("machines[%d] has no name", i)
		}
		id := m.providerID()
		if names[m.Name] || ids[id] {
			return fmt.Errorf("machine %s (%s) stands there twice", m.Name, id)
		}
		names[m.Name], ids[id] = true, true
		if m.Pool != "" && inv.pool(m.Pool) == nil {
			return fmt.Errorf("machine %s is of pool %q, which is not among pools", m.Name, m.Pool)
		}
		if m.Pool != "" && inv.Hooks.Power == "" {
			return fmt.Errorf("machine %s is of pool %q, but there is no hook of power that could switch it on", m.Name, m.Pool)
		}
	}
	for _, hook := range []string{inv.Hooks.Power, inv.Hooks.Machines, inv.Hooks.Routes, inv.Hooks.Balancer} {
		if hook != "" && !filepath.IsAbs(hook) {
			return fmt.Errorf("hook %s: want an absolute path", hook)
		}
	}
	if inv.Hooks.Timeout.Duration < 0 {
		return errors.New("hooks.timeout must not be negative")
	}
	_, err := pool.Parse(inv.Pool)
	return err
}

func (m *Machine) providerID() string {
	if m.ID != "" {
		return Name + "://" + m.ID
	}
	return Name + "://" + m.Name
}

// find finds the machine of a node: by its ID if it has one, else by its name; nil: it is gone.
func (inv *Inventory) find(ctx context.Context, node *corev1.Node) (*Machine, error) {
	is := func(m Machine) bool {
		if node.Spec.ProviderID == "" {
			return m.Name == node.Name
		}
		return m.providerID() == node.Spec.ProviderID
	}
	if i := slices.IndexFunc(inv.Machines, is); i >= 0 {
		return &inv.Machines[i], nil
	}
	made, err := inv.made(ctx)
	if i := slices.IndexFunc(made, is); i >= 0 {
		return &made[i], nil
	}
	return nil, err
}

// pool is the pool of that name; nil: there is none.
func (inv *Inventory) pool(name string) *scale.Pool {
	i := slices.IndexFunc(inv.Pools, func(p scale.Pool) bool { return p.Name == name })
	if i < 0 {
		return nil
	}
	return &inv.Pools[i]
}

// labels are those of a machine, and of its pool.
func (inv *Inventory) labels(m *Machine) map[string]string {
	p := inv.pool(m.Pool)
	if p == nil {
		return m.Labels
	}
	all := map[string]string{}
	maps.Copy(all, p.Labels)
	maps.Copy(all, m.Labels)
	return all
}
