package podresources

import (
	"context"

	"k8s.io/kubelet/pkg/apis/podresources/v1alpha1"
)

// older is the API as monitors of some years ago ask for it: devices of plugins alone.
type older struct {
	v1alpha1.UnimplementedPodResourcesListerServer
	s *Server
}

// List tells of all pods that have not finished, and of containers that run on.
func (o older) List(context.Context, *v1alpha1.ListPodResourcesRequest) (*v1alpha1.ListPodResourcesResponse, error) {
	o.s.metrics.asked(o.s.metrics.list, olderVersion)
	out := &v1alpha1.ListPodResourcesResponse{}
	for _, p := range o.s.pods() {
		pod := &v1alpha1.PodResources{Name: p.Name, Namespace: p.Namespace}
		for i := range p.Spec.Containers {
			c := &v1alpha1.ContainerResources{Name: p.Spec.Containers[i].Name}
			for _, d := range o.s.o.Pins.Devices.Of(p.UID, c.Name) {
				c.Devices = append(c.Devices, &v1alpha1.ContainerDevices{ResourceName: d.Resource, DeviceIds: []string{d.ID}})
			}
			pod.Containers = append(pod.Containers, c)
		}
		out.PodResources = append(out.PodResources, pod)
	}
	return out, nil
}
