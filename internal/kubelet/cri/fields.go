package cri

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Field is the value of a downward API field of the pod, as a file or variable
// holds it. podIPs and hostIPs are those the status will have.
func Field(pod *v1.Pod, path string, podIPs, hostIPs []string) (string, error) {
	if name, key, ok := subscript(path); ok {
		switch name {
		case "metadata.labels":
			return pod.Labels[key], nil
		case "metadata.annotations":
			return pod.Annotations[key], nil
		}
	}
	switch path {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "metadata.labels":
		return formatMap(pod.Labels), nil
	case "metadata.annotations":
		return formatMap(pod.Annotations), nil
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.hostIP":
		return first(hostIPs), nil
	case "status.hostIPs":
		return strings.Join(hostIPs, ","), nil
	case "status.podIP":
		return first(podIPs), nil
	case "status.podIPs":
		return strings.Join(podIPs, ","), nil
	}
	return "", fmt.Errorf("unsupported fieldPath: %v", path)
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// subscript splits metadata.labels['key'].
func subscript(path string) (name, key string, ok bool) {
	name, rest, ok := strings.Cut(path, "['")
	if !ok || !strings.HasSuffix(rest, "']") {
		return "", "", false
	}
	return name, strings.TrimSuffix(rest, "']"), true
}

// formatMap writes one key="value" line for each entry, sorted.
func formatMap(m map[string]string) string {
	var lines []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		lines = append(lines, fmt.Sprintf("%v=%q", k, m[k]))
	}
	return strings.Join(lines, "\n")
}

// ResourceField is the value of a container's resource for the downward API:
// divided by the divisor and rounded up; a limit that is not set is the pod's,
// or the node's allocatable amount.
func ResourceField(pod *v1.Pod, c *v1.Container, ref *v1.ResourceFieldSelector, allocatable v1.ResourceList) (string, error) {
	kind, name, ok := strings.Cut(ref.Resource, ".")
	rname := v1.ResourceName(name)
	var q resource.Quantity
	switch {
	case ok && kind == "limits":
		q = limit(pod, c, rname, allocatable)
	case ok && kind == "requests":
		q = c.Resources.Requests[rname]
	default:
		return "", fmt.Errorf("unsupported container resource : %v", ref.Resource)
	}
	divisor := ref.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	var n int64
	if rname == v1.ResourceCPU {
		n = ceil(q.MilliValue(), divisor.MilliValue())
	} else {
		n = ceil(q.Value(), divisor.Value())
	}
	return strconv.FormatInt(n, 10), nil
}

func limit(pod *v1.Pod, c *v1.Container, name v1.ResourceName, allocatable v1.ResourceList) resource.Quantity {
	if q, ok := c.Resources.Limits[name]; ok && !q.IsZero() {
		return q
	}
	if r := pod.Spec.Resources; r != nil {
		if q, ok := r.Limits[name]; ok && !q.IsZero() {
			return q
		}
	}
	return allocatable[name]
}

func ceil(a, b int64) int64 {
	if b == 0 {
		return a
	}
	return (a + b - 1) / b
}

func (in *ContainerInput) field(path string) (string, error) {
	return Field(in.Pod, path, in.PodIPs, in.Node.IPs)
}

func (in *ContainerInput) resourceField(ref *v1.ResourceFieldSelector) (string, error) {
	c := in.Container
	if ref.ContainerName != "" && ref.ContainerName != c.Name {
		other := FindContainer(in.Pod, ref.ContainerName)
		if other == nil {
			return "", fmt.Errorf("container %s not found", ref.ContainerName)
		}
		c = other
	}
	return ResourceField(in.Pod, c, ref, in.Node.Allocatable)
}

// FindContainer returns the container of any kind with the name, or nil.
func FindContainer(pod *v1.Pod, name string) *v1.Container {
	for _, list := range [][]v1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if e := &pod.Spec.EphemeralContainers[i]; e.Name == name {
			c := v1.Container(e.EphemeralContainerCommon)
			return &c
		}
	}
	return nil
}

// FieldPath names a container within its pod as events do: "spec.containers{web}".
func FieldPath(pod *v1.Pod, name string) string {
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == name {
			return "spec.initContainers{" + name + "}"
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if pod.Spec.EphemeralContainers[i].Name == name {
			return "spec.ephemeralContainers{" + name + "}"
		}
	}
	return "spec.containers{" + name + "}"
}
