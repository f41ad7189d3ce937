package scheduler

import (
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kemudi/kemudi/internal/api/policy"
	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

// budgets are the disruption budgets of all namespaces, as preemption asks about them. All
// profiles share them.
type budgets struct {
	in      map[string]map[string]*guard // by namespace and name
	edition uint64                       // counts changes
}

// guard is a budget.
type guard struct {
	budget   *policyv1.PodDisruptionBudget
	parsed   bool
	selector labels.Selector // nil: it selects nothing
}

func newBudgets() *budgets { return &budgets{in: map[string]map[string]*guard{}} }

// set takes in a budget's present state.
func (b *budgets) set(x *policyv1.PodDisruptionBudget) {
	b.edition++
	if b.in[x.Namespace] == nil {
		b.in[x.Namespace] = map[string]*guard{}
	}
	b.in[x.Namespace][x.Name] = &guard{budget: x}
}

// remove forgets a budget.
func (b *budgets) remove(namespace, name string) {
	b.edition++
	delete(b.in[namespace], name)
	if len(b.in[namespace]) == 0 {
		delete(b.in, namespace)
	}
}

// about says that the budget has to allow the disruption of a pod. One that is
// granted already is counted.
func (g *guard) about(p *snapshot.Pod) bool {
	if !g.parsed {
		g.parsed = true
		g.selector = policy.BudgetSelector(g.budget)
	}
	if g.selector == nil || !g.selector.Matches(labels.Set(p.Obj.Labels)) {
		return false
	}
	_, counted := g.budget.Status.DisruptedPods[p.Obj.Name]
	return !counted
}

// split tells pods whose disruption a budget does not allow from the others,
// keeping their order.
func (b *budgets) split(pods []*snapshot.Pod) (violating, others []*snapshot.Pod) {
	if len(b.in) == 0 {
		return nil, pods
	}
	spent := map[*guard]int32{}
	for _, p := range pods {
		violates := false
		for _, g := range b.in[p.Obj.Namespace] {
			if g.about(p) {
				spent[g]++
				violates = violates || spent[g] > g.budget.Status.DisruptionsAllowed
			}
		}
		if violates {
			violating = append(violating, p)
		} else {
			others = append(others, p)
		}
	}
	return violating, others
}
