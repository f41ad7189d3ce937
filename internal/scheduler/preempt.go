package scheduler

import (
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/scheduler/plugins"
	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

// Reasons why preemption does not help on a node.
var (
	notHelpful = &plugins.Reason{Texts: []string{"Preemption is not helpful for scheduling"}}
	noVictims  = &plugins.Reason{Texts: []string{"No preemption victims found for incoming pod"}}
)

// preemption is what to do for a pod that fits nowhere.
type preemption struct {
	node    *snapshot.Node // nil: nothing can be done
	victims []*snapshot.Pod
	message string // why nothing can be done
	// violations is how many of the victims no budget lets go.
	violations int
	// keep: the pod still waits for the victims that it has, so the place that
	// it holds stays its own.
	keep bool
}

// candidate is a node that would do without its victims.
type candidate struct {
	node       *snapshot.Node
	victims    []*snapshot.Pod // the most important first
	violations int             // of disruption budgets
	cost
}

// cost is what victims are compared by, beside the first of them.
type cost struct {
	priorities int64     // their sum, each made positive so that many victims of negative priority do not look better than one
	started    time.Time // when the first of the most important ones started
}

// preempt looks for the node where the least important pods would have to go
// for the pod that decide has just found unfit, and returns all candidates too, which are
// good until the next call.
func (c *cycle) preempt(u *unfit) (pre preemption, list []*candidate) {
	if why := c.mayNotPreempt(u); why != "" {
		return preemption{message: why, keep: true}, nil
	}
	potential := c.potential[:0]
	for _, r := range u.refusals {
		if !r.reason.Final {
			potential = append(potential, r.node)
		}
	}
	c.potential = potential
	why := map[*plugins.Reason]int{}
	if rest := u.nodes - len(potential); rest > 0 {
		why[notHelpful] = rest
	}
	var best *candidate
	list = c.candidates[:0]
	if n := len(potential); n > 0 {
		want, found := c.enoughCandidates(n), 0
		from := c.rand.IntN(n)
		for i := 0; i < n && (found < want || best == nil || best.violations > 0); i++ {
			cand, reason := c.outcomeOn(potential[(from+i)%n])
			if reason != nil {
				why[reason]++
				continue
			}
			found++
			list = append(list, cand)
			if best == nil || cand.better(best) {
				best = cand
			}
		}
	}
	c.candidates = list
	if best == nil {
		return preemption{message: available(u.nodes, why)}, nil
	}
	return best.preemption(), list
}

// preemption is what to do on the candidate.
func (a *candidate) preemption() preemption {
	return preemption{node: a.node, victims: a.victims, violations: a.violations}
}

// enoughCandidates is how many nodes preemption compares of those where it may help:
// a tenth of them, but at least 100, unless the profile says otherwise; and more as
// long as all of them would violate budgets.
func (c *cycle) enoughCandidates(nodes int) int {
	percentage, least := 10, 100
	if args := c.plugins.Arguments.DefaultPreemption; args != nil {
		percentage, least = int(*args.MinCandidateNodesPercentage), int(*args.MinCandidateNodesAbsolute)
	}
	return max(nodes*percentage/100, least)
}

// mayNotPreempt returns why the pod must not look for victims, or "".
func (c *cycle) mayNotPreempt(u *unfit) string {
	p := c.pod.Pod
	if policy := p.Obj.Spec.PreemptionPolicy; policy != nil && *policy == corev1.PreemptNever {
		return "not eligible due to preemptionPolicy=Never."
	}
	n := p.Nominated()
	if n == nil {
		return ""
	}
	for _, r := range u.refusals {
		if r.node == n && r.reason.Final {
			return ""
		}
	}
	for _, other := range n.Pods {
		if other.Priority < p.Priority && makesRoom(other) {
			return "not eligible due to a terminating pod on the nominated node."
		}
	}
	return ""
}

// makesRoom reports whether a pod is leaving its node for another.
func makesRoom(p *snapshot.Pod) bool { return p.Victim || p.Terminating && preempted(p.Obj) }

// preempted reports whether a pod was chosen as a victim by a scheduler.
func preempted(p *corev1.Pod) bool {
	for _, cond := range p.Status.Conditions {
		if cond.Type == corev1.DisruptionTarget {
			return cond.Status == corev1.ConditionTrue && cond.Reason == corev1.PodReasonPreemptionByScheduler
		}
	}
	return false
}

// victimsOn finds the fewest and least important pods on a node that would have
// to go, or why none would help.
func (c *cycle) victimsOn(n *snapshot.Node) (*candidate, *plugins.Reason) {
	var lower []*snapshot.Pod
	for _, other := range n.Pods {
		if c.groups.rank(other) < c.pod.Pod.Priority {
			lower = append(lower, other)
		}
	}
	if len(lower) == 0 {
		return nil, noVictims
	}
	cand, why := &candidate{node: n}, noVictims
	c.snapshot.WhatIf(n, func() {
		for _, p := range lower {
			c.snapshot.Lift(p)
		}
		if why = c.filterAnew(n); why == nil {
			slices.SortStableFunc(lower, byImportance)
			c.choose(cand, lower)
			lower = cand.victims
		}
		for _, p := range lower {
			c.snapshot.Lower(p, n)
		}
	})
	switch {
	case why != nil:
		return nil, why
	case len(cand.victims) == 0: // somebody else refuses the node: an extender
		return nil, noVictims
	}
	slices.SortStableFunc(cand.victims, byImportance)
	cand.cost = costOf(cand.victims)
	return cand, nil
}

// choose spares as many as can be of the pods that were lifted off a candidate's node, those first whose
// disruption budgets forbid. The others are the victims.
func (c *cycle) choose(cand *candidate, lifted []*snapshot.Pod) {
	n := cand.node
	reprieve := func(p *snapshot.Pod) bool {
		c.snapshot.Lower(p, n)
		if c.filterAnew(n) == nil {
			return true
		}
		c.snapshot.Lift(p)
		cand.victims = append(cand.victims, p)
		return false
	}
	violating, others := c.budgets.split(lifted)
	for _, p := range violating {
		if !reprieve(p) {
			cand.violations++
		}
	}
	for _, p := range others {
		reprieve(p)
	}
}

// byImportance sorts the more important pods first: by priority, then by how
// long they have run.
func byImportance(a, b *snapshot.Pod) int {
	if a.Priority != b.Priority {
		if a.Priority > b.Priority {
			return -1
		}
		return 1
	}
	return startOf(a.Obj).Compare(startOf(b.Obj).Time)
}

func startOf(p *corev1.Pod) metav1.Time {
	if p.Status.StartTime != nil {
		return *p.Status.StartTime
	}
	return metav1.Time{Time: p.CreationTimestamp.Time}
}

// better compares two candidates: fewer violated budgets, then a less important
// first victim, then a lower sum of priorities, then fewer victims, then a first
// victim that has run for a shorter time.
func (a *candidate) better(b *candidate) bool {
	if a.violations != b.violations {
		return a.violations < b.violations
	}
	if len(a.victims) == 0 || len(b.victims) == 0 {
		return len(a.victims) < len(b.victims)
	}
	if x, y := a.victims[0].Priority, b.victims[0].Priority; x != y {
		return x < y
	}
	if a.priorities != b.priorities {
		return a.priorities < b.priorities
	}
	if len(a.victims) != len(b.victims) {
		return len(a.victims) < len(b.victims)
	}
	return a.started.After(b.started)
}

// costOf returns the cost of victims, which are sorted by importance.
func costOf(victims []*snapshot.Pod) (c cost) {
	for i, p := range victims {
		c.priorities += int64(p.Priority) + math.MaxInt32 + 1
		if i == 0 {
			c.started = startOf(p.Obj).Time
		}
	}
	return c
}
