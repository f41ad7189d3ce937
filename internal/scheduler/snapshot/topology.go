package snapshot

// Topology numbers the values of one node label: the domains of a topology key.
type Topology struct {
	Key string

	of     []int32          // node slot to domain; -1: the node has no such label
	ids    map[string]int32 // label value to domain
	values []string         // domain to label value
	nodes  []int32          // domain to number of nodes
	free   []int32          // domains without nodes, to be used again
	used   uint64           // last sweep that saw it asked for
}

// Topology returns the domains of a node label.
func (s *Snapshot) Topology(key string) *Topology {
	t := s.topologies[key]
	if t == nil {
		t = &Topology{Key: key, ids: map[string]int32{}}
		s.topologies[key] = t
		for _, n := range s.slots {
			if n != nil && n.Obj != nil {
				t.place(n)
			}
		}
	}
	t.used = s.epoch
	return t
}

// Domain is the domain of a node; ok is false if it is in none.
func (t *Topology) Domain(n *Node) (domain int32, ok bool) {
	d := t.at(n.slot)
	return d, d >= 0
}

// Len is above every domain.
func (t *Topology) Len() int { return len(t.values) }

// Value is the label value that stands for a domain.
func (t *Topology) Value(domain int32) string { return t.values[domain] }

func (t *Topology) at(slot int32) int32 {
	if int(slot) >= len(t.of) {
		return -1
	}
	return t.of[slot]
}

// place puts a node into the domain that its labels say.
func (t *Topology) place(n *Node) {
	for int(n.slot) >= len(t.of) {
		t.of = append(t.of, -1)
	}
	v, ok := n.Obj.Labels[t.Key]
	if !ok {
		t.of[n.slot] = -1
		return
	}
	d, ok := t.ids[v]
	switch {
	case ok:
	case len(t.free) > 0:
		d = t.free[len(t.free)-1]
		t.free = t.free[:len(t.free)-1]
		t.values[d] = v
	default:
		d = int32(len(t.values))
		t.values, t.nodes = append(t.values, v), append(t.nodes, 0)
	}
	t.ids[v] = d
	t.nodes[d]++
	t.of[n.slot] = d
}

// leave takes a node out of its domain.
func (t *Topology) leave(n *Node) {
	d := t.at(n.slot)
	if d < 0 {
		return
	}
	t.of[n.slot] = -1
	t.nodes[d]--
	if t.nodes[d] == 0 {
		delete(t.ids, t.values[d])
		t.free = append(t.free, d)
	}
}
