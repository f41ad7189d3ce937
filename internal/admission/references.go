package admission

import corev1 "k8s.io/api/core/v1"

// references are kinds of objects that a pod refers to.
type references struct{ secrets, configMaps, claims, tokens, resourceClaims bool }

func referencesOf(p *corev1.Pod) references {
	r := references{secrets: len(p.Spec.ImagePullSecrets) > 0, resourceClaims: len(p.Spec.ResourceClaims) > 0}
	for i := range p.Spec.InitContainers {
		r.env(p.Spec.InitContainers[i].EnvFrom, p.Spec.InitContainers[i].Env)
	}
	for i := range p.Spec.Containers {
		r.env(p.Spec.Containers[i].EnvFrom, p.Spec.Containers[i].Env)
	}
	for i := range p.Spec.Volumes {
		r.volume(&p.Spec.Volumes[i].VolumeSource)
	}
	return r
}

func (r *references) env(from []corev1.EnvFromSource, env []corev1.EnvVar) {
	for i := range from {
		r.secrets = r.secrets || from[i].SecretRef != nil
		r.configMaps = r.configMaps || from[i].ConfigMapRef != nil
	}
	for i := range env {
		if v := env[i].ValueFrom; v != nil {
			r.secrets = r.secrets || v.SecretKeyRef != nil
			r.configMaps = r.configMaps || v.ConfigMapKeyRef != nil
		}
	}
}

func (r *references) volume(v *corev1.VolumeSource) {
	r.secrets = r.secrets || v.Secret != nil || v.AzureFile != nil ||
		v.CSI != nil && v.CSI.NodePublishSecretRef != nil || v.FlexVolume != nil && v.FlexVolume.SecretRef != nil ||
		v.ISCSI != nil && v.ISCSI.SecretRef != nil || v.RBD != nil && v.RBD.SecretRef != nil ||
		v.CephFS != nil && v.CephFS.SecretRef != nil || v.ScaleIO != nil && v.ScaleIO.SecretRef != nil ||
		v.StorageOS != nil && v.StorageOS.SecretRef != nil
	r.configMaps = r.configMaps || v.ConfigMap != nil
	r.claims = r.claims || v.PersistentVolumeClaim != nil || v.Ephemeral != nil
	if v.Projected == nil {
		return
	}
	for i := range v.Projected.Sources {
		s := &v.Projected.Sources[i]
		r.secrets = r.secrets || s.Secret != nil
		r.configMaps = r.configMaps || s.ConfigMap != nil
		r.tokens = r.tokens || s.ServiceAccountToken != nil
	}
}
