package proxy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/kemudi/kemudi/internal/podnet/nft"
)

// tableName is the name of our tables, one for each family.
const tableName = "kemudi"

// families are the families that rules are made for.
var families = [...]nft.Family{nft.IPv4, nft.IPv6}

func familyOf(a netip.Addr) nft.Family {
	if a.Is4() {
		return nft.IPv4
	}
	return nft.IPv6
}

// Proto is a transport protocol, by its number in the IP header.
type Proto uint8

// The protocols of Service ports.
const (
	TCP  Proto = 6
	UDP  Proto = 17
	SCTP Proto = 132
)

func (p Proto) String() string {
	switch p {
	case TCP:
		return "tcp"
	case UDP:
		return "udp"
	case SCTP:
		return "sctp"
	}
	return fmt.Sprintf("proto-%d", uint8(p))
}

// Set is one of the named sets of a table.
type Set uint8

// The sets whose elements the model decides. Which fields of a Key count, and
// what a Value holds, is said behind each.
const (
	ServicePicks     Set = iota // Addr . Proto . Port : Count, for plain cluster IP ports
	Picks                       // Index, which is a Count : verdict
	ServiceEndpoints            // Addr . Proto . Port . Index : To
	ServiceIPs                  // Addr . Proto . Port : verdict, for all ports that are not plain
	ClusterIPs                  // Addr
	NodePorts                   // Proto . Port : verdict
	HostPortIPs                 // Addr . Proto . Port : To
	HostPorts                   // Proto . Port : To
	Hairpin                     // Addr . Addr: local endpoints, as source and destination of one packet
	MasqueradeIPs               // Addr . Proto . Port of the original destination : verdict
	MasqueradePorts             // Proto . Port of the original destination : verdict
	setCount
)

// affinitySet is the set that rules add to by themselves: which endpoint a
// client was given last. Client . cluster IP . Proto . Port : unused . endpoint.
const affinitySet = "affinity"

var setNames = [setCount]string{
	"service-picks", "picks", "service-endpoints", "service-ips", "cluster-ips", "service-nodeports",
	"hostport-ips", "hostports", "hairpin", "masquerade-ips", "masquerade-ports",
}

func (s Set) String() string { return setNames[s] }

// Key is the key of an element; fields that do not count for the set are zero.
type Key struct {
	Set   Set
	Proto Proto
	Port  uint16
	Index uint32
	Addr  netip.Addr
}

func (k Key) compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Set, o.Set), k.Addr.Compare(o.Addr), cmp.Compare(k.Proto, o.Proto),
		cmp.Compare(k.Port, o.Port), cmp.Compare(k.Index, o.Index))
}

func (k Key) String() string {
	switch k.Set {
	case ServiceEndpoints:
		return fmt.Sprintf("%s . %s . %d . %d", k.Addr, k.Proto, k.Port, k.Index)
	case Picks:
		return countText(k.Index)
	case ClusterIPs:
		return k.Addr.String()
	case NodePorts, HostPorts, MasqueradePorts:
		return fmt.Sprintf("%s . %d", k.Proto, k.Port)
	case Hairpin:
		return fmt.Sprintf("%s . %s", k.Addr, k.Addr)
	}
	return fmt.Sprintf("%s . %s . %d", k.Addr, k.Proto, k.Port)
}

// Value is what a map has for a key: where a connection goes (To), from how
// many endpoints to pick (Count), or a verdict: to drop the packet, or to go on
// in the chain Goto. Elements of plain sets have the zero Value.
type Value struct {
	Drop  bool
	Goto  string
	To    netip.AddrPort
	Count uint32
}

// Counts of endpoints that say why there are none: refuse or drop the packet.
const (
	countReject = 0
	countDrop   = 1<<32 - 1
)

func countText(n uint32) string {
	if n == countDrop {
		return "none-here"
	}
	return strconv.FormatUint(uint64(n), 10)
}

func (v Value) String() string {
	switch {
	case v.Drop:
		return "drop"
	case v.Goto != "":
		return "goto " + v.Goto
	case v.To.IsValid():
		return endpointText(v.To)
	}
	return ""
}

func endpointText(ep netip.AddrPort) string { return fmt.Sprintf("%s . %d", ep.Addr(), ep.Port()) }

// Elem is an element of a set.
type Elem struct {
	Key
	Value
}

func (e Elem) String() string {
	if e.Set == ServicePicks {
		return e.Key.String() + " : " + countText(e.Count)
	}
	if v := e.Value.String(); v != "" {
		return e.Key.String() + " : " + v
	}
	return e.Key.String()
}

// Chain is a named list of rules. Hook is nil unless the kernel calls it.
type Chain struct {
	Name  string
	Hook  *nft.Hook
	Rules []Rule
}

// Rule is a list of statements: each goes on to the next one if its condition
// holds, and the last one says what to do.
type Rule []Statement

// Text writes the rule as the nft program would, as far as its language goes.
func (r Rule) Text(f nft.Family) string {
	words := make([]string, len(r))
	for i, s := range r {
		words[i] = s.text(f)
	}
	return strings.Join(words, " ")
}

// text is the whole chain, one rule a line.
func (c Chain) text(f nft.Family) string {
	var b strings.Builder
	fmt.Fprintf(&b, "chain %s {\n", c.Name)
	if c.Hook != nil {
		fmt.Fprintf(&b, "  type %s hook %d priority %d\n", c.Hook.Type, c.Hook.Num, c.Hook.Priority)
	}
	for _, r := range c.Rules {
		fmt.Fprintf(&b, "  %s\n", r.Text(f))
	}
	b.WriteString("}\n")
	return b.String()
}

// Changes is what is to be done to the table of one family. With Full set it
// is all the table is to hold; otherwise it applies to what the table holds.
type Changes struct {
	Family nft.Family
	Full   bool
	// Chains are made, or emptied if they exist, and get these rules.
	Chains    []Chain
	DelChains []string
	// An element with a new value is in both lists.
	Del []Elem
	Add []Elem
}

// Empty says that there is nothing to do.
func (c *Changes) Empty() bool {
	return !c.Full && len(c.Chains)+len(c.DelChains)+len(c.Del)+len(c.Add) == 0
}

// Text lists the changes in a fixed order, for people and tests.
func (c *Changes) Text() string {
	var b strings.Builder
	for _, name := range c.DelChains {
		fmt.Fprintf(&b, "delete chain %s\n", name)
	}
	byKey := func(a, b Elem) int { return a.compare(b.Key) }
	for _, e := range slices.SortedFunc(slices.Values(c.Del), byKey) {
		fmt.Fprintf(&b, "delete @%s %s\n", e.Set, e)
	}
	for _, e := range slices.SortedFunc(slices.Values(c.Add), byKey) {
		fmt.Fprintf(&b, "add @%s %s\n", e.Set, e)
	}
	byName := func(a, b Chain) int { return strings.Compare(a.Name, b.Name) }
	for _, ch := range slices.SortedFunc(slices.Values(c.Chains), byName) {
		b.WriteString(ch.text(c.Family))
	}
	return b.String()
}
