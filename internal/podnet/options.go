package podnet

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
)

// DefaultBridge is the name of the bridge unless Options say another.
const DefaultBridge = "kemudi0"

// Mode says how packets get to the pods of other nodes (--pod-network).
type Mode string

const (
	// Auto is a route to a node that is a neighbour, and VXLAN to one that is not.
	Auto Mode = "auto"
	// OnlyRoutes leaves nodes that are not neighbours to the routers of the network.
	OnlyRoutes Mode = "routes"
	// OnlyVXLAN takes VXLAN to neighbours too, for networks that pass on no addresses
	// but those they gave away.
	OnlyVXLAN Mode = "vxlan"
	// None leaves all nodes to the network, or to another program of the machine.
	None Mode = "none"
)

// modes are all modes.
var modes = []Mode{Auto, OnlyRoutes, OnlyVXLAN, None}

// routes and tunnels report which kinds of ways a mode makes.
func (m Mode) routes() bool  { return m == Auto || m == OnlyRoutes }
func (m Mode) tunnels() bool { return m == Auto || m == OnlyVXLAN }

// Check refuses what is no mode.
func (m Mode) Check() error {
	if !slices.Contains(modes, m) {
		return fmt.Errorf("--pod-network %q is none of %v", m, modes)
	}
	return nil
}

// VXLAN are the numbers that all nodes must agree on to understand each other.
type VXLAN struct {
	Port uint16 // UDP port (--vxlan-port)
	ID   uint32 // number of the network, below 1<<24 (--vxlan-id)
}

// DefaultVXLAN has the port that IANA gave to VXLAN, which is what network cards and
// programs know it by.
func DefaultVXLAN() VXLAN { return VXLAN{Port: 4789, ID: 75} }

// Check refuses numbers that cannot be.
func (v VXLAN) Check() error {
	if v.ID >= 1<<24 {
		return fmt.Errorf("--vxlan-id %d is not below %d", v.ID, 1<<24)
	}
	return nil
}

// Options say what the pod network of this node is.
type Options struct {
	// Mode is by which ways the pods of other nodes are reached; default Auto.
	Mode Mode
	// VXLAN defaults to DefaultVXLAN, field by field.
	VXLAN VXLAN
	// Bridge is the name of the bridge; default kemudi0.
	Bridge string
	// PodCIDRs are the prefixes that this node's pods get their addresses from:
	// one, or one of each family. Required, except by Reset.
	PodCIDRs []netip.Prefix
	// ClusterCIDRs are the addresses of all pods of the cluster: what goes there
	// keeps its source address. Default: PodCIDRs.
	ClusterCIDRs []netip.Prefix
	// ServiceCIDRs are the addresses of services. They get a route, so that
	// processes of the node itself can send there also where there is no default
	// route; where such packets really go is decided by the service proxy. Optional.
	ServiceCIDRs []netip.Prefix
	// CNIConfDir is where the container runtime looks for its network.
	CNIConfDir string
	// DataDir holds the addresses in use and what is needed to undo our changes.
	// It is wholly ours.
	DataDir string
	// CNICacheDir is where the CNI library of a runtime that is not the built-in one
	// notes what it set up; default /var/lib/cni. Reset empties it of our pods.
	CNICacheDir string
	// RuntimeCacheDir is where that of the built-in one does. Optional.
	RuntimeCacheDir string
	// NetNSDirs are directories that hold nothing but the pods' network namespaces.
	// Only Reset uses them.
	NetNSDirs []string
	// Trouble is told, once, what someone should do something about. Optional.
	Trouble func(message string)
	// Log defaults to no log.
	Log *slog.Logger
}

// withDefaults fills in what is unset, and checks the rest.
func (o Options) withDefaults() (Options, error) {
	if o.Bridge == "" {
		o.Bridge = DefaultBridge
	}
	if len(o.Bridge) > 15 {
		return o, fmt.Errorf("bridge name %q is longer than 15 characters", o.Bridge)
	}
	if o.CNIConfDir == "" || o.DataDir == "" {
		return o, errors.New("pod network: CNIConfDir and DataDir must be set")
	}
	o.Mode = cmp.Or(o.Mode, Auto)
	o.VXLAN.Port, o.VXLAN.ID = cmp.Or(o.VXLAN.Port, DefaultVXLAN().Port), cmp.Or(o.VXLAN.ID, DefaultVXLAN().ID)
	if err := errors.Join(o.Mode.Check(), o.VXLAN.Check()); err != nil {
		return o, err
	}
	if o.CNICacheDir == "" {
		o.CNICacheDir = "/var/lib/cni"
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Trouble == nil {
		o.Trouble = func(string) {}
	}
	families := map[bool]bool{}
	for _, p := range o.PodCIDRs {
		if p.Bits() > p.Addr().BitLen()-2 {
			return o, fmt.Errorf("pod CIDR %s is too small", p)
		}
		if families[p.Addr().Is4()] {
			return o, fmt.Errorf("pod CIDRs %v: more than one of a family", o.PodCIDRs)
		}
		families[p.Addr().Is4()] = true
	}
	if len(o.ClusterCIDRs) == 0 {
		o.ClusterCIDRs = o.PodCIDRs
	}
	return o, nil
}

func (o *Options) confFile() string   { return filepath.Join(o.CNIConfDir, "10-kemudi.conflist") }
func (o *Options) ipamDir() string    { return filepath.Join(o.DataDir, "ipam") }
func (o *Options) sysctlFile() string { return filepath.Join(o.DataDir, "sysctls.json") }

// Gateway is the first address of a node's share of the pod addresses: the bridge's.
func Gateway(p netip.Prefix) netip.Addr { return p.Masked().Addr().Next() }
