package coordinatedelection

import (
	"cmp"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/ptr"
)

// Upstream's times.
const (
	given   = 5 * time.Second  // how long who is elected has the lease before it must be renewed
	answer  = 5 * time.Second  // how soon a candidate answers that is asked, and how long its answer counts
	retry   = 5 * time.Second  // when it is looked again at an election that has changed nothing
	present = 30 * time.Minute // how long a candidate that says nothing is one; from half of that on it is asked
)

type (
	lease     = coordinationv1.Lease
	candidate = coordinationv1beta1.LeaseCandidate
)

// plan is what is to be done about a lease.
type plan struct {
	gone  []*candidate  // are to be deleted: they have said nothing for too long
	ask   []*candidate  // are to be asked whether they are there
	write *lease        // is to be stored, as a new one if it has no revision; nil: it stays as it is
	again time.Duration // when to look again, whatever happens; 0: never
}

// wake has it looked again at a time, or before.
func (p *plan) wake(now, at time.Time) {
	d := max(at.Sub(now), time.Millisecond)
	if p.again == 0 || d < p.again {
		p.again = d
	}
}

// decide says what is to be done about the lease named by id (nil: there is none), for which candidates
// stand. Neither is changed.
func decide(now time.Time, id metav1.ObjectMeta, l *lease, candidates []*candidate) (p plan, err error) {
	var here []*candidate
	for _, c := range candidates {
		if end := endOf(c.Spec.RenewTime, present); now.Before(end) {
			here = append(here, c)
			p.wake(now, end)
		} else {
			p.gone = append(p.gone, c)
		}
	}
	if len(here) == 0 {
		return p, nil
	}
	if needed, err := p.needed(now, l, here); err != nil || !needed {
		return p, err
	}
	if p.asks(now, here) {
		return p, nil
	}
	var answered []*candidate
	for _, c := range here {
		if now.Before(endOf(c.Spec.RenewTime, answer)) {
			answered = append(answered, c)
		}
	}
	if len(answered) == 0 {
		return p, nil // who says something again wakes this
	}
	strategy, err := strategyOf(answered)
	if err != nil {
		return p, err
	}
	p.wake(now, now.Add(retry))
	p.write = elect(now, id, l, result{strategy, oldest(strategy, answered)})
	return p, nil
}

// endOf is when what began at a time, or never, ends that lasts for d.
func endOf(t *metav1.MicroTime, d time.Duration) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Add(d)
}

// leaseEnd is when a lease runs out.
func leaseEnd(l *lease) time.Time {
	if l.Spec.LeaseDurationSeconds == nil {
		return time.Time{}
	}
	return endOf(l.Spec.RenewTime, time.Duration(*l.Spec.LeaseDurationSeconds)*time.Second)
}

// needed says that there is to be an election, and otherwise has it looked again when there may be.
func (p *plan) needed(now time.Time, l *lease, here []*candidate) (bool, error) {
	if l == nil {
		return true, nil
	}
	strategy, err := strategyOf(here)
	if err == nil && strategy != coordinationv1.OldestEmulationVersion && ptr.Deref(l.Spec.Strategy, "") == strategy {
		return false, nil // somebody else elects by it
	}
	holder, end := ptr.Deref(l.Spec.HolderIdentity, ""), leaseEnd(l)
	if holder == "" || !now.Before(end) {
		return true, nil
	}
	p.wake(now, end)
	for _, c := range here {
		half := endOf(c.Spec.RenewTime, present/2)
		if !now.Before(half) {
			return true, nil
		}
		p.wake(now, half)
	}
	if err != nil || strategy != coordinationv1.OldestEmulationVersion {
		return false, err
	}
	best := oldest(strategy, here)
	return best != "" && best != holder && best != ptr.Deref(l.Spec.PreferredHolder, ""), nil
}

// asks has candidates asked whether they are there, and says that answers are waited for.
func (p *plan) asks(now time.Time, here []*candidate) (waits bool) {
	for _, c := range here {
		asked, said := endOf(c.Spec.PingTime, 0), endOf(c.Spec.RenewTime, 0)
		owes := c.Spec.PingTime != nil && said.Before(asked)
		switch {
		case owes && now.Before(asked.Add(answer)):
			p.wake(now, asked.Add(answer))
			waits = true
		case now.Before(said.Add(answer)) || owes: // it is there, or has not answered in time
		default:
			p.ask = append(p.ask, c)
			p.wake(now, now.Add(answer))
			waits = true
		}
	}
	return waits
}

// result is how an election ends. By a strategy that is not ours nobody is elected here.
type result struct {
	strategy coordinationv1.CoordinatedLeaseStrategy
	leader   string
}

// elect is the lease as it is after an election; nil: as it was. A lease that is held by another is not
// taken away: its holder reads who is to have it, and lets it run out.
func elect(now time.Time, id metav1.ObjectMeta, l *lease, r result) *lease {
	at := metav1.NewMicroTime(now)
	if l == nil {
		l = &lease{ObjectMeta: id, Spec: coordinationv1.LeaseSpec{
			Strategy: &r.strategy, LeaseDurationSeconds: ptr.To(int32(given / time.Second)), RenewTime: &at,
		}}
		if r.leader != "" {
			l.Spec.HolderIdentity = &r.leader
		}
		return l
	}
	free := !now.Before(leaseEnd(l))
	l = l.DeepCopy()
	s, changed := &l.Spec, false
	if ptr.Deref(s.Strategy, "") != r.strategy {
		s.Strategy, changed = &r.strategy, true
	}
	switch holder := ptr.Deref(s.HolderIdentity, ""); {
	case r.leader == "" || holder == r.leader:
	case holder == "" || free:
		s.HolderIdentity, s.PreferredHolder, s.AcquireTime = &r.leader, nil, nil
		s.RenewTime, s.LeaseDurationSeconds, changed = &at, ptr.To(int32(given/time.Second)), true
	case ptr.Deref(s.PreferredHolder, "") != r.leader:
		s.PreferredHolder, changed = &r.leader, true
	}
	if !changed {
		return nil
	}
	return l
}

// strategyOf is that of the candidates with the newest program: they know what the others do not yet.
func strategyOf(candidates []*candidate) (coordinationv1.CoordinatedLeaseStrategy, error) {
	first := candidates[0]
	for _, c := range candidates[1:] {
		switch n := compare(first.Spec.BinaryVersion, c.Spec.BinaryVersion); {
		case n < 0:
			first = c
		case n == 0 && c.Spec.Strategy != first.Spec.Strategy:
			return "", fmt.Errorf("candidates %q, %q at same binary version but received differing strategies %s, %s", first.Name, c.Name, first.Spec.Strategy, c.Spec.Strategy)
		}
	}
	return first.Spec.Strategy, nil
}

// oldest is who acts as the oldest release, of several the oldest program, and of these who has stood for the longest.
func oldest(strategy coordinationv1.CoordinatedLeaseStrategy, candidates []*candidate) string {
	if strategy != coordinationv1.OldestEmulationVersion {
		return ""
	}
	var best *candidate
	for _, c := range candidates {
		if read(c.Spec.EmulationVersion) == nil || read(c.Spec.BinaryVersion) == nil {
			continue
		}
		if best == nil || cmp.Or(compare(c.Spec.EmulationVersion, best.Spec.EmulationVersion), compare(c.Spec.BinaryVersion, best.Spec.BinaryVersion),
			c.CreationTimestamp.Compare(best.CreationTimestamp.Time)) < 0 {
			best = c
		}
	}
	if best == nil {
		return ""
	}
	return best.Name
}

// read reads a version; nil: it is none.
func read(text string) *version.Version {
	v, err := version.ParseSemantic(text)
	if err != nil {
		return nil
	}
	return v
}

// compare compares versions; one that cannot be read is lower than all others.
func compare(a, b string) int {
	v, w := read(a), read(b)
	switch {
	case v == nil && w == nil:
		return 0
	case v == nil:
		return -1
	case w == nil:
		return 1
	case v.LessThan(w):
		return -1
	case w.LessThan(v):
		return 1
	}
	return 0
}
