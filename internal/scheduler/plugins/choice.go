package plugins

import (
	"slices"

	configv1 "k8s.io/kube-scheduler/config/v1"
)

// Point is a point at which plugins have a say, by upstream's names.
type Point int

// The points.
const (
	PreEnqueue Point = iota
	QueueSort
	PreFilter
	Filter
	PostFilter
	PreScore
	Score
	Reserve
	Permit
	PreBind
	Bind
	PostBind
	points
)

// Points are all points, in the order in which a pod comes to them.
func Points() []Point {
	all := make([]Point, points)
	for i := range all {
		all[i] = Point(i)
	}
	return all
}

var pointNames = [points]string{
	"PreEnqueuePlugin", "QueueSortPlugin", "PreFilterPlugin", "FilterPlugin", "PostFilterPlugin", "PreScorePlugin", "ScorePlugin",
	"ReservePlugin", "PermitPlugin", "PreBindPlugin", "BindPlugin", "PostBindPlugin",
}

// String is what upstream calls a plugin with this point.
func (p Point) String() string { return pointNames[p] }

// Chosen is a plugin at a point; Weight is for [Score] alone.
type Chosen struct {
	Name   string
	Weight int64
}

// Choice is which plugins a profile has at which points, in order, and their
// arguments.
type Choice struct {
	At [points][]Chosen
	Args
}

// Args are the arguments of plugins; nil: the defaults.
type Args struct {
	DefaultPreemption               *configv1.DefaultPreemptionArgs
	DynamicResources                *configv1.DynamicResourcesArgs
	InterPodAffinity                *configv1.InterPodAffinityArgs
	NodeAffinity                    *configv1.NodeAffinityArgs
	NodeResourcesBalancedAllocation *configv1.NodeResourcesBalancedAllocationArgs
	NodeResourcesFit                *configv1.NodeResourcesFitArgs
	PodTopologySpread               *configv1.PodTopologySpreadArgs
	VolumeBinding                   *configv1.VolumeBindingArgs
}

// DefaultChoice is what a profile has that chooses nothing.
func DefaultChoice() *Choice {
	c := &Choice{}
	for _, d := range Defaults() {
		for _, point := range Points() {
			if Has(d.Name, point) {
				c.At[point] = append(c.At[point], d)
			}
		}
	}
	return c
}

// Defaults are the plugins that every profile has unless it turns them off, in
// order, with their weights.
func Defaults() []Chosen {
	all := []Chosen{{"SchedulingGates", 0}, {"PrioritySort", 0}}
	for _, l := range list() {
		all = append(all, Chosen{l.name(), l.weight})
	}
	return append(all, Chosen{"DefaultPreemption", 0}, Chosen{"DefaultBinder", 0})
}

// Known reports whether there is a plugin with the name.
func Known(name string) bool {
	_, ok := own[name]
	return ok || slices.ContainsFunc(list(), func(l listed) bool { return l.name() == name })
}

// Has reports whether the plugin with the name has something to do at a point.
func Has(name string, at Point) bool {
	if point, ok := own[name]; ok {
		return point == at
	}
	for _, l := range list() {
		if p := l.make(0, &Args{}); p.Name() == name {
			return has(p, at)
		}
	}
	return false
}

func has(p Plugin, at Point) (ok bool) {
	switch at {
	case PreEnqueue:
		_, ok = p.(PreEnqueuer)
	case PostFilter:
		_, ok = p.(PostFilterer)
	case PreFilter:
		if _, ok = p.(PreFilterer); !ok {
			_, ok = p.(Filterer) // upstream has both where ours needs one
		}
	case Filter:
		_, ok = p.(Filterer)
	case PreScore, Score:
		_, ok = p.(Scorer)
	case Reserve:
		_, ok = p.(Reserver)
	case Permit:
		_, ok = p.(Permitter)
	case PreBind:
		_, ok = p.(PreBinder)
	case PostBind:
		_, ok = p.(PostBinder)
	}
	return ok
}

// find is where a plugin stands among those of a point; -1: it does not.
func (c *Choice) find(at Point, name string) int {
	return slices.IndexFunc(c.At[at], func(x Chosen) bool { return x.Name == name })
}

func (c *Choice) has(at Point, name string) bool { return c.find(at, name) >= 0 }
