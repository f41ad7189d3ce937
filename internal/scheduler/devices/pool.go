package devices

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

type poolID struct{ driver, name string }

func (id poolID) String() string { return id.driver + "/" + id.name }

// pool is the slices of a driver that belong together.
type pool struct {
	poolID
	slices []*slice // all of them

	// Of the newest generation.
	current    []*slice // by name, which is the order in which they are tried
	incomplete bool     // some slices have not been published yet
	invalid    string   // why nothing of it can be allocated; empty: it can
	waits      bool     // some devices have binding conditions
	totals     counters
	left       counters // totals less what allocated devices consume; nil: to be counted
	homes      []string // nodes that it is local to
	everywhere bool     // some slices are for more than one node
}

// counters are by set and name.
type counters map[string]map[string]*apiresource.Quantity

// slice is a ResourceSlice.
type slice struct {
	obj     *resourcev1.ResourceSlice
	pool    poolID
	reach   reach
	devices []*device
	waits   bool // some devices have binding conditions
}

// device is a device as one slice publishes it.
type device struct {
	*resourcev1.Device
	id       ID
	slice    *slice
	pool     *pool
	reach    *reach // if the slice leaves that to its devices
	multiple bool   // parts of it can be allocated
	use      *use
	taints   []resourcev1.DeviceTaint // its own and those of rules, if they keep claims off
	verdicts verdicts
}

// reach is the nodes that can use something.
type reach struct {
	all      bool
	node     string
	selector *nodeaffinity.NodeSelector
}

// newReach reads where something can be used. A selector that cannot be read selects nothing.
func newReach(node *string, selector *corev1.NodeSelector, all *bool) reach {
	r := reach{all: all != nil && *all}
	if node != nil {
		r.node = *node
	}
	if r.node == "" && !r.all && selector != nil {
		r.selector, _ = nodeaffinity.NewNodeSelector(selector)
	}
	return r
}

func (r *reach) has(n *corev1.Node) bool {
	switch {
	case r.node != "":
		return r.node == n.Name
	case r.all:
		return true
	}
	return r.selector != nil && r.selector.Match(n)
}

func (v *Inventory) newSlice(obj *resourcev1.ResourceSlice) *slice {
	s := &slice{obj: obj, pool: poolID{obj.Spec.Driver, obj.Spec.Pool.Name}, reach: newReach(obj.Spec.NodeName, obj.Spec.NodeSelector, obj.Spec.AllNodes)}
	each := obj.Spec.PerDeviceNodeSelection != nil && *obj.Spec.PerDeviceNodeSelection
	for i := range obj.Spec.Devices {
		d := &device{Device: &obj.Spec.Devices[i], slice: s, id: ID{s.pool.driver, s.pool.name, obj.Spec.Devices[i].Name}}
		if each {
			r := newReach(d.NodeName, d.NodeSelector, d.AllNodes)
			d.reach = &r
		}
		d.multiple = d.AllowMultipleAllocations != nil && *d.AllowMultipleAllocations
		d.use = v.useOf(d.id)
		d.use.published++
		v.taintDevice(d)
		s.waits = s.waits || len(d.BindingConditions) > 0
		s.devices = append(s.devices, d)
	}
	return s
}

// has reports whether a node can use something of the slice.
func (s *slice) has(n *corev1.Node) bool {
	if s.obj.Spec.PerDeviceNodeSelection != nil && *s.obj.Spec.PerDeviceNodeSelection {
		return slices.ContainsFunc(s.devices, func(d *device) bool { return d.reach.has(n) })
	}
	return s.reach.has(n)
}

// settle gathers the pools that have changed. It is called before pools are looked at.
func (v *Inventory) settle() {
	for p := range v.stale {
		delete(v.stale, p)
		v.gather(p)
	}
}

// gather finds out what a pool is now, or forgets it if it has no slices.
func (v *Inventory) gather(p *pool) {
	v.unlist(p)
	if len(p.slices) == 0 {
		delete(v.pools, p.poolID)
		return
	}
	newest := slices.MaxFunc(p.slices, func(a, b *slice) int {
		return cmp.Compare(a.obj.Spec.Pool.Generation, b.obj.Spec.Pool.Generation)
	}).obj.Spec.Pool.Generation
	p.current, p.waits, p.left, p.homes, p.everywhere = nil, false, nil, nil, false
	for _, s := range p.slices {
		if s.obj.Spec.Pool.Generation != newest {
			continue
		}
		p.current = append(p.current, s)
		p.waits = p.waits || s.waits
		if s.reach.node == "" {
			p.everywhere = true
		} else if !slices.Contains(p.homes, s.reach.node) {
			p.homes = append(p.homes, s.reach.node)
		}
		for _, d := range s.devices {
			d.pool = p
		}
	}
	slices.SortFunc(p.current, func(a, b *slice) int { return strings.Compare(a.obj.Name, b.obj.Name) })
	p.incomplete = int64(len(p.current)) != p.current[0].obj.Spec.Pool.ResourceSliceCount
	p.check()
	v.list(p)
}

// last puts what is so behind what is not.
func last(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// check reads the counters of a pool and finds out whether it contradicts itself.
func (p *pool) check() {
	p.totals, p.invalid = counters{}, ""
	for _, s := range p.current {
		for i := range s.obj.Spec.SharedCounters {
			set := &s.obj.Spec.SharedCounters[i]
			if p.totals[set.Name] != nil {
				p.invalid = "duplicate counter set " + set.Name
			}
			p.totals[set.Name] = map[string]*apiresource.Quantity{}
			for name, c := range set.Counters {
				q := c.Value.DeepCopy()
				p.totals[set.Name][name] = &q
			}
		}
	}
	seen := map[string]bool{}
	for _, s := range p.current {
		for _, d := range s.devices {
			if seen[d.Name] {
				p.invalid = "duplicate device name " + d.Name
			}
			seen[d.Name] = true
			if !p.incomplete {
				p.checkCounters(d)
			}
		}
	}
}

// checkCounters finds out whether a device consumes counters that are not there.
func (p *pool) checkCounters(d *device) {
	for i := range d.ConsumesCounters {
		c := &d.ConsumesCounters[i]
		set := p.totals[c.CounterSet]
		if set == nil {
			p.invalid = "device " + d.Name + " consumes counters of the set " + c.CounterSet + ", which is not there"
			return
		}
		for name := range c.Counters {
			if set[name] == nil {
				p.invalid = "device " + d.Name + " consumes the counter " + name + " of the set " + c.CounterSet + ", which is not there"
				return
			}
		}
	}
}

// list puts a pool where nodes find it.
func (v *Inventory) list(p *pool) {
	if p.everywhere {
		v.shared = insert(v.shared, p)
		return
	}
	for _, node := range p.homes {
		v.local[node] = insert(v.local[node], p)
	}
}

func (v *Inventory) unlist(p *pool) {
	is := func(x *pool) bool { return x == p }
	if p.everywhere {
		v.shared = slices.DeleteFunc(v.shared, is)
		return
	}
	for _, node := range p.homes {
		if v.local[node] = slices.DeleteFunc(v.local[node], is); len(v.local[node]) == 0 {
			delete(v.local, node)
		}
	}
}

func insert(list []*pool, p *pool) []*pool {
	i, _ := slices.BinarySearchFunc(list, p, comparePools)
	return slices.Insert(list, i, p)
}

// comparePools is the order in which pools are tried: what can be bound at once goes first.
func comparePools(a, b *pool) int {
	return cmp.Or(last(a.waits, b.waits), strings.Compare(a.driver, b.driver), strings.Compare(a.name, b.name))
}

// reaching appends the pools that may have something for a node, in order.
func (v *Inventory) reaching(node string, list []*pool) []*pool {
	here, there := v.local[node], v.shared
	for len(here) > 0 && len(there) > 0 {
		if comparePools(here[0], there[0]) < 0 {
			list, here = append(list, here[0]), here[1:]
		} else {
			list, there = append(list, there[0]), there[1:]
		}
	}
	return append(append(list, here...), there...)
}

// remaining is what is left of the counters of a pool.
func (p *pool) remaining() counters {
	if p.left != nil {
		return p.left
	}
	p.left = make(counters, len(p.totals))
	for set, of := range p.totals {
		p.left[set] = make(map[string]*apiresource.Quantity, len(of))
		for name, q := range of {
			left := q.DeepCopy()
			p.left[set][name] = &left
		}
	}
	for _, s := range p.current {
		for _, d := range s.devices {
			if d.use.taken() {
				p.left.consume(d, +1)
			}
		}
	}
	return p.left
}

// consume takes away what a device consumes; with -1 it gives it back. It
// reports whether nothing is overdrawn.
func (c counters) consume(d *device, sign int) bool {
	enough := true
	for i := range d.ConsumesCounters {
		from := &d.ConsumesCounters[i]
		for name, amount := range from.Counters {
			left := c[from.CounterSet][name]
			if left == nil {
				continue
			}
			if sign > 0 {
				left.Sub(amount.Value)
				enough = enough && left.Sign() >= 0
			} else {
				left.Add(amount.Value)
			}
		}
	}
	return enough
}
