package node

import (
	"context"
	"fmt"
	"slices"
	"strings"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/obs"
)

// migrated are the kinds of volumes that were once part of Kubernetes, and that drivers of CSI see to now,
// as the annotation of a CSINode names them.
var migrated = strings.Join([]string{
	"kubernetes.io/aws-ebs", "kubernetes.io/azure-disk", "kubernetes.io/azure-file", "kubernetes.io/cinder",
	"kubernetes.io/gce-pd", "kubernetes.io/portworx-volume", "kubernetes.io/vsphere-volume",
}, ",")

const migratedAnnotation = "storage.alpha.kubernetes.io/migrated-plugins"

// csiState is what became of the node's CSINode.
type csiState struct {
	of  types.UID // the Node whose CSINode there is
	row obs.Row
}

// haveCSINode sees to it that the node has its CSINode: programs look there for the drivers that a node has, also
// for those of a node that has none. One that is left of an earlier Node of this name becomes this one's.
func (h *heartbeat) haveCSINode(ctx context.Context) error {
	if h.csi.of == h.node.UID {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, apiDeadline)
	defer cancel()
	_, err := h.n.csiNodes.Create(ctx, &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{
		Name: h.node.Name, Annotations: map[string]string{migratedAnnotation: migrated}, OwnerReferences: h.owner(),
	}})
	if apierrors.IsAlreadyExists(err) {
		err = h.adoptCSINode(ctx)
	}
	if err != nil {
		return fmt.Errorf("create CSINode: %w", err)
	}
	h.csi.of = h.node.UID
	return nil
}

// adoptCSINode brings a CSINode that is there up to date, but for its drivers, which are others' business.
func (h *heartbeat) adoptCSINode(ctx context.Context) error {
	there, err := h.n.csiNodes.Get(ctx, "", h.node.Name)
	if err != nil {
		return err
	}
	if there.Annotations[migratedAnnotation] == migrated && slices.Equal(there.OwnerReferences, h.owner()) {
		return nil
	}
	there = there.DeepCopy()
	metav1.SetMetaDataAnnotation(&there.ObjectMeta, migratedAnnotation, migrated)
	there.OwnerReferences = h.owner()
	_, err = h.n.csiNodes.Update(ctx, there)
	return err
}
