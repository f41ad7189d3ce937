package custom

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ownFinalizers are Kubernetes' own, which have no domain.
var ownFinalizers = []string{metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents, string(corev1.FinalizerKubernetes)}

// warnOfFinalizers tells of names of new finalizers that others may give theirs, too.
func warnOfFinalizers(obj, old *Object) (out []string) {
	for _, name := range slices.Compact(slices.Sorted(slices.Values(obj.Finalizers))) {
		if old != nil && slices.Contains(old.Finalizers, name) {
			continue
		}
		switch {
		case strings.Contains(name, "/") || slices.Contains(ownFinalizers, name):
		case strings.Contains(name, "."):
			out = append(out, fmt.Sprintf("metadata.finalizers: %q: prefer a domain-qualified finalizer name including a path (/) to avoid accidental conflicts with other finalizer writers", name))
		default:
			out = append(out, fmt.Sprintf("metadata.finalizers: %q: prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers", name))
		}
	}
	return out
}
