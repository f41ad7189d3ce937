package loadbalancer

import (
	"cmp"
	"hash/fnv"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/announce"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/discovery"
	"github.com/kemudi/kemudi/internal/cache"
)

// named is how many nodes are named for an address: one answers for it, the others stand by.
const named = 3

// announcers are the nodes that answer for an address, in this order: each address has an order of its
// own, of which a node that comes or goes changes nothing for the others. Nodes that are
// cordoned come last: they are about to be drained.
func announcers(addr netip.Addr, nodes []machine) []string {
	weight := func(m *machine) uint64 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(addr.String() + " " + m.name))
		x := h.Sum64() // of texts that end alike, too near each other
		x = (x ^ x>>33) * 0xff51afd7ed558ccd
		return x ^ x>>33
	}
	order := slices.Clone(nodes)
	slices.SortFunc(order, func(a, b machine) int {
		switch {
		case a.cordoned != b.cordoned && b.cordoned:
			return -1
		case a.cordoned != b.cordoned:
			return 1
		}
		return cmp.Or(cmp.Compare(weight(&b), weight(&a)), cmp.Compare(a.name, b.name))
	})
	var names []string
	for i := range order[:min(named, len(order))] {
		names = append(names, order[i].name)
	}
	return names
}

// announced says in the status of a Service which nodes answer for its addresses, and whether that is
// new; for those of nodes these do so themselves.
func (r *reconciler) announced(svc *corev1.Service, v *verdict) bool {
	if !v.pooled || len(v.addrs) == 0 {
		return meta.RemoveStatusCondition(&svc.Status.Conditions, core.ConditionAnnounced)
	}
	names, number := announcers(v.addrs[0], r.serving(svc)), uint32(1)
	if has := meta.FindStatusCondition(svc.Status.Conditions, core.ConditionAnnounced); has != nil {
		before, n, ok := announce.ParseList(has.Message)
		if ok && slices.Equal(before, names) {
			return false
		}
		number = n + 1
	}
	want := metav1.Condition{Type: core.ConditionAnnounced, Status: metav1.ConditionTrue, Reason: "Announced", Message: announce.Text(names, number)}
	if len(names) == 0 {
		want.Status, want.Reason = metav1.ConditionFalse, "NoNodes"
	}
	return meta.SetStatusCondition(&svc.Status.Conditions, want)
}

// serving are the nodes that lead to a Service: with externalTrafficPolicy Local, those that have
// endpoints of it; where more is asked than to pass on packets, those that have an edge.
func (r *reconciler) serving(svc *corev1.Service) []machine {
	nodes := r.machines.of(r.nodes.Reader)
	if svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
		here := discovery.ReadyNodes(r.slices.ByIndex(discovery.IndexService, cache.Key(svc.Namespace, svc.Name)))
		nodes = slices.DeleteFunc(slices.Clone(nodes), func(m machine) bool { return !here[m.name] })
	}
	if relay, err := core.RelayOf(svc); err == nil && relay != nil {
		nodes = slices.DeleteFunc(slices.Clone(nodes), func(m machine) bool { return !m.edge })
	}
	return nodes
}
