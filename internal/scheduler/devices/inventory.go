package devices

import (
	"cmp"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Matcher tells whether a device of a driver is one that an expression means.
type Matcher func(driver string, d *resourcev1.Device) (bool, error)

// Compiler makes an expression of a selector into a Matcher.
type Compiler func(expression string) (Matcher, error)

// ID names a device.
type ID struct{ Driver, Pool, Device string }

// String is the name as users read it.
func (id ID) String() string { return id.Driver + "/" + id.Pool + "/" + id.Device }

// Inventory is the devices of a cluster and who has them.
type Inventory struct {
	compile Compiler

	classes  map[string]*resourcev1.DeviceClass
	extended map[string]*resourcev1.DeviceClass // by the extended resource that it serves
	rules    map[string]*resourcev1.DeviceTaintRule

	pools   map[poolID]*pool
	bySlice map[string]*slice  // by the name of the object
	local   map[string][]*pool // pools of one node, by its name; in order
	shared  []*pool            // the others, in order
	stale   map[*pool]bool     // pools whose slices have changed since they were gathered

	uses  map[ID]*use
	taken map[types.UID]*resourcev1.AllocationResult // by claim

	expressions expressions
	search      search // scratch
}

// New returns an empty inventory. Without a compiler no expression can be read.
func New(compile Compiler) *Inventory {
	v := &Inventory{
		compile: compile,
		classes: map[string]*resourcev1.DeviceClass{}, extended: map[string]*resourcev1.DeviceClass{}, rules: map[string]*resourcev1.DeviceTaintRule{},
		pools: map[poolID]*pool{}, bySlice: map[string]*slice{}, local: map[string][]*pool{}, stale: map[*pool]bool{},
		uses: map[ID]*use{}, taken: map[types.UID]*resourcev1.AllocationResult{},
	}
	v.expressions.forget()
	v.search.inventory, v.search.easy = v, hard
	return v
}

// SetClass takes in a class.
func (v *Inventory) SetClass(c *resourcev1.DeviceClass) {
	old := v.classes[c.Name]
	v.classes[c.Name] = c
	v.serve(old)
	v.serve(c)
}

// RemoveClass forgets a class.
func (v *Inventory) RemoveClass(name string) {
	old := v.classes[name]
	delete(v.classes, name)
	v.serve(old)
}

// Class returns a class, or nil.
func (v *Inventory) Class(name string) *resourcev1.DeviceClass { return v.classes[name] }

// Classes is how many classes there are.
func (v *Inventory) Classes() int { return len(v.classes) }

// Serves is the class whose devices serve an extended resource, or nil.
func (v *Inventory) Serves(resource string) *resourcev1.DeviceClass { return v.extended[resource] }

// serve finds out anew who serves the extended resources of a class: of several
// classes the newest, of those of one age the first by name.
func (v *Inventory) serve(c *resourcev1.DeviceClass) {
	if c == nil {
		return
	}
	for _, resource := range served(c) {
		delete(v.extended, resource)
	}
	for _, other := range v.classes {
		for _, resource := range served(other) {
			if slices.Contains(served(c), resource) && outranks(other, v.extended[resource]) {
				v.extended[resource] = other
			}
		}
	}
}

// served are the extended resources that a class can serve.
func served(c *resourcev1.DeviceClass) []string {
	list := []string{resourcev1.ResourceDeviceClassPrefix + c.Name}
	if name := c.Spec.ExtendedResourceName; name != nil && *name != "" {
		list = append(list, *name)
	}
	return list
}

func outranks(a, b *resourcev1.DeviceClass) bool {
	return b == nil || cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name)) < 0
}

// SetRule takes in a rule that taints devices.
func (v *Inventory) SetRule(r *resourcev1.DeviceTaintRule) {
	v.rules[r.Name] = r
	v.taint()
}

// RemoveRule forgets a rule.
func (v *Inventory) RemoveRule(name string) {
	delete(v.rules, name)
	v.taint()
}

// SetSlice takes in a slice.
func (v *Inventory) SetSlice(obj *resourcev1.ResourceSlice) {
	if old := v.bySlice[obj.Name]; old != nil {
		v.drop(old)
	}
	s := v.newSlice(obj)
	v.bySlice[obj.Name] = s
	p := v.pools[s.pool]
	if p == nil {
		p = &pool{poolID: s.pool}
		v.pools[s.pool] = p
	}
	p.slices = append(p.slices, s)
	v.stale[p] = true
}

// RemoveSlice forgets a slice.
func (v *Inventory) RemoveSlice(name string) {
	if old := v.bySlice[name]; old != nil {
		delete(v.bySlice, name)
		v.drop(old)
	}
}

// drop takes a slice out of its pool.
func (v *Inventory) drop(s *slice) {
	p := v.pools[s.pool]
	p.slices = slices.DeleteFunc(p.slices, func(x *slice) bool { return x == s })
	v.stale[p] = true
	for _, d := range s.devices {
		d.use.published--
		v.dropUse(d.id, d.use)
	}
}

// Take notes that a claim has what was allocated to it. What it had before it has no more.
func (v *Inventory) Take(claim types.UID, a *resourcev1.AllocationResult) {
	if old := v.taken[claim]; old == a {
		return
	}
	v.Release(claim)
	v.taken[claim] = a
	v.account(a, +1)
}

// Release notes that a claim has nothing any more, and reports whether it had something.
func (v *Inventory) Release(claim types.UID) bool {
	a := v.taken[claim]
	if a == nil {
		return false
	}
	delete(v.taken, claim)
	v.account(a, -1)
	return true
}
