package cpus

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/kemudi/kemudi/internal/kubelet/numa"
)

// The names of the policies.
const (
	None   = "none"
	Static = "static"
)

// The names of the options of the static policy.
const (
	fullCores   = "full-pcpus-only"
	spreadNodes = "distribute-cpus-across-numa"
	bySocket    = "align-by-socket"
	spreadCores = "distribute-cpus-across-cores"
	strict      = "strict-cpu-reservation"
	byCache     = "prefer-align-cpus-by-uncorecache"
)

// Rules say which processors a container gets. The zero value packs them.
type Rules struct {
	FullCores   bool // only whole cores, or nothing
	SpreadNodes bool // as many of each NUMA node, where one is not enough
	BySocket    bool // what is on a socket is near enough
	SpreadCores bool // of many cores, rather than all of a few
	Strict      bool // the reserved ones are not for the shared pool either
	ByCache     bool // below one cache, if that can be
}

// ParseRules reads options of the policy.
func ParseRules(options map[string]string) (Rules, error) {
	var r Rules
	known := map[string]*bool{
		fullCores: &r.FullCores, spreadNodes: &r.SpreadNodes, bySocket: &r.BySocket, spreadCores: &r.SpreadCores, strict: &r.Strict, byCache: &r.ByCache,
	}
	for _, name := range slices.Sorted(maps.Keys(options)) {
		set := known[name]
		if set == nil {
			return r, fmt.Errorf("unknown CPU Manager Policy option: %q", name)
		}
		yes, err := strconv.ParseBool(options[name])
		if err != nil {
			return r, fmt.Errorf("bad value for option %q: %w", name, err)
		}
		*set = yes
	}
	for _, pair := range [][2]string{{fullCores, spreadCores}, {spreadNodes, spreadCores}, {byCache, spreadCores}, {byCache, spreadNodes}} {
		if *known[pair[0]] && *known[pair[1]] {
			return r, fmt.Errorf("static policy options %s and %s can not be used at the same time", pair[0], pair[1])
		}
	}
	return r, nil
}

// fits reports what speaks against the rules on a machine whose resources are aligned by the policy.
func (r Rules) fits(m *numa.Machine, policy string) error {
	switch {
	case r.BySocket && policy == numa.SingleNode:
		return fmt.Errorf("topology manager policy %s is incompatible with CPU manager policy option %s", numa.SingleNode, bySocket)
	case r.BySocket && m.Count(socketOf) > len(m.Nodes):
		return errors.New("align-by-socket is not compatible with machines that have more sockets than NUMA nodes")
	}
	return nil
}
