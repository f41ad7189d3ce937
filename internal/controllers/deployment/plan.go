package deployment

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/kemudi/kemudi/internal/workload"
)

// Annotations of ReplicaSets that the arithmetic rests on.
const (
	desiredAnnotation = "deployment.kubernetes.io/desired-replicas"
	maxAnnotation     = "deployment.kubernetes.io/max-replicas"
)

// rollout is a Deployment with its sets: the one of the present template (nil
// if it does not exist yet) and all others, oldest first.
type rollout struct {
	d   *appsv1.Deployment
	new *appsv1.ReplicaSet
	old []*appsv1.ReplicaSet
}

// resize is one set's new size.
type resize struct {
	rs *appsv1.ReplicaSet
	to int32
}

// all are the sets, old ones first, in a slice of the caller's own.
func (r *rollout) all() []*appsv1.ReplicaSet {
	sets := slices.Clone(r.old)
	if r.new != nil {
		sets = append(sets, r.new)
	}
	return sets
}

// limits resolves maxSurge (rounded up) and maxUnavailable (rounded down, at
// most all replicas). Not both are 0, or nothing could move.
func limits(d *appsv1.Deployment) (surge, unavailable int32) {
	if d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType || *d.Spec.Replicas == 0 {
		return 0, 0
	}
	if ru := d.Spec.Strategy.RollingUpdate; ru != nil {
		surge = workload.RoundedUp(ru.MaxSurge, *d.Spec.Replicas)
		unavailable = workload.RoundedDown(ru.MaxUnavailable, *d.Spec.Replicas)
	}
	if surge == 0 && unavailable == 0 {
		unavailable = 1
	}
	return surge, min(unavailable, *d.Spec.Replicas)
}

// newSize is how many replicas the new set (now of size has) may have. Pods of
// old sets count as long as they are there, not only as long as they are wanted, and
// a set that has not seen its size may have more than it reports: old and new pods
// together stay within the surge at every moment.
func (r *rollout) newSize(has int32) int32 {
	d := r.d
	if d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType {
		return *d.Spec.Replicas
	}
	surge, _ := limits(d)
	room := *d.Spec.Replicas + surge - has
	for _, rs := range r.old {
		if rs.Status.ObservedGeneration < rs.Generation {
			return has
		}
		room -= max(*rs.Spec.Replicas, rs.Status.Replicas)
	}
	if room <= 0 {
		return has
	}
	return has + min(room, *d.Spec.Replicas-has)
}

// rollingStep is the next step of a rolling update: first grow the new set as
// far as the surge allows; if it cannot, shrink old ones as far as enough
// replicas stay available. Nothing to do yields nothing.
func (r *rollout) rollingStep() []resize {
	want := *r.d.Spec.Replicas
	has := *r.new.Spec.Replicas
	if has > want {
		return []resize{{r.new, want}}
	}
	if to := r.newSize(has); has < want && to != has {
		return []resize{{r.new, to}}
	}
	return r.shrinkOld()
}

func (r *rollout) shrinkOld() []resize {
	if specTotal(r.old) == 0 {
		return nil
	}
	_, unavailable := limits(r.d)
	minAvailable := *r.d.Spec.Replicas - unavailable
	newUnavailable := *r.new.Spec.Replicas - available(r.new)
	room := specTotal(r.all()) - minAvailable - newUnavailable
	if room <= 0 {
		return nil
	}
	size := map[*appsv1.ReplicaSet]int32{}
	for _, rs := range r.old {
		size[rs] = *rs.Spec.Replicas
	}
	// Replicas that do not serve anyway go first.
	for _, rs := range r.old {
		n := min(room, size[rs]-available(rs))
		size[rs] -= n
		room -= n
	}
	spare := -minAvailable
	for _, rs := range r.all() {
		spare += available(rs)
	}
	for _, rs := range r.old {
		n := min(max(0, spare), size[rs])
		size[rs] -= n
		spare -= n
	}
	return resizes(r.old, size)
}

// resizes lists the sets whose size differs from what they have.
func resizes(sets []*appsv1.ReplicaSet, size map[*appsv1.ReplicaSet]int32) []resize {
	var steps []resize
	for _, rs := range sets {
		if to, ok := size[rs]; ok && to != *rs.Spec.Replicas {
			steps = append(steps, resize{rs, to})
		}
	}
	return steps
}

// scaling reports that spec.replicas changed since the sets were last sized.
func (r *rollout) scaling() bool {
	for _, rs := range r.all() {
		if *rs.Spec.Replicas == 0 {
			continue
		}
		if desired, ok := annotated(rs, desiredAnnotation); ok && desired != *r.d.Spec.Replicas {
			return true
		}
	}
	return false
}

// scaleStep spreads a changed number of replicas over the sets, outside of a
// rollout step: all to the only active set; old ones to 0 if the new one is
// saturated; otherwise each in proportion to its size.
func (r *rollout) scaleStep() []resize {
	want := *r.d.Spec.Replicas
	active := slices.DeleteFunc(r.all(), func(rs *appsv1.ReplicaSet) bool { return *rs.Spec.Replicas == 0 })
	if len(active) <= 1 {
		only := r.latest(active)
		if only == nil || *only.Spec.Replicas == want {
			return nil
		}
		return []resize{{only, want}}
	}
	if r.saturated() {
		var steps []resize
		for _, rs := range active {
			if rs != r.new {
				steps = append(steps, resize{rs, 0})
			}
		}
		return steps
	}
	if r.d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType {
		return nil
	}
	return r.proportional(active)
}

// latest is the one active set, or the new one, or the youngest.
func (r *rollout) latest(active []*appsv1.ReplicaSet) *appsv1.ReplicaSet {
	switch {
	case len(active) == 1:
		return active[0]
	case r.new != nil:
		return r.new
	case len(r.old) > 0:
		return r.old[len(r.old)-1]
	}
	return nil
}

func (r *rollout) saturated() bool {
	if r.new == nil {
		return false
	}
	desired, ok := annotated(r.new, desiredAnnotation)
	want := *r.d.Spec.Replicas
	return ok && desired == want && *r.new.Spec.Replicas == want && r.new.Status.AvailableReplicas == want
}

func (r *rollout) proportional(active []*appsv1.ReplicaSet) []resize {
	var allowed int32
	if *r.d.Spec.Replicas > 0 {
		surge, _ := limits(r.d)
		allowed = *r.d.Spec.Replicas + surge
	}
	toAdd := allowed - specTotal(active)
	// Larger sets first; of equal ones, the newer grows and the older shrinks first.
	slices.SortStableFunc(active, func(a, b *appsv1.ReplicaSet) int {
		byAge := b.CreationTimestamp.Compare(a.CreationTimestamp.Time)
		if toAdd < 0 {
			byAge = -byAge
		}
		return cmp.Or(cmp.Compare(*b.Spec.Replicas, *a.Spec.Replicas), byAge)
	})
	size := map[*appsv1.ReplicaSet]int32{}
	var added int32
	for _, rs := range active {
		n := r.share(rs, toAdd, toAdd-added)
		size[rs] = *rs.Spec.Replicas + n
		added += n
	}
	if len(active) > 0 { // what rounding left over
		size[active[0]] = max(0, size[active[0]]+toAdd-added)
	}
	return resizes(active, size)
}

// share is the part of toAdd that a set gets by its size; left is what others
// have not taken.
func (r *rollout) share(rs *appsv1.ReplicaSet, toAdd, left int32) int32 {
	if toAdd == 0 || left == 0 {
		return 0
	}
	part := -*rs.Spec.Replicas
	if *r.d.Spec.Replicas > 0 {
		surge, _ := limits(r.d)
		was, ok := annotated(rs, maxAnnotation)
		if !ok || was == 0 {
			was = max(1, r.d.Status.Replicas)
		}
		full := float64(*rs.Spec.Replicas) * float64(*r.d.Spec.Replicas+surge) / float64(was)
		part = int32(math.Round(full)) - *rs.Spec.Replicas
	}
	if toAdd > 0 {
		return min(part, left)
	}
	return max(part, left)
}

func annotated(rs *appsv1.ReplicaSet, key string) (int32, bool) {
	n, err := strconv.ParseInt(rs.Annotations[key], 10, 32)
	return int32(n), err == nil
}

func specTotal(sets []*appsv1.ReplicaSet) (n int32) {
	for _, rs := range sets {
		n += *rs.Spec.Replicas
	}
	return n
}

// available is how many of the replicas that a set is to keep are available: of
// those it reports, some may be on their way out.
func available(rs *appsv1.ReplicaSet) int32 {
	return min(*rs.Spec.Replicas, rs.Status.AvailableReplicas)
}
