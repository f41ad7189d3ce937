package core

import (
	"cmp"
	"iter"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// ReferenceKind is what kind of object a pod refers to, in the word that a
// refusal uses for it: mostly that of its resource.
type ReferenceKind string

// What pods refer to. All but the last two are of the pod's namespace.
const (
	ToServiceAccount ReferenceKind = "serviceaccounts"
	ToToken          ReferenceKind = "serviceaccounts/token" // of the pod's service account, made for the pod
	ToSecret         ReferenceKind = "secrets"
	ToConfigMap      ReferenceKind = "configmaps"
	ToClaim          ReferenceKind = "persistentvolumeclaims"
	ToResourceClaim  ReferenceKind = "resourceclaims" // without a name if it is made from a template
	ToEndpoints      ReferenceKind = "endpoints"
	ToPodCertificate ReferenceKind = "podcertificates"     // the name is its signer's
	ToTrustBundle    ReferenceKind = "clustertrustbundles" // or the signer's, which has a slash, of all that it has
	ToCSIDriver      ReferenceKind = "csidrivers"
)

// Reference is an object of the API that a pod needs to run.
type Reference struct {
	Kind ReferenceKind
	Name string // of the object, unless the kind says otherwise
}

// References yields what the pod's node reads from the API to run the pod, some
// of it more than once. It is the one list: what a node may read, what a mirror
// pod must not name, and what an agent follows come from here.
//
// Only the spec counts. The status is written by nodes, which would else name
// there what they want to read. A reference by an empty name is none.
func References(p *corev1.Pod) iter.Seq[Reference] {
	return func(yield func(Reference) bool) {
		v := visit{yield: yield}
		v.pod(p)
	}
}

// visit is one walk over a pod. When it has ended it goes on, but yields nothing.
type visit struct {
	yield func(Reference) bool
	ended bool
}

func (v *visit) yields(k ReferenceKind, name string) {
	v.ended = v.ended || !v.yield(Reference{k, name})
}

func (v *visit) to(k ReferenceKind, name string) {
	if name != "" {
		v.yields(k, name)
	}
}

func (v *visit) secret(ref *corev1.LocalObjectReference) {
	if ref != nil {
		v.to(ToSecret, ref.Name)
	}
}

func (v *visit) pod(p *corev1.Pod) {
	s := &p.Spec
	v.to(ToServiceAccount, s.ServiceAccountName)
	for i := range s.ImagePullSecrets {
		v.secret(&s.ImagePullSecrets[i])
	}
	for i := range s.InitContainers {
		v.env(s.InitContainers[i].EnvFrom, s.InitContainers[i].Env)
	}
	for i := range s.Containers {
		v.env(s.Containers[i].EnvFrom, s.Containers[i].Env)
	}
	for i := range s.EphemeralContainers {
		v.env(s.EphemeralContainers[i].EnvFrom, s.EphemeralContainers[i].Env)
	}
	for i := range s.ResourceClaims {
		v.yields(ToResourceClaim, ptr.Deref(s.ResourceClaims[i].ResourceClaimName, ""))
	}
	for i := range s.Volumes {
		if s.Volumes[i].Ephemeral != nil {
			v.to(ToClaim, p.Name+"-"+s.Volumes[i].Name)
		}
		v.volume(p, &s.Volumes[i].VolumeSource)
	}
}

func (v *visit) env(from []corev1.EnvFromSource, env []corev1.EnvVar) {
	for i := range from {
		if r := from[i].SecretRef; r != nil {
			v.to(ToSecret, r.Name)
		}
		if r := from[i].ConfigMapRef; r != nil {
			v.to(ToConfigMap, r.Name)
		}
	}
	for i := range env {
		if env[i].ValueFrom == nil {
			continue
		}
		if r := env[i].ValueFrom.SecretKeyRef; r != nil {
			v.to(ToSecret, r.Name)
		}
		if r := env[i].ValueFrom.ConfigMapKeyRef; r != nil {
			v.to(ToConfigMap, r.Name)
		}
	}
}

func (v *visit) volume(p *corev1.Pod, s *corev1.VolumeSource) {
	switch {
	case s.Projected != nil:
		for i := range s.Projected.Sources {
			v.projected(p, &s.Projected.Sources[i])
		}
	case s.ConfigMap != nil:
		v.to(ToConfigMap, s.ConfigMap.Name)
	case s.Secret != nil:
		v.to(ToSecret, s.Secret.SecretName)
	case s.PersistentVolumeClaim != nil:
		v.to(ToClaim, s.PersistentVolumeClaim.ClaimName)
	case s.CSI != nil:
		v.to(ToCSIDriver, s.CSI.Driver)
		v.secret(s.CSI.NodePublishSecretRef)
	case s.AzureFile != nil:
		v.to(ToSecret, s.AzureFile.SecretName)
	case s.CephFS != nil:
		v.secret(s.CephFS.SecretRef)
	case s.Cinder != nil:
		v.secret(s.Cinder.SecretRef)
	case s.FlexVolume != nil:
		v.secret(s.FlexVolume.SecretRef)
	case s.Glusterfs != nil:
		v.to(ToEndpoints, s.Glusterfs.EndpointsName)
	case s.ISCSI != nil:
		v.secret(s.ISCSI.SecretRef)
	case s.RBD != nil:
		v.secret(s.RBD.SecretRef)
	case s.ScaleIO != nil:
		v.secret(s.ScaleIO.SecretRef)
	case s.StorageOS != nil:
		v.secret(s.StorageOS.SecretRef)
	}
}

func (v *visit) projected(p *corev1.Pod, s *corev1.VolumeProjection) {
	switch {
	case s.ConfigMap != nil:
		v.to(ToConfigMap, s.ConfigMap.Name)
	case s.Secret != nil:
		v.to(ToSecret, s.Secret.Name)
	case s.ServiceAccountToken != nil:
		v.yields(ToToken, p.Spec.ServiceAccountName)
	case s.ClusterTrustBundle != nil:
		v.yields(ToTrustBundle, ptr.Deref(cmp.Or(s.ClusterTrustBundle.Name, s.ClusterTrustBundle.SignerName), ""))
	case s.PodCertificate != nil:
		v.yields(ToPodCertificate, s.PodCertificate.SignerName)
	}
}
