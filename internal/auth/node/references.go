package node

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/networking"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
)

// refers reports whether a pod on the node refers to the object, by itself or,
// to a secret, by a volume of its claims, whose secrets may be of any namespace. Mirror pods do not
// count: agents make them, and what runs from a file needs nothing of the API.
func (a *Authorizer) refers(node, namespace string, to core.Reference) bool {
	for _, it := range a.c.Pods.ByIndex(podsByNode, node) {
		p, ok := it.Object.(*corev1.Pod)
		if !ok || core.IsMirror(p) || p.Namespace != namespace && to.Kind != core.ToSecret {
			continue
		}
		for r := range core.References(p) {
			if r == to && p.Namespace == namespace ||
				r.Kind == core.ToClaim && to.Kind == core.ToSecret && a.volumeNeeds(p.Namespace, r.Name, corev1.SecretReference{Namespace: namespace, Name: to.Name}) {
				return true
			}
		}
	}
	return false
}

// shown reports whether an Ingress that edges obey, or a Service whose balancers they are, names the secret.
func (a *Authorizer) shown(namespace, name string) bool {
	if a.c.Services != nil && len(a.c.Services.ByIndex(core.IndexCertificate, cache.Key(namespace, name))) > 0 {
		return true
	}
	if a.c.Ingresses == nil || a.c.IngressClasses == nil {
		return false
	}
	for _, it := range a.c.Ingresses.ByIndex(networking.IndexSecret, cache.Key(namespace, name)) {
		if i, ok := it.Object.(*networkingv1.Ingress); ok && networking.Obeyed(i, classes{a.c.IngressClasses}) {
			return true
		}
	}
	return false
}

// gatewayTable reports whether a secret is what edges are told of a Gateway.
func gatewayTable(namespace, name string) bool {
	return namespace == metav1.NamespaceSystem && strings.HasPrefix(name, networking.GatewayTablePrefix)
}

// classes are the IngressClasses of a cache.
type classes struct{ c *cache.Cache }

func (k classes) Class(name string) *networkingv1.IngressClass {
	return find[*networkingv1.IngressClass](k.c, name)
}

func (k classes) Default() *networkingv1.IngressClass {
	var all []*networkingv1.IngressClass
	for _, it := range k.c.List("", nil) {
		if c, ok := it.Object.(*networkingv1.IngressClass); ok {
			all = append(all, c)
		}
	}
	return networking.DefaultClass(all)
}

// usesResourceClaim reports whether a pod on the node uses the claim. Of claims that are
// made for a pod the name is in its status, which is not for nodes to write: admission
// sees to that.
func (a *Authorizer) usesResourceClaim(node, namespace, name string) bool {
	for _, it := range a.c.Pods.ByIndex(podsByNode, node) {
		p, ok := it.Object.(*corev1.Pod)
		if ok && p.Namespace == namespace && !core.IsMirror(p) && slices.Contains(core.ResourceClaimNames(p), name) {
			return true
		}
	}
	return false
}

// usesVolume reports whether a pod on the node has the claim that the volume is
// bound to. That is for the volume to say: a claim may name any volume.
func (a *Authorizer) usesVolume(node, volume string) bool {
	pv := find[*corev1.PersistentVolume](a.c.Volumes, volume)
	return pv != nil && pv.Spec.ClaimRef != nil &&
		a.refers(node, pv.Spec.ClaimRef.Namespace, core.Reference{Kind: core.ToClaim, Name: pv.Spec.ClaimRef.Name})
}

// volumeNeeds reports whether the persistent volume that is bound to a claim
// needs the secret to be mounted.
func (a *Authorizer) volumeNeeds(namespace, claim string, secret corev1.SecretReference) bool {
	c := find[*corev1.PersistentVolumeClaim](a.c.Claims, cache.Key(namespace, claim))
	if c == nil {
		return false
	}
	pv := find[*corev1.PersistentVolume](a.c.Volumes, c.Spec.VolumeName)
	if pv == nil || pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.Namespace != namespace || pv.Spec.ClaimRef.Name != claim {
		return false
	}
	return slices.ContainsFunc(volumeSecrets(pv), func(ref *corev1.SecretReference) bool {
		return ref != nil && *ref == secret
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

// find returns what a cache has by the key; nil if nothing, or if there is no cache.
func find[T resource.Object](c *cache.Cache, key string) (obj T) {
	if c == nil {
		return obj
	}
	if it := c.Get(key); it != nil {
		obj, _ = it.Object.(T)
	}
	return obj
}
