package snapshot

// editions number the states of a snapshot and of its nodes.
type editions struct {
	last    uint64 // number given
	present uint64
}

// Edition is the number of the snapshot's present state: as long as it stays the same, so
// does everything that filters may ask about pods that use no volumes and no devices.
func (s *Snapshot) Edition() uint64 { return s.editions.present }

// changed numbers a new state of the snapshot, and of a node unless it is nil.
func (s *Snapshot) changed(n *Node) {
	s.editions.last++
	s.editions.present = s.editions.last
	if n != nil {
		n.Edition = s.editions.last
	}
}

// WhatIf calls fn, which may lift pods off a node and lower others there if all is as before
// when it returns (S1). So are the editions then; those in between are never seen again.
func (s *Snapshot) WhatIf(n *Node, fn func()) {
	present, edition := s.editions.present, n.Edition
	fn()
	s.editions.present, n.Edition = present, edition
}
