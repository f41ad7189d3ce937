package snapshot

// TermKind says what running pods want with a [Term].
type TermKind int

// The kinds of terms.
const (
	Avoidance  TermKind = iota // required anti-affinity
	Preference                 // preferred affinity or anti-affinity
	Attraction                 // required affinity, as a preference of each pod that has it
)

// Term is an affinity or anti-affinity term of running pods about others in their topology
// domain, summed up over all pods that have it.
type Term struct {
	Kind     TermKind
	Topology *Topology

	key     string
	matcher *Matcher
	sum     []int64 // domain to weights of the pods in it
	holders int     // pods on nodes that have it
	used    uint64  // last sweep that saw it held
}

// In is the sum of the weights in a domain.
func (t *Term) In(domain int32) int64 {
	if int(domain) >= len(t.sum) {
		return 0
	}
	return t.sum[domain]
}

// heldTerm is a term and how much one pod adds to it.
type heldTerm struct {
	term   *Term
	weight int64
}

// ownTerm is a term as a spec has it.
type ownTerm struct {
	kind    TermKind
	key     string
	term    PodTerm
	summand int64
}

// hold takes a term of a running pod into account.
func (s *Snapshot) hold(o *ownTerm, n *Node) heldTerm {
	t := s.terms[o.key]
	if t == nil {
		t = &Term{Kind: o.kind, Topology: s.Topology(o.term.TopologyKey), key: o.key, matcher: o.term.Matcher}
		s.terms[o.key] = t
		s.byHome.terms.add(t.matcher, t)
		s.eachClass(t.matcher, func(c *Class) {
			if t.matcher.Matches(s, c.namespace, c.labels) {
				c.know(t)
			}
		})
	}
	t.holders++
	t.used = s.epoch
	t.add(n, o.summand)
	return heldTerm{t, o.summand}
}

// release undoes hold. The term stays known for a while: whoever asks "what if
// this pod were gone" puts it back soon.
func (s *Snapshot) release(h heldTerm, n *Node) {
	h.term.add(n, -h.weight)
	h.term.holders--
	h.term.used = s.epoch
}

func (s *Snapshot) dropTerm(t *Term) {
	delete(s.terms, t.key)
	s.byHome.terms.remove(t.matcher, t)
	s.eachClass(t.matcher, func(c *Class) { c.forget(t) })
}

func (t *Term) add(n *Node, weight int64) {
	d := t.Topology.at(n.slot)
	if d < 0 {
		return
	}
	for int(d) >= len(t.sum) {
		t.sum = append(t.sum, 0)
	}
	t.sum[d] += weight
}
