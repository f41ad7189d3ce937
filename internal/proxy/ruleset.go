package proxy

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/kemudi/kemudi/internal/podnet/nft"
	"github.com/kemudi/kemudi/internal/podnet/nft/table"
)

// tableName is the name of our tables, one for each family.
const tableName = "kemudi"

// families are the families that rules are made for.
var families = [...]nft.Family{nft.IPv4, nft.IPv6}

// indexOf is the family's place in arrays.
func indexOf(f nft.Family) int {
	if f == nft.IPv6 {
		return 1
	}
	return 0
}

func tableOf(f nft.Family) nft.Table { return nft.Table{Family: f, Name: tableName} }

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

func (p Proto) String() string { return table.ProtoText(uint8(p)) }

// Set is one of the named sets of a table.
type Set uint8

// The sets whose elements the model decides. Which fields of a Key count, and
// what a Value holds, is said behind each. A port is named by its protocol, cluster IP
// and port, for all its frontends.
const (
	Actions           Set = iota // Index, which is an action : verdict, for wordDo of a frontend
	GuardedActions               // the same, for wordGuarded
	PoolActions                  // the same, for the endpoints of all nodes and of this one
	NoteActions                  // the same, where one is noted for the client
	MasqueradeActions            // the same, for the way out
	ServiceIPs                   // Addr . Proto . Port : Front
	ServiceOwners                // Addr . Proto . Port : Owner, unless the frontend is its own
	ServiceEndpoints             // Pool . Proto . Addr . Port . Index : To
	StickyPicks                  // the same, for ports with affinity
	StickyCluster                // Addr . Port . Proto . To: what may be recalled of all endpoints
	StickyLocal                  // the same of those of this node
	Sources                      // Proto . Addr . Port . Range, where a balancer has source ranges
	ClusterIPs                   // Addr
	OtherIPs                     // Addr: cluster IPs that are another proxy's affair
	NodePorts                    // Proto . Port : Front
	NodePortOwners               // Proto . Port : Owner
	HostPortIPs                  // Addr . Proto . Port : To
	HostPorts                    // Proto . Port : To
	Hairpin                      // Addr . Addr: local endpoints, as source and destination of one packet
	MasqueradeIPs                // Addr . Proto . Port of the original destination : Front.Do
	MasqueradePorts              // Proto . Port of the original destination : Front.Do
	setCount
)

// affinitySet is the set that rules add to by themselves: which endpoint a
// client was given last. Client . Proto . cluster IP . Port : unused . endpoint.
const affinitySet = "affinity"

var setNames = [setCount]string{
	"actions", "guarded-actions", "pool-actions", "note-actions", "masquerade-actions", "service-ips", "service-owners", "service-endpoints", "sticky-picks", "sticky-cluster", "sticky-local", "sources",
	"cluster-ips", "other-ips", "service-nodeports", "nodeport-owners", "hostport-ips", "hostports", "hairpin", "masquerade-ips", "masquerade-ports",
}

func (s Set) String() string { return setNames[s] }

// Key is the key of an element; fields that do not count for the set are zero.
type Key struct {
	Set   Set
	Proto Proto
	Port  uint16
	Index uint32
	Pool  uint32
	Addr  netip.Addr
	To    netip.AddrPort
	Range netip.Prefix
}

// id is the key as an element of the family's table has it.
func (k Key) id(f nft.Family) table.ID {
	return table.ID{Set: sets[indexOf(f)][k.Set], Key: string(k.join(make(nft.Key, 0, 64)))}
}

// join appends the fields that count for the set.
func (k Key) join(key nft.Key) nft.Key {
	proto := uint8(k.Proto)
	switch k.Set {
	case Actions, GuardedActions, PoolActions, NoteActions, MasqueradeActions:
		return key.Integer(k.Index)
	case ServiceEndpoints, StickyPicks:
		return key.Integer(k.Pool).Proto(proto).Addr(k.Addr).Port(k.Port).Integer(k.Index)
	case StickyCluster, StickyLocal:
		return key.Addr(k.Addr).Port(k.Port).Proto(proto).Addr(k.To.Addr()).Port(k.To.Port())
	case Sources:
		first, last := table.Bounds(k.Range)
		key = append(key.Proto(proto).Addr(k.Addr).Port(k.Port), first...)
		return append(key.Proto(proto).Addr(k.Addr).Port(k.Port), last...)
	case ClusterIPs, OtherIPs:
		return key.Addr(k.Addr)
	case Hairpin:
		return key.Addr(k.Addr).Addr(k.Addr)
	case NodePorts, NodePortOwners, HostPorts, MasqueradePorts:
		return key.Proto(proto).Port(k.Port)
	}
	return key.Addr(k.Addr).Proto(proto).Port(k.Port)
}

// elem is the element of the family's table that has the value for the key.
func (k Key) elem(f nft.Family, v Value) table.Elem {
	both := k.join(make(nft.Key, 0, 96))
	end := len(both)
	switch k.Set {
	case Actions, GuardedActions, PoolActions, NoteActions, MasqueradeActions:
		return table.Elem{ID: table.ID{Set: sets[indexOf(f)][k.Set], Key: string(both)}, Value: v.Verdict}
	case ServiceIPs, NodePorts:
		both = append(both, unused...).Integer(v.Do).Integer(v.Guarded).Integer(v.Cluster).Integer(v.Local)
	case MasqueradeIPs, MasqueradePorts:
		both = append(both, unused...).Integer(v.Do)
	case ServiceOwners, NodePortOwners:
		both = append(both, unused...).Proto(uint8(k.Proto)).Addr(v.To.Addr()).Port(v.To.Port())
	case StickyPicks:
		both = append(both, unused...).Addr(v.To.Addr()).Port(v.To.Port())
	case ServiceEndpoints, HostPortIPs, HostPorts:
		both = both.Addr(v.To.Addr()).Port(v.To.Port())
	}
	text := string(both) // of one piece: there are very many
	return table.Elem{ID: table.ID{Set: sets[indexOf(f)][k.Set], Key: text[:end]}, Value: text[end:]}
}

// Value is what a map has for a key: where a connection goes or which port a frontend
// belongs to (To), what a frontend does, or a verdict. Elements of plain sets have
// the zero Value.
type Value struct {
	Front
	To      netip.AddrPort
	Verdict string
}

// Front are the actions of a frontend; see word.
type Front struct{ Do, Guarded, Cluster, Local uint32 }

// String is what people read: what is done, and the words that are used on the way.
func (f Front) String() string {
	text := actionText(f.Do)
	for i, n := range []uint32{f.Guarded, f.Cluster, f.Local} {
		if n != 0 {
			text += fmt.Sprintf(", %s %s", wordNames[i+1], actionText(n))
		}
	}
	return text
}

// show is an element with actions as people read it.
func show(e table.Elem) string {
	v := e.Value
	if len(e.Key) == 4 && e.Set.Data[0] == nft.Verdict {
		return actionText(binary.NativeEndian.Uint32([]byte(e.Key))) + " : " + e.ValueText()
	}
	n := [5]uint32{}
	for i := range min(len(v)/4, len(n)) {
		n[i] = binary.NativeEndian.Uint32([]byte(v[4*i:]))
	}
	return e.KeyText() + " : " + Front{n[1], n[2], n[3], n[4]}.String()
}

func endpointText(ep netip.AddrPort) string { return fmt.Sprintf("%s . %d", ep.Addr(), ep.Port()) }
