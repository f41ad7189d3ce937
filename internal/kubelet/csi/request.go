package csi

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	vol "github.com/kemudi/kemudi/internal/kubelet/volume"
)

// Sources is where what a driver is told of a volume comes from, beside the volume itself.
type Sources interface {
	vol.Teller
	Secret(namespace, name string) (*v1.Secret, error)
	// ServiceAccountToken asks for a token of the pod's service account for a driver.
	ServiceAccountToken(ctx context.Context, pod *v1.Pod, r storagev1.TokenRequest) (authenticationv1.TokenRequestStatus, error)
}

// Request is a volume as a pod wants it.
type Request struct {
	Pod    *v1.Pod
	Volume *v1.Volume // of the pod
	// PV is the persistent volume, of source csi, that it stands for. Nil: it is an inline volume of source csi.
	PV *v1.PersistentVolume
	// About is what the cluster knows of the driver; nil: nothing.
	About *storagev1.CSIDriver
	// Attachment is the name of the VolumeAttachment by which it is attached; empty: it needs none. Context is what
	// was said when it was attached.
	Attachment string
	Context    map[string]string
	Sources    Sources
}

func (r *Request) inline() bool { return r.PV == nil }

// Name is that of its directories.
func (r *Request) Name() string {
	if r.inline() {
		return r.Volume.Name
	}
	return strings.ReplaceAll(r.PV.Name, "/", "~") // of kinds that were built in once it is what clouds call a disk
}

// Driver is the name of the driver that sees to it.
func (r *Request) Driver() string {
	if r.inline() {
		return r.Volume.CSI.Driver
	}
	return r.PV.Spec.CSI.Driver
}

// Handle is what the driver calls the volume. One that lives with the pod has a name that no other has.
func (r *Request) Handle() string {
	if r.inline() {
		return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(string(r.Pod.UID)+r.Volume.Name)))
	}
	return r.PV.Spec.CSI.VolumeHandle
}

// Device reports whether the pod wants the bare device.
func (r *Request) Device() bool {
	return !r.inline() && ptr.Deref(r.PV.Spec.VolumeMode, v1.PersistentVolumeFilesystem) == v1.PersistentVolumeBlock
}

func (r *Request) readOnly() bool {
	switch {
	case r.inline():
		return ptr.Deref(r.Volume.CSI.ReadOnly, false)
	case r.Volume.PersistentVolumeClaim != nil:
		return r.Volume.PersistentVolumeClaim.ReadOnly
	case r.Volume.Ephemeral != nil:
		return false
	}
	return r.PV.Spec.CSI.ReadOnly
}

func (r *Request) fsType() string {
	if r.inline() {
		return ptr.Deref(r.Volume.CSI.FSType, "")
	}
	return r.PV.Spec.CSI.FSType
}

func (r *Request) mode() storagev1.VolumeLifecycleMode {
	if r.inline() {
		return storagev1.VolumeLifecycleEphemeral
	}
	return storagev1.VolumeLifecyclePersistent
}

// checkMode refuses a volume of a kind that the driver does not say it has.
func (r *Request) checkMode() error {
	modes := []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	if r.About != nil && len(r.About.Spec.VolumeLifecycleModes) > 0 {
		modes = r.About.Spec.VolumeLifecycleModes
	}
	if !slices.Contains(modes, r.mode()) {
		return fmt.Errorf("volume mode %q not supported by driver %s (only supports %q)", r.mode(), r.Driver(), modes)
	}
	return nil
}

// Republished reports whether the driver wants to be told of the volume again and again.
func (r *Request) Republished() bool {
	return r.About != nil && ptr.Deref(r.About.Spec.RequiresRepublish, false)
}

// given is the group that a volume is given to by the node; nil: to none.
func (r *Request) given() *int64 {
	group := vol.FSGroup(r.Pod)
	policy := storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy
	if r.About != nil && r.About.Spec.FSGroupPolicy != nil {
		policy = *r.About.Spec.FSGroupPolicy
	}
	switch {
	case group == nil || r.readOnly() || policy == storagev1.NoneFSGroupPolicy:
		return nil
	case policy == storagev1.FileFSGroupPolicy:
		return group
	case r.fsType() == "":
		return nil
	case r.inline(): // which one pod has alone
		return group
	case !slices.ContainsFunc(r.PV.Spec.AccessModes, once):
		return nil
	}
	return group
}

func once(m v1.PersistentVolumeAccessMode) bool {
	return m == v1.ReadWriteOnce || m == v1.ReadWriteOncePod
}

// capability is how the volume is wanted, in the driver's words.
func (r *Request) capability(can abilities) *csipb.VolumeCapability {
	mode := v1.ReadWriteOnce
	if !r.inline() && len(r.PV.Spec.AccessModes) > 0 {
		mode = r.PV.Spec.AccessModes[0]
	}
	c := &csipb.VolumeCapability{AccessMode: &csipb.VolumeCapability_AccessMode{Mode: accessMode(mode, can)}}
	if r.Device() {
		c.AccessType = &csipb.VolumeCapability_Block{Block: &csipb.VolumeCapability_BlockVolume{}}
		return c
	}
	m := &csipb.VolumeCapability_MountVolume{FsType: r.fsType()}
	if !r.inline() {
		m.MountFlags = r.PV.Spec.MountOptions
	}
	if group := vol.FSGroup(r.Pod); group != nil && can.group() {
		m.VolumeMountGroup = strconv.FormatInt(*group, 10)
	}
	c.AccessType = &csipb.VolumeCapability_Mount{Mount: m}
	return c
}

func accessMode(m v1.PersistentVolumeAccessMode, can abilities) csipb.VolumeCapability_AccessMode_Mode {
	switch m {
	case v1.ReadWriteOnce:
		if can.single() {
			return csipb.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
		}
		return csipb.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	case v1.ReadWriteOncePod:
		if can.single() {
			return csipb.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
		}
		return csipb.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	case v1.ReadOnlyMany:
		return csipb.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	case v1.ReadWriteMany:
		return csipb.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	}
	return csipb.VolumeCapability_AccessMode_UNKNOWN
}

// attributes are those that the volume has by itself.
func (r *Request) attributes() map[string]string {
	if r.inline() {
		return r.Volume.CSI.VolumeAttributes
	}
	return r.PV.Spec.CSI.VolumeAttributes
}

// podAttributes tell the driver of the pod.
func (r *Request) podAttributes() map[string]string {
	return map[string]string{
		"csi.storage.k8s.io/pod.name":            r.Pod.Name,
		"csi.storage.k8s.io/pod.namespace":       r.Pod.Namespace,
		"csi.storage.k8s.io/pod.uid":             string(r.Pod.UID),
		"csi.storage.k8s.io/serviceAccount.name": r.Pod.Spec.ServiceAccountName,
		"csi.storage.k8s.io/ephemeral":           strconv.FormatBool(r.inline()),
	}
}

// secrets are the content of a secret, which may be none.
func (r *Request) secrets(ref *v1.SecretReference) (map[string]string, error) {
	if ref == nil {
		return nil, nil
	}
	s, err := r.Sources.Secret(ref.Namespace, ref.Name)
	if err != nil {
		return nil, fmt.Errorf("%s/%s failed: %w", ref.Namespace, ref.Name, err)
	}
	out := map[string]string{}
	for k, v := range s.Data {
		out[k] = string(v)
	}
	return out, nil
}

// publishSecret is the secret that the driver is told when the volume is published.
func (r *Request) publishSecret() *v1.SecretReference {
	if !r.inline() {
		return r.PV.Spec.CSI.NodePublishSecretRef
	}
	if ref := r.Volume.CSI.NodePublishSecretRef; ref != nil {
		return &v1.SecretReference{Namespace: r.Pod.Namespace, Name: ref.Name}
	}
	return nil
}
