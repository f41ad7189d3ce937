package nodeipam

import (
	"maps"
	"net/netip"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/controller"
)

// shares is who has which part of the addresses, and who waits for one. It may
// be used concurrently.
type shares struct {
	cidrs []netip.Prefix
	o     Options
	mu    struct {
		sync.Mutex
		nodes   controller.Client[*corev1.Node]
		given   map[string]string   // node name by share: also those that the cache does not show yet,
		unseen  map[string][]string // which are these, by the node's name
		waiting map[string]struct{} // names of the nodes that found none
		none    bool                // since the last look nothing can have become free
	}
}

// start forgets what an earlier run knew.
func (s *shares) start(nodes controller.Client[*corev1.Node]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.nodes, s.mu.none = nodes, false
	s.mu.given, s.mu.unseen, s.mu.waiting = map[string]string{}, map[string][]string{}, map[string]struct{}{}
}

// take gives a node the first free share of each family. If there is none, list is nil and
// the node waits; first says that it did not wait before.
func (s *shares) take(name string) (list []string, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if list = s.mu.unseen[name]; list == nil && !s.mu.none {
		s.lookLocked()
		list = s.findLocked(name)
	}
	if list == nil {
		_, waits := s.mu.waiting[name]
		s.mu.waiting[name], s.mu.none = struct{}{}, true
		return nil, !waits
	}
	for _, share := range list {
		s.mu.given[share] = name
	}
	s.mu.unseen[name] = list
	delete(s.mu.waiting, name)
	return list, false
}

// lookLocked takes in what the nodes have. Those that are gone have nothing any
// more: whoever was given a share has been in the cache before.
func (s *shares) lookLocked() {
	there := map[string]bool{}
	for _, n := range s.mu.nodes.List("", nil) {
		there[n.Name] = true
		for _, share := range n.Spec.PodCIDRs {
			s.mu.given[share] = n.Name
			delete(s.mu.unseen, n.Name)
		}
	}
	maps.DeleteFunc(s.mu.given, func(_, name string) bool { return !there[name] })
	maps.DeleteFunc(s.mu.unseen, func(name string, _ []string) bool { return !there[name] })
}

func (s *shares) findLocked(name string) []string {
	var list []string
	for _, cidr := range s.cidrs {
		share, ok := firstFree(cidr, s.o.bits(cidr), func(p netip.Prefix) bool {
			owner, taken := s.mu.given[p.String()]
			return !taken || owner == name
		})
		if !ok {
			return nil
		}
		list = append(list, share.String())
	}
	return list
}

// nodesNow are the nodes that there are.
func (s *shares) nodesNow() []*corev1.Node {
	s.mu.Lock()
	nodes := s.mu.nodes
	s.mu.Unlock()
	return nodes.List("", nil)
}

// free gives up what a node that is gone had or waited for, and returns the shares that it had.
func (s *shares) free(name string) (list []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.waiting, name)
	delete(s.mu.unseen, name)
	maps.DeleteFunc(s.mu.given, func(share, owner string) bool {
		if owner == name {
			list = append(list, share)
		}
		return owner == name
	})
	return list
}

// freed is who may have what a node had that is gone now: those who wait. The
// cache does not show that node any more.
func (s *shares) freed(n *corev1.Node) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(n.Spec.PodCIDRs) == 0 && s.mu.unseen[n.Name] == nil {
		return nil
	}
	s.mu.none = false
	return slices.Collect(maps.Keys(s.mu.waiting))
}
