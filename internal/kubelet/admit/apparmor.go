package admit

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// AppArmor returns reason and message if the pod wants to be confined by AppArmor, and
// the machine does not have that: it must not run unconfined instead.
func AppArmor(pod *v1.Pod, enabled bool) (reason, message string) {
	confined := func(p *v1.AppArmorProfile) bool { return p != nil && p.Type != v1.AppArmorProfileTypeUnconfined }
	wants := pod.Spec.SecurityContext != nil && confined(pod.Spec.SecurityContext.AppArmorProfile)
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		wants = wants || slices.ContainsFunc(list, func(c v1.Container) bool {
			return c.SecurityContext != nil && confined(c.SecurityContext.AppArmorProfile)
		})
	}
	if enabled || !wants {
		return "", ""
	}
	return "AppArmor", "Cannot enforce AppArmor: AppArmor is not enabled on the host"
}
