package scheduler

import (
	"cmp"
	"slices"
	"sort"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

// groupPreemption is what to do for a group that fits nowhere.
type groupPreemption struct {
	nodes   []*snapshot.Node // where its pods go when the victims are gone; nil: nothing can be done
	victims []*snapshot.Pod
	message string // why nothing can be done
	keep    bool   // it waits for the victims that it has
	// violations is how many of the victims no budget lets go.
	violations int
}

// preemptor is a gang that is to have room in a domain.
type preemptor struct {
	gang  *gang
	trial *groupTrial
	in    *domain
}

// unit is pods that go or stay together: one, or all of a group.
type unit struct {
	pods  []*snapshot.Pod
	on    []*snapshot.Node // where they are
	rank  int32
	whole bool // a group
}

// preemptForGroup looks for the least important pods that would have to go so that all of
// the group that must be placed can be. If none would help, nobody goes. Extenders are not asked.
func (l *loop) preemptForGroup(g *group, ask *gang, t *groupTrial) groupPreemption {
	if why := l.groupMayNotPreempt(g, ask); why != "" {
		return groupPreemption{message: why, keep: true}
	}
	units := l.unitsBelow(priorityOf(g.obj))
	if len(units) == 0 {
		return groupPreemption{message: "No preemption victims found for incoming preemptor"}
	}
	ask.guessing = true
	by := t.waiting[0].by
	best := groupPreemption{message: "Preemption is not helpful for scheduling"}
	for _, in := range by.domains(ask) {
		x := preemptor{ask, t, in}
		pre := by.groupVictims(x, by.leastUnits(x, units))
		if pre.nodes != nil && (best.nodes == nil || len(pre.victims) < len(best.victims)) {
			best = pre
		}
	}
	return best
}

// groupMayNotPreempt returns why a group must not look for victims, or "".
func (l *loop) groupMayNotPreempt(g *group, ask *gang) string {
	for _, p := range ask.pods {
		if policy := p.Obj.Spec.PreemptionPolicy; policy != nil && *policy == corev1.PreemptNever {
			return "not eligible due to preemptionPolicy=Never."
		}
	}
	rank := priorityOf(g.obj)
	for _, p := range ask.pods {
		n := p.Nominated()
		if n == nil {
			continue
		}
		for _, other := range n.Pods {
			if l.groups.rank(other) < rank && makesRoom(other) {
				return "not eligible due to a terminating pod on the nominated node."
			}
		}
	}
	return ""
}

// unitsBelow is what is less important than a rank, the most important first: by rank,
// groups before single pods, the larger group first, then who has run for longer.
func (l *loop) unitsBelow(rank int32) []*unit {
	var units []*unit
	groups := map[*group]*unit{}
	for p := range l.snapshot.Pods() {
		r := l.groups.rank(p)
		if r >= rank || p.Node().Obj == nil {
			continue
		}
		g := l.groups.of(p.Obj)
		if g == nil || !g.disruptedWhole() {
			units = append(units, &unit{pods: []*snapshot.Pod{p}, on: []*snapshot.Node{p.Node()}, rank: r})
			continue
		}
		u := groups[g]
		if u == nil {
			u = &unit{rank: r, whole: true}
			groups[g] = u
			units = append(units, u)
		}
		u.pods, u.on = append(u.pods, p), append(u.on, p.Node())
	}
	slices.SortFunc(units, func(a, b *unit) int {
		return cmp.Or(cmp.Compare(b.rank, a.rank), cmp.Compare(btoi(b.whole), btoi(a.whole)), cmp.Compare(len(b.pods), len(a.pods)),
			startOf(a.pods[0].Obj).Compare(startOf(b.pods[0].Obj).Time), cmp.Compare(a.pods[0].Obj.UID, b.pods[0].Obj.UID))
	})
	return units
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// leastUnits are, of units in their order, the least important ones without which a gang
// could be placed in a domain: none that is more important than some that would do need go.
func (c *cycle) leastUnits(x preemptor, units []*unit) []*unit {
	var from []int // where each rank begins, the lowest first
	for i := len(units) - 1; i >= 0; i-- {
		if i == 0 || units[i-1].rank != units[i].rank {
			from = append(from, i)
		}
	}
	at := sort.Search(len(from), func(i int) bool {
		l := newLifted(c.snapshot, units[from[i]:])
		defer l.lowerAll()
		d := c.gangIn(x.gang, x.trial, x.in)
		return d.message == "" && d.err == nil
	})
	if at == len(from) {
		return nil
	}
	return units[from[at]:]
}

// lifted is units that are not in the snapshot for a while.
type lifted struct {
	snapshot *snapshot.Snapshot
	units    map[*unit]bool
}

func newLifted(s *snapshot.Snapshot, units []*unit) *lifted {
	l := &lifted{s, make(map[*unit]bool, len(units))}
	for _, u := range units {
		l.lift(u)
	}
	return l
}

func (l *lifted) lift(u *unit) {
	l.units[u] = true
	for _, p := range u.pods {
		l.snapshot.Lift(p)
	}
}

func (l *lifted) lower(u *unit) {
	delete(l.units, u)
	for i, p := range u.pods {
		l.snapshot.Lower(p, u.on[i])
	}
}

func (l *lifted) lowerAll() {
	for u := range l.units {
		l.lower(u)
	}
}

// groupVictims finds the fewest of units that would have to go so that a gang can be placed in
// a domain. The snapshot is as before when it returns (S1).
func (c *cycle) groupVictims(x preemptor, units []*unit) groupPreemption {
	l := newLifted(c.snapshot, units)
	defer l.lowerAll()
	d := c.gangIn(x.gang, x.trial, x.in)
	if d.message != "" || d.err != nil || !x.trial.again(&d) {
		return groupPreemption{}
	}
	defer x.trial.allBack()
	pre := groupPreemption{nodes: d.nodes}
	violating, others := splitUnits(units, c.budgets)
	for at, u := range append(violating, others...) {
		l.lower(u)
		i := x.misfit(d.nodes, u)
		if i < 0 {
			continue
		}
		l.lift(u)
		pre.victims = append(pre.victims, u.pods...)
		if at < len(violating) {
			pre.violations += len(u.pods)
		}
		if !x.trial.settle(i, d.nodes[i]) {
			return groupPreemption{}
		}
	}
	if len(pre.victims) == 0 { // it would have fitted without: something else refuses it
		return groupPreemption{}
	}
	return pre
}

// splitUnits tells units whose disruption a budget does not allow from the others.
func splitUnits(units []*unit, b *budgets) (violating, others []*unit) {
	var pods []*snapshot.Pod
	for _, u := range units {
		pods = append(pods, u.pods...)
	}
	guarded, _ := b.split(pods)
	violates := map[*snapshot.Pod]bool{}
	for _, p := range guarded {
		violates[p] = true
	}
	for _, u := range units {
		if slices.ContainsFunc(u.pods, func(p *snapshot.Pod) bool { return violates[p] }) {
			violating = append(violating, u)
		} else {
			others = append(others, u)
		}
	}
	return violating, others
}

// misfit takes a pod of the gang off its node that may not be there any more now that a unit is
// back, and returns which; below 0: none. Those on other nodes than the unit are asked only
// if pods look at pods elsewhere. What plugins reserve for a pod is not held against it.
func (x preemptor) misfit(nodes []*snapshot.Node, u *unit) int {
	everywhere := slices.ContainsFunc(u.pods, looksAround) || slices.ContainsFunc(x.gang.pods, looksAround)
	for i, n := range nodes {
		if n == nil || !everywhere && !slices.Contains(u.on, n) {
			continue
		}
		x.trial.back(i)
		if !x.trial.settle(i, n) {
			return i
		}
	}
	return -1
}

// looksAround says that where a pod may be depends on pods on other nodes, or the other way round.
func looksAround(p *snapshot.Pod) bool {
	k := p.Constraints
	return len(k.Affinity)+len(k.AntiAffinity)+len(k.Spread) > 0 || len(p.Claims)+len(p.Obj.Spec.ResourceClaims) > 0
}
