package e2e

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/kubelet/fakecsi"
	"github.com/kemudi/kemudi/test/wait"
)

// driverVolume is a volume of a driver, and the claim for it.
const driverVolume = `
apiVersion: v1
kind: PersistentVolume
metadata: {name: %[1]s}
spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], storageClassName: "", persistentVolumeReclaimPolicy: Retain, csi: {driver: %[2]s, volumeHandle: disk-1}, claimRef: {namespace: %[1]s, name: data}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], storageClassName: "", volumeName: %[1]s, resources: {requests: {storage: 1Gi}}}
`

// testDriver has a pod use a volume of a CSI driver that must be attached first. The test is the driver and its attacher.
func testDriver(t *testing.T, c *cluster) {
	ns := c.namespace(t)
	const name = "attached.example.com"
	root := filepath.Join(c.DataDir, "kubelet")
	d := fakecsi.New(t, fakecsi.Options{
		Name: name, Registry: filepath.Join(root, "plugins_registry"), Seen: "/var/lib/kubelet", Root: root,
		Can: []csipb.NodeServiceCapability_RPC_Type{csipb.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME},
	})
	d.Serve(t)
	wait.Until(t, func() error {
		nodes, err := c.client.StorageV1().CSINodes().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(nodes.Items, func(n storagev1.CSINode) bool {
			return slices.ContainsFunc(n.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == name && d.NodeID == "id-of-node" })
		}) {
			return fmt.Errorf("no node has driver %s: %v", name, nodes.Items)
		}
		return nil
	})
	c.kubectl().in(ns).apply(t, fmt.Sprintf(driverVolume, ns, name))
	c.create(t, ns, "metadata: {name: writes}\nspec:\n  restartPolicy: Never\n  containers:\n  - {name: c, image: kemudi.local/busybox:1, command: [sh, -c, 'echo text >/v/file'], volumeMounts: [{name: v, mountPath: /v}]}\n  volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]\n")

	// Nothing is mounted before the attacher says that it may be.
	var a *storagev1.VolumeAttachment
	wait.Until(t, func() error {
		if a = c.attachment(t, ns); a == nil {
			return errors.New("the volume is not asked for")
		}
		return nil
	})
	if a.Spec.Attacher != name {
		t.Errorf("attacher: got %s, want %s", a.Spec.Attacher, name)
	}
	if calls := d.TakeCalls(); len(calls) > 0 {
		t.Errorf("before the volume was attached: got calls %q, want none", calls)
	}
	a.Status.Attached, a.Status.AttachmentMetadata = true, map[string]string{"device": "xvda"}
	if _, err := c.client.StorageV1().VolumeAttachments().UpdateStatus(t.Context(), a, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := c.await(t, ns, "writes", hasEnded)
	if pod.Status.Phase != corev1.PodSucceeded {
		t.Errorf("phase: got %s, want Succeeded", pod.Status.Phase)
	}
	c.awaitEvent(t, ns, "writes", "SuccessfulAttachVolume", fmt.Sprintf("AttachVolume.Attach succeeded for volume %q", ns))
	if r := fakecsi.Last[*csipb.NodeStageVolumeRequest](d); r == nil || r.PublishContext["device"] != "xvda" || r.VolumeId != "disk-1" {
		t.Errorf("staged by %v, want what the attacher has said", r)
	}

	// It is detached when the node has let go of it.
	c.kubectl().in(ns).do(t, "delete", "pod", "writes")
	wait.Until(t, func() error {
		if a := c.attachment(t, ns); a != nil {
			return fmt.Errorf("still attached to %s", a.Spec.NodeName)
		}
		return nil
	})
	if got, want := strings.Join(d.TakeCalls(), ", "), "Stage disk-1, Publish disk-1, Unpublish disk-1, Unstage disk-1"; got != want {
		t.Errorf("calls: got %s, want %s", got, want)
	}
	c.kubectl().in(ns).do(t, "delete", "pvc", "data")
	c.kubectl().do(t, "delete", "pv", ns)
}

// attachment is the attachment of a volume; nil: there is none.
func (c *cluster) attachment(t *testing.T, volume string) *storagev1.VolumeAttachment {
	t.Helper()
	list, err := c.client.StorageV1().VolumeAttachments().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range list.Items {
		if p := a.Spec.Source.PersistentVolumeName; p != nil && *p == volume {
			return &list.Items[i]
		}
	}
	return nil
}
