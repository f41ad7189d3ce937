package podnet

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
)

// DefaultBridge is the name of the bridge unless Options say another.
const DefaultBridge = "kemudi0"

// Options say what the pod network of this node is.
type Options struct {
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
