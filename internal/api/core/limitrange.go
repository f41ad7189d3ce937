package core

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/resource"
)

// LimitRanges is bounds of what one pod, container or claim may ask for.
var LimitRanges = resource.Define(resource.Spec[*corev1.LimitRange]{
	Names:   resource.Names{Version: "v1", Kind: "LimitRange", Plural: "limitranges", Short: []string{"limits"}, Namespaced: true},
	Update:  resource.UpdateCreates,
	Default: defaultLimitRange, Validate: validateLimitRange,
	Ageless: true,
	Columns: []resource.Column[*corev1.LimitRange]{{
		Name: "Created At", Type: "date", Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"],
		Value: func(l *corev1.LimitRange) any { return l.CreationTimestamp.UTC().Format(time.RFC3339) },
	}},
})

func defaultLimitRange(l *corev1.LimitRange) {
	for i := range l.Spec.Limits {
		item := &l.Spec.Limits[i]
		for _, list := range []corev1.ResourceList{item.Max, item.Min, item.Default, item.DefaultRequest, item.MaxLimitRequestRatio} {
			check.RoundUp(list)
		}
		if item.Type != corev1.LimitTypeContainer {
			continue
		}
		if item.Default == nil {
			item.Default = corev1.ResourceList{}
		}
		if item.DefaultRequest == nil {
			item.DefaultRequest = corev1.ResourceList{}
		}
		for name, q := range item.Max {
			check.SetIfAbsent(&item.Default, name, q)
		}
		for name, q := range item.Default {
			check.SetIfAbsent(&item.DefaultRequest, name, q)
		}
		for name, q := range item.Min {
			check.SetIfAbsent(&item.DefaultRequest, name, q)
		}
	}
}

// limitTypes are the kinds of limits that need no domain.
var limitTypes = []corev1.LimitType{corev1.LimitTypePod, corev1.LimitTypeContainer, corev1.LimitTypePersistentVolumeClaim}

func validateLimitRange(l, _ *corev1.LimitRange, errs *resource.Errors) {
	for i := range l.Spec.Limits {
		item, at := &l.Spec.Limits[i], errs.At("spec.limits[%d]", i)
		checkLimitType(at, item.Type)
		if slices.ContainsFunc(l.Spec.Limits[:i], func(o corev1.LimitRangeItem) bool { return o.Type == item.Type }) {
			at.Duplicate("type", item.Type)
		}
		validateLimits(at, item)
	}
}

func checkLimitType(errs *resource.Errors, t corev1.LimitType) {
	if msgs := utilvalidation.IsQualifiedName(string(t)); len(msgs) > 0 {
		for _, msg := range msgs {
			errs.Invalid("type", t, msg)
		}
		return
	}
	if !strings.Contains(string(t), "/") && !slices.Contains(limitTypes, t) {
		errs.Invalid("type", t, "must be a standard limit type or fully qualified")
	}
}

func validateLimits(errs *resource.Errors, item *corev1.LimitRangeItem) {
	checkName := check.ContainerResourceName
	if item.Type != corev1.LimitTypePod && item.Type != corev1.LimitTypeContainer {
		checkName = func(errs *resource.Errors, at string, name corev1.ResourceName) { check.ResourceName(errs, at, name) }
	}
	defaults, requests := item.Default, item.DefaultRequest
	if item.Type == corev1.LimitTypePod {
		if len(defaults) > 0 {
			errs.Forbidden("default", "may not be specified when `type` is 'Pod'")
		}
		if len(requests) > 0 {
			errs.Forbidden("defaultRequest", "may not be specified when `type` is 'Pod'")
		}
		defaults, requests = nil, nil
	}
	names := map[corev1.ResourceName]bool{}
	for _, list := range []struct {
		name  string
		items corev1.ResourceList
	}{
		{"max", item.Max}, {"min", item.Min}, {"default", defaults}, {"defaultRequest", requests}, {"maxLimitRequestRatio", item.MaxLimitRequestRatio},
	} {
		for name := range list.items {
			checkName(errs.At("%s[%s]", list.name, name), "", name)
			names[name] = true
		}
	}
	if item.Type == corev1.LimitTypePersistentVolumeClaim {
		_, min := item.Min[corev1.ResourceStorage]
		_, max := item.Max[corev1.ResourceStorage]
		if !min && !max {
			errs.Required("limits", "either minimum or maximum storage value is required, but neither was provided")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		bounds := limitBounds{name: name}
		bounds.min, bounds.hasMin = quantity(item.Min, name)
		bounds.max, bounds.hasMax = quantity(item.Max, name)
		bounds.limit, bounds.hasLimit = quantity(defaults, name)
		bounds.request, bounds.hasRequest = quantity(requests, name)
		bounds.ratio, bounds.hasRatio = quantity(item.MaxLimitRequestRatio, name)
		bounds.validate(errs)
	}
}

func quantity(list corev1.ResourceList, name corev1.ResourceName) (apiresource.Quantity, bool) {
	q, ok := list[name]
	return q, ok
}

// limitBounds are the limits of one resource; request and limit are the defaults.
type limitBounds struct {
	name                                           corev1.ResourceName
	min, max, limit, request, ratio                apiresource.Quantity
	hasMin, hasMax, hasLimit, hasRequest, hasRatio bool
}

func (b *limitBounds) validate(errs *resource.Errors) {
	less := func(list string, shown apiresource.Quantity, low, high struct {
		what string
		q    apiresource.Quantity
	}) {
		if low.q.Cmp(high.q) > 0 {
			errs.At("%s[%s]", list, b.name).Invalid("", shown.String(),
				fmt.Sprintf("%s value %s is greater than %s value %s", low.what, low.q.String(), high.what, high.q.String()))
		}
	}
	type bound = struct {
		what string
		q    apiresource.Quantity
	}
	if b.hasMin && b.hasMax {
		less("min", b.min, bound{"min", b.min}, bound{"max", b.max})
	}
	if b.hasRequest && b.hasMin {
		less("defaultRequest", b.request, bound{"min", b.min}, bound{"default request", b.request})
	}
	if b.hasRequest && b.hasMax {
		less("defaultRequest", b.request, bound{"default request", b.request}, bound{"max", b.max})
	}
	if b.hasRequest && b.hasLimit {
		less("defaultRequest", b.request, bound{"default request", b.request}, bound{"default limit", b.limit})
	}
	if b.hasLimit && b.hasMin {
		less("default", b.min, bound{"min", b.min}, bound{"default", b.limit})
	}
	if b.hasLimit && b.hasMax {
		less("default", b.max, bound{"default", b.limit}, bound{"max", b.max})
	}
	b.validateRatio(errs.At("maxLimitRequestRatio[%s]", b.name))
	if !check.OvercommitAllowed(b.name) && b.hasLimit && b.hasRequest && b.limit.Cmp(b.request) != 0 {
		errs.At("defaultRequest[%s]", b.name).Invalid("", b.request.String(),
			fmt.Sprintf("default value %s must equal to defaultRequest value %s in %s", b.limit.String(), b.request.String(), b.name))
	}
}

func (b *limitBounds) validateRatio(errs *resource.Errors) {
	if !b.hasRatio {
		return
	}
	if b.ratio.Cmp(apiresource.MustParse("1")) < 0 {
		errs.Invalid("", b.ratio.String(), fmt.Sprintf("ratio %s is less than 1", b.ratio.String()))
	}
	if !b.hasMin || !b.hasMax {
		return
	}
	if most := b.max.AsApproximateFloat64() / b.min.AsApproximateFloat64(); b.ratio.AsApproximateFloat64() > most {
		errs.Invalid("", b.ratio.String(), fmt.Sprintf("ratio %s is greater than max/min = %f", b.ratio.String(), most))
	}
}
