package netpolicy

import (
	"maps"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/podnet/nft"
	"github.com/kemudi/kemudi/internal/podnet/nft/table"
)

// tableName is the name of our tables, one for each family.
const tableName = "kemudi-policy"

// families are the families that rules are made for.
var families = [...]nft.Family{nft.IPv4, nft.IPv6}

// familyOf is the place of an address's family in lists of them.
func familyOf(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

// tables are the tables of both families.
func tables() []nft.Table {
	list := make([]nft.Table, len(families))
	for i, f := range families {
		list[i] = nft.Table{Family: f, Name: tableName}
	}
	return list
}

// Model turns policies, pods and namespaces into the rules of one node, incrementally: objects
// are set and deleted as they change, and Commit compiles what that has touched. It is
// pure: no I/O, no clock. It belongs to one goroutine.
type Model struct {
	node     string
	pods     map[types.NamespacedName]*pod
	spaces   map[string]*space
	policies int
	at       map[netip.Addr]map[*pod]bool // the pods that have an address
	attached map[types.NamespacedName]attachment
	holders  map[netip.Addr]types.NamespacedName // of the attachments

	peers    map[string]*peers   // in use, by text
	anywhere directory           // those of them that may have pods of several namespaces
	fresh    []*peers            // those of them that have no pods yet
	profiles map[string]*profile // in use, by text
	dirty    map[*pod]bool       // pods of this node whose profiles are to be looked at
	gone     map[*pod]bool       // pods to be forgotten by Commit

	rechecks map[netip.Addr]uint64 // what is in @recheck, and the round in which it was put there last
	round    uint64

	lastSet, lastProfile int // numbers that were given away
	tables               [len(families)]*table.Model
	fixed                [len(families)]fixedSets
}

// space is what the model knows of a namespace.
type space struct {
	labels   labels.Set
	known    bool // there is such a namespace
	policies map[string]*policy
	pods     map[*pod]bool
	peers    directory // those in use, of pods of this namespace alone
}

// NewModel returns the model of a node in an empty cluster.
func NewModel(node string) *Model {
	m := &Model{
		node: node, pods: map[types.NamespacedName]*pod{}, spaces: map[string]*space{}, at: map[netip.Addr]map[*pod]bool{},
		attached: map[types.NamespacedName]attachment{}, holders: map[netip.Addr]types.NamespacedName{},
		peers: map[string]*peers{}, profiles: map[string]*profile{},
		dirty: map[*pod]bool{}, gone: map[*pod]bool{}, rechecks: map[netip.Addr]uint64{},
	}
	for i, t := range tables() {
		m.tables[i], m.fixed[i] = table.New(t), newFixedSets(t.Family)
		m.fixed[i].declare(m.tables[i])
	}
	return m
}

// space returns what is known of a namespace.
func (m *Model) space(name string) *space {
	s := m.spaces[name]
	if s == nil {
		s = &space{policies: map[string]*policy{}, pods: map[*pod]bool{}}
		m.spaces[name] = s
	}
	return s
}

// tidy forgets a namespace of which nothing is known.
func (m *Model) tidy(name string) {
	if s := m.spaces[name]; s != nil && !s.known && len(s.policies)+len(s.pods) == 0 && s.peers.empty() {
		delete(m.spaces, name)
	}
}

// SetNamespace takes in a namespace that is new or changed.
func (m *Model) SetNamespace(ns *corev1.Namespace) { m.relabel(ns.Name, true, ns.Labels) }

// DeleteNamespace forgets a namespace.
func (m *Model) DeleteNamespace(name string) {
	m.relabel(name, false, nil)
	m.tidy(name)
}

func (m *Model) relabel(name string, known bool, now labels.Set) {
	s := m.space(name)
	same := maps.Equal(s.labels, now)
	s.known, s.labels = known, now
	if same {
		return
	}
	for p := range s.pods {
		m.change(p, p.facts)
	}
}

// SetPolicy takes in a policy that is new or changed.
func (m *Model) SetPolicy(np *networkingv1.NetworkPolicy) {
	m.setPolicy(np.Namespace, np.Name, readPolicy(np))
}

// DeletePolicy forgets a policy.
func (m *Model) DeletePolicy(namespace, name string) { m.setPolicy(namespace, name, nil) }

func (m *Model) setPolicy(namespace, name string, now *policy) {
	s := m.space(namespace)
	was := s.policies[name]
	switch {
	case now == nil && was == nil:
	case now == nil:
		delete(s.policies, name)
		m.policies--
	default:
		if was == nil {
			m.policies++
		}
		s.policies[name] = now
	}
	for p := range s.pods {
		if p.facts.local && (was != nil && was.selects.Matches(p.facts.labels) || now != nil && now.selects.Matches(p.facts.labels)) {
			m.dirty[p] = true
		}
	}
	m.tidy(namespace)
}

// Policies is how many policies there are.
func (m *Model) Policies() int { return m.policies }

// Isolated reports whether the rules hold back anything of a pod. Nothing must be
// uncommitted.
func (m *Model) Isolated(key types.NamespacedName) bool {
	p := m.pods[key]
	return p != nil && p.isolated()
}

// Isolations are how many pods of this node may not have all connections, by direction.
func (m *Model) Isolations() (n [len(directions)]int) {
	for _, pr := range m.profiles {
		n[pr.way] += pr.users
	}
	return n
}

// recheck has what is known of connections of addresses judged again (N4).
func (m *Model) recheck(addrs ...netip.Addr) {
	for _, a := range addrs {
		if _, in := m.rechecks[a]; !in {
			m.tables[familyOf(a)].Claim(nil, table.Elem{ID: m.fixed[familyOf(a)].recheckID(a)})
		}
		m.rechecks[a] = m.round
	}
}

// Round begins a new round of looking for connections that are forbidden now, and reports
// whether there is anything to look for.
func (m *Model) Round() (round uint64, due bool) {
	round = m.round
	m.round++
	return round, len(m.rechecks) > 0
}

// Rechecked says that the connections that a round was about have been ended.
func (m *Model) Rechecked(round uint64) {
	for a, in := range m.rechecks {
		if in <= round {
			delete(m.rechecks, a)
			m.tables[familyOf(a)].Release(nil, m.fixed[familyOf(a)].recheckID(a))
		}
	}
}

// Commit compiles what has been touched since the last call, and returns what is to be
// changed in each table. The caller brings that to the kernel, or, if it cannot, later asks for
// everything with Full.
func (m *Model) Commit() []table.Changes {
	m.settle()
	list := make([]table.Changes, len(families))
	for i := range families {
		list[i] = m.tables[i].Commit()
	}
	return list
}

// Full is everything that the tables are to hold. Nothing must be uncommitted. With it all that
// is known of connections of this node's pods is judged again: nobody knows what the
// rules have been.
func (m *Model) Full() []table.Changes {
	for _, p := range m.pods {
		if p.isolated() {
			m.recheck(p.targets...)
		}
	}
	m.Commit()
	list := make([]table.Changes, len(families))
	for i := range families {
		list[i] = m.tables[i].Full()
	}
	return list
}
