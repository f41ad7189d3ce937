package evict

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/kemudi/kemudi/internal/api/core"
)

// Storage is what a pod holds on the node's disk, in bytes.
type Storage struct {
	// Volumes is by name of those that the node makes, those in memory too.
	Volumes map[string]int64
	// Containers is logs and writable layer, by name.
	Containers map[string]int64
	// Other is files that the node makes for the pod.
	Other int64
	// Inodes is how many files all of that is that counts as local storage.
	Inodes int64
}

// HasLimits reports whether the pod may use only so much local storage.
func HasLimits(pod *v1.Pod) bool {
	for i := range pod.Spec.Volumes {
		if limitOf(&pod.Spec.Volumes[i]) != nil {
			return true
		}
	}
	limits := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})
	_, ok := limits[v1.ResourceEphemeralStorage]
	return ok
}

// limitOf is how much the pod may hold in a volume; nil: there is no limit, or, in memory, the kernel keeps to it.
func limitOf(v *v1.Volume) *resource.Quantity {
	if e := v.EmptyDir; e != nil && e.SizeLimit != nil && e.SizeLimit.Sign() > 0 && e.Medium != v1.StorageMediumMemory {
		return e.SizeLimit
	}
	return nil
}

// Total is all that the pod holds on disk; volumes in memory do not count.
func (s Storage) Total(pod *v1.Pod) int64 {
	sum := s.Other
	for _, n := range s.Containers {
		sum += n
	}
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; LocalVolume(v) {
			sum += s.Volumes[v.Name]
		}
	}
	return sum
}

// LocalVolume reports whether what a volume holds counts as local storage of its pod. Secrets are in memory, and so is what
// is projected, as far as upstream counts.
func LocalVolume(v *v1.Volume) bool {
	return v.EmptyDir != nil && v.EmptyDir.Medium == v1.StorageMediumDefault || v.ConfigMap != nil
}

// OverLimit returns why the pod must go because of what it holds; empty if it
// may stay.
func OverLimit(pod *v1.Pod, s Storage) string {
	if Critical(pod) {
		return ""
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if limit := limitOf(v); limit != nil && s.Volumes[v.Name] > limit.Value() {
			return fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", v.Name, limit.String())
		}
	}
	limits := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})
	if limit, ok := limits[v1.ResourceEphemeralStorage]; ok && s.Total(pod) > limit.Value() {
		return fmt.Sprintf("Pod ephemeral local storage usage exceeds the total limit of containers %s. ", limit.String())
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; core.IsSidecar(c) && s.exceeds(c) != "" {
			return s.exceeds(c)
		}
	}
	for i := range pod.Spec.Containers {
		if message := s.exceeds(&pod.Spec.Containers[i]); message != "" {
			return message
		}
	}
	return ""
}

// exceeds says that a container holds more than it may; empty: it does not.
func (s Storage) exceeds(c *v1.Container) string {
	if limit, ok := c.Resources.Limits[v1.ResourceEphemeralStorage]; ok && s.Containers[c.Name] > limit.Value() {
		return fmt.Sprintf("Container %s exceeded its local ephemeral storage limit %q. ", c.Name, limit.String())
	}
	return ""
}
