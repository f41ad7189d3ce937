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
	if !sameContainers(p.Spec.Containers, old.Spec.Containers) || !sameContainers(p.Spec.InitContainers, old.Spec.InitContainers) {
		errs.Forbidden("spec", "only cpu and memory resources are mutable")
		return
	}
	if old.Status.QOSClass != "" && QOSClass(p) != old.Status.QOSClass {
		errs.Invalid("spec", old.Status.QOSClass, "Pod QOS Class may not change as a result of resizing")
	}
	for i := range old.Spec.InitContainers {
		now, was := &p.Spec.InitContainers[i], &old.Spec.InitContainers[i]
		if !podspec.IsSidecar(was) {
			if !equality.Semantic.DeepEqual(now.Resources, was.Resources) {
				errs.Forbidden("spec", "resources for non-sidecar init containers are immutable")
			}
			continue
		}
		validateResizedResources(errs.At("spec.initContainers[%d].resources", i), &now.Resources, &was.Resources)
		if !onlyComputeDiffers(&now.Resources, &was.Resources) {
			errs.Forbidden("spec", "only cpu and memory resources for sidecar containers are mutable")
		}
	}
	for i := range old.Spec.Containers {
		now, was := &p.Spec.Containers[i].Resources, &old.Spec.Containers[i].Resources
		validateResizedResources(errs.At("spec.containers[%d].resources", i), now, was)
		if !onlyComputeDiffers(now, was) {
			errs.Forbidden("spec", "only cpu and memory resources are mutable")
		}
	}
	if now, was := podLevelResources(p), podLevelResources(old); !onlyComputeDiffers(now, was) {
		errs.Forbidden("spec.resources", "only cpu and memory resources are mutable")
	} else {
		validateResizedResources(errs.At("spec.resources"), now, was)
	}
}

func podLevelResources(p *corev1.Pod) *corev1.ResourceRequirements {
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
