package core

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/kemudi/kemudi/internal/api/core/podspec"
)

// IsSidecar reports whether an init container goes on beside the others.
func IsSidecar(c *corev1.Container) bool { return podspec.IsSidecar(c) }

// IsMirror reports whether a pod only shows one that a node runs from a file.
func IsMirror(p *corev1.Pod) bool {
	_, ok := p.Annotations[corev1.MirrorPodAnnotationKey]
	return ok
}

// PodTerminal reports whether a pod has ended and will not run again.
func PodTerminal(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// PodCondition returns the condition of a type, or nil. It points into s.
func PodCondition(s *corev1.PodStatus, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == t {
			return &s.Conditions[i]
		}
	}
	return nil
}

// PodConditionTrue reports whether a pod has a condition that is true.
func PodConditionTrue(p *corev1.Pod, t corev1.PodConditionType) bool {
	c := PodCondition(&p.Status, t)
	return c != nil && c.Status == corev1.ConditionTrue
}

// SetPodCondition puts a condition into s, which the caller owns, and reports
// whether s changed. Its lastTransitionTime stays unless its status changes; it is
// now if the caller does not say.
func SetPodCondition(s *corev1.PodStatus, c corev1.PodCondition) bool {
	if c.LastTransitionTime.IsZero() {
		c.LastTransitionTime = metav1.NewTime(time.Now())
	}
	old := PodCondition(s, c.Type)
	if old == nil {
		s.Conditions = append(s.Conditions, c)
		return true
	}
	if old.Status == c.Status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	if equality.Semantic.DeepEqual(*old, c) {
		return false
	}
	*old = c
	return true
}

// PodReady reports whether a pod can serve requests.
func PodReady(p *corev1.Pod) bool { return PodConditionTrue(p, corev1.PodReady) }

// PodAvailable reports whether a pod has been ready for at least so many seconds.
func PodAvailable(p *corev1.Pod, minReadySeconds int32, now time.Time) bool {
	c := PodCondition(&p.Status, corev1.PodReady)
	if c == nil || c.Status != corev1.ConditionTrue {
		return false
	}
	if minReadySeconds == 0 {
		return true
	}
	since := c.LastTransitionTime
	return !since.IsZero() && !since.Add(time.Duration(minReadySeconds)*time.Second).After(now)
}

// PodRequests is what a node must have left for a pod: the most that its
// containers need at one time, what is given for the pod as a whole, and the
// overhead of its runtime class.
func PodRequests(p *corev1.Pod) corev1.ResourceList {
	return resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{
		UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true,
	})
}

// QOSClass is how a pod ranks when a node runs out of something. It does not
// change as long as a pod lives.
func QOSClass(p *corev1.Pod) corev1.PodQOSClass {
	var q qos
	if resourcehelper.IsPodLevelResourcesSet(p) {
		q.add(p.Spec.Resources)
	} else {
		for i := range p.Spec.InitContainers {
			q.add(&p.Spec.InitContainers[i].Resources)
		}
		for i := range p.Spec.Containers {
			q.add(&p.Spec.Containers[i].Resources)
		}
	}
	switch {
	case !q.any:
		return corev1.PodQOSBestEffort
	case q.loose:
		return corev1.PodQOSBurstable
	}
	return corev1.PodQOSGuaranteed
}

// qos looks at resources one after the other.
type qos struct {
	any   bool // some CPU or memory is requested or limited
	loose bool // something has no limit, or one that is not its request
}

func (q *qos) add(r *corev1.ResourceRequirements) {
	for _, name := range [...]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		request, limit := r.Requests[name], r.Limits[name]
		q.any = q.any || request.Sign() > 0 || limit.Sign() > 0
		q.loose = q.loose || limit.Sign() <= 0 || request.Cmp(limit) != 0
	}
}
