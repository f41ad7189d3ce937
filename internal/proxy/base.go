package proxy

import (
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/internal/podnet/nft"
	"github.com/kemudi/kemudi/internal/podnet/nft/table"
)

// Config is what the rules depend on apart from the objects of the cluster.
type Config struct {
	// NodeName is the name of the Node this is.
	NodeName string
	// ClusterCIDRs are the addresses of all pods of the cluster. When empty,
	// connections from outside to cluster IPs are not masqueraded, and clients in
	// pods are not told from others.
	ClusterCIDRs []netip.Prefix
	// ServiceCIDRs are the addresses that cluster IPs are taken from. Packets to
	// those that no Service has are dropped. Optional.
	ServiceCIDRs []netip.Prefix
	// NodePortAddresses limits the node's addresses that node ports, and the ports of
	// health checks, are served on. When it is empty and NodePortPrimary is not set, they are all.
	NodePortAddresses []netip.Prefix
	// NodePortPrimary adds to them the node's first address of each family, as its
	// Node object says.
	NodePortPrimary bool
	// MasqueradeAll hides the source of all connections to cluster IPs.
	MasqueradeAll bool
	// Edge says that this node has an edge, which takes what comes to balancers that do more than pass on packets.
	Edge bool
	// Userspace has connections carried by this process (package userspace), which says where they go.
	Userspace bool
	// Scheduler says to which endpoint the next connection goes.
	Scheduler Scheduler
}

// The chains that are always there.
const (
	chainServices           = "services"
	chainReject             = "reject"
	chainMasqueradeCheck    = "masquerade-check"
	chainMasqueradeInternal = "masquerade-internal"
	chainMasqueradeLocal    = "masquerade-local"
	chainMasquerade         = "masquerade"
)

// Priorities of the nat hooks (NF_IP_PRI_NAT_DST and NF_IP_PRI_NAT_SRC).
const (
	priorityDNAT = -100
	prioritySNAT = 100
)

// affinitySize bounds how many pairs of client and service port are remembered
// for session affinity in one family.
const affinitySize = 1 << 20

// sets are the declarations of the sets of both tables.
var sets = [len(families)][setCount]*table.Set{declare(nft.IPv4), declare(nft.IPv6)}

// affinities are the sets that rules fill, of both tables.
var affinities = [len(families)]*table.Set{declareAffinity(nft.IPv4), declareAffinity(nft.IPv6)}

func declare(f nft.Family) (all [setCount]*table.Set) {
	for s := range setCount {
		all[s] = &table.Set{Set: kernelSet(s, f)}
	}
	for _, s := range []Set{Actions, GuardedActions, PoolActions, NoteActions, MasqueradeActions, ServiceIPs, NodePorts, MasqueradeIPs, MasqueradePorts} {
		all[s].Show = show
	}
	return all
}

// kernelSet is the declaration of a set.
func kernelSet(s Set, f nft.Family) nft.Set {
	addr := nft.AddrOf(f)
	frontend := []nft.Field{addr, nft.Proto, nft.Port}
	port := []nft.Field{nft.Proto, nft.Port}
	endpoint := []nft.Field{addr, nft.Port}
	place := []nft.Field{nft.Integer, nft.Proto, addr, nft.Port, nft.Integer}
	// The first word of these is unused: see the statements that choose.
	actions := []nft.Field{nft.Integer, nft.Integer, nft.Integer, nft.Integer, nft.Integer}
	owner := []nft.Field{nft.Integer, nft.Proto, addr, nft.Port}
	set := nft.Set{Name: s.String()}
	switch s {
	case Actions, GuardedActions, PoolActions, NoteActions, MasqueradeActions:
		set.Key, set.Data = []nft.Field{nft.Integer}, []nft.Field{nft.Verdict}
	case ServiceIPs:
		set.Key, set.Data = frontend, actions
	case ServiceOwners:
		set.Key, set.Data = frontend, owner
	case ServiceEndpoints:
		set.Key, set.Data = place, endpoint
	case StickyPicks:
		set.Key, set.Data = place, append([]nft.Field{nft.Integer}, endpoint...)
	case StickyCluster, StickyLocal:
		set.Key = []nft.Field{addr, nft.Port, nft.Proto, addr, nft.Port}
	case Sources:
		set.Key, set.Interval = []nft.Field{nft.Proto, addr, nft.Port, addr}, true
	case ClusterIPs, OtherIPs:
		set.Key = []nft.Field{addr}
	case NodePorts:
		set.Key, set.Data = port, actions
	case NodePortOwners:
		set.Key, set.Data = port, owner
	case HostPortIPs:
		set.Key, set.Data = frontend, endpoint
	case HostPorts:
		set.Key, set.Data = port, endpoint
	case Hairpin:
		set.Key = []nft.Field{addr, addr}
	case MasqueradeIPs:
		set.Key, set.Data = frontend, actions[:2]
	case MasqueradePorts:
		set.Key, set.Data = port, actions[:2]
	}
	return set
}

func declareAffinity(f nft.Family) *table.Set {
	addr := nft.AddrOf(f)
	return &table.Set{Keep: true, Set: nft.Set{
		Name: affinitySet, Dynamic: true, Timeout: 3 * time.Hour, Size: affinitySize,
		Key: []nft.Field{addr, nft.Proto, addr, nft.Port}, Data: []nft.Field{nft.Integer, addr, nft.Port}, // the first is unused
	}}
}

// baseChains returns the chains that depend on nothing but the configuration and
// the node.
func baseChains(c *Config, node *NodeFacts, f nft.Family) []table.Chain {
	jumpToServices := []table.Rule{{verdict{nft.Jump, chainServices}}}
	return []table.Chain{
		{Name: "prerouting", Hook: &nft.Hook{Type: "nat", Num: unix.NF_INET_PRE_ROUTING, Priority: priorityDNAT}, Rules: jumpToServices},
		{Name: "output", Hook: &nft.Hook{Type: "nat", Num: unix.NF_INET_LOCAL_OUT, Priority: priorityDNAT}, Rules: jumpToServices},
		{Name: "postrouting", Hook: &nft.Hook{Type: "nat", Num: unix.NF_INET_POST_ROUTING, Priority: prioritySNAT}, Rules: []table.Rule{
			{redirected{}, verdict{nft.Goto, chainMasqueradeCheck}},
		}},
		// What connection tracking makes nothing of is not translated back either: the
		// client would get it from an address that it knows nothing of, and answer with a
		// reset that ends the connection.
		{Name: "forward", Hook: &nft.Hook{Type: "filter", Num: unix.NF_INET_FORWARD}, Rules: []table.Rule{{invalid{}, verdict{nft.Drop, ""}}}},
		{Name: chainServices, Rules: serviceRules(c, node, f)},
		{Name: chainReject, Rules: []table.Rule{{rejectTCP{}}, {reject{}}}},
		{Name: chainMasqueradeCheck, Rules: []table.Rule{
			{masqueradeBy{originalDestination, MasqueradeIPs}},
			{in{originalAddr, ClusterIPs}, verdict{nft.Goto, chainMasqueradeInternal}},
			{masqueradeBy{originalPort, MasqueradePorts}},
		}},
		{Name: chainMasqueradeInternal, Rules: internalMasqueradeRules(c, f)},
		{Name: chainMasqueradeLocal, Rules: []table.Rule{
			{in{sourceAndAddr, Hairpin}, verdict{nft.Goto, chainMasquerade}},
			{fromLocal{}, verdict{nft.Goto, chainMasquerade}},
		}},
		{Name: chainMasquerade, Rules: []table.Rule{{masquerade{}}}},
	}
}

// baseElems are the elements that are always there.
func baseElems(f nft.Family) []table.Elem {
	var elems []table.Elem
	action := func(n uint32, verdict string, maps ...Set) {
		for _, s := range maps {
			elems = append(elems, Key{Set: s, Index: n}.elem(f, Value{Verdict: verdict}))
		}
	}
	action(actionReject, table.Goto(chainReject), Actions, GuardedActions)
	action(actionDrop, table.Drop, Actions, GuardedActions, PoolActions, NoteActions)
	action(actionMasquerade, table.Goto(chainMasquerade), MasqueradeActions)
	action(actionMasqueradeLocal, table.Goto(chainMasqueradeLocal), MasqueradeActions)
	return elems
}

// serviceRules find out what to do with the first packet of a connection.
func serviceRules(c *Config, node *NodeFacts, f nft.Family) []table.Rule {
	rules := []table.Rule{
		{act{byIP, wordDo, Actions}},
		{in{destinationAddr, ClusterIPs}, verdict{nft.Goto, chainReject}},
		{in{destinationAddr, OtherIPs}, verdict{nft.Return, ""}},
	}
	for _, p := range ofFamily(c.ServiceCIDRs, f) {
		rules = append(rules, table.Rule{to{p}, verdict{nft.Drop, ""}})
	}
	if f == nft.IPv6 {
		// A packet from ::1 can go nowhere else, and IPv6 has no way to allow it to. Who
		// listens there is this process (loopback.go), or nobody, which refuses at once.
		// From another address of the node it can.
		itself := netip.PrefixFrom(loopback, loopback.BitLen())
		rules = append(rules, table.Rule{from{itself, false}, to{itself}, verdict{nft.Accept, ""}})
	}
	only, everywhere := c.nodePortRanges(node)
	if everywhere {
		rules = append(rules, table.Rule{toLocal{}, act{byPort, wordDo, Actions}})
	}
	for _, p := range ofFamily(only, f) {
		rules = append(rules, table.Rule{to{p}, toLocal{}, act{byPort, wordDo, Actions}})
	}
	return append(rules,
		table.Rule{dnatMap{destination, HostPortIPs}},
		table.Rule{toLocal{}, dnatMap{destinationPort, HostPorts}})
}

// internalMasqueradeRules decide about connections to cluster IPs: those from
// outside the cluster must come back through this node.
func internalMasqueradeRules(c *Config, f nft.Family) []table.Rule {
	var rules []table.Rule
	if c.MasqueradeAll {
		return []table.Rule{{verdict{nft.Goto, chainMasquerade}}}
	}
	if pods := ofFamily(c.ClusterCIDRs, f); len(pods) > 0 {
		var outside table.Rule
		for _, p := range pods {
			outside = append(outside, from{p, true})
		}
		rules = append(rules, append(outside, verdict{nft.Goto, chainMasquerade}))
	}
	return append(rules, table.Rule{verdict{nft.Goto, chainMasqueradeLocal}})
}

// nodePortRanges are where those addresses of the node are at which node ports are served, unless that is everywhere.
func (c *Config) nodePortRanges(node *NodeFacts) (only []netip.Prefix, everywhere bool) {
	if c.NodePortPrimary {
		return slices.Concat(c.NodePortAddresses, node.Primary), false
	}
	return c.NodePortAddresses, len(c.NodePortAddresses) == 0
}

func ofFamily(prefixes []netip.Prefix, f nft.Family) []netip.Prefix {
	var found []netip.Prefix
	for _, p := range prefixes {
		if familyOf(p.Addr()) == f {
			found = append(found, p)
		}
	}
	return found
}
