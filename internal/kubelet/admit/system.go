package admit

import (
	"runtime"

	v1 "k8s.io/api/core/v1"
)

// OtherSystem returns reason and message if the pod is for another operating system
// than the node's, by its label or by its field.
func OtherSystem(pod *v1.Pod) (reason, message string) {
	if label, ok := pod.Labels[v1.LabelOSStable]; ok && label != runtime.GOOS {
		return "PodOSSelectorNodeLabelDoesNotMatch", "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"
	}
	if os := pod.Spec.OS; os != nil && string(os.Name) != runtime.GOOS {
		return "PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS"
	}
	return "", ""
}

// Groups returns reason and message if the pod wants no groups besides those that it
// names, and the runtime would add those of the image.
func Groups(pod *v1.Pod, strict bool) (reason, message string) {
	sc := pod.Spec.SecurityContext
	if strict || sc == nil || sc.SupplementalGroupsPolicy == nil || *sc.SupplementalGroupsPolicy != v1.SupplementalGroupsPolicyStrict {
		return "", ""
	}
	return "SupplementalGroupsPolicyNotSupported", "SupplementalGroupsPolicy=Strict is not supported in this node"
}
