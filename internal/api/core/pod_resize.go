package core

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/kemudi/kemudi/internal/api/core/podspec"
	"github.com/kemudi/kemudi/internal/resource"
)

// mergeResize lets a client change resources and nothing else. A client that
// added, removed or renamed containers is refused later.
func mergeResize(p, old *corev1.Pod) {
	if !sameContainers(p.Spec.Containers, old.Spec.Containers) || !sameContainers(p.Spec.InitContainers, old.Spec.InitContainers) {
		return
	}
	sent := p.Spec
	p.Spec, p.Status = old.Spec, old.Status
	p.Spec.Resources = sent.Resources
	p.Spec.Containers = withResourcesOf(old.Spec.Containers, sent.Containers)
	p.Spec.InitContainers = withResourcesOf(old.Spec.InitContainers, sent.InitContainers)
	keepMeta(&p.ObjectMeta, &old.ObjectMeta)
}

func sameContainers(a, b []corev1.Container) bool {
	return slices.EqualFunc(a, b, func(a, b corev1.Container) bool { return a.Name == b.Name })
}

func withResourcesOf(containers, sent []corev1.Container) []corev1.Container {
	containers = slices.Clone(containers)
	for i := range containers {
		containers[i].Resources, containers[i].ResizePolicy = sent[i].Resources, sent[i].ResizePolicy
	}
	return containers
}

// validateResize checks a change of resources in place (KEP-1287, KEP-5419).
func validateResize(p, old *corev1.Pod, errs *resource.Errors) {
	if IsMirror(old) {
		errs.Forbidden("[]", "static pods cannot be resized")
		return
	}
	if old.Spec.OS != nil && old.Spec.OS.Name == corev1.Windows {
		errs.Forbidden("[]", "windows pods cannot be resized")
		return
	}
	podspec.Validate(errs, p)
	if old.Status.QOSClass != "" && QOSClass(p) != old.Status.QOSClass {
		errs.Invalid("spec", old.Status.QOSClass, "Pod QOS Class may not change as a result of resizing")
	}
	if !nodeTellsResources(old) {
		errs.Forbidden("spec", "Pod running on node without support for resize")
	}
	validateResizedPod(p, old, errs)
	same := resizesSame(errs, "containers", p.Spec.Containers, old.Spec.Containers)
	if !resizesSame(errs, "initContainers", p.Spec.InitContainers, old.Spec.InitContainers) || !same {
		return
	}
	for i := range old.Spec.InitContainers {
		now, was := &p.Spec.InitContainers[i], &old.Spec.InitContainers[i]
		validateResizedResources(errs.At("spec.initContainers[%d].resources", i), &now.Resources, &was.Resources)
		if !onlyComputeDiffers(&now.Resources, &was.Resources) || !equality.Semantic.DeepEqual(now.ResizePolicy, was.ResizePolicy) {
			errs.At("spec.initContainers[%d]", i).Forbidden("", "only cpu and memory resources for init or sidecar containers are mutable")
		}
		if !podspec.IsSidecar(was) && !equality.Semantic.DeepEqual(now, was) && slices.ContainsFunc(was.ResizePolicy, resizeRestarts) {
			errs.At("spec.initContainers[%d]", i).Forbidden("", "non-sidecar init containers with a resize policy of RestartContainer cannot be resized")
		}
	}
	for i := range old.Spec.Containers {
		now, was := &p.Spec.Containers[i], &old.Spec.Containers[i]
		validateResizedResources(errs.At("spec.containers[%d].resources", i), &now.Resources, &was.Resources)
		if !onlyComputeDiffers(&now.Resources, &was.Resources) || !equality.Semantic.DeepEqual(now.ResizePolicy, was.ResizePolicy) {
			errs.Forbidden("spec", "only cpu and memory resources are mutable")
		}
	}
}

func resizeRestarts(p corev1.ContainerResizePolicy) bool {
	return p.RestartPolicy == corev1.RestartContainer
}

// nodeTellsResources reports whether the node of a pod that runs says what its containers have been
// given: one that does not cannot change it.
func nodeTellsResources(p *corev1.Pod) bool {
	i := slices.IndexFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.State.Running != nil })
	return i < 0 || p.Status.ContainerStatuses[i].Resources != nil
}

// resizesSame reports whether a client that resizes has sent the containers that there are, in their order.
func resizesSame(errs *resource.Errors, field string, sent, old []corev1.Container) bool {
	if len(sent) != len(old) {
		errs.Forbidden("spec."+field, field+" may not be added or removed on resize")
		return false
	}
	same := true
	for i := range old {
		if sent[i].Name != old[i].Name {
			errs.At("spec."+field+"[%d]", i).Forbidden("name", field+" may not be renamed or reordered on resize")
			same = false
		}
	}
	return same
}

// validateResizedPod checks a change of what the pod has as a whole.
func validateResizedPod(p, old *corev1.Pod, errs *resource.Errors) {
	now, was := PodLevelResources(p), PodLevelResources(old)
	switch {
	case old.Spec.Resources != nil && p.Spec.Resources == nil:
		errs.Forbidden("spec.resources", "pod-level resources cannot be removed")
		return
	case lacks(now.Requests, was.Requests):
		errs.Forbidden("spec.resources.requests", "pod-level resource requests cannot be removed")
	case lacks(now.Limits, was.Limits):
		errs.Forbidden("spec.resources.limits", "pod-level resource limits cannot be removed")
	}
	if !onlyComputeDiffers(now, was) {
		errs.Forbidden("spec", "only cpu and memory resources are mutable at pod-level")
	}
}

// PodLevelResources are what a pod asks for as a whole; empty if it does not.
func PodLevelResources(p *corev1.Pod) *corev1.ResourceRequirements {
	if p.Spec.Resources == nil {
		return &corev1.ResourceRequirements{}
	}
	return p.Spec.Resources
}

// validateResizedResources refuses to take requests and limits away.
func validateResizedResources(errs *resource.Errors, r, old *corev1.ResourceRequirements) {
	if lacks(r.Requests, old.Requests) {
		errs.Forbidden("requests", "resource requests cannot be removed")
	}
	if lacks(r.Limits, old.Limits) {
		errs.Forbidden("limits", "resource limits cannot be removed")
	}
}

func lacks(list, old corev1.ResourceList) bool {
	for name := range old {
		if _, ok := list[name]; !ok {
			return true
		}
	}
	return false
}

// onlyComputeDiffers reports whether everything but CPU and memory is the same.
func onlyComputeDiffers(a, b *corev1.ResourceRequirements) bool {
	return sameButCompute(a.Requests, b.Requests) && sameButCompute(a.Limits, b.Limits) && equality.Semantic.DeepEqual(a.Claims, b.Claims)
}

func sameButCompute(a, b corev1.ResourceList) bool {
	differs := func(a, b corev1.ResourceList) bool {
		for name, q := range a {
			if name == corev1.ResourceCPU || name == corev1.ResourceMemory {
				continue
			}
			if other, ok := b[name]; !ok || q.Cmp(other) != 0 {
				return true
			}
		}
		return false
	}
	return !differs(a, b) && !differs(b, a)
}
