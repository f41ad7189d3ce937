package job

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/batch"
)

// match is what the failure policy of a job says of a failed pod.
type match struct {
	action  batchv1.PodFailurePolicyAction // empty: no rule is about it
	counts  bool                           // towards the back-off limits
	message string                         // why the job fails, if it does
}

func (v *view) matchFailure(p *corev1.Pod) match {
	policy := v.job.Spec.PodFailurePolicy
	if policy == nil {
		return match{counts: true}
	}
	for i := range policy.Rules {
		r := &policy.Rules[i]
		m := match{action: r.Action, counts: r.Action != batchv1.PodFailurePolicyActionIgnore}
		if r.OnExitCodes != nil {
			c := exited(p, r.OnExitCodes)
			if c == nil {
				continue
			}
			if r.Action == batchv1.PodFailurePolicyActionFailJob {
				m.message = fmt.Sprintf("Container %s for pod %s/%s failed with exit code %d matching %s rule at index %d",
					c.Name, p.Namespace, p.Name, c.State.Terminated.ExitCode, r.Action, i)
			}
			return m
		}
		if c := hasCondition(p, r.OnPodConditions); c != nil {
			if r.Action == batchv1.PodFailurePolicyActionFailJob {
				m.message = fmt.Sprintf("Pod %s/%s has condition %s matching %s rule at index %d", p.Namespace, p.Name, c.Type, r.Action, i)
			}
			return m
		}
	}
	return match{counts: true}
}

// exited finds a container that ended with such a code.
func exited(p *corev1.Pod, want *batchv1.PodFailurePolicyOnExitCodesRequirement) *corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{p.Status.ContainerStatuses, p.Status.InitContainerStatuses} {
		for i := range list {
			t := list[i].State.Terminated
			if t == nil || t.ExitCode == 0 || want.ContainerName != nil && *want.ContainerName != list[i].Name {
				continue
			}
			if slices.Contains(want.Values, t.ExitCode) == (want.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn) {
				return &list[i]
			}
		}
	}
	return nil
}

func hasCondition(p *corev1.Pod, want []batchv1.PodFailurePolicyOnPodConditionsPattern) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		c := &p.Status.Conditions[i]
		if slices.ContainsFunc(want, func(w batchv1.PodFailurePolicyOnPodConditionsPattern) bool {
			return w.Type == c.Type && w.Status == c.Status
		}) {
			return c
		}
	}
	return nil
}

// failJob is why the failure policy ends the job, or empty.
func (v *view) failJob() string {
	if v.job.Spec.PodFailurePolicy == nil {
		return ""
	}
	for _, p := range v.pods {
		if !v.failed(p) {
			continue
		}
		if m := v.matchFailure(p); m.message != "" {
			return m.message
		}
	}
	return ""
}

// succeedsEarly finds the rule of the success policy that the completed indexes
// meet. ok is false if none does.
func (v *view) succeedsEarly(completed batch.Indexes) (message string, ok bool) {
	policy := v.job.Spec.SuccessPolicy
	if policy == nil || len(completed) == 0 {
		return "", false
	}
	for i := range policy.Rules {
		r := &policy.Rules[i]
		met := r.SucceededIndexes == nil && r.SucceededCount != nil && completed.Total() >= *r.SucceededCount
		if r.SucceededIndexes != nil {
			want := v.stored(*r.SucceededIndexes)
			have := want.Common(completed)
			met = len(want) > 0 && (have == want.Total() || r.SucceededCount != nil && have >= *r.SucceededCount)
		}
		if met {
			return fmt.Sprintf("Matched rules at index %d", i), true
		}
	}
	return "", false
}
