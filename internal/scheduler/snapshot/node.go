package snapshot

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Node is a node and what is taken of it. Allocatable and Used are by the
// resources' indexes; what is beyond their length is 0.
type Node struct {
	Name string
	Obj  *corev1.Node // nil: only pods say that there is such a node
	// Edition is the number of the present state of the node, of the pods on it and of those that hold
	// a place there; no other state of any node has had it.
	Edition   uint64
	Nominated []*Pod // pending pods that hold a place here
	slot      int32  // index in arrays by node; up here beside what every search looks at

	Unschedulable bool
	Taints        *Taints // nil: none
	Allocatable   []int64
	AllowedPods   int64

	Used      []int64
	Scored    [2]int64 // CPU and memory used, for scores
	Pods      []*Pod   // in no order
	HostPorts map[HostPort]int
}

// Slot is the node's index in arrays by node, below [Snapshot.Slots]. A node that comes gets
// that of one that went.
func (n *Node) Slot() int { return int(n.slot) }

// Slots is how long arrays by node have to be.
func (s *Snapshot) Slots() int { return len(s.slots) }

// Change says what of a node has changed, in the scheduler's eyes.
type Change uint8

// What can change.
const (
	NodeAdded Change = 1 << iota
	AllocatableChanged
	LabelsChanged
	TaintsChanged // or Unschedulable
	FeaturesChanged
)

// Free is how much of a resource is left; it may be negative.
func (n *Node) Free(resource int) int64 {
	var free int64
	if resource < len(n.Allocatable) {
		free = n.Allocatable[resource]
	}
	if resource < len(n.Used) {
		free -= n.Used[resource]
	}
	return free
}

// Has reports whether the node has any of a resource.
func (n *Node) Has(resource int) bool {
	return resource < len(n.Allocatable) && n.Allocatable[resource] != 0
}

func (n *Node) use(p *Pod, sign int64) {
	for _, a := range p.Requests {
		for a.Resource >= len(n.Used) {
			n.Used = append(n.Used, 0)
		}
		n.Used[a.Resource] += sign * a.Value
	}
	n.Scored[CPU] += sign * p.Scored[CPU]
	n.Scored[Memory] += sign * p.Scored[Memory]
	for _, port := range p.HostPorts {
		if n.HostPorts == nil {
			n.HostPorts = map[HostPort]int{}
		}
		n.HostPorts[port] += int(sign)
		if n.HostPorts[port] == 0 {
			delete(n.HostPorts, port)
		}
	}
}

// Node returns a known node, or nil.
func (s *Snapshot) Node(name string) *Node {
	if n := s.byName[name]; n != nil && n.Obj != nil {
		return n
	}
	return nil
}

// Len is the number of known nodes.
func (s *Snapshot) Len() int { return s.known }

// Nodes returns the known nodes, zone by zone in turn. The slice is the
// snapshot's own, and good until a node comes or goes.
func (s *Snapshot) Nodes() []*Node {
	if s.order == nil && s.known > 0 {
		s.order = interleave(s.slots, s.known)
	}
	return s.order
}

// interleave takes one node of each zone in turn, so that a search that ends
// early has seen all zones.
func interleave(slots []*Node, known int) []*Node {
	zones := map[string][]*Node{}
	var names []string
	for _, n := range slots {
		if n == nil || n.Obj == nil {
			continue
		}
		z := zoneOf(n.Obj)
		if zones[z] == nil {
			names = append(names, z)
		}
		zones[z] = append(zones[z], n)
	}
	slices.Sort(names)
	order := make([]*Node, 0, known)
	for i := 0; len(order) < known; i++ {
		for _, z := range names {
			if i < len(zones[z]) {
				order = append(order, zones[z][i])
			}
		}
	}
	return order
}

func zoneOf(n *corev1.Node) string {
	region, ok := n.Labels[corev1.LabelTopologyRegion]
	if !ok {
		region = n.Labels[corev1.LabelFailureDomainBetaRegion]
	}
	zone, ok := n.Labels[corev1.LabelTopologyZone]
	if !ok {
		zone = n.Labels[corev1.LabelFailureDomainBetaZone]
	}
	return region + "\x00" + zone
}

// SetNode takes in a node's present state and returns what changed.
func (s *Snapshot) SetNode(obj *corev1.Node) (*Node, Change) {
	n := s.nodeRecord(obj.Name)
	was := n.Obj
	changed := s.setCapacity(n, obj)
	s.setImages(n, obj)
	taints := s.taintsOf(obj.Spec.Taints)
	if was == nil {
		changed = NodeAdded
		s.known++
		s.order = nil
	} else {
		if taints != n.Taints || obj.Spec.Unschedulable != n.Unschedulable {
			changed |= TaintsChanged
		}
		if !equalLabels(was.Labels, obj.Labels) {
			changed |= LabelsChanged
			s.order = nil
		}
		if !slices.Equal(was.Status.DeclaredFeatures, obj.Status.DeclaredFeatures) {
			changed |= FeaturesChanged
		}
	}
	if changed&^(AllocatableChanged|FeaturesChanged) == 0 {
		n.Obj = obj
		if changed != 0 {
			s.changed(n)
		}
		return n, changed
	}
	s.withoutNode(n, func() {
		n.Obj, n.Taints, n.Unschedulable = obj, taints, obj.Spec.Unschedulable
	})
	s.changed(n)
	return n, changed
}

// withoutNode calls change, which may change what decides where the node
// counts, while the node and its pods are not counted anywhere.
func (s *Snapshot) withoutNode(n *Node, change func()) {
	for _, p := range n.Pods {
		s.uncount(p)
	}
	if n.Obj != nil {
		for _, ns := range s.nodeSets {
			ns.remove(n)
		}
		for _, t := range s.topologies {
			t.leave(n)
		}
	}
	change()
	if n.Obj != nil {
		for _, t := range s.topologies {
			t.place(n)
		}
		for _, ns := range s.nodeSets {
			ns.add(n)
		}
	}
	for _, p := range n.Pods {
		s.count(p)
	}
}

// setCapacity returns AllocatableChanged if anything did.
func (s *Snapshot) setCapacity(n *Node, obj *corev1.Node) Change {
	allocatable := make([]int64, firstOther, len(n.Allocatable)+firstOther)
	var pods int64
	for name, q := range obj.Status.Allocatable {
		if name == corev1.ResourcePods {
			pods = q.Value()
			continue
		}
		i := s.resources.of(name)
		for i >= len(allocatable) {
			allocatable = append(allocatable, 0)
		}
		allocatable[i] = value(i, &q)
	}
	if n.Obj != nil && pods == n.AllowedPods && slices.Equal(allocatable, n.Allocatable) {
		return 0
	}
	n.Allocatable, n.AllowedPods = allocatable, pods
	return AllocatableChanged
}

// RemoveNode forgets a node. Pods that are still on it stay known, and count
// again if the node comes back.
func (s *Snapshot) RemoveNode(name string) {
	n := s.Node(name)
	if n == nil {
		return
	}
	for _, p := range slices.Clone(n.Nominated) {
		s.Nominate(p, "")
	}
	s.withoutNode(n, func() {
		s.dropImages(n)
		n.Obj, n.Taints, n.Unschedulable = nil, nil, false
	})
	n.Allocatable, n.AllowedPods = nil, 0
	s.known--
	s.order = nil
	s.changed(n)
	s.dropIfGone(n)
}

// nodeRecord returns the record of a node, made if there is none.
func (s *Snapshot) nodeRecord(name string) *Node {
	n := s.byName[name]
	if n != nil {
		return n
	}
	n = &Node{Name: name}
	if free := len(s.freeSlots); free > 0 {
		n.slot = s.freeSlots[free-1]
		s.freeSlots = s.freeSlots[:free-1]
		s.slots[n.slot] = n
	} else {
		n.slot = int32(len(s.slots))
		s.slots = append(s.slots, n)
	}
	s.byName[name] = n
	return n
}

// dropIfGone forgets the record of a node that nothing speaks of any more.
func (s *Snapshot) dropIfGone(n *Node) {
	if n.Obj != nil || len(n.Pods) > 0 {
		return
	}
	delete(s.byName, n.Name)
	s.slots[n.slot] = nil
	s.freeSlots = append(s.freeSlots, n.slot)
}
