package plugins

import (
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/scheduler/devices"
	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

// extendedResources are those of the pod at hand that devices can serve, where the node
// itself has none of them.
type extendedResources struct {
	resources []extendedResource
	old       *snapshot.ResourceClaim // made for the pod before, by an attempt that came to nothing
	variants  map[uint32]*variant     // by the resources that devices have to serve
}

type extendedResource struct {
	index int // of the resource
	class string
}

// variant is what devices have to serve on some nodes.
type variant struct {
	resources []extendedResource
	claim     *resourcev1.ResourceClaim // as it is made if the pod gets its place there
	mappings  []corev1.ContainerExtendedResourceRequest
	plan      *devices.Plan
	err       error
}

func (x *extendedResources) reset() { *x = extendedResources{resources: x.resources[:0]} }

// any finds the resources of a pod that devices can serve, and reports whether there are some.
func (x *extendedResources) any(c *Cycle) bool {
	if c.Snapshot.Devices().Classes() == 0 {
		return false
	}
	for _, a := range c.Pod.Requests {
		if class := c.Snapshot.ServedByDevices(a.Resource); class != nil && len(x.resources) < 32 {
			x.resources = append(x.resources, extendedResource{a.Resource, class.Name})
		}
	}
	if len(x.resources) > 0 {
		x.old = c.Snapshot.ExtendedResourceClaim(c.Pod.Obj.UID)
	}
	return len(x.resources) > 0
}

// variant is what devices have to serve on a node; nil: nothing.
func (x *extendedResources) variant(n *snapshot.Node) *variant {
	var served uint32
	for i, r := range x.resources {
		if !n.Has(r.index) {
			served |= 1 << i
		}
	}
	if served == 0 {
		return nil
	}
	v := x.variants[served]
	if v == nil {
		v = &variant{}
		for i, r := range x.resources {
			if served&(1<<i) != 0 {
				v.resources = append(v.resources, r)
			}
		}
		if x.variants == nil {
			x.variants = map[uint32]*variant{}
		}
		x.variants[served] = v
	}
	return v
}

// make makes the claim.
func (v *variant) make(c *Cycle) {
	classes := map[corev1.ResourceName]string{}
	for _, r := range v.resources {
		classes[c.Snapshot.ResourceName(r.index)] = r.class
	}
	p := c.Pod.Obj
	v.claim = &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: p.Namespace, GenerateName: p.Name + "-extended-resources-",
		UID:         types.UID("extended resources of " + string(p.UID)), // until it has its own
		Annotations: map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID, Controller: ptr.To(true),
		}},
	}}
	v.claim.Spec.Devices.Requests, v.mappings = devices.Serve(p, classes)
}
