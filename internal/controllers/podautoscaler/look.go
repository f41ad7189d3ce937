package podautoscaler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/autoscaling"
	"github.com/kemudi/kemudi/internal/cache"
)

// look is one look at an autoscaler. What comes of it is written into the status of a.
type look struct {
	*reconciler
	key   string
	state *state
	now   time.Time
	a     *autoscalingv2.HorizontalPodAutoscaler // ours

	metricsNow []autoscalingv2.MetricStatus
	had, has   int32 // pods that the target was to have, before and after
}

// run goes from the scale of the target to that which its metrics want.
func (l *look) run(ctx context.Context) error {
	to, err := l.targets.read(ctx, l.a)
	if err != nil {
		l.kit.Events.Event(l.a, corev1.EventTypeWarning, "FailedGetScale", err.Error())
		l.condition(autoscalingv2.AbleToScale, corev1.ConditionFalse, limit{"FailedGetScale", fmt.Sprintf("the HPA controller was unable to get the target's current scale: %v", err)})
		return err
	}
	l.condition(autoscalingv2.AbleToScale, corev1.ConditionTrue, limit{"SucceededGetScale", "the HPA controller was able to get the target's current scale"})
	l.had, l.has = to.scale.Spec.Replicas, to.scale.Spec.Replicas
	b := &bounds{
		current: to.scale.Spec.Replicas, least: ptr.Deref(l.a.Spec.MinReplicas, 1), most: l.a.Spec.MaxReplicas,
		behavior: l.a.Spec.Behavior, downscale: l.o.Downscale, now: l.now,
	}
	l.state.history.begin(b.current, l.now)
	wanted, reason, failed := l.decide(ctx, &to, b)
	if wanted < 0 {
		l.count(b.current, l.a.Status.DesiredReplicas)
		l.kit.Events.Event(l.a, corev1.EventTypeWarning, "FailedComputeMetricsReplicas", failed.Error())
		return failed
	}
	if wanted != b.current {
		if err := l.rescale(ctx, to, b, wanted, reason); err != nil {
			l.count(b.current, l.a.Status.DesiredReplicas)
			return err
		}
	}
	l.count(b.current, wanted)
	return failed
}

// decide is how many pods the target is to have, and why that is another number; less than
// none if that cannot be told.
func (l *look) decide(ctx context.Context, to *target, b *bounds) (wanted int32, reason string, err error) {
	switch {
	case b.current == 0 && !l.sleeps(b): // somebody else has put it out of work
		l.condition(autoscalingv2.ScalingActive, corev1.ConditionFalse, limit{"ScalingDisabled", "scaling is disabled since the replica count of the target is zero"})
		return 0, "", nil
	case b.current > b.most:
		return b.most, "Current number of replicas above Spec.MaxReplicas", nil
	case b.current < b.least:
		return b.least, "Current number of replicas below Spec.MinReplicas", nil
	}
	wanted, metric, err := l.measure(ctx, to)
	if wanted < 0 {
		return wanted, "", err
	}
	switch {
	case wanted > b.current:
		reason = metric + " above target"
	case wanted < b.current:
		reason = "All metrics below target"
	}
	wanted, stable, limited := l.state.history.follow(wanted, b)
	l.condition(autoscalingv2.AbleToScale, corev1.ConditionTrue, stable)
	l.condition(autoscalingv2.ScalingLimited, status(limited != inRange), limited)
	return wanted, reason, err
}

// sleeps reports whether the autoscaler itself has scaled to zero, and may wake the target.
func (l *look) sleeps(b *bounds) bool {
	return slices.ContainsFunc(l.a.Status.Conditions, func(c autoscalingv2.HorizontalPodAutoscalerCondition) bool {
		return c.Type == autoscalingv2.ScaledToZero && c.Status == corev1.ConditionTrue
	}) && (b.least > 0 || autoscaling.ScalesFromZero(l.a))
}

// rescale sets the number of pods.
func (l *look) rescale(ctx context.Context, to target, b *bounds, wanted int32, reason string) error {
	if err := l.targets.set(ctx, to, wanted); err != nil {
		l.kit.Events.Event(l.a, corev1.EventTypeWarning, "FailedRescale", fmt.Sprintf("New size: %d; reason: %s; error: %v", wanted, reason, err))
		l.condition(autoscalingv2.AbleToScale, corev1.ConditionFalse, limit{"FailedUpdateScale", fmt.Sprintf("the HPA controller was unable to update the target scale: %v", err)})
		return err
	}
	l.has = wanted
	l.condition(autoscalingv2.AbleToScale, corev1.ConditionTrue, limit{"SucceededRescale", fmt.Sprintf("the HPA controller was able to update the target scale to %d", wanted)})
	if wanted == 0 && b.least == 0 && autoscaling.ScalesFromZero(l.a) {
		l.condition(autoscalingv2.ScaledToZero, corev1.ConditionTrue, limit{"ScaledToZero", "the HPA controller scaled the workload to zero"})
	} else {
		l.condition(autoscalingv2.ScaledToZero, corev1.ConditionFalse, limit{"NotScaledToZero", "the HPA controller did not scale the workload to zero"})
	}
	l.kit.Events.Event(l.a, corev1.EventTypeNormal, "SuccessfulRescale", fmt.Sprintf("New size: %d; reason: %s", wanted, reason))
	l.state.history.did(b.current, wanted, b)
	l.a.Status.LastScaleTime = ptr.To(metav1.NewTime(l.now).Rfc3339Copy())
	return nil
}

// count notes how many pods there are and how many there should be.
func (l *look) count(current, desired int32) {
	s := &l.a.Status
	s.ObservedGeneration = ptr.To(l.a.Generation)
	s.CurrentReplicas, s.DesiredReplicas, s.CurrentMetrics = current, desired, l.metricsNow
}

// store writes the status if it is another.
func (l *look) store(ctx context.Context, was *autoscalingv2.HorizontalPodAutoscaler) error {
	if equality.Semantic.DeepEqual(was.Status, l.a.Status) {
		return nil
	}
	_, err := l.autoscalers.UpdateStatus(ctx, l.a)
	return err
}

func status(is bool) corev1.ConditionStatus {
	if is {
		return corev1.ConditionTrue
	}
	return corev1.ConditionFalse
}

// condition notes a condition, which is new from now if its status is another.
func (l *look) condition(kind autoscalingv2.HorizontalPodAutoscalerConditionType, status corev1.ConditionStatus, why limit) {
	list := &l.a.Status.Conditions
	i := slices.IndexFunc(*list, func(c autoscalingv2.HorizontalPodAutoscalerCondition) bool { return c.Type == kind })
	if i < 0 {
		*list = append(*list, autoscalingv2.HorizontalPodAutoscalerCondition{Type: kind})
		i = len(*list) - 1
	}
	c := &(*list)[i]
	if c.Status != status {
		c.LastTransitionTime = metav1.NewTime(l.now).Rfc3339Copy()
	}
	c.Status, c.Reason, c.Message, c.ObservedGeneration = status, why.reason, why.message, ptr.To(l.a.Generation)
}

// inactive notes why no number of pods can be told.
func (l *look) inactive(reason, message string) {
	l.condition(autoscalingv2.ScalingActive, corev1.ConditionFalse, limit{reason, message})
}

// measure is how many pods the metric wants that wants most, and what it is called; less
// than none if no metric says, or if the others would take pods away and one does not say (H2).
func (l *look) measure(ctx context.Context, to *target) (wanted int32, metric string, err error) {
	m, selected, err := l.podsOf(to)
	if err != nil {
		return -1, "", err
	}
	specs := l.a.Spec.Metrics
	l.metricsNow = make([]autoscalingv2.MetricStatus, len(specs))
	var first *refused
	failures := 0
	for i := range specs {
		q := &question{look: l, m: m, selected: selected, to: to, spec: &specs[i], now: &l.metricsNow[i]}
		began := time.Now()
		p, name, r := q.ask(ctx)
		if r != nil {
			l.counted.asked(began, specs[i].Type, "none", fault(r.whole))
			failures++
			l.kit.Events.Event(l.a, corev1.EventTypeWarning, r.reason, r.why.Error())
			if first == nil {
				first = r
			}
			continue
		}
		l.counted.asked(began, specs[i].Type, action(to.scale.Spec.Replicas, p.replicas), fault(nil))
		if metric == "" || p.replicas > wanted {
			wanted, metric = p.replicas, name
		}
	}
	if first != nil {
		err = fmt.Errorf("invalid metrics (%d invalid out of %d), first error is: %w", failures, len(specs), first.whole)
	}
	if failures == len(specs) || failures > 0 && wanted < to.scale.Spec.Replicas {
		l.inactive(first.reason, fmt.Sprintf("the HPA was unable to compute the replica count: %v", first.why))
		return -1, "", err
	}
	l.condition(autoscalingv2.ScalingActive, corev1.ConditionTrue, limit{"ValidMetricFound", "the HPA was able to successfully calculate a replica count from " + metric})
	return wanted, metric, err
}

// podsOf are the pods of a target, which no other autoscaler may have too.
func (l *look) podsOf(to *target) (*measured, labels.Selector, error) {
	text := to.scale.Status.Selector
	if text == "" {
		l.kit.Events.Event(l.a, corev1.EventTypeWarning, "SelectorRequired", "selector is required")
		l.inactive("InvalidSelector", "the HPA target's scale is missing a selector")
		return nil, nil, specError{errors.New("selector is required")}
	}
	selected, err := labels.Parse(text)
	if err != nil {
		message := fmt.Sprintf("couldn't convert selector into a corresponding internal selector object: %v", err)
		l.kit.Events.Event(l.a, corev1.EventTypeWarning, "InvalidSelector", message)
		l.inactive("InvalidSelector", message)
		return nil, nil, specError{errors.New(message)}
	}
	pods := l.pods.List(l.a.Namespace, selected)
	keys := make([]string, len(pods))
	for i, pod := range pods {
		keys[i] = cache.Key(pod.Namespace, pod.Name)
	}
	if all := l.overlap.set(l.key, keys); len(all) > 1 {
		message := fmt.Sprintf("pods by selector %s are controlled by multiple HPAs: %v", text, all)
		l.kit.Events.Event(l.a, corev1.EventTypeWarning, "AmbiguousSelector", message)
		l.inactive("AmbiguousSelector", message)
		return nil, nil, specError{errors.New(message)}
	}
	m := &measured{
		pods: pods, current: to.scale.Spec.Replicas, tolerance: l.tolerance(),
		readiness: readiness{cpuInitialization: l.o.CPUInitialization, initialDelay: l.o.InitialReadinessDelay},
	}
	return m, selected, nil
}

// tolerance is the autoscaler's own where it has one.
func (l *look) tolerance() tolerance {
	t := tolerance{down: l.o.Tolerance, up: l.o.Tolerance}
	if b := l.a.Spec.Behavior; b != nil {
		if r := b.ScaleDown; r != nil && r.Tolerance != nil {
			t.down = r.Tolerance.AsApproximateFloat64()
		}
		if r := b.ScaleUp; r != nil && r.Tolerance != nil {
			t.up = r.Tolerance.AsApproximateFloat64()
		}
	}
	return t
}

func thousandths(n int64) *quantity.Quantity { return quantity.NewMilliQuantity(n, quantity.DecimalSI) }
