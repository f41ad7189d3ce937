package disruption

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/policy"
	"github.com/kemudi/kemudi/internal/workload"
)

// deletionTimeout is how long a pod whose eviction was granted may stay without
// being deleted. After that it is taken for one that stays.
const deletionTimeout = 2 * time.Minute

// count is what there is to be counted for a budget.
type count struct {
	budget *policyv1.PodDisruptionBudget
	pods   []*corev1.Pod // that it selects
	scale  int32         // how many their owners want, if that is asked for
}

// byScale says that a budget goes by how many pods there should be, and not only
// by those there are.
func byScale(s *policyv1.PodDisruptionBudgetSpec) bool {
	return s.MaxUnavailable != nil || s.MinAvailable != nil && s.MinAvailable.Type == intstr.String
}

// status is what the budget's status must be, the pods that were to be deleted and
// have not been, and when the next of them is late (0: there is none).
func (c count) status(now time.Time) (s policyv1.PodDisruptionBudgetStatus, late []*corev1.Pod, next time.Duration) {
	s = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: c.budget.Generation, Conditions: c.budget.DeepCopy().Status.Conditions}
	s.ExpectedPods, s.DesiredHealthy = c.wanted()
	for _, p := range c.pods {
		if p.DeletionTimestamp != nil {
			continue
		}
		if granted, ok := c.budget.Status.DisruptedPods[p.Name]; ok { // PDB2
			if left := granted.Add(deletionTimeout).Sub(now); left > 0 {
				if s.DisruptedPods == nil {
					s.DisruptedPods = map[string]metav1.Time{}
				}
				s.DisruptedPods[p.Name] = granted
				if next == 0 || left < next {
					next = left
				}
				continue
			}
			late = append(late, p)
		}
		if core.PodReady(p) {
			s.CurrentHealthy++
		}
	}
	// A budget without pods allows nothing: the first that come are not counted yet.
	if s.ExpectedPods > 0 {
		s.DisruptionsAllowed = max(0, s.CurrentHealthy-s.DesiredHealthy)
	}
	policy.SetDisruptionAllowed(&s)
	return s, late, next
}

// wanted is how many pods there should be, and how many of them healthy.
func (c count) wanted() (expected, healthy int32) {
	switch spec := &c.budget.Spec; {
	case spec.MaxUnavailable != nil:
		return c.scale, max(0, c.scale-workload.RoundedUp(spec.MaxUnavailable, c.scale))
	case spec.MinAvailable == nil:
		return 0, 0
	case byScale(spec):
		return c.scale, workload.RoundedUp(spec.MinAvailable, c.scale)
	default:
		return int32(len(c.pods)), spec.MinAvailable.IntVal
	}
}
