package workload

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
)

// NextAvailable is how long until the next ready pod counts as available.
func NextAvailable(pods []*corev1.Pod, minReadySeconds int32, now time.Time) (time.Duration, bool) {
	wait, found := time.Duration(0), false
	for _, p := range pods {
		since := readySince(p)
		if since.IsZero() {
			continue
		}
		if left := since.Add(time.Duration(minReadySeconds) * time.Second).Sub(now); left > 0 && (!found || left < wait) {
			wait, found = left, true
		}
	}
	return wait, found
}

// readySince is since when the pod has been ready; zero if it is not.
func readySince(p *corev1.Pod) metav1.Time {
	if !core.PodReady(p) {
		return metav1.Time{}
	}
	return core.PodCondition(&p.Status, corev1.PodReady).LastTransitionTime
}
