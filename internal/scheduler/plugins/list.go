package plugins

// Set is the plugins of one scheduler, in order. Filters run in this order and
// the first that refuses a node gives the reason.
type Set struct {
	All []Plugin

	PreFilters []PreFilterer // by index in All; nil: has none
	Filters    []Filterer
	Scorers    []Scorer
	Weights    []int64
	wakers     []Events
	hinters    []Hinter
}

// New returns the plugins of a scheduler.
func New() *Set {
	s := &Set{}
	s.add(newNodeUnschedulable(s.next()), 0)
	s.add(newNodeName(s.next()), 0)
	s.add(newTaintToleration(s.next()), 3)
	s.add(newNodeAffinity(s.next()), 2)
	s.add(newNodePorts(s.next()), 0)
	s.add(newNodeResourcesFit(s.next()), 1)
	s.add(newVolumeRestrictions(s.next()), 0)
	s.add(newVolumeBinding(s.next()), 0)
	s.add(newVolumeZone(s.next()), 0)
	s.add(newPodTopologySpread(s.next()), 2)
	s.add(newInterPodAffinity(s.next()), 2)
	s.add(&nodeResourcesBalancedAllocation{}, 1)
	s.add(&imageLocality{}, 1)
	return s
}

// next is the index of the plugin that is added next.
func (s *Set) next() int { return len(s.All) }

// add takes a plugin with the weight of its scores.
func (s *Set) add(p Plugin, weight int64) {
	s.All = append(s.All, p)
	pf, _ := p.(PreFilterer)
	f, _ := p.(Filterer)
	sc, _ := p.(Scorer)
	h, _ := p.(Hinter)
	var events Events
	if w, ok := p.(Waker); ok {
		events = w.Wakers()
	}
	s.PreFilters, s.Filters = append(s.PreFilters, pf), append(s.Filters, f)
	s.Scorers, s.Weights = append(s.Scorers, sc), append(s.Weights, weight)
	s.wakers, s.hinters = append(s.wakers, events), append(s.hinters, h)
}

// Wakes reports whether a pod that the plugins in refused (bits by index in
// All) should be tried again after an event.
func (s *Set) Wakes(refused uint32, c *Cycle, e *Event) bool {
	for i := range s.All {
		if refused&(1<<i) == 0 || s.wakers[i]&e.Kind == 0 {
			continue
		}
		if s.hinters[i] == nil || s.hinters[i].Hint(c, e) {
			return true
		}
	}
	return false
}

// Cares reports whether events of a kind can matter at all to a pod that these
// plugins refused.
func (s *Set) Cares(refused uint32, kind Events) bool {
	for i := range s.All {
		if refused&(1<<i) != 0 && s.wakers[i]&kind != 0 {
			return true
		}
	}
	return false
}
