package snapshot

// NodeSet is the nodes for which a condition on their labels, taints and names
// holds. It is kept up to date as nodes change.
type NodeSet struct {
	key   string
	match func(*Node) bool
	in    []bool // by node slot
	size  int
	views []*View // counts over these nodes only
	used  uint64  // last sweep that saw it asked for
}

// NodeSet returns the nodes that match holds for. match may look at a node's
// object and taints only, and must be the same condition for the same key. The
// empty key is all nodes.
func (s *Snapshot) NodeSet(key string, match func(*Node) bool) *NodeSet {
	ns := s.nodeSets[key]
	if ns == nil {
		ns = &NodeSet{key: key, match: match}
		s.nodeSets[key] = ns
		for _, n := range s.slots {
			if n != nil && n.Obj != nil {
				ns.add(n)
			}
		}
	}
	ns.used = s.epoch
	return ns
}

// Has reports whether a node is in the set.
func (ns *NodeSet) Has(n *Node) bool { return int(n.slot) < len(ns.in) && ns.in[n.slot] }

// Len is the number of nodes in the set.
func (ns *NodeSet) Len() int { return ns.size }

func (ns *NodeSet) add(n *Node) {
	if ns.match != nil && !ns.match(n) {
		return
	}
	for int(n.slot) >= len(ns.in) {
		ns.in = append(ns.in, false)
	}
	ns.in[n.slot] = true
	ns.size++
	for _, v := range ns.views {
		v.addNode(n.slot)
	}
}

func (ns *NodeSet) remove(n *Node) {
	if !ns.Has(n) {
		return
	}
	for _, v := range ns.views {
		v.removeNode(n.slot)
	}
	ns.in[n.slot] = false
	ns.size--
}
