package limitranger

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/api/core"
)

// annotation tells what of a pod was set by LimitRanges.
const annotation = "kubernetes.io/limit-ranger"

// New gives containers the requests and limits that the LimitRanges of
// their namespace have for those that name none, and refuses pods and claims
// that ask for less or more than they allow.
func New(o *admission.Options) admission.Plugin {
	ranges := admission.Reader(o, core.LimitRanges)
	return admission.Plugin{
		Name: "LimitRanger",
		Mutate: func(_ context.Context, a *admission.Attributes) error {
			if pod, ok := a.Object.(*corev1.Pod); ok && limited(a) {
				// By name: what the first one sets is there for the others.
				for _, l := range ranges.List(a.Namespace, nil) {
					setDefaults(pod, l)
				}
			}
			return nil
		},
		Validate: func(_ context.Context, a *admission.Attributes) error {
			if !limited(a) {
				return nil
			}
			for _, l := range ranges.List(a.Namespace, nil) {
				if err := utilerrors.NewAggregate(violations(a, l)); err != nil {
					return a.Forbid("%w", err)
				}
			}
			return nil
		},
	}
}

// limited reports whether the write is of a thing that has limits: a new pod, as
// its containers do not change afterwards except by resize, or a claim, new or
// changed. What is being deleted is left alone.
func limited(a *admission.Attributes) bool {
	if a.Old != nil && a.Old.GetDeletionTimestamp() != nil {
		return false
	}
	return a.Is(core.Pods.Def, "", admission.Create) || a.Is(core.Pods.Def, "resize", admission.Update) ||
		a.Is(core.PersistentVolumeClaims.Def, "", admission.Create, admission.Update)
}

// setDefaults fills in what the pod's containers leave open, and notes it.
func setDefaults(pod *corev1.Pod, l *corev1.LimitRange) {
	requests, limits := corev1.ResourceList{}, corev1.ResourceList{}
	for i := range l.Spec.Limits {
		if item := &l.Spec.Limits[i]; item.Type == corev1.LimitTypeContainer {
			maps.Copy(requests, item.DefaultRequest)
			maps.Copy(limits, item.Default)
		}
	}
	var notes []string
	for _, part := range []struct {
		what       string
		containers []corev1.Container
	}{{"container", pod.Spec.Containers}, {"init container", pod.Spec.InitContainers}} {
		for i := range part.containers {
			c := &part.containers[i]
			if set := fill(&c.Resources.Requests, requests); set != "" {
				notes = append(notes, fmt.Sprintf("%s request for %s %s", set, part.what, c.Name))
			}
			if set := fill(&c.Resources.Limits, limits); set != "" {
				notes = append(notes, fmt.Sprintf("%s limit for %s %s", set, part.what, c.Name))
			}
		}
	}
	if len(notes) > 0 {
		annotations := maps.Clone(pod.Annotations)
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[annotation] = "LimitRanger plugin set: " + strings.Join(notes, "; ")
		pod.Annotations = annotations
	}
}

// fill adds to the list what it lacks of the defaults, and names that.
func fill(list *corev1.ResourceList, defaults corev1.ResourceList) string {
	var set []string
	filled := maps.Clone(*list)
	for name, q := range defaults {
		if _, ok := filled[name]; ok {
			continue
		}
		if filled == nil {
			filled = corev1.ResourceList{}
		}
		filled[name] = q.DeepCopy()
		set = append(set, string(name))
	}
	*list = filled
	slices.Sort(set)
	return strings.Join(set, ", ")
}

// violations are what the write has against one LimitRange. What an update leaves as
// it was is not held against the range again.
func violations(a *admission.Attributes, l *corev1.LimitRange) (errs []error) {
	for i := range l.Spec.Limits {
		item := &l.Spec.Limits[i]
		switch obj := a.Object.(type) {
		case *corev1.PersistentVolumeClaim:
			if item.Type == corev1.LimitTypePersistentVolumeClaim {
				u := usage{requests: obj.Spec.Resources.Requests}
				if old, ok := a.Old.(*corev1.PersistentVolumeClaim); ok {
					u.before = &usage{requests: old.Spec.Resources.Requests}
				}
				errs = append(errs, u.violations(item)...)
			}
		case *corev1.Pod:
			before := map[string]*usage{}
			if old, ok := a.Old.(*corev1.Pod); ok {
				for _, u := range podUsage(old, item) {
					before[u.name] = &u
				}
			}
			for _, u := range podUsage(obj, item) {
				u.before = before[u.name]
				errs = append(errs, u.violations(item)...)
			}
		}
	}
	return errs
}

// podUsage is what a limit of a pod holds against: each container's resources,
// or the pod's as a whole.
func podUsage(pod *corev1.Pod, item *corev1.LimitRangeItem) (list []usage) {
	switch item.Type {
	case corev1.LimitTypeContainer:
		for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
			for i := range containers {
				list = append(list, usage{name: containers[i].Name, requests: containers[i].Resources.Requests, limits: containers[i].Resources.Limits})
			}
		}
	case corev1.LimitTypePod:
		o := resourcehelper.PodResourcesOptions{ExcludeOverhead: true}
		list = append(list, usage{requests: resourcehelper.PodRequests(pod, o), limits: resourcehelper.PodLimits(pod, o)})
	}
	return list
}

// usage is resources that limits hold for.
type usage struct {
	name             string // of the container; empty: of the object as a whole
	requests, limits corev1.ResourceList
	before           *usage // what is stored; nil: nothing is
}

// violations are what is less than the minimum or more than the maximum or the
// ratio, in the order of the resources' names.
func (u usage) violations(item *corev1.LimitRangeItem) (errs []error) {
	b := bounds{u, item.Type}
	for _, rule := range []struct {
		list  corev1.ResourceList
		check func(name corev1.ResourceName, bound quantity.Quantity) error
	}{{item.Min, b.less}, {item.Max, b.more}, {item.MaxLimitRequestRatio, b.ratio}} {
		for _, name := range slices.Sorted(maps.Keys(rule.list)) {
			if u.unchanged(name) {
				continue
			}
			if err := rule.check(name, rule.list[name]); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errs
}

// unchanged says that request and limit of a resource are what is stored.
func (u usage) unchanged(name corev1.ResourceName) bool {
	return u.before != nil && same(u.requests, u.before.requests, name) && same(u.limits, u.before.limits, name)
}

func same(a, b corev1.ResourceList, name corev1.ResourceName) bool {
	x, hasX := a[name]
	y, hasY := b[name]
	return hasX == hasY && x.Cmp(y) == 0
}

// bounds holds resources against the limits of a type.
type bounds struct {
	usage
	of corev1.LimitType
}

func (u bounds) less(name corev1.ResourceName, least quantity.Quantity) error {
	request, hasRequest := u.requests[name]
	limit, hasLimit := u.limits[name]
	switch {
	case !hasRequest:
		return fmt.Errorf("minimum %s usage per %s is %s.  No request is specified", name, u.of, least.String())
	case request.Cmp(least) < 0:
		return fmt.Errorf("minimum %s usage per %s is %s, but request is %s", name, u.of, least.String(), request.String())
	case hasLimit && limit.Cmp(least) < 0:
		return fmt.Errorf("minimum %s usage per %s is %s, but limit is %s", name, u.of, least.String(), limit.String())
	}
	return nil
}

func (u bounds) more(name corev1.ResourceName, most quantity.Quantity) error {
	request, hasRequest := u.requests[name]
	limit, hasLimit := u.limits[name]
	switch {
	case u.requestsOnly() && !hasRequest:
		return fmt.Errorf("maximum %s usage per %s is %s.  No request is specified", name, u.of, most.String())
	case !u.requestsOnly() && !hasLimit:
		return fmt.Errorf("maximum %s usage per %s is %s.  No limit is specified", name, u.of, most.String())
	case hasLimit && limit.Cmp(most) > 0:
		return fmt.Errorf("maximum %s usage per %s is %s, but limit is %s", name, u.of, most.String(), limit.String())
	case hasRequest && request.Cmp(most) > 0:
		return fmt.Errorf("maximum %s usage per %s is %s, but request is %s", name, u.of, most.String(), request.String())
	}
	return nil
}

func (u bounds) ratio(name corev1.ResourceName, most quantity.Quantity) error {
	if u.requestsOnly() {
		return nil
	}
	request, limit := u.requests[name], u.limits[name]
	switch {
	case request.IsZero():
		return fmt.Errorf("%s max limit to request ratio per %s is %s, but no request is specified or request is 0", name, u.of, most.String())
	case limit.IsZero():
		return fmt.Errorf("%s max limit to request ratio per %s is %s, but no limit is specified or limit is 0", name, u.of, most.String())
	}
	allowed, least, is := most.DeepCopy(), request.DeepCopy(), limit.DeepCopy() // AsDec changes them
	if product := allowed.AsDec(); product.Mul(product, least.AsDec()).Cmp(is.AsDec()) < 0 {
		ratio := limit.AsApproximateFloat64() / request.AsApproximateFloat64()
		return fmt.Errorf("%s max limit to request ratio per %s is %s, but provided ratio is %f", name, u.of, most.String(), ratio)
	}
	return nil
}

// requestsOnly says that limits mean nothing here.
func (u bounds) requestsOnly() bool { return u.of == corev1.LimitTypePersistentVolumeClaim }
