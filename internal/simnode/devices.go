package simnode

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Driver is what a driver of devices publishes of a node, in a ResourceSlice. Claims are
// given the devices by the scheduler; the node has nothing to do for that.
type Driver struct {
	Name       string                                                  `json:"name"`
	Count      int                                                     `json:"count"`      // how many devices a node has, all alike
	Attributes map[resourcev1.QualifiedName]resourcev1.DeviceAttribute `json:"attributes"` // of each of them
	Capacity   map[resourcev1.QualifiedName]resourcev1.DeviceCapacity  `json:"capacity"`
}

// Slice is what the driver publishes of a node. It goes with the node.
func (d *Driver) Slice(node *corev1.Node) *resourcev1.ResourceSlice {
	s := &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: node.Name + "-" + d.Name,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID, Controller: ptr.To(true),
			}},
		},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: d.Name, NodeName: ptr.To(node.Name),
			Pool: resourcev1.ResourcePool{Name: node.Name, Generation: 1, ResourceSliceCount: 1},
		},
	}
	for i := range d.Count {
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: fmt.Sprintf("device-%d", i), Attributes: d.Attributes, Capacity: d.Capacity})
	}
	return s
}

// publish has the API show the devices of the node.
func (n *Node) publish(ctx context.Context, node *corev1.Node) error {
	for i := range n.o.Drivers {
		want := n.o.Drivers[i].Slice(node)
		_, err := n.slices.Create(ctx, want.DeepCopy())
		if apierrors.IsAlreadyExists(err) {
			err = n.publishAgain(ctx, want)
		}
		if err != nil {
			return fmt.Errorf("publish the devices of driver %s: %w", n.o.Drivers[i].Name, err)
		}
	}
	return nil
}

// publishAgain makes a slice that there is already what it should be.
func (n *Node) publishAgain(ctx context.Context, want *resourcev1.ResourceSlice) error {
	s, err := n.slices.Get(ctx, "", want.Name)
	if err != nil {
		return err
	}
	if equality.Semantic.DeepEqual(s.Spec.Devices, want.Spec.Devices) && equality.Semantic.DeepEqual(s.OwnerReferences, want.OwnerReferences) {
		return nil
	}
	s = s.DeepCopy()
	want.Spec.Pool.Generation = s.Spec.Pool.Generation + 1
	s.OwnerReferences, s.Spec = want.OwnerReferences, want.Spec
	_, err = n.slices.Update(ctx, s)
	return err
}
