package baremetal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/cloud/pool"
)

// Inventory is what the file says.
type Inventory struct {
	// ClusterID marks the machines as this cluster's.
	ClusterID string    `json:"clusterID,omitempty"`
	Machines  []Machine `json:"machines,omitempty"`
	Hooks     Hooks     `json:"hooks,omitempty"`
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
}

// Hooks are programs, by absolute paths. One that is not named is not needed.
type Hooks struct {
	// Power is called with "status" and a machine's name, and prints on, off, or gone for one
	// that will not come back.
	Power string `json:"power,omitempty"`
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

// readInventory reads the file, and says what is wrong with it.
func readInventory(file string) (inv Inventory, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return inv, fmt.Errorf("read the inventory: %w", err)
	}
	if err := yaml.UnmarshalStrict(data, &inv); err != nil {
		return inv, fmt.Errorf("read the inventory %s: %w", file, err)
	}
	if err := inv.check(); err != nil {
		return inv, fmt.Errorf("inventory %s: %w", file, err)
	}
	if inv.State == "" {
		inv.State = file + ".state"
	}
	if inv.Hooks.Timeout.Duration == 0 {
		inv.Hooks.Timeout.Duration = defaultTimeout
	}
	return inv, nil
}

func (inv *Inventory) check() error {
	for i, m := range inv.Machines {
		if m.Name == "" {
			return fmt.Errorf("machines[%d] has no name", i)
		}
		if slices.ContainsFunc(inv.Machines[:i], func(o Machine) bool { return o.Name == m.Name || o.providerID() == m.providerID() }) {
			return fmt.Errorf("machine %s (%s) stands there twice", m.Name, m.providerID())
		}
	}
	for _, hook := range []string{inv.Hooks.Power, inv.Hooks.Routes, inv.Hooks.Balancer} {
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
func (inv *Inventory) find(node *corev1.Node) *Machine {
	i := slices.IndexFunc(inv.Machines, func(m Machine) bool {
		if node.Spec.ProviderID == "" {
			return m.Name == node.Name
		}
		return m.providerID() == node.Spec.ProviderID
	})
	if i < 0 {
		return nil
	}
	return &inv.Machines[i]
}
