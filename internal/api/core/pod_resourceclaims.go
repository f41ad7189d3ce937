package core

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// IndexResourceClaim is the index of pods by the ResourceClaims that they use:
// namespace/name. Claims that are still to be made for a pod are not in it.
const IndexResourceClaim = "resourceclaim"

// ResourceClaimName is the name of the ResourceClaim that a pod uses for c. One that
// is made from a template gets its name when it is made: until then it is not known. A
// known name that is empty says that no claim is needed.
func ResourceClaimName(p *corev1.Pod, c *corev1.PodResourceClaim) (name string, known bool) {
	if c.ResourceClaimName != nil {
		return *c.ResourceClaimName, true
	}
	list := p.Status.ResourceClaimStatuses
	at := slices.IndexFunc(list, func(s corev1.PodResourceClaimStatus) bool { return s.Name == c.Name })
	if at < 0 {
		return "", false
	}
	return ptr.Deref(list[at].ResourceClaimName, ""), true
}

// ResourceClaimNames are the ResourceClaims that a pod uses, as far as they are known:
// those of its spec, and the one for what it asks of extended resources.
func ResourceClaimNames(p *corev1.Pod) []string {
	var names []string
	for i := range p.Spec.ResourceClaims {
		if name, _ := ResourceClaimName(p, &p.Spec.ResourceClaims[i]); name != "" {
			names = append(names, name)
		}
	}
	if s := p.Status.ExtendedResourceClaimStatus; s != nil && s.ResourceClaimName != "" {
		names = append(names, s.ResourceClaimName)
	}
	return names
}

func podResourceClaims(p *corev1.Pod) []string {
	names := ResourceClaimNames(p)
	for i := range names {
		names[i] = p.Namespace + "/" + names[i]
	}
	return names
}

// IndexUnmadeClaim is the index of pods by the ResourceClaimTemplates that claims are
// still to be made from for them: namespace/name.
const IndexUnmadeClaim = "unmadeclaim"

func unmadeClaims(p *corev1.Pod) []string {
	var templates []string
	for i := range p.Spec.ResourceClaims {
		c := &p.Spec.ResourceClaims[i]
		if _, known := ResourceClaimName(p, c); !known && c.ResourceClaimTemplateName != nil {
			templates = append(templates, p.Namespace+"/"+*c.ResourceClaimTemplateName)
		}
	}
	return templates
}
