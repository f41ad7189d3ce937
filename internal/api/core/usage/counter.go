package usage

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/dra"
	"github.com/kemudi/kemudi/internal/resource"
)

// Counter says what the objects of one resource take. It is a small value.
type Counter struct {
	def   *resource.Def
	rules *rules
	world World
}

// World has the objects that decide with an object what it takes: it returns one by its
// name, or nil. A nil World has none.
type World func(def *resource.Def, namespace, name string) resource.Object

// rules are what a resource is counted by beside the number of its objects. Any
// may be left out.
type rules struct {
	// alias is the number of objects by its old name, and unit that of those that
	// have not ended.
	alias, unit corev1.ResourceName
	// counts says that amounts of the name are taken.
	counts func(name corev1.ResourceName) bool
	// amounts are what an object takes of them.
	amounts func(obj resource.Object, w World) corev1.ResourceList
	// require refuses an object that says too little to be counted.
	require func(names []corev1.ResourceName, obj resource.Object) error
	// ended says whether an object takes nothing any more but its count, and if
	// not, when it will (zero: that is not known).
	ended func(obj resource.Object, now time.Time) (ended bool, at time.Time)
	// in says whether an object is in a scope; nil: none is in any.
	in func(scope *corev1.ScopedResourceSelectorRequirement, obj resource.Object) bool
	// same says that a change is nothing to any quota; nil: no change is.
	same func(before, after resource.Object) bool
	// updates are the writes beside the creation that may take more: of the object
	// itself ("") or of a subresource.
	updates []string
}

// byResource are the rules of the resources that have some.
var byResource = map[*resource.Def]*rules{
	core.Pods.Def:                   &pods,
	core.Services.Def:               &services,
	core.PersistentVolumeClaims.Def: &claims,
	dra.ResourceClaims.Def:          &resourceClaims,
	core.ConfigMaps.Def:             {alias: corev1.ResourceConfigMaps},
	core.Secrets.Def:                {alias: corev1.ResourceSecrets},
	core.ReplicationControllers.Def: {alias: corev1.ResourceReplicationControllers},
	core.ResourceQuotas.Def:         {alias: corev1.ResourceQuotas},
}

// For returns the counter of a resource; ok is false if its objects are never
// counted: they have no namespace, are not stored, or are notes of what happened.
func For(def *resource.Def) (c Counter, ok bool) {
	if !def.Namespaced || !def.Stored() || def == core.Events.Def {
		return Counter{}, false
	}
	c = Counter{def: def, rules: byResource[def]}
	if c.rules == nil {
		c.rules = &rules{}
	}
	return c, true
}

// Within returns the counter as it counts in a world.
func (c Counter) Within(w World) Counter {
	c.world = w
	return c
}

// Checks says whether a write may take more: the creation of an object (sub is
// empty then), or an update of it or of a subresource.
func (c Counter) Checks(create bool, sub string) bool {
	if create {
		return sub == ""
	}
	return slices.Contains(c.rules.updates, sub)
}

// Names are those of the amounts of a list that objects take something of, in order.
func (c Counter) Names(lists ...corev1.ResourceList) []corev1.ResourceName {
	var names []corev1.ResourceName
	for _, list := range lists {
		for name := range list {
			if c.takes(name) && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// TakesAny says whether objects take something of a list.
func (c Counter) TakesAny(list corev1.ResourceList) bool {
	for name := range list {
		if c.takes(name) {
			return true
		}
	}
	return false
}

func (c Counter) takes(name corev1.ResourceName) bool {
	return c.isCount(name) || name != "" && (name == c.rules.alias || name == c.rules.unit) || c.rules.counts != nil && c.rules.counts(name)
}

// isCount says whether a name is that of the number of the objects, by any group
// that they are served in: count/deployments.apps, count/deployments.extensions.
func (c Counter) isCount(name corev1.ResourceName) bool {
	rest, ok := strings.CutPrefix(string(name), "count/")
	if !ok {
		return false
	}
	plural, group, _ := strings.Cut(rest, ".")
	if plural != c.def.Plural {
		return false
	}
	return group == c.def.Group || slices.ContainsFunc(c.def.Versions, func(v resource.VersionDef) bool { return v.Group == group })
}

// Require refuses an object that leaves out what it would have to say for the
// amounts of a quota, as upstream does: a quota of cpu or memory makes containers
// name theirs.
func (c Counter) Require(names []corev1.ResourceName, obj resource.Object) error {
	if c.rules.require == nil {
		return nil
	}
	return c.rules.require(names, obj)
}

// In says whether an object is in all scopes of a quota.
func (c Counter) In(q *corev1.ResourceQuota, obj resource.Object) bool {
	for _, scope := range Scopes(q) {
		if !c.in(&scope, obj) {
			return false
		}
	}
	return true
}

// InWhich are those of the scopes that an object is in.
func (c Counter) InWhich(scopes []corev1.ScopedResourceSelectorRequirement, obj resource.Object) []corev1.ScopedResourceSelectorRequirement {
	var in []corev1.ScopedResourceSelectorRequirement
	for i := range scopes {
		if c.in(&scopes[i], obj) {
			in = append(in, scopes[i])
		}
	}
	return in
}

func (c Counter) in(scope *corev1.ScopedResourceSelectorRequirement, obj resource.Object) bool {
	return c.rules.in != nil && c.rules.in(scope, obj)
}

// Same says that a change of an object is nothing to any quota.
func (c Counter) Same(before, after resource.Object) bool {
	return before.GetUID() == after.GetUID() && (c.rules.same == nil || c.rules.same(before, after))
}

// Use is what one object takes. It is used by one goroutine.
type Use struct {
	c       Counter
	obj     resource.Object
	amounts corev1.ResourceList // nil: they have not been asked for
}

// Of is what an object takes.
func (c Counter) Of(obj resource.Object) Use { return Use{c: c, obj: obj} }

// one is what an object adds to the number of them.
var one = *quantity.NewQuantity(1, quantity.DecimalSI)

// At returns what the object takes of the named amount at a time, which must be
// one of Counter.Names.
func (u *Use) At(now time.Time, name corev1.ResourceName) quantity.Quantity {
	if name == u.c.rules.alias || u.c.isCount(name) {
		return one
	}
	if ended, _ := u.Ends(now); ended {
		return quantity.Quantity{Format: quantity.DecimalSI}
	}
	if name == u.c.rules.unit {
		return one
	}
	if u.amounts == nil {
		u.amounts = u.c.rules.amounts(u.obj, u.c.world)
	}
	return u.amounts[name]
}

// Names are those of the amounts that the object takes something of at a time.
func (u *Use) Names(now time.Time) []corev1.ResourceName {
	count := corev1.ResourceName("count/" + u.c.def.GroupResource().String())
	names := []corev1.ResourceName{count}
	if u.c.rules.alias != "" {
		names = append(names, u.c.rules.alias)
	}
	if ended, _ := u.Ends(now); ended {
		return names
	}
	if u.c.rules.unit != "" {
		names = append(names, u.c.rules.unit)
	}
	if u.amounts == nil && u.c.rules.amounts != nil {
		u.amounts = u.c.rules.amounts(u.obj, u.c.world)
	}
	for name := range u.amounts {
		names = append(names, name)
	}
	return names
}

// Ends says whether the object takes nothing any more but its count, and if not,
// when it will without being changed (zero: never).
func (u *Use) Ends(now time.Time) (ended bool, at time.Time) {
	if u.c.rules.ended == nil {
		return false, time.Time{}
	}
	return u.c.rules.ended(u.obj, now)
}
