package snapshot

import (
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// Snapshot is the cluster as the scheduler sees it: nodes, and the pods on
// them, those that we are about to bind included.
type Snapshot struct {
	slots     []*Node // nil: free
	freeSlots []int32
	byName    map[string]*Node
	known     int     // nodes with an object
	order     []*Node // of Nodes; nil: to be made

	pods       map[types.UID]*Pod
	namespaces map[string]labels.Set
	services   map[string]*services
	owners     Owners
	volumes    volumes
	claims     resourceClaims

	resources   resourceNames
	topologies  map[string]*Topology
	nodeSets    map[string]*NodeSet
	podSets     map[string]*PodSet
	terms       map[string]*Term
	classes     map[string]*Class
	classesIn   map[string]map[*Class]struct{} // by namespace
	byHome      byHome
	shapes      shapes
	taints      map[string]*Taints
	images      map[string]*Image
	constraints map[string]*Constraints

	editions editions
	epoch    uint64 // counts sweeps
}

// byHome finds what may be about the pods of a namespace.
type byHome struct {
	sets  homes[*PodSet]
	terms homes[*Term]
}

// New returns an empty snapshot. owners may be nil.
func New(owners Owners) *Snapshot {
	s := &Snapshot{
		byName: map[string]*Node{}, pods: map[types.UID]*Pod{},
		namespaces: map[string]labels.Set{}, services: map[string]*services{}, owners: owners,
		resources: newResourceNames(), topologies: map[string]*Topology{}, nodeSets: map[string]*NodeSet{},
		podSets: map[string]*PodSet{}, terms: map[string]*Term{},
		classes: map[string]*Class{}, classesIn: map[string]map[*Class]struct{}{},
		taints: map[string]*Taints{}, images: map[string]*Image{}, volumes: newVolumes(), claims: newResourceClaims(), constraints: map[string]*Constraints{}, epoch: 1,
		byHome: byHome{sets: newHomes[*PodSet](), terms: newHomes[*Term]()}, shapes: shapes{byKey: map[string]*Shape{}},
	}
	s.Compile(nil)
	return s
}

// Sweep forgets what has not been asked for since the sweep before (S3). The
// caller calls it every few minutes, between cycles.
func (s *Snapshot) Sweep() {
	s.epoch++
	old := func(used uint64) bool { return used+1 < s.epoch }
	for key, ps := range s.podSets {
		if old(ps.used) {
			s.dropPodSet(key, ps)
		}
	}
	for key, ns := range s.nodeSets {
		if old(ns.used) {
			for _, v := range ns.views {
				v.set.views = slices.DeleteFunc(v.set.views, func(x *View) bool { return x == v })
			}
			delete(s.nodeSets, key)
		}
	}
	for _, t := range s.terms {
		if t.holders == 0 && old(t.used) {
			s.dropTerm(t)
		}
	}
	for key, c := range s.classes {
		if old(c.used) && len(c.pods) == 0 {
			c.dropped = true
			delete(s.classes, key)
			delete(s.classesIn[c.namespace], c)
			if len(s.classesIn[c.namespace]) == 0 {
				delete(s.classesIn, c.namespace)
			}
		}
	}
	for key, c := range s.constraints {
		if old(c.used) {
			delete(s.constraints, key)
		}
	}
	s.sweepShapes(old)
	s.sweepTopologies(old)
	s.sweepTaints()
}

func (s *Snapshot) dropPodSet(key string, ps *PodSet) {
	for _, v := range ps.views {
		v.in.views = slices.DeleteFunc(v.in.views, func(x *View) bool { return x == v })
	}
	s.byHome.sets.remove(ps.matchers[0], ps)
	s.eachClass(ps.matchers[0], func(c *Class) {
		c.sets = slices.DeleteFunc(c.sets, func(x *PodSet) bool { return x == ps })
	})
	delete(s.podSets, key)
}

func (s *Snapshot) sweepTopologies(old func(uint64) bool) {
	needed := map[*Topology]bool{}
	for _, t := range s.terms {
		needed[t.Topology] = true
	}
	for _, ps := range s.podSets {
		for _, v := range ps.views {
			needed[v.Topology] = true
		}
	}
	for key, t := range s.topologies {
		if old(t.used) && !needed[t] {
			delete(s.topologies, key)
		}
	}
}

func (s *Snapshot) sweepTaints() {
	needed := map[*Taints]bool{}
	for _, n := range s.slots {
		if n != nil {
			needed[n.Taints] = true
		}
	}
	for key, t := range s.taints {
		if !needed[t] {
			delete(s.taints, key)
		}
	}
	for _, c := range s.constraints {
		c.tolerated = slices.DeleteFunc(c.tolerated, func(r toleratedTaints) bool { return !needed[r.taints] })
	}
}
