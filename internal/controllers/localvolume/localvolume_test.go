package localvolume

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/version"
)

func TestVolumesThatGoWithTheirClaimsWaitForTheirNodeToEraseThem(t *testing.T) {
	t.Parallel()
	const finalizer = "external-provisioner.volume.kubernetes.io/finalizer"
	for _, c := range []struct {
		policy corev1.PersistentVolumeReclaimPolicy
		agent  string
		want   []string
	}{
		{corev1.PersistentVolumeReclaimDelete, version.Git(), []string{finalizer}},
		{corev1.PersistentVolumeReclaimRetain, version.Git(), nil},
		{corev1.PersistentVolumeReclaimDelete, "sim", nil}, // nobody there erases anything
	} {
		node := &corev1.Node{}
		node.Status.NodeInfo.KubeletVersion = c.agent
		v := volume(&corev1.PersistentVolumeClaim{}, &storagev1.StorageClass{ReclaimPolicy: ptr.To(c.policy)}, node)
		if !slices.Equal(v.Finalizers, c.want) || v.Spec.PersistentVolumeReclaimPolicy != c.policy {
			t.Errorf("%s, %s: got finalizers %q, %s, want %q", c.policy, c.agent, v.Finalizers, v.Spec.PersistentVolumeReclaimPolicy, c.want)
		}
	}
}
