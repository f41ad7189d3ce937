package node

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/cache"
)

// kind is one of the kinds that pods refer to.
type kind int

const (
	secrets kind = iota
	configMaps
	claims
	serviceAccounts
)

// refers reports whether a pod on the node refers to the object.
func (a *Authorizer) refers(node, namespace, name string, k kind) bool {
	for _, it := range a.c.Pods.ByIndex(podsByNode, node) {
		p, ok := it.Object.(*corev1.Pod)
		if !ok || p.Namespace != namespace {
			continue
		}
		found := false
		visitPod(p, func(of kind, n string) bool {
			found = of == k && n == name
			return !found
		})
		if !found && k == secrets {
			found = a.volumeSecret(p, name)
		}
		if found {
			return true
		}
	}
	return false
}

// usesVolume reports whether a pod on the node has a claim to the volume.
func (a *Authorizer) usesVolume(node, volume string) bool {
	for _, it := range a.c.Pods.ByIndex(podsByNode, node) {
		if p, ok := it.Object.(*corev1.Pod); ok && a.visitVolumes(p, func(pv string) bool { return pv != volume }) {
			return true
		}
	}
	return false
}

// visitVolumes calls fn with the persistent volumes of the pod's claims. It
// reports whether fn has returned false, which ends it.
func (a *Authorizer) visitVolumes(p *corev1.Pod, fn func(volume string) bool) (ended bool) {
	if a.c.Claims == nil {
		return false
	}
	visitPod(p, func(k kind, name string) bool {
		if k != claims {
			return true
		}
		if it := a.c.Claims.Get(cache.Key(p.Namespace, name)); it != nil {
			if c, ok := it.Object.(*corev1.PersistentVolumeClaim); ok && c.Spec.VolumeName != "" {
				ended = !fn(c.Spec.VolumeName)
			}
		}
		return !ended
	})
	return ended
}

// volumeSecret reports whether a persistent volume of the pod needs the secret
// of the pod's namespace to be mounted.
func (a *Authorizer) volumeSecret(p *corev1.Pod, name string) bool {
	if a.c.Volumes == nil {
		return false
	}
	return a.visitVolumes(p, func(volume string) bool {
		it := a.c.Volumes.Get(volume)
		if it == nil {
			return true
		}
		pv, ok := it.Object.(*corev1.PersistentVolume)
		if !ok {
			return true
		}
		for _, ref := range volumeSecrets(pv) {
			if ref != nil && ref.Name == name && ref.Namespace == p.Namespace {
				return false
			}
		}
		return true
	})
}

// volumeSecrets are the secrets that nodes need for a volume; some may be nil.
func volumeSecrets(pv *corev1.PersistentVolume) []*corev1.SecretReference {
	s := &pv.Spec.PersistentVolumeSource
	switch {
	case s.CSI != nil:
		return []*corev1.SecretReference{s.CSI.NodePublishSecretRef, s.CSI.NodeStageSecretRef, s.CSI.NodeExpandSecretRef}
	case s.FlexVolume != nil:
		return []*corev1.SecretReference{s.FlexVolume.SecretRef}
	case s.ISCSI != nil:
		return []*corev1.SecretReference{s.ISCSI.SecretRef}
	case s.RBD != nil:
		return []*corev1.SecretReference{s.RBD.SecretRef}
	case s.CephFS != nil:
		return []*corev1.SecretReference{s.CephFS.SecretRef}
	case s.ScaleIO != nil:
		return []*corev1.SecretReference{s.ScaleIO.SecretRef}
	}
	return nil
}

// visitPod calls fn with all that the pod refers to in its namespace, until fn
// returns false. Mirror pods may refer to nothing, and need nothing here.
func visitPod(p *corev1.Pod, fn func(kind, string) bool) {
	if p.Spec.ServiceAccountName != "" && !fn(serviceAccounts, p.Spec.ServiceAccountName) {
		return
	}
	for i := range p.Spec.ImagePullSecrets {
		if !fn(secrets, p.Spec.ImagePullSecrets[i].Name) {
			return
		}
	}
	for i := range p.Spec.InitContainers {
		if !visitEnv(p.Spec.InitContainers[i].EnvFrom, p.Spec.InitContainers[i].Env, fn) {
			return
		}
	}
	for i := range p.Spec.Containers {
		if !visitEnv(p.Spec.Containers[i].EnvFrom, p.Spec.Containers[i].Env, fn) {
			return
		}
	}
	for i := range p.Spec.EphemeralContainers {
		if !visitEnv(p.Spec.EphemeralContainers[i].EnvFrom, p.Spec.EphemeralContainers[i].Env, fn) {
			return
		}
	}
	for i := range p.Spec.Volumes {
		if !visitVolume(p.Name, &p.Spec.Volumes[i], fn) {
			return
		}
	}
}

func visitEnv(from []corev1.EnvFromSource, env []corev1.EnvVar, fn func(kind, string) bool) bool {
	for i := range from {
		if r := from[i].SecretRef; r != nil && !fn(secrets, r.Name) {
			return false
		}
		if r := from[i].ConfigMapRef; r != nil && !fn(configMaps, r.Name) {
			return false
		}
	}
	for i := range env {
		v := env[i].ValueFrom
		if v == nil {
			continue
		}
		if v.SecretKeyRef != nil && !fn(secrets, v.SecretKeyRef.Name) {
			return false
		}
		if v.ConfigMapKeyRef != nil && !fn(configMaps, v.ConfigMapKeyRef.Name) {
			return false
		}
	}
	return true
}

func visitVolume(pod string, v *corev1.Volume, fn func(kind, string) bool) bool {
	switch {
	case v.Secret != nil:
		return fn(secrets, v.Secret.SecretName)
	case v.ConfigMap != nil:
		return fn(configMaps, v.ConfigMap.Name)
	case v.PersistentVolumeClaim != nil:
		return fn(claims, v.PersistentVolumeClaim.ClaimName)
	case v.Ephemeral != nil:
		return fn(claims, pod+"-"+v.Name)
	case v.Projected != nil:
		for i := range v.Projected.Sources {
			s := &v.Projected.Sources[i]
			if s.Secret != nil && !fn(secrets, s.Secret.Name) || s.ConfigMap != nil && !fn(configMaps, s.ConfigMap.Name) {
				return false
			}
		}
		return true
	}
	if name := driverSecret(v); name != "" {
		return fn(secrets, name)
	}
	return true
}

// driverSecret is the secret with which a volume is mounted; empty if none.
func driverSecret(v *corev1.Volume) string {
	var ref *corev1.LocalObjectReference
	switch {
	case v.CSI != nil:
		ref = v.CSI.NodePublishSecretRef
	case v.FlexVolume != nil:
		ref = v.FlexVolume.SecretRef
	case v.ISCSI != nil:
		ref = v.ISCSI.SecretRef
	case v.RBD != nil:
		ref = v.RBD.SecretRef
	case v.CephFS != nil:
		ref = v.CephFS.SecretRef
	case v.ScaleIO != nil:
		ref = v.ScaleIO.SecretRef
	case v.StorageOS != nil:
		ref = v.StorageOS.SecretRef
	case v.AzureFile != nil:
		return v.AzureFile.SecretName
	}
	if ref == nil {
		return ""
	}
	return ref.Name
}
