package dra

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/resource"
)

// atMost refuses a list of more than limit items, and reports whether it is worth
// looking at: one that is too long costs nothing more.
func atMost(errs *resource.Errors, path string, n, limit int) bool {
	if n > limit {
		errs.TooMany(path, n, limit)
	}
	return n <= limit
}

// unique refuses the items of a list that repeat the key of one before.
func unique[T any](errs *resource.Errors, path string, list []T, key func(*T) string) {
	seen := make(map[string]bool, len(list))
	for i := range list {
		k := key(&list[i])
		if seen[k] {
			errs.Duplicate(fmt.Sprintf("%s[%d]", path, i), k)
		}
		seen[k] = true
	}
}

// itself is the key of a text.
func itself(s *string) string { return *s }

// checkDriver accepts the name of a driver: as CSI drivers', in letters of either case.
func checkDriver(errs *resource.Errors, path, name string) {
	if name == "" {
		errs.Required(path, "")
		return
	}
	if len(name) > resourcev1.DriverNameMaxLength {
		errs.TooLong(path, resourcev1.DriverNameMaxLength)
	}
	for _, msg := range resource.DNS1123Subdomain(strings.ToLower(name), false) {
		errs.Invalid(path, name, msg)
	}
}

// checkPool accepts the name of a pool: DNS subdomains with slashes between.
func checkPool(errs *resource.Errors, path, name string) {
	if name == "" {
		errs.Required(path, "")
		return
	}
	if len(name) > resourcev1.PoolNameMaxLength {
		errs.TooLong(path, resourcev1.PoolNameMaxLength)
	}
	for part := range strings.SplitSeq(name, "/") {
		check.DNSSubdomain(errs, path, part)
	}
}

// checkName accepts the name of an attribute or a capacity, of which the domain may be
// left out.
func checkName(errs *resource.Errors, path, name string) {
	parts := strings.Split(name, "/")
	switch len(parts) {
	case 1:
		checkIdentifier(errs, path, name)
	case 2:
		if parts[0] == "" {
			errs.Invalid(path, "", "the domain must not be empty")
		} else {
			checkDriver(errs, path, parts[0])
		}
		if parts[1] == "" {
			errs.Invalid(path, "", "the name must not be empty")
		} else {
			checkIdentifier(errs, path, parts[1])
		}
	default:
		errs.Invalid(path, name, "must not contain more than one slash")
	}
}

// checkFullName accepts the name of an attribute with its domain.
func checkFullName(errs *resource.Errors, path string, name resourcev1.FullyQualifiedName) {
	checkName(errs, path, string(name))
	if !strings.Contains(string(name), "/") {
		errs.Invalid(path, name, "a fully qualified name must be a domain and a name separated by a slash")
	}
}

func checkIdentifier(errs *resource.Errors, path, id string) {
	if len(id) > resourcev1.DeviceMaxIDLength {
		errs.TooLong(path, resourcev1.DeviceMaxIDLength)
	}
	for _, msg := range content.IsCIdentifier(id) {
		errs.Invalid(path, id, msg)
	}
}

// The words of taints and tolerations, in the order of refusals.
var (
	taintEffects = []resourcev1.DeviceTaintEffect{resourcev1.DeviceTaintEffectNoExecute, resourcev1.DeviceTaintEffectNoSchedule, resourcev1.DeviceTaintEffectNone}
	operators    = []resourcev1.DeviceTolerationOperator{resourcev1.DeviceTolerationOpEqual, resourcev1.DeviceTolerationOpExists}
)

// defaultTaint says since when there is a taint.
func defaultTaint(t *resourcev1.DeviceTaint) {
	if t.TimeAdded == nil {
		t.TimeAdded = now()
	}
}

// checkTaint accepts a taint. An effect that was stored before, by a release that knew
// more of them, is left as it is.
func checkTaint(errs *resource.Errors, t, old *resourcev1.DeviceTaint) {
	errs.Add(metavalidation.ValidateLabelName(t.Key, errs.Path("key"))...)
	check.LabelValue(errs.At("value"), t.Value)
	if old != nil && old.Effect == t.Effect {
		return
	}
	check.RequiredOneOf(errs, "effect", t.Effect, taintEffects...)
}

func checkToleration(errs *resource.Errors, t *resourcev1.DeviceToleration) {
	if t.Key != "" {
		errs.Add(metavalidation.ValidateLabelName(t.Key, errs.Path("key"))...)
	}
	switch t.Operator {
	case resourcev1.DeviceTolerationOpExists:
		if t.Value != "" {
			errs.Invalid("value", t.Value, "must be empty for operator `Exists`")
		}
	case resourcev1.DeviceTolerationOpEqual:
		check.LabelValue(errs.At("value"), t.Value)
	default:
		check.RequiredOneOf(errs, "operator", t.Operator, operators...)
	}
	if t.Effect != "" && !slices.Contains(taintEffects, t.Effect) {
		resource.NotSupported(errs, "effect", t.Effect, taintEffects...)
	}
}

func checkTolerations(errs *resource.Errors, list []resourcev1.DeviceToleration) {
	if !atMost(errs, "tolerations", len(list), resourcev1.DeviceTolerationsMaxLength) {
		return
	}
	for i := range list {
		checkToleration(errs.At("tolerations[%d]", i), &list[i])
	}
}

// checkBinding checks the conditions for which binding waits, and those that end it.
func checkBinding(errs *resource.Errors, conditions, failures []string) {
	eachName := func(path string, list []string, limit int) {
		if atMost(errs, path, len(list), limit) {
			for i, name := range list {
				errs.Add(metavalidation.ValidateLabelName(name, errs.Path(path).Index(i))...)
			}
		}
		unique(errs, path, list, itself)
	}
	eachName("bindingConditions", conditions, resourcev1.BindingConditionsMaxSize)
	eachName("bindingFailureConditions", failures, resourcev1.BindingFailureConditionsMaxSize)
	for i, name := range failures {
		if slices.Contains(conditions, name) {
			errs.Invalid(fmt.Sprintf("bindingFailureConditions[%d]", i), name, "bindingFailureConditions must not overlap with bindingConditions")
		}
	}
	if len(conditions) == 0 && len(failures) > 0 {
		errs.Invalid("bindingConditions", conditions, "bindingConditions are required to use bindingFailureConditions")
	}
	if len(failures) == 0 && len(conditions) > 0 {
		errs.Invalid("bindingFailureConditions", failures, "bindingFailureConditions are required to use bindingConditions")
	}
}

// checkConfiguration checks what a driver is to be told. stored: it is there already,
// from a time when it might be longer.
func checkConfiguration(errs *resource.Errors, c *resourcev1.DeviceConfiguration, stored bool) {
	if c.Opaque == nil {
		errs.Required("opaque", "")
		return
	}
	checkDriver(errs, "opaque.driver", c.Opaque.Driver)
	limit := resourcev1.OpaqueParametersMaxLength
	if stored {
		limit = len(c.Opaque.Parameters.Raw)
	}
	checkRaw(errs, "opaque.parameters", &c.Opaque.Parameters, limit)
}

// checkRaw accepts a JSON object of at most limit bytes.
func checkRaw(errs *resource.Errors, path string, raw *runtime.RawExtension, limit int) {
	var v any
	switch {
	case len(raw.Raw) == 0:
		errs.Required(path, "")
		return
	case len(raw.Raw) > limit:
		errs.TooLong(path, limit)
		return
	}
	if err := json.Unmarshal(raw.Raw, &v); err != nil {
		errs.Invalid(path, "<value omitted>", "error parsing data as JSON: "+err.Error())
		return
	}
	switch v.(type) {
	case nil:
		errs.Required(path, "")
	case map[string]any:
	default:
		errs.Invalid(path, "<value omitted>", "must be a valid JSON object")
	}
}
