package devicetainteviction

import (
	"context"
	"fmt"
	"slices"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/dra"
	"github.com/kemudi/kemudi/internal/controller"
)

// pace is the shortest time between two writes of how far a rule is.
const pace = 10 * time.Second

// rule writes into a rule's status how far it is: at once for a rule that is new or
// changed, and then every so often as long as there are pods that have to go.
func (r *reconciler) rule(ctx context.Context, rule *resourcev1.DeviceTaintRule) (controller.Next, error) {
	var before metav1.Condition
	at := slices.IndexFunc(rule.Status.Conditions, func(c metav1.Condition) bool { return c.Type == resourcev1.DeviceTaintConditionEvictionInProgress })
	if at >= 0 {
		before = rule.Status.Conditions[at]
		if before.ObservedGeneration == rule.Generation {
			if rule.Spec.Taint.Effect != resourcev1.DeviceTaintEffectNoExecute {
				return controller.Done, nil // said once
			}
			if wait := pace - time.Since(before.LastTransitionTime.Time); wait > 0 {
				return controller.After(wait), nil
			}
		}
	}
	next := controller.Done
	if rule.Spec.Taint.Effect == resourcev1.DeviceTaintEffectNoExecute {
		next = controller.After(pace)
	}
	c := r.progress(rule)
	c.LastTransitionTime = before.LastTransitionTime
	if c == before {
		return next, nil
	}
	c.LastTransitionTime = metav1.Now()
	rule = rule.DeepCopy()
	if at < 0 {
		rule.Status.Conditions = append(rule.Status.Conditions, c)
	} else {
		rule.Status.Conditions[at] = c
	}
	if _, err := r.rules.UpdateStatus(ctx, rule); err != nil {
		return controller.Done, fmt.Errorf("add condition to DeviceTaintRule status: %w", err)
	}
	return next, nil
}

// progress is how far a rule is, or what it would do, in words.
func (r *reconciler) progress(rule *resourcev1.DeviceTaintRule) metav1.Condition {
	c := metav1.Condition{Type: resourcev1.DeviceTaintConditionEvictionInProgress, Status: metav1.ConditionFalse, ObservedGeneration: rule.Generation}
	r.mu.Lock()
	gone := r.mu.evicted[rule.UID]
	r.mu.Unlock()
	switch rule.Spec.Taint.Effect {
	case resourcev1.DeviceTaintEffectNoExecute:
		pods, namespaces := r.affected(rule)
		switch {
		case pods > 0:
			c.Status, c.Reason = metav1.ConditionTrue, "PodsPendingEviction"
			c.Message = counted(pods, "1 pod needs to be evicted in ", "%d pods need to be evicted in ") + counted(namespaces, "1 namespace.", "%d different namespaces.")
		case gone > 0:
			c.Reason = "Completed"
		default:
			c.Reason = "NotStarted"
		}
	case resourcev1.DeviceTaintEffectNone:
		supposed := rule.DeepCopy()
		supposed.Spec.Taint.Effect = resourcev1.DeviceTaintEffectNoExecute
		pods, namespaces := r.affected(supposed)
		published, given := r.world.devices(rule)
		c.Reason = "NoEffect"
		c.Message = counted(published, "1 published device selected. ", "%d published devices selected. ") +
			counted(given, "1 allocated device selected. ", "%d allocated devices selected. ") +
			counted(pods, "1 pod would be evicted in ", "%d pods would be evicted in ") + counted(namespaces, "1 namespace ", "%d different namespaces ") +
			"if the effect was NoExecute. This information will not be updated again. Recreate the DeviceTaintRule to trigger an update."
	default:
		c.Reason, c.Message = "OtherEffect", "Eviction only happens for the NoExecute effect."
	}
	if gone > 0 {
		if c.Message != "" {
			c.Message += " "
		}
		c.Message += counted(gone, "1 pod ", "%d pods ") + "evicted since starting the controller."
	}
	return c
}

// counted is how many there are, in words.
func counted(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return fmt.Sprintf(many, n)
}

// affected counts the pods that have to go because of a rule, and their namespaces.
func (r *reconciler) affected(rule *resourcev1.DeviceTaintRule) (pods, namespaces int) {
	in, seen := map[string]bool{}, map[string]bool{}
	for _, claim := range r.world.claims.List("", nil) {
		if !selects(rule, claim) {
			continue
		}
		for _, ref := range claim.Status.ReservedFor {
			p, ok := r.pods.Get(claim.Namespace, ref.Name)
			if !ok || p.UID != ref.UID || p.DeletionTimestamp != nil || seen[string(p.UID)] {
				continue
			}
			if e := r.world.eviction(p, rule); e != nil && e.rules[rule.UID] {
				seen[string(p.UID)], in[p.Namespace] = true, true
			}
		}
	}
	return len(seen), len(in)
}

// devices counts the devices that a rule selects: those that are published, and those
// that claims have.
func (w world) devices(rule *resourcev1.DeviceTaintRule) (published, given int) {
	pools := map[string]bool{}
	for _, s := range w.slices.List("", nil) {
		key := s.Spec.Driver + "/" + s.Spec.Pool.Name
		if pools[key] {
			continue
		}
		pools[key] = true
		for _, s := range w.pool(s.Spec.Driver, s.Spec.Pool.Name) {
			for i := range s.Spec.Devices {
				if dra.Selects(rule.Spec.DeviceSelector, s.Spec.Driver, s.Spec.Pool.Name, s.Spec.Devices[i].Name) {
					published++
				}
			}
		}
	}
	for _, c := range w.claims.List("", nil) {
		given += selected(rule, c)
	}
	return published, given
}
