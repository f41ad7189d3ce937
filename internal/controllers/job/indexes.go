package job

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/batch"
)

// noIndex is the completion index of a pod that has none.
const noIndex = -1

// indexOf is the completion index of a pod.
func indexOf(p *corev1.Pod) int32 {
	text, ok := p.Annotations[batchv1.JobCompletionIndexAnnotation]
	n, err := strconv.ParseInt(text, 10, 32)
	if !ok || err != nil || n < 0 {
		return noIndex
	}
	return int32(n)
}

// belongs says that a pod counts for the job: in an Indexed one, that its index
// is one of the job's, which may have become fewer.
func (v *view) belongs(p *corev1.Pod) bool {
	if !v.indexed() {
		return true
	}
	n := indexOf(p)
	return n != noIndex && n < *v.job.Spec.Completions
}

func (v *view) indexed() bool { return batch.JobIndexed(&v.job.Spec) }

// perIndex says that each index has a back-off limit of its own.
func (v *view) perIndex() bool { return v.indexed() && v.job.Spec.BackoffLimitPerIndex != nil }

// stored reads indexes of the status, as far as they are still the job's.
func (v *view) stored(text string) batch.Indexes {
	list, err := batch.ParseIndexes(text, math.MaxInt32)
	if err != nil { // validation lets none through
		return nil
	}
	return list.Below(*v.job.Spec.Completions)
}

// indexesOf are the indexes of pods.
func indexesOf(pods []*corev1.Pod) batch.Indexes {
	list := make([]int32, 0, len(pods))
	for _, p := range pods {
		if n := indexOf(p); n != noIndex {
			list = append(list, n)
		}
	}
	return batch.Indexes(nil).With(list...)
}

// strays are the active pods that an Indexed job has no use for: without an
// index of its own, or one more of an index. The others are kept.
func (v *view) strays(active []*corev1.Pod) (strays, kept []*corev1.Pod) {
	if !v.indexed() {
		return nil, active
	}
	byIndex := slices.Clone(active) // in order of rank: of one index, the last is worth most
	slices.SortStableFunc(byIndex, func(a, b *corev1.Pod) int { return cmp.Compare(indexOf(a), indexOf(b)) })
	for i, p := range byIndex {
		if !v.belongs(p) || i+1 < len(byIndex) && indexOf(byIndex[i+1]) == indexOf(p) {
			strays = append(strays, p)
		} else {
			kept = append(kept, p)
		}
	}
	return strays, kept
}

// failures are how often pods of a pod's index have failed before it, in all and
// as far as they count.
func failures(p *corev1.Pod) (all, counted int32) {
	counted = count(p.Annotations[batchv1.JobIndexFailureCountAnnotation])
	return counted + count(p.Annotations[batchv1.JobIndexIgnoredFailureCountAnnotation]), counted
}

func count(text string) int32 {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 {
		return 0
	}
	return int32(n)
}

// failedIndexes are those that will not be tried again.
func (v *view) failedIndexes() batch.Indexes {
	var failed []int32
	for _, p := range v.pods {
		if tracked(p) && v.belongs(p) && v.indexFailed(p) {
			failed = append(failed, indexOf(p))
		}
	}
	text := ""
	if s := v.job.Status.FailedIndexes; s != nil {
		text = *s
	}
	return v.stored(text).With(failed...)
}

func (v *view) indexFailed(p *corev1.Pod) bool {
	if !v.failed(p) {
		return false
	}
	m := v.matchFailure(p)
	_, counted := failures(p)
	return m.action == batchv1.PodFailurePolicyActionFailIndex || m.counts && counted >= *v.job.Spec.BackoffLimitPerIndex
}

// lastFailed finds the last failed pod of each index that waits for another: it
// stays tracked until then, for its successor takes over its count of failures.
func (v *view) lastFailed(settled batch.Indexes) map[int32]*corev1.Pod {
	if !v.perIndex() {
		return nil
	}
	last := map[int32]*corev1.Pod{}
	for _, p := range v.pods {
		if !tracked(p) || !v.belongs(p) || !v.failed(p) || settled.Has(indexOf(p)) {
			continue
		}
		was := last[indexOf(p)]
		if was == nil {
			last[indexOf(p)] = p
			continue
		}
		all, _ := failures(p)
		before, _ := failures(was)
		if all >= before && !finishedAt(p).Before(finishedAt(was)) {
			last[indexOf(p)] = p
		}
	}
	return last
}
