// Package localvolume provisions volumes that are directories of the node to which
// a claim's first pod goes. It only says that there is one: the node agent makes the
// directory for the pod, and removes it with the volume.
package localvolume

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/core/claims"
	"github.com/kemudi/kemudi/internal/api/storage"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/version"
)

// Controller provisions volumes for claims whose class names it.
var Controller = controller.New(controller.Spec[*corev1.PersistentVolumeClaim]{
	Name:   "local-volume-provisioner",
	Source: claims.LocalDriver,
	For:    core.PersistentVolumeClaims,
	Reads:  []*resource.Def{core.Nodes.Def, storage.StorageClasses.Def},
	Writes: []controller.Permission{controller.Create(core.PersistentVolumes.Def), controller.Update(core.PersistentVolumeClaims.Def)},
	Setup: func(k *controller.Kit) controller.Reconciler[*corev1.PersistentVolumeClaim] {
		return reconciler{
			events: k.Events, claims: controller.For(k, core.PersistentVolumeClaims), volumes: controller.Writer(k, core.PersistentVolumes),
			nodes: controller.For(k, core.Nodes), classes: controller.For(k, storage.StorageClasses),
		}
	},
})

type reconciler struct {
	events  client.EventSink
	claims  controller.Client[*corev1.PersistentVolumeClaim]
	volumes client.Client[*corev1.PersistentVolume]
	nodes   controller.Client[*corev1.Node]
	classes controller.Client[*storagev1.StorageClass]
}

// Reconcile provisions a volume for a claim that was told to wait for one from here.
// The volume is reserved for the claim and has its UID as name: it is made once.
func (r reconciler) Reconcile(ctx context.Context, c *corev1.PersistentVolumeClaim) (controller.Next, error) {
	if c.Annotations[claims.Provisioner] != claims.LocalDriver || c.Spec.VolumeName != "" || c.DeletionTimestamp != nil {
		return controller.Done, nil
	}
	sc, ok := r.classes.Get("", claims.Class(c))
	if !ok {
		return controller.Done, nil
	}
	if why := impossible(c, sc); why != "" {
		r.events.Event(c, corev1.EventTypeWarning, "ProvisioningFailed", fmt.Sprintf("failed to provision volume with StorageClass %q: %s", sc.Name, why))
		return controller.Done, nil
	}
	selected := c.Annotations[claims.SelectedNode]
	if selected == "" {
		return controller.Done, nil
	}
	node, ok := r.nodes.Get("", selected)
	if !ok { // it is gone: the scheduler shall choose another
		c = c.DeepCopy()
		delete(c.Annotations, claims.SelectedNode)
		_, err := r.claims.Update(ctx, c)
		return controller.Done, err
	}
	v := volume(c, sc, node)
	name := v.Name
	_, err := r.volumes.Create(ctx, v)
	if apierrors.IsAlreadyExists(err) {
		return controller.Done, nil
	}
	if err != nil {
		return controller.Done, fmt.Errorf("create volume %s: %w", name, err)
	}
	r.events.Event(c, corev1.EventTypeNormal, "ProvisioningSucceeded", "Successfully provisioned volume "+name)
	return controller.Done, nil
}

// impossible says what of a claim a directory of a node cannot be.
func impossible(c *corev1.PersistentVolumeClaim, sc *storagev1.StorageClass) string {
	switch {
	case ptr.Deref(c.Spec.VolumeMode, corev1.PersistentVolumeFilesystem) == corev1.PersistentVolumeBlock:
		return "volumeMode Block is not supported"
	case c.Spec.Selector != nil:
		return "claim.spec.selector is not supported"
	case c.Spec.DataSourceRef != nil:
		return "claim.spec.dataSourceRef is not supported"
	case ptr.Deref(sc.VolumeBindingMode, storagev1.VolumeBindingImmediate) != storagev1.VolumeBindingWaitForFirstConsumer:
		return "volumes of this provisioner are made on the node of the first pod: the class needs volumeBindingMode WaitForFirstConsumer"
	}
	return ""
}

// volume is the volume for a claim on a node.
func volume(c *corev1.PersistentVolumeClaim, sc *storagev1.StorageClass, node *corev1.Node) *corev1.PersistentVolume {
	name := "pvc-" + string(c.UID)
	host := node.Labels[corev1.LabelHostname]
	if host == "" {
		host = node.Name
	}
	policy := ptr.Deref(sc.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete)
	var finalizers []string // whoever deletes the volume before its claim: the node agent erases it first, where there is one
	if policy == corev1.PersistentVolumeReclaimDelete && version.Ours(node.Status.NodeInfo.KubeletVersion) {
		finalizers = []string{claims.DeletedByDriver}
	}
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{claims.ProvisionedBy: claims.LocalDriver}, Finalizers: finalizers},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:    corev1.ResourceList{corev1.ResourceStorage: c.Spec.Resources.Requests[corev1.ResourceStorage]},
			AccessModes: c.Spec.AccessModes, VolumeMode: ptr.To(corev1.PersistentVolumeFilesystem),
			PersistentVolumeReclaimPolicy: policy, StorageClassName: sc.Name,
			ClaimRef: &corev1.ObjectReference{
				Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: c.Namespace, Name: c.Name, UID: c.UID, ResourceVersion: c.ResourceVersion,
			},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: claims.LocalDriver, VolumeHandle: name, VolumeAttributes: map[string]string{claims.LocalNode: node.Name},
			}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{host}}},
			}}}},
		},
	}
}
