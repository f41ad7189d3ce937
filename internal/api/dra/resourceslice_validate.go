package dra

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"

	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/api/core/podspec"
	"github.com/kemudi/kemudi/internal/resource"
)

func validateSlice(obj, old *resourcev1.ResourceSlice, errs *resource.Errors) {
	s := &obj.Spec
	checkDriver(errs, "spec.driver", s.Driver)
	checkPool(errs, "spec.pool.name", s.Pool.Name)
	if s.Pool.ResourceSliceCount <= 0 {
		errs.Invalid("spec.pool.resourceSliceCount", s.Pool.ResourceSliceCount, "must be greater than zero")
	}
	if s.Pool.Generation < 0 {
		errs.Invalid("spec.pool.generation", s.Pool.Generation, "must be greater than or equal to zero")
	}
	before := map[string]*resourcev1.Device{}
	if old != nil {
		errs.Add(validation.ValidateImmutableField(s.Pool.Name, old.Spec.Pool.Name, errs.Path("spec.pool.name"))...)
		errs.Add(validation.ValidateImmutableField(s.Driver, old.Spec.Driver, errs.Path("spec.driver"))...)
		errs.Add(validation.ValidateImmutableField(s.NodeName, old.Spec.NodeName, errs.Path("spec.nodeName"))...)
		for i := range old.Spec.Devices {
			before[old.Spec.Devices[i].Name] = &old.Spec.Devices[i]
		}
	}
	validateSliceNodes(errs.At("spec"), s)
	if s.SharedCounters != nil && s.Devices != nil {
		errs.Invalid("spec", "", "only one of `sharedCounters` or `devices` is allowed")
	}
	limit := resourcev1.ResourceSliceMaxDevices
	if slices.ContainsFunc(s.Devices, func(d resourcev1.Device) bool { return len(d.Taints) > 0 || len(d.ConsumesCounters) > 0 }) {
		limit = resourcev1.ResourceSliceMaxDevicesWithAdvancedFeatures
	}
	if atMost(errs, "spec.devices", len(s.Devices), limit) {
		for i := range s.Devices {
			d := &s.Devices[i]
			validateDevice(errs.At("spec.devices[%d]", i), d, before[d.Name])
			validateDeviceNodes(errs.At("spec.devices[%d]", i), d, isTrue(s.PerDeviceNodeSelection))
		}
		unique(errs, "spec.devices", s.Devices, func(d *resourcev1.Device) string { return d.Name })
	}
	if atMost(errs, "spec.sharedCounters", len(s.SharedCounters), resourcev1.ResourceSliceMaxCounterSets) {
		for i := range s.SharedCounters {
			c := &s.SharedCounters[i]
			checkCounters(errs.At("spec.sharedCounters[%d]", i), "name", c.Name, c.Counters)
		}
		unique(errs, "spec.sharedCounters", s.SharedCounters, func(c *resourcev1.CounterSet) string { return c.Name })
	}
}

func isTrue(b *bool) bool { return b != nil && *b }

// nodeChoice is where devices are, of a slice or of one of its devices.
type nodeChoice struct {
	errs *resource.Errors
	set  []string // the fields that say so
}

func (c *nodeChoice) name(name *string, empty string) {
	switch {
	case name == nil:
	case *name == "":
		c.errs.Invalid("nodeName", *name, empty)
	default:
		c.set = append(c.set, "`nodeName`")
		c.errs.Refuse("nodeName", *name, resource.DNS1123Subdomain(*name, false))
	}
}

func (c *nodeChoice) selector(s *corev1.NodeSelector) {
	if s != nil {
		c.set = append(c.set, "`nodeSelector`")
		podspec.ValidateNodeSelector(c.errs.At("nodeSelector"), s)
	}
}

func (c *nodeChoice) flag(field, text string, value *bool) {
	switch {
	case value == nil:
	case *value:
		c.set = append(c.set, text)
	default:
		c.errs.Invalid(field, false, "must be either unset or set to true")
	}
}

// one refuses any number of fields but one.
func (c *nodeChoice) one(none, many string) {
	switch len(c.set) {
	case 0:
		c.errs.Required("", none)
	case 1:
	default:
		c.errs.Invalid("", "{"+strings.Join(c.set, ", ")+"}", many)
	}
}

func validateSliceNodes(errs *resource.Errors, s *resourcev1.ResourceSliceSpec) {
	c := nodeChoice{errs: errs}
	c.name(s.NodeName, "must be either unset or set to a non-empty string")
	c.selector(s.NodeSelector)
	// Selectors of several slices can be put together only if each is a single term.
	if s.NodeSelector != nil && len(s.NodeSelector.NodeSelectorTerms) != 1 {
		errs.Invalid("nodeSelector.nodeSelectorTerms", s.NodeSelector.NodeSelectorTerms, "must have exactly one node selector term")
	}
	c.flag("allNodes", "`allNodes`", s.AllNodes)
	c.flag("perDeviceNodeSelection", "`perDeviceNodeSelection`", s.PerDeviceNodeSelection)
	c.one("exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required",
		"exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required, but multiple fields are set")
}

func validateDeviceNodes(errs *resource.Errors, d *resourcev1.Device, each bool) {
	if !each {
		if d.NodeName != nil || d.NodeSelector != nil || d.AllNodes != nil {
			errs.Invalid("", nil, "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec")
		}
		return
	}
	const detail = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
	c := nodeChoice{errs: errs}
	c.name(d.NodeName, "must not be empty")
	c.selector(d.NodeSelector)
	c.flag("allNodes", "`allNodes`", d.AllNodes)
	c.one(detail, detail)
}

// validateDevice checks a device. What it had before may stay, though it would be
// refused today.
func validateDevice(errs *resource.Errors, d, old *resourcev1.Device) {
	check.DNSLabel(errs, "name", d.Name)
	if n := len(d.Attributes) + len(d.Capacity); n > resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice {
		errs.Invalid("", n, "the total number of attributes and capacities must not exceed 32")
	}
	if n := len(d.Attributes); n > resourcev1.ResourceSliceMaxAttributeValuesPerDevice {
		errs.Invalid("", n, "the total number of attribute values must not exceed 48")
	}
	for _, name := range slices.Sorted(maps.Keys(d.Attributes)) {
		a := d.Attributes[name]
		checkName(errs, "attributes", string(name))
		validateAttribute(errs.At("attributes[%s]", shortened(string(name))), &a)
	}
	if old == nil || !equality.Semantic.DeepEqual(old.Capacity, d.Capacity) {
		for _, name := range slices.Sorted(maps.Keys(d.Capacity)) {
			c := d.Capacity[name]
			checkName(errs, "capacity", string(name))
			validateCapacity(errs.At("capacity[%s]", shortened(string(name))), &c, isTrue(d.AllowMultipleAllocations))
		}
	}
	sameTaints := old != nil && equality.Semantic.DeepEqual(old.Taints, d.Taints)
	if !sameTaints && atMost(errs, "taints", len(d.Taints), resourcev1.DeviceTaintsMaxLength) {
		for i := range d.Taints {
			checkTaint(errs.At("taints[%d]", i), &d.Taints[i], nil)
		}
	}
	if atMost(errs, "consumesCounters", len(d.ConsumesCounters), resourcev1.ResourceSliceMaxDeviceCounterConsumptionsPerDevice) {
		for i := range d.ConsumesCounters {
			c := &d.ConsumesCounters[i]
			checkCounters(errs.At("consumesCounters[%d]", i), "counterSet", c.CounterSet, c.Counters)
		}
		unique(errs, "consumesCounters", d.ConsumesCounters, func(c *resourcev1.DeviceCounterConsumption) string { return c.CounterSet })
	}
	checkBinding(errs, d.BindingConditions, d.BindingFailureConditions)
}

// checkCounters checks a set of counters; field is where its name stands.
func checkCounters(errs *resource.Errors, field, name string, counters map[string]resourcev1.Counter) {
	if name == "" {
		errs.Required(field, "")
	} else {
		check.DNSLabel(errs, field, name)
	}
	if len(counters) == 0 {
		errs.Required("counters", "")
		return
	}
	if atMost(errs, "counters", len(counters), resourcev1.ResourceSliceMaxCountersPerCounterSet) {
		for _, name := range slices.Sorted(maps.Keys(counters)) {
			check.DNSLabel(errs, "counters", name)
		}
	}
}

// version is a semantic version, by the specification's second major version.
var version = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)` +
	`(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?` +
	`(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?$`)

func validateAttribute(errs *resource.Errors, a *resourcev1.DeviceAttribute) {
	n := 0
	if a.BoolValue != nil {
		n++
	}
	if a.IntValue != nil {
		n++
	}
	if a.StringValue != nil {
		n++
		if len(*a.StringValue) > resourcev1.DeviceAttributeMaxValueLength {
			errs.TooLong("string", resourcev1.DeviceAttributeMaxValueLength)
		}
	}
	if a.VersionValue != nil {
		n++
		if !version.MatchString(*a.VersionValue) {
			errs.Invalid("version", *a.VersionValue, "must be a string compatible with semver.org spec 2.0.0")
		}
		if len(*a.VersionValue) > resourcev1.DeviceAttributeMaxValueLength {
			errs.TooLong("version", resourcev1.DeviceAttributeMaxValueLength)
		}
	}
	switch n {
	case 0:
		errs.Invalid("", "", "exactly one value must be specified")
	case 1:
	default:
		errs.Invalid("", a, "exactly one value must be specified")
	}
}

// maxNameLength is that of a name with its domain.
const maxNameLength = resourcev1.DeviceMaxDomainLength + 1 + resourcev1.DeviceMaxIDLength

// shortened is a key as a field's path has it: a wrong one of any length is not
// repeated whole.
func shortened(key string) string {
	if len(key) <= maxNameLength {
		return key
	}
	rest := maxNameLength - len("...")
	return key[:(rest+1)/2] + "..." + key[len(key)-rest/2:]
}
