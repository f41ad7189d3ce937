package podspec

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core/check"
)

// defaultVolume fills a volume of a pod; one that names no source is an emptyDir.
func defaultVolume(v *corev1.Volume) {
	if v.VolumeSource == (corev1.VolumeSource{}) {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	if v.HostPath != nil {
		defaultHostPath(v.HostPath)
	}
	if v.Secret != nil && v.Secret.DefaultMode == nil {
		v.Secret.DefaultMode = ptr.To(corev1.SecretVolumeSourceDefaultMode)
	}
	if v.ConfigMap != nil && v.ConfigMap.DefaultMode == nil {
		v.ConfigMap.DefaultMode = ptr.To(corev1.ConfigMapVolumeSourceDefaultMode)
	}
	if v.DownwardAPI != nil {
		if v.DownwardAPI.DefaultMode == nil {
			v.DownwardAPI.DefaultMode = ptr.To(corev1.DownwardAPIVolumeSourceDefaultMode)
		}
		defaultDownwardAPIFiles(v.DownwardAPI.Items)
	}
	if v.Projected != nil {
		defaultProjected(v.Projected)
	}
	if v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil {
		DefaultClaimSpec(&v.Ephemeral.VolumeClaimTemplate.Spec)
	}
	if v.Image != nil && v.Image.PullPolicy == "" {
		v.Image.PullPolicy = defaultPullPolicy(v.Image.Reference)
	}
	if v.ISCSI != nil {
		check.SetIfZero(&v.ISCSI.ISCSIInterface, "default")
	}
	if v.RBD != nil {
		check.SetIfZero(&v.RBD.RBDPool, "rbd")
		check.SetIfZero(&v.RBD.RadosUser, "admin")
		check.SetIfZero(&v.RBD.Keyring, "/etc/ceph/keyring")
	}
	if v.AzureDisk != nil {
		defaultAzureDisk(v.AzureDisk)
	}
	if v.ScaleIO != nil {
		check.SetIfZero(&v.ScaleIO.StorageMode, "ThinProvisioned")
		check.SetIfZero(&v.ScaleIO.FSType, "xfs")
	}
}

func defaultProjected(p *corev1.ProjectedVolumeSource) {
	if p.DefaultMode == nil {
		p.DefaultMode = ptr.To(corev1.ProjectedVolumeSourceDefaultMode)
	}
	for i := range p.Sources {
		if api := p.Sources[i].DownwardAPI; api != nil {
			defaultDownwardAPIFiles(api.Items)
		}
		if token := p.Sources[i].ServiceAccountToken; token != nil && token.ExpirationSeconds == nil {
			token.ExpirationSeconds = ptr.To[int64](60 * 60)
		}
	}
}

func defaultDownwardAPIFiles(files []corev1.DownwardAPIVolumeFile) {
	for i := range files {
		if ref := files[i].FieldRef; ref != nil && ref.APIVersion == "" {
			ref.APIVersion = "v1"
		}
	}
}

func defaultHostPath(h *corev1.HostPathVolumeSource) {
	if h.Type == nil {
		h.Type = ptr.To(corev1.HostPathUnset)
	}
}

func defaultAzureDisk(d *corev1.AzureDiskVolumeSource) {
	if d.CachingMode == nil {
		d.CachingMode = ptr.To(corev1.AzureDataDiskCachingReadWrite)
	}
	if d.Kind == nil {
		d.Kind = ptr.To(corev1.AzureSharedBlobDisk)
	}
	if d.FSType == nil {
		d.FSType = ptr.To("ext4")
	}
	if d.ReadOnly == nil {
		d.ReadOnly = ptr.To(false)
	}
}

// DefaultClaimSpec fills the spec of a persistent volume claim, also where it is
// a template.
func DefaultClaimSpec(s *corev1.PersistentVolumeClaimSpec) {
	if s.VolumeMode == nil {
		s.VolumeMode = ptr.To(corev1.PersistentVolumeFilesystem)
	}
	check.RoundUp(s.Resources.Limits)
	check.RoundUp(s.Resources.Requests)
}

// DefaultVolumeSource fills the source of a persistent volume.
func DefaultVolumeSource(s *corev1.PersistentVolumeSource) {
	if s.HostPath != nil {
		defaultHostPath(s.HostPath)
	}
	if s.ISCSI != nil {
		check.SetIfZero(&s.ISCSI.ISCSIInterface, "default")
	}
	if s.RBD != nil {
		check.SetIfZero(&s.RBD.RBDPool, "rbd")
		check.SetIfZero(&s.RBD.RadosUser, "admin")
		check.SetIfZero(&s.RBD.Keyring, "/etc/ceph/keyring")
	}
	if s.AzureDisk != nil {
		defaultAzureDisk(s.AzureDisk)
	}
	if s.ScaleIO != nil {
		check.SetIfZero(&s.ScaleIO.StorageMode, "ThinProvisioned")
		check.SetIfZero(&s.ScaleIO.FSType, "xfs")
	}
}
