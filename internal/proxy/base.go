package proxy

import (
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/internal/podnet/nft"
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
	// NodePortAddresses limits the node's addresses that node ports are served
	// on. When it is empty and NodePortPrimary is not set, they are all.
	NodePortAddresses []netip.Prefix
	// NodePortPrimary adds to them the node's first address of each family, as its
	// Node object says.
	NodePortPrimary bool
	// MasqueradeAll hides the source of all connections to cluster IPs.
	MasqueradeAll bool
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

// kernelSet is the declaration of a set.
func kernelSet(s Set, f nft.Family) nft.Set {
	addr := nft.AddrOf(f)
	frontend := []nft.Field{addr, nft.Proto, nft.Port}
	port := []nft.Field{nft.Proto, nft.Port}
	endpoint := []nft.Field{addr, nft.Port}
	verdict := []nft.Field{nft.Verdict}
	set := nft.Set{Name: s.String()}
	switch s {
	case ServiceIPs, MasqueradeIPs:
		set.Key, set.Data = frontend, verdict
	case ServicePicks:
		set.Key, set.Data = frontend, []nft.Field{nft.Integer, nft.Integer} // the first is unused: see hidden
	case Picks:
		set.Key, set.Data = []nft.Field{nft.Integer}, verdict
	case ServiceEndpoints:
		set.Key, set.Data = append(frontend, nft.Integer), endpoint
	case ClusterIPs:
		set.Key = []nft.Field{addr}
	case NodePorts, MasqueradePorts:
		set.Key, set.Data = port, verdict
	case HostPortIPs:
		set.Key, set.Data = frontend, endpoint
	case HostPorts:
		set.Key, set.Data = port, endpoint
	case Hairpin:
		set.Key = []nft.Field{addr, addr}
	}
	return set
}

func kernelAffinitySet(f nft.Family) nft.Set {
	addr := nft.AddrOf(f)
	return nft.Set{
		Name: affinitySet, Dynamic: true, Timeout: 3 * time.Hour, Size: affinitySize,
		Key: []nft.Field{addr, addr, nft.Proto, nft.Port}, Data: []nft.Field{nft.Integer, addr, nft.Port}, // the first is unused: see hidden
	}
}

// baseChains returns the chains that depend on nothing but the configuration and
// the node.
func baseChains(c *Config, node *NodeFacts, f nft.Family) []Chain {
	jumpToServices := []Rule{{verdict{nft.Jump, chainServices}}}
	return []Chain{
		{Name: "prerouting", Hook: &nft.Hook{Type: "nat", Num: unix.NF_INET_PRE_ROUTING, Priority: priorityDNAT}, Rules: jumpToServices},
		{Name: "output", Hook: &nft.Hook{Type: "nat", Num: unix.NF_INET_LOCAL_OUT, Priority: priorityDNAT}, Rules: jumpToServices},
		{Name: "postrouting", Hook: &nft.Hook{Type: "nat", Num: unix.NF_INET_POST_ROUTING, Priority: prioritySNAT}, Rules: []Rule{
			{redirected{}, verdict{nft.Goto, chainMasqueradeCheck}},
		}},
		{Name: chainServices, Rules: serviceRules(c, node, f)},
		{Name: chainReject, Rules: []Rule{{rejectTCP{}}, {reject{}}}},
		{Name: chainMasqueradeCheck, Rules: []Rule{
			{vmap{originalDestination, MasqueradeIPs}},
			{in{originalAddr, ClusterIPs}, verdict{nft.Goto, chainMasqueradeInternal}},
			{vmap{originalPort, MasqueradePorts}},
		}},
		{Name: chainMasqueradeInternal, Rules: internalMasqueradeRules(c, f)},
		{Name: chainMasqueradeLocal, Rules: []Rule{
			{in{sourceAndAddr, Hairpin}, verdict{nft.Goto, chainMasquerade}},
			{fromLocal{}, verdict{nft.Goto, chainMasquerade}},
		}},
		{Name: chainMasquerade, Rules: []Rule{{masquerade{}}}},
	}
}

// baseElems are the elements that are always there.
func baseElems() []Elem {
	return []Elem{
		{Key{Set: Picks, Index: countReject}, Value{Goto: chainReject}},
		{Key{Set: Picks, Index: countDrop}, Value{Drop: true}},
	}
}

// serviceRules find out what to do with the first packet of a connection.
func serviceRules(c *Config, node *NodeFacts, f nft.Family) []Rule {
	rules := []Rule{
		{count{}},
		{vmap{destination, ServiceIPs}},
		{in{destinationAddr, ClusterIPs}, verdict{nft.Goto, chainReject}},
	}
	for _, p := range ofFamily(c.ServiceCIDRs, f) {
		rules = append(rules, Rule{to{p}, verdict{nft.Drop, ""}})
	}
	if f == nft.IPv6 {
		// A packet from ::1 can go nowhere else, and IPv6 has no way to allow it to:
		// better a refusal at once, from the port that nobody listens on.
		rules = append(rules, Rule{to{netip.PrefixFrom(netip.IPv6Loopback(), 128)}, verdict{nft.Accept, ""}})
	}
	only := c.NodePortAddresses
	if c.NodePortPrimary {
		only = slices.Concat(only, node.Primary)
	} else if len(only) == 0 {
		rules = append(rules, Rule{toLocal{}, vmap{destinationPort, NodePorts}})
	}
	for _, p := range ofFamily(only, f) {
		rules = append(rules, Rule{to{p}, toLocal{}, vmap{destinationPort, NodePorts}})
	}
	return append(rules,
		Rule{dnatMap{destination, HostPortIPs}},
		Rule{toLocal{}, dnatMap{destinationPort, HostPorts}})
}

// internalMasqueradeRules decide about connections to cluster IPs: those from
// outside the cluster must come back through this node.
func internalMasqueradeRules(c *Config, f nft.Family) []Rule {
	var rules []Rule
	if c.MasqueradeAll {
		return []Rule{{verdict{nft.Goto, chainMasquerade}}}
	}
	if pods := ofFamily(c.ClusterCIDRs, f); len(pods) > 0 {
		var outside Rule
		for _, p := range pods {
			outside = append(outside, from{p, true})
		}
		rules = append(rules, append(outside, verdict{nft.Goto, chainMasquerade}))
	}
	return append(rules, Rule{verdict{nft.Goto, chainMasqueradeLocal}})
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
