package loadbalancer

import (
	"net/netip"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/version"
)

// most is how many nodes a Service has the addresses of: its status is told to every node.
const most = 100

// machine is what of a node matters to balancers.
type machine struct {
	name     string
	ready    bool
	internal []netip.Addr
	external []netip.Addr
	kubelet  int32 // port of the node agent
	cordoned bool
	edge     bool // it has one: it is a node of this program's
}

func machineOf(n *corev1.Node) machine {
	m := machine{name: n.Name, ready: core.NodeIsReady(n), kubelet: n.Status.DaemonEndpoints.KubeletEndpoint.Port, cordoned: n.Spec.Unschedulable, edge: version.Ours(n.Status.NodeInfo.KubeletVersion)}
	for _, a := range n.Status.Addresses {
		ip, err := netip.ParseAddr(a.Address)
		if err != nil || !ip.IsGlobalUnicast() {
			continue
		}
		switch ip = ip.Unmap(); a.Type {
		case corev1.NodeInternalIP:
			m.internal = append(m.internal, ip)
		case corev1.NodeExternalIP:
			m.external = append(m.external, ip)
		}
	}
	return m
}

// sameMachine says that a change of a node is none of the balancers.
func sameMachine(before, after resource.Object) bool {
	b, a := before.(*corev1.Node), after.(*corev1.Node)
	x, y := machineOf(b), machineOf(a)
	return core.BalancersServe(b) == core.BalancersServe(a) && x.ready == y.ready && x.kubelet == y.kubelet && x.cordoned == y.cordoned && x.edge == y.edge && slices.Equal(x.internal, y.internal) && slices.Equal(x.external, y.external)
}

// machines are the nodes that balancers may lead to, as all Services see them: one change of a
// node is one for each Service, and they are looked for once.
type machines struct {
	mu struct {
		sync.Mutex
		rev   int64
		found []machine
	}
}

// of are these nodes, by name: shared, and read-only. While no node is ready, nobody knows better
// than that those which were there are.
func (s *machines) of(nodes client.Reader[*corev1.Node]) []machine {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := nodes.Snapshot()
	if s.mu.found != nil && s.mu.rev == all.Rev {
		return s.mu.found
	}
	found, ready := []machine{}, []machine{}
	all.Scan("", "", func(it *cache.Item) bool {
		if n := it.Object.(*corev1.Node); core.BalancersServe(n) {
			m := machineOf(n)
			found = append(found, m)
			if m.ready {
				ready = append(ready, m)
			}
		}
		return true
	})
	if len(ready) > 0 {
		found = ready
	}
	s.mu.rev, s.mu.found = all.Rev, found
	return found
}

// spot is an address of a node.
type spot struct {
	addr    netip.Addr
	node    string
	kubelet int32
}

// spots are the addresses of nodes that a Service may have, in the order of its families and of
// the nodes' names: those outside of the cluster, or, where no node has one of the family or nobody
// outside is to reach it, those within.
func spots(a *ask, nodes []machine) []spot {
	var all []spot
	for _, family := range a.families {
		var of []spot
		for _, kind := range []func(m *machine) []netip.Addr{
			func(m *machine) []netip.Addr { return m.external }, func(m *machine) []netip.Addr { return m.internal },
		} {
			if a.internal {
				kind = func(m *machine) []netip.Addr { return m.internal }
			}
			for i := range nodes {
				for _, addr := range kind(&nodes[i]) {
					if familyOf(addr) == family {
						of = append(of, spot{addr, nodes[i].name, nodes[i].kubelet})
						break // one of a node is enough
					}
				}
			}
			if len(of) > 0 {
				break
			}
		}
		all = append(all, of[:min(most, len(of))]...)
	}
	return all
}
