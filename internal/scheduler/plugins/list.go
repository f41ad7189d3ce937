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

	// Late are those that have to do with pods that have their place, in order.
	Late []Late
}

// Late is what a plugin does between the choice of a node and the end of the
// binding; nil: nothing.
type Late struct {
	Plugin int // index in All
	Reserver
	Permitter
	PreBinder
	PostBinder
}

// New returns the plugins of a scheduler.
func New() *Set {
	s := &Set{}
	s.Add(newNodeUnschedulable(s.next()), 0)
	s.Add(newNodeName(s.next()), 0)
	s.Add(newTaintToleration(s.next()), 3)
	s.Add(newNodeAffinity(s.next()), 2)
	s.Add(newNodePorts(s.next()), 0)
	s.Add(newNodeResourcesFit(s.next()), 1)
	s.Add(newVolumeRestrictions(s.next()), 0)
	s.Add(newVolumeBinding(s.next()), 0)
	s.Add(newVolumeZone(s.next()), 0)
	s.Add(newPodTopologySpread(s.next()), 2)
	s.Add(newInterPodAffinity(s.next()), 2)
	s.Add(&nodeResourcesBalancedAllocation{}, 1)
	s.Add(&imageLocality{}, 1)
	return s
}

// next is the index of the plugin that is added next.
func (s *Set) next() int { return len(s.All) }

// Add takes a plugin with the weight of its scores, after those that are there.
func (s *Set) Add(p Plugin, weight int64) {
	s.addLate(p)
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

func (s *Set) addLate(p Plugin) {
	late, some := Late{Plugin: s.next()}, [4]bool{}
	late.Reserver, some[0] = p.(Reserver)
	late.Permitter, some[1] = p.(Permitter)
	late.PreBinder, some[2] = p.(PreBinder)
	late.PostBinder, some[3] = p.(PostBinder)
	if some != [4]bool{} {
		s.Late = append(s.Late, late)
	}
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

// Moves reports whether events of these kinds can end what a plugin (by index in
// All) makes a pod wait for.
func (s *Set) Moves(plugin int, kinds Events) bool { return s.wakers[plugin]&kinds != 0 }

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
