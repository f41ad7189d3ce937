package workload

import (
	"cmp"
	"math/bits"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
)

// Rank sorts pods so that those to be deleted first come first: not assigned
// before assigned, pending before unknown before running, not ready before
// ready, lower deletion cost, more siblings on the node, ready for a shorter
// time (in powers of two), more restarts, younger.
func Rank(pods []*corev1.Pod, siblings map[string]int, now time.Time) {
	slices.SortStableFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(
			first(a.Spec.NodeName == "", b.Spec.NodeName == ""),
			cmp.Compare(phaseRank(a), phaseRank(b)),
			first(!core.PodReady(a), !core.PodReady(b)),
			cmp.Compare(deletionCost(a), deletionCost(b)),
			cmp.Compare(siblings[b.Spec.NodeName], siblings[a.Spec.NodeName]),
			cmp.Compare(ageRank(readySince(a), now), ageRank(readySince(b), now)),
			cmp.Compare(restarts(b), restarts(a)),
			cmp.Compare(ageRank(a.CreationTimestamp, now), ageRank(b.CreationTimestamp, now)),
			cmp.Compare(a.Name, b.Name),
		)
	})
}

// first orders true before false.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

func phaseRank(p *corev1.Pod) int {
	switch p.Status.Phase {
	case corev1.PodPending:
		return 0
	case corev1.PodUnknown:
		return 1
	}
	return 2
}

// deletionCost is the documented annotation's value; 0 if absent or malformed.
func deletionCost(p *corev1.Pod) int64 {
	n, err := strconv.ParseInt(p.Annotations[corev1.PodDeletionCost], 10, 32)
	if err != nil {
		return 0
	}
	return n
}

// ageRank is the age in seconds, in powers of two, so that small differences
// leave the choice open. A time that is not set is youngest.
func ageRank(t metav1.Time, now time.Time) int {
	if t.IsZero() {
		return -1
	}
	return bits.Len64(uint64(max(0, now.Sub(t.Time)/time.Second)))
}

func restarts(p *corev1.Pod) int32 {
	var most int32
	for i := range p.Status.ContainerStatuses {
		most = max(most, p.Status.ContainerStatuses[i].RestartCount)
	}
	return most
}
