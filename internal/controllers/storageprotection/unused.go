package storageprotection

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/core/claims"
)

// tell notes in a claim's status whether pods refer to it, and since when it is so
// (KEP-5541). One that is not bound is left to who binds it.
func (r claimKeeper) tell(ctx context.Context, c *corev1.PersistentVolumeClaim) error {
	if c.Status.Phase != corev1.ClaimBound {
		return nil
	}
	pods, err := r.podsOf(ctx, c) // who was there before it was bound is no news
	if err != nil {
		return err
	}
	want := corev1.PersistentVolumeClaimCondition{
		Type: corev1.PersistentVolumeClaimUnused, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now().Rfc3339Copy(),
		Reason: "NoPodsUsingPVC", Message: "No pods are currently referencing this PVC",
	}
	if slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return !over(p) && claims.UsedBy(c, p) }) {
		want.Status, want.Reason, want.Message = corev1.ConditionFalse, "PodUsingPVC", "A pod is currently referencing this PVC"
	}
	at := slices.IndexFunc(c.Status.Conditions, func(has corev1.PersistentVolumeClaimCondition) bool { return has.Type == want.Type })
	if at >= 0 && c.Status.Conditions[at].Status == want.Status {
		return nil
	}
	c = c.DeepCopy()
	if at < 0 {
		c.Status.Conditions = append(c.Status.Conditions, want)
	} else {
		c.Status.Conditions[at] = want
	}
	_, err = r.claims.UpdateStatus(ctx, c)
	return err
}

// over reports whether no container of a pod will run again: it has finished, or it is
// being deleted and none runs.
func over(p *corev1.Pod) bool {
	if core.PodTerminal(p) {
		return true
	}
	if p.DeletionTimestamp == nil {
		return false
	}
	s := &p.Status
	return !slices.ContainsFunc(slices.Concat(s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses), func(c corev1.ContainerStatus) bool {
		return c.State.Waiting == nil && c.State.Terminated == nil
	})
}
