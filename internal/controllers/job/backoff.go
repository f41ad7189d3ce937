package job

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core"
)

// How long the successor of a failed pod waits: firstBackoff after the first
// failure, twice as long after each further one, lastBackoff at the most.
const (
	firstBackoff = 10 * time.Second
	lastBackoff  = 10 * time.Minute
)

// backoff is what holds back the pods of a job: how many failed in a row since
// one succeeded, and when the last did. It is kept in memory; from a job's first look on.
type backoff struct {
	failures int32
	last     time.Time
}

// after is the back-off after more pods have ended.
func (b backoff) after(ended []*corev1.Pod) backoff {
	slices.SortStableFunc(ended, func(a, b *corev1.Pod) int { return finishedAt(a).Compare(finishedAt(b)) })
	for _, p := range ended {
		if p.Status.Phase == corev1.PodSucceeded {
			b = backoff{}
			continue
		}
		b.failures++
		if at := finishedAt(p); at.After(b.last) {
			b.last = at
		}
	}
	return b
}

// left is how long no pod may be made yet.
func (b backoff) left(now time.Time) time.Duration {
	if b.failures == 0 {
		return 0
	}
	wait := firstBackoff
	for n := int32(1); n < b.failures && wait < lastBackoff; n++ {
		wait *= 2
	}
	return max(0, min(wait, lastBackoff)-now.Sub(b.last))
}

// indexBackoff is the back-off of the index whose last pod failed.
func indexBackoff(last *corev1.Pod) backoff {
	if last == nil {
		return backoff{}
	}
	all, _ := failures(last)
	return backoff{failures: all + 1, last: finishedAt(last)}
}

// finishedAt is when a pod ended: its last container, or else when it ceased to
// be ready, or was to end.
func finishedAt(p *corev1.Pod) time.Time {
	if at := containersEnded(p); !at.IsZero() {
		return at
	}
	if c := core.PodCondition(&p.Status, corev1.PodReady); c != nil && c.Status == corev1.ConditionFalse && !c.LastTransitionTime.IsZero() {
		return c.LastTransitionTime.Time
	}
	if p.DeletionTimestamp != nil {
		return p.DeletionTimestamp.Add(-time.Duration(ptr.Deref(p.DeletionGracePeriodSeconds, 0)) * time.Second)
	}
	return p.CreationTimestamp.Time
}

// containersEnded is when the last container did; zero if one has not, or nobody says when.
func containersEnded(p *corev1.Pod) (at time.Time) {
	for i := range p.Status.ContainerStatuses {
		t := p.Status.ContainerStatuses[i].State.Terminated
		if t == nil || t.FinishedAt.IsZero() {
			return time.Time{}
		}
		if t.FinishedAt.After(at) {
			at = t.FinishedAt.Time
		}
	}
	return at
}
