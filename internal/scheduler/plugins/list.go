package plugins

import "slices"

// listed is a plugin that can be chosen.
type listed struct {
	weight int64 // of its scores by default; 0: it gives none
	make   func(i int, a *Args) Plugin
}

func (l *listed) name() string { return l.make(0, &Args{}).Name() }

// list is all plugins, in upstream's order.
func list() []listed {
	return []listed{
		{0, func(i int, _ *Args) Plugin { return newNodeUnschedulable(i) }},
		{0, func(i int, _ *Args) Plugin { return newNodeName(i) }},
		{3, func(i int, _ *Args) Plugin { return newTaintToleration(i) }},
		{2, func(i int, a *Args) Plugin { return newNodeAffinity(i, a.NodeAffinity) }},
		{0, func(i int, _ *Args) Plugin { return newNodePorts(i) }},
		{1, func(i int, a *Args) Plugin { return newNodeResourcesFit(i, a.NodeResourcesFit) }},
		{0, func(i int, _ *Args) Plugin { return newVolumeRestrictions(i) }},
		{0, func(i int, _ *Args) Plugin { return newNodeVolumeLimits(i) }},
		{1, func(i int, a *Args) Plugin { return newVolumeBinding(i, a.VolumeBinding) }},
		{0, func(i int, _ *Args) Plugin { return newVolumeZone(i) }},
		{2, func(i int, a *Args) Plugin { return newPodTopologySpread(i, a.PodTopologySpread) }},
		{2, func(i int, a *Args) Plugin { return newInterPodAffinity(i, a.InterPodAffinity) }},
		{1, func(i int, a *Args) Plugin { return newDynamicResources(i, a.DynamicResources) }},
		{1, func(_ int, a *Args) Plugin { return newNodeResourcesBalanced(a.NodeResourcesBalancedAllocation) }},
		{1, func(int, *Args) Plugin { return &imageLocality{} }},
		{0, func(i int, _ *Args) Plugin { return newNodeDeclaredFeatures(i) }},
	}
}

// own are the plugins whose work the scheduler itself does, each at its point.
var own = map[string]Point{"SchedulingGates": PreEnqueue, "PrioritySort": QueueSort, "DefaultPreemption": PostFilter, "DefaultBinder": Bind}

// Set is the plugins of one profile, in order. Filters run in this order and
// the first that refuses a node gives the reason.
type Set struct {
	All []Plugin

	PreEnqueuers []PreEnqueuer // those that there are, in order
	PostFilters  []PostFilterer

	PreFilters []PreFilterer // by index in All; nil: has none
	Filters    []Filterer
	Scorers    []Scorer
	Weights    []int64
	wakers     []Events
	hinters    []Hinter

	// Apart are plugins (bits by index) that may answer differently for pods of one shape.
	Apart uint32
	// Local is how many of Filters, from the first, look at nothing but the node.
	Local int
	// LocalScorers are plugins whose scores depend on nothing but the node.
	LocalScorers uint32
	hintsApart   uint32 // plugins whose hints may differ for pods of one shape

	// Late are those that have to do with pods that have their place, in order.
	Late []Late
	late uint32 // bits by index in All

	Gated     bool // pods with scheduling gates wait until they have none
	Preempts  bool // pods that fit nowhere may have others make room
	Arguments *Args
}

// Late is what a plugin does between the choice of a node and the end of the
// binding; nil: nothing.
type Late struct {
	Plugin int // index in All
	Reserver
	Permitter
	PreBinder
	PostBinder
	Undoer
}

// Idle reports whether the plugin is among those (bits by index in All) that a pod
// is none of the business of.
func (l *Late) Idle(plugins uint32) bool { return plugins&(1<<l.Plugin) != 0 }

// Busy reports whether a pod is the business of any of Late but those that are idle.
func (s *Set) Busy(idle uint32) bool { return s.late&^idle != 0 }

// New returns the plugins of a profile that chooses nothing.
func New() *Set { return NewSet(DefaultChoice()) }

// NewSet returns the plugins that a profile has chosen.
func NewSet(c *Choice) *Set {
	s := &Set{Gated: c.has(PreEnqueue, "SchedulingGates"), Preempts: c.has(PostFilter, "DefaultPreemption"), Arguments: &c.Args}
	all := map[string]listed{}
	for _, l := range list() {
		all[l.name()] = l
	}
	for _, point := range []Point{Filter, PreFilter, Score, Reserve, Permit, PreBind, PostBind, PreEnqueue, PostFilter} {
		for _, chosen := range c.At[point] {
			if l, ok := all[chosen.Name]; ok && !s.knows(chosen.Name) {
				s.add(l.make(s.next(), &c.Args), c)
			}
		}
	}
	return s
}

// next is the index of the plugin that is added next.
func (s *Set) next() int { return len(s.All) }

func (s *Set) knows(name string) bool {
	return slices.ContainsFunc(s.All, func(p Plugin) bool { return p.Name() == name })
}

// add takes a plugin at the points that are chosen for it. What it notes when it looks at a pod
// first is for its filter too, so these are had together.
func (s *Set) add(p Plugin, c *Choice) {
	var pf PreFilterer
	var f Filterer
	var sc Scorer
	var weight int64
	if c.has(PreFilter, p.Name()) || c.has(Filter, p.Name()) {
		pf, _ = p.(PreFilterer)
	}
	if c.has(Filter, p.Name()) {
		f, _ = p.(Filterer)
	}
	if i := c.find(Score, p.Name()); i >= 0 {
		sc, _ = p.(Scorer)
		weight = c.At[Score][i].Weight
	}
	h, _ := p.(Hinter)
	var events Events
	if w, ok := p.(Waker); ok {
		events = w.Wakers()
	}
	late := Late{Plugin: s.next()}
	if c.has(Reserve, p.Name()) {
		late.Reserver, _ = p.(Reserver)
	}
	if c.has(Permit, p.Name()) {
		late.Permitter, _ = p.(Permitter)
	}
	if c.has(PreBind, p.Name()) {
		late.PreBinder, _ = p.(PreBinder)
		late.Undoer, _ = p.(Undoer)
	}
	if c.has(PostBind, p.Name()) {
		late.PostBinder, _ = p.(PostBinder)
	}
	if late.Reserver != nil || late.Permitter != nil || late.PreBinder != nil || late.PostBinder != nil {
		s.Late, s.late = append(s.Late, late), s.late|1<<late.Plugin
	}
	if e, ok := p.(PreEnqueuer); ok && c.has(PreEnqueue, p.Name()) {
		s.PreEnqueuers = append(s.PreEnqueuers, e)
	}
	if e, ok := p.(PostFilterer); ok && c.has(PostFilter, p.Name()) {
		s.PostFilters = append(s.PostFilters, e)
	}
	s.share(p, f != nil || pf != nil)
	s.All = append(s.All, p)
	s.PreFilters, s.Filters = append(s.PreFilters, pf), append(s.Filters, f)
	s.Scorers, s.Weights = append(s.Scorers, sc), append(s.Weights, weight)
	s.wakers, s.hinters = append(s.wakers, events), append(s.hinters, h)
}

// share notes for which pods the answers of a plugin, which is added next, are good.
func (s *Set) share(p Plugin, filters bool) {
	i, scope := s.next(), Scope{}
	sh, shares := p.(Sharer)
	if shares {
		scope = sh.Shared()
		shares = !scope.Pod
	}
	if filters && !shares {
		s.Apart |= 1 << i
	}
	if _, hints := p.(Hinter); hints && !shares {
		s.hintsApart |= 1 << i
	}
	if s.Local == i && (scope.Filter || !filters) {
		s.Local++
	}
	if scope.Score {
		s.LocalScorers |= 1 << i
	}
}

// Alike reports whether an event wakes either all or none of the pods of a shape that
// these plugins refused.
func (s *Set) Alike(refused uint32) bool { return refused&ByExtender != 0 || refused&s.hintsApart == 0 }

// Add takes a further plugin at all of its points, after those that are there.
func (s *Set) Add(p Plugin, weight int64) {
	c := &Choice{}
	for point := range c.At {
		c.At[point] = []Chosen{{p.Name(), weight}}
	}
	s.add(p, c)
}

// ByExtender, among the bits of plugins that refused a pod, says that extenders
// did: any event may help. NoPlugin is the plugin of their reasons.
const (
	NoPlugin   = 31
	ByExtender = uint32(1) << NoPlugin
)

// Wakes reports whether a pod that the plugins in refused (bits by index in
// All) should be tried again after an event.
func (s *Set) Wakes(refused uint32, c *Cycle, e *Event) bool {
	if refused&ByExtender != 0 {
		return true
	}
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
	if refused&ByExtender != 0 {
		return true
	}
	for i := range s.All {
		if refused&(1<<i) != 0 && s.wakers[i]&kind != 0 {
			return true
		}
	}
	return false
}
