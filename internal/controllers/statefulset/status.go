package statefulset

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core"
)

// status is what the set reports. Pods that end count as long as they are there,
// but for no revision.
func (v *view) status(collisions *int32) appsv1.StatefulSetStatus {
	out := appsv1.StatefulSetStatus{
		ObservedGeneration: v.set.Generation,
		CurrentRevision:    v.current,
		UpdateRevision:     v.update,
		CollisionCount:     ptr.To(ptr.Deref(collisions, 0)),
		Conditions:         v.set.Status.Conditions, // nobody of ours sets any
	}
	for _, p := range v.pods {
		out.Replicas++
		if p.Status.Phase == corev1.PodRunning && core.PodReady(p) {
			out.ReadyReplicas++
			if core.PodAvailable(p, v.set.Spec.MinReadySeconds, v.now) {
				out.AvailableReplicas++
			}
		}
		if p.DeletionTimestamp != nil {
			continue
		}
		revision := p.Labels[appsv1.StatefulSetRevisionLabel]
		if revision == v.current {
			out.CurrentReplicas++
		}
		if revision == v.update {
			out.UpdatedReplicas++
		}
	}
	if all := int32(replicas(v.set)); out.Replicas == all && out.ReadyReplicas == all && out.UpdatedReplicas == all {
		out.CurrentRevision, out.CurrentReplicas = out.UpdateRevision, out.UpdatedReplicas // the rollout is over
	}
	return out
}
