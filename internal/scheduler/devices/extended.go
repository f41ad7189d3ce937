package devices

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/kemudi/kemudi/internal/api/core"
)

// Serve makes the extended resources of a pod into requests for devices of these classes, by the
// resource's name, and says which request is for which container. Containers that run one
// after the other before the pod starts share devices among them, and have those of the
// containers after them.
func Serve(p *corev1.Pod, classes map[corev1.ResourceName]string) (requests []resourcev1.DeviceRequest, mappings []corev1.ContainerExtendedResourceRequest) {
	containers := slices.Concat(p.Spec.InitContainers, p.Spec.Containers)
	for _, resource := range slices.Sorted(maps.Keys(classes)) {
		e := extension{resource: resource, class: classes[resource], containers: containers, stay: make([]*resourcev1.DeviceRequest, len(containers))}
		for i := range containers {
			if i >= len(p.Spec.InitContainers) || core.IsSidecar(&containers[i]) {
				e.stay[i] = e.request(i, nil)
			}
		}
		longest := len(e.mappings)
		var most *resourcev1.DeviceRequest
		var passing []string // requests of those that end, of which the largest is for all
		for i := range p.Spec.InitContainers {
			if core.IsSidecar(&containers[i]) {
				continue
			}
			if r := e.request(i, e.stay[i:]); r != nil {
				passing = append(passing, r.Name)
				if most == nil || r.Exactly.Count > most.Exactly.Count {
					most = r
				}
			}
		}
		for i := range e.mappings[longest:] {
			if m := &e.mappings[longest+i]; slices.Contains(passing, m.RequestName) {
				m.RequestName = most.Name
			}
		}
		for _, r := range append(e.stay, most) {
			if r != nil {
				requests = append(requests, *r)
			}
		}
		mappings = append(mappings, e.mappings...)
	}
	slices.SortFunc(requests, func(a, b resourcev1.DeviceRequest) int { return strings.Compare(a.Name, b.Name) })
	return requests, mappings
}

// extension is one extended resource of a pod.
type extension struct {
	resource   corev1.ResourceName
	class      string
	containers []corev1.Container
	stay       []*resourcev1.DeviceRequest // of containers that run as long as the pod does, by index
	mappings   []corev1.ContainerExtendedResourceRequest
}

// request is what a container asks for beyond what it can have of others; nil: nothing.
func (e *extension) request(i int, others []*resourcev1.DeviceRequest) *resourcev1.DeviceRequest {
	c := &e.containers[i]
	asked := c.Resources.Requests[e.resource]
	want := asked.Value()
	if want <= 0 {
		return nil
	}
	for _, r := range others {
		if r == nil {
			continue
		}
		e.use(c, r.Name)
		if want -= r.Exactly.Count; want <= 0 {
			return nil
		}
	}
	names := slices.Sorted(maps.Keys(c.Resources.Requests))
	name := fmt.Sprintf("container-%d-request-%d", i, slices.Index(names, e.resource))
	e.use(c, name)
	return &resourcev1.DeviceRequest{Name: name, Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: e.class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: want,
	}}
}

func (e *extension) use(c *corev1.Container, request string) {
	e.mappings = append(e.mappings, corev1.ContainerExtendedResourceRequest{ContainerName: c.Name, ResourceName: string(e.resource), RequestName: request})
}
