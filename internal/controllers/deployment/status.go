package deployment

import (
	"fmt"
	"math"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// newStatus sums up the sets, with every condition but the progress of the rollout.
func newStatus(ro *rollout) appsv1.DeploymentStatus {
	d := ro.d
	s := appsv1.DeploymentStatus{
		ObservedGeneration: d.Generation,
		CollisionCount:     d.Status.CollisionCount,
		Conditions:         slices.Clone(d.Status.Conditions),
	}
	var terminating int32
	for _, rs := range ro.all() {
		s.Replicas += rs.Status.Replicas
		s.ReadyReplicas += rs.Status.ReadyReplicas
		s.AvailableReplicas += rs.Status.AvailableReplicas
		terminating += ptr.Deref(rs.Status.TerminatingReplicas, 0)
	}
	s.TerminatingReplicas = &terminating
	if ro.new != nil {
		s.UpdatedReplicas = ro.new.Status.Replicas
	}
	s.UnavailableReplicas = max(0, specTotal(ro.all())-s.AvailableReplicas)
	available := appsv1.DeploymentCondition{
		Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue,
		Reason: "MinimumReplicasAvailable", Message: "Deployment has minimum availability.",
	}
	if _, unavailable := limits(d); s.AvailableReplicas < *d.Spec.Replicas-unavailable {
		available.Status = corev1.ConditionFalse
		available.Reason, available.Message = "MinimumReplicasUnavailable", "Deployment does not have minimum availability."
	}
	setCondition(&s, available)
	if failure := ro.failure(); failure != nil {
		setCondition(&s, appsv1.DeploymentCondition{
			Type: appsv1.DeploymentReplicaFailure, Status: failure.Status, Reason: failure.Reason, Message: failure.Message,
		})
	} else {
		dropCondition(&s, appsv1.DeploymentReplicaFailure)
	}
	return s
}

// failure is the condition of a set that cannot create its pods, the new set's first.
func (r *rollout) failure() *appsv1.ReplicaSetCondition {
	sets := r.all()
	slices.Reverse(sets)
	for _, rs := range sets {
		for i := range rs.Status.Conditions {
			if c := &rs.Status.Conditions[i]; c.Type == appsv1.ReplicaSetReplicaFailure && c.Status == corev1.ConditionTrue {
				return c
			}
		}
	}
	return nil
}

// complete says that all wanted replicas are of the present template and
// available, and no old ones are left.
func complete(d *appsv1.Deployment, s *appsv1.DeploymentStatus) bool {
	want := *d.Spec.Replicas
	return s.UpdatedReplicas == want && s.Replicas == want && s.AvailableReplicas == want && s.ObservedGeneration >= d.Generation
}

// progressing says that the rollout has moved since the last report.
func progressing(was, now *appsv1.DeploymentStatus) bool {
	return now.UpdatedReplicas > was.UpdatedReplicas ||
		now.Replicas-now.UpdatedReplicas < was.Replicas-was.UpdatedReplicas ||
		now.ReadyReplicas > was.ReadyReplicas ||
		now.AvailableReplicas > was.AvailableReplicas
}

// setProgress sets the Progressing condition.
func setProgress(ro *rollout, s *appsv1.DeploymentStatus, now time.Time) {
	d := ro.d
	report := func(status corev1.ConditionStatus, reason, message string) {
		setCondition(s, appsv1.DeploymentCondition{Type: appsv1.DeploymentProgressing, Status: status, Reason: reason, Message: message})
	}
	if !hasDeadline(d) {
		dropCondition(s, appsv1.DeploymentProgressing)
		return
	}
	current := condition(s, appsv1.DeploymentProgressing)
	if d.Spec.Paused {
		// That a rollout was stuck before it was paused stays to be seen.
		if current == nil || current.Reason != "DeploymentPaused" && current.Reason != "ProgressDeadlineExceeded" {
			report(corev1.ConditionUnknown, "DeploymentPaused", "Deployment is paused")
		}
		return
	}
	if current != nil && current.Reason == "DeploymentPaused" {
		report(corev1.ConditionUnknown, "DeploymentResumed", "Deployment is resumed")
		return
	}
	if s.Replicas == s.UpdatedReplicas && current != nil && current.Reason == "NewReplicaSetAvailable" {
		return // nothing has been rolled out since
	}
	what := fmt.Sprintf("Deployment %q", d.Name)
	if ro.new != nil {
		what = fmt.Sprintf("ReplicaSet %q", ro.new.Name)
	}
	switch {
	case complete(d, s):
		report(corev1.ConditionTrue, "NewReplicaSetAvailable", what+" has successfully progressed.")
	case progressing(&d.Status, s):
		was := condition(&d.Status, appsv1.DeploymentProgressing)
		dropCondition(s, appsv1.DeploymentProgressing) // the same reason again still means movement now
		report(corev1.ConditionTrue, "ReplicaSetUpdated", what+" is progressing.")
		if was != nil && was.Status == corev1.ConditionTrue {
			condition(s, appsv1.DeploymentProgressing).LastTransitionTime = was.LastTransitionTime
		}
	case timedOut(d, current, now):
		report(corev1.ConditionFalse, "ProgressDeadlineExceeded", what+" has timed out progressing.")
	case current == nil:
		report(corev1.ConditionTrue, "FoundNewReplicaSet", fmt.Sprintf("Found new replica set %q", setName(ro)))
	}
}

func setName(ro *rollout) string {
	if ro.new == nil {
		return ""
	}
	return ro.new.Name
}

func hasDeadline(d *appsv1.Deployment) bool {
	return d.Spec.ProgressDeadlineSeconds != nil && *d.Spec.ProgressDeadlineSeconds != math.MaxInt32
}

func timedOut(d *appsv1.Deployment, c *appsv1.DeploymentCondition, now time.Time) bool {
	if c == nil || c.Reason == "NewReplicaSetAvailable" {
		return false
	}
	if c.Reason == "ProgressDeadlineExceeded" {
		return true
	}
	return !now.Before(c.LastUpdateTime.Add(time.Duration(*d.Spec.ProgressDeadlineSeconds) * time.Second))
}

// untilDeadline is how long a rollout that does not move may still take before
// it counts as stuck; ok is false if there is nothing to wait for.
func untilDeadline(d *appsv1.Deployment, now time.Time) (_ time.Duration, ok bool) {
	c := condition(&d.Status, appsv1.DeploymentProgressing)
	if c == nil || !hasDeadline(d) || d.Spec.Paused || complete(d, &d.Status) {
		return 0, false
	}
	if c.Reason == "ProgressDeadlineExceeded" || c.Reason == "NewReplicaSetAvailable" {
		return 0, false // it is stuck already, or was complete: pods that fail later are no rollout
	}
	deadline := c.LastUpdateTime.Add(time.Duration(*d.Spec.ProgressDeadlineSeconds) * time.Second)
	return max(deadline.Sub(now), 0) + time.Second, true // times are stored in whole seconds
}

func condition(s *appsv1.DeploymentStatus, kind appsv1.DeploymentConditionType) *appsv1.DeploymentCondition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == kind {
			return &s.Conditions[i]
		}
	}
	return nil
}

// setCondition sets a condition; its times change only if its status or reason does.
func setCondition(s *appsv1.DeploymentStatus, c appsv1.DeploymentCondition) {
	c.LastUpdateTime = metav1.Now().Rfc3339Copy()
	c.LastTransitionTime = c.LastUpdateTime
	has := condition(s, c.Type)
	switch {
	case has == nil:
		s.Conditions = append(s.Conditions, c)
	case has.Status == c.Status && has.Reason == c.Reason:
	default:
		if has.Status == c.Status {
			c.LastTransitionTime = has.LastTransitionTime
		}
		*has = c
	}
}

func dropCondition(s *appsv1.DeploymentStatus, kind appsv1.DeploymentConditionType) {
	s.Conditions = slices.DeleteFunc(s.Conditions, func(c appsv1.DeploymentCondition) bool { return c.Type == kind })
}
