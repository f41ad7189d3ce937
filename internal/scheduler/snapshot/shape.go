package snapshot

import "encoding/binary"

// Shape is what a pod asks of nodes and of other pods, but for its volumes and
// devices: its namespace, labels, constraints, requests, ports and priority. What is found out about
// one pod of a shape, as far as it follows from these, is true of all.
type Shape struct {
	// Pods is how many pods of the shape were asked about.
	Pods int

	used    uint64 // last sweep that saw it asked for
	dropped bool
}

// shapes are the shapes of pods.
type shapes struct {
	byKey   map[string]*Shape
	scratch []byte
	numbers uint64 // of classes and constraints, given so far
}

// number is one that no other class or constraints have had.
func (s *shapes) number() uint64 {
	s.numbers++
	return s.numbers
}

// Shape returns the shape of a pod, which may be pending; nil if no other pod can
// be expected to have it: it is bound to its node by name.
func (s *Snapshot) Shape(p *Pod) *Shape {
	if r := p.Constraints.Required; r != nil && r.Names != nil {
		return nil
	}
	if p.shape != nil && !p.shape.dropped {
		p.shape.used = s.epoch
		return p.shape
	}
	key := s.shapeKey(p)
	sh := s.shapes.byKey[string(key)]
	if sh == nil {
		sh = &Shape{}
		s.shapes.byKey[string(key)] = sh
	}
	sh.Pods++
	p.shape, sh.used = sh, s.epoch
	return sh
}

// shapeKey is good until it is asked for again.
func (s *Snapshot) shapeKey(p *Pod) []byte {
	k := s.shapes.scratch[:0]
	text := func(t string) {
		k = binary.AppendUvarint(k, uint64(len(t)))
		k = append(k, t...)
	}
	k = binary.AppendUvarint(k, p.Constraints.number)
	k = binary.AppendUvarint(k, s.Class(p).number)
	k = binary.AppendVarint(k, int64(p.Priority))
	k = binary.AppendUvarint(k, uint64(len(p.Requests)))
	for _, a := range p.Requests {
		k = binary.AppendUvarint(k, uint64(a.Resource))
		k = binary.AppendVarint(k, a.Value)
	}
	k = binary.AppendVarint(k, p.Scored[CPU])
	k = binary.AppendVarint(k, p.Scored[Memory])
	if policy := p.Obj.Spec.PreemptionPolicy; policy != nil {
		text(string(*policy))
	} else {
		text("")
	}
	text(p.Obj.Spec.NodeName)
	for _, h := range p.HostPorts {
		text(h.IP)
		text(string(h.Protocol))
		k = binary.AppendVarint(k, int64(h.Port))
	}
	s.shapes.scratch = k
	return k
}

func (s *Snapshot) sweepShapes(old func(uint64) bool) {
	for key, sh := range s.shapes.byKey {
		if old(sh.used) {
			sh.dropped = true
			delete(s.shapes.byKey, key)
		}
	}
}
