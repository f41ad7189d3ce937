package podspec

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"github.com/kemudi/kemudi/internal/api/core/check"
)

// Warn says what a new pod will hardly want.
func Warn(p, old *corev1.Pod) []string {
	if old != nil {
		return nil // people seldom update pods, machines often
	}
	var w warner
	if msgs := utilvalidation.IsDNS1123Label(p.Name); len(msgs) > 0 {
		w.Add("metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: %v", msgs)
	}
	w.pod("", &p.ObjectMeta, &p.Spec)
	return w.Warnings
}

// WarnTemplate says what pods of a template will hardly want. at is the
// path of the template ("spec.template").
func WarnTemplate(t *corev1.PodTemplateSpec, at string) []string {
	var w warner
	w.pod(at+".", &t.ObjectMeta, &t.Spec)
	return w.Warnings
}

// warner collects what there is to say of a pod.
type warner struct{ check.Warnings }

// pod adds what there is to say of a pod or template; at is the path in front of
// "metadata" and "spec".
func (w *warner) pod(at string, meta *metav1.ObjectMeta, s *corev1.PodSpec) {
	w.annotations(at, meta.Annotations, s)
	w.nodeLabels(at, s)
	w.selectors(at, s)
	for i := range s.Volumes {
		w.volume(fmt.Sprintf("%sspec.volumes[%d]", at, i), &s.Volumes[i])
		w.paths(&s.Volumes[i])
	}
	for i, alias := range s.HostAliases {
		for j := range s.HostAliases[:i] {
			if s.HostAliases[j].IP == alias.IP {
				w.Add("%sspec.hostAliases[%d].ip: duplicate ip %q", at, i, alias.IP)
				break
			}
		}
	}
	for i, ref := range s.ImagePullSecrets {
		if ref.Name == "" {
			w.Add("%sspec.imagePullSecrets[%d].name: invalid empty name %q", at, i, "")
			continue
		}
		for j := range s.ImagePullSecrets[:i] {
			if s.ImagePullSecrets[j].Name == ref.Name {
				w.Add("%sspec.imagePullSecrets[%d].name: duplicate name %q", at, i, ref.Name)
				break
			}
		}
	}
	for i := range s.InitContainers {
		w.container(fmt.Sprintf("%sspec.initContainers[%d]", at, i), &s.InitContainers[i])
	}
	for i := range s.Containers {
		w.container(fmt.Sprintf("%sspec.containers[%d]", at, i), &s.Containers[i])
	}
	w.ports(at, s)
	w.Fractions(at+"spec.overhead", s.Overhead)
	if s.TerminationGracePeriodSeconds != nil && *s.TerminationGracePeriodSeconds < 0 {
		w.Add("%sspec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1", at)
	}
}

// deadAnnotations are annotations of pods that nothing follows from any more.
var deadAnnotations = [...]struct{ key, detail string }{
	{"scheduler.alpha.kubernetes.io/critical-pod", `non-functional in v1.16+; use the "priorityClassName" field instead`},
	{"security.alpha.kubernetes.io/sysctls", `non-functional in v1.11+; use the "sysctls" field instead`},
	{"security.alpha.kubernetes.io/unsafe-sysctls", `non-functional in v1.11+; use the "sysctls" field instead`},
}

// annotations warns of those that are fields now, where the fields do not say it.
func (w *warner) annotations(at string, annotations map[string]string, s *corev1.PodSpec) {
	if len(annotations) == 0 {
		return
	}
	warn := func(key, detail string) {
		if _, there := annotations[key]; there {
			w.Add("%smetadata.annotations[%s]: %s", at, key, detail)
		}
	}
	for _, dead := range deadAnnotations {
		warn(dead.key, dead.detail)
	}
	const seccomp = `non-functional in v1.27+; use the "seccompProfile" field instead`
	if s.SecurityContext == nil || s.SecurityContext.SeccompProfile == nil {
		warn(seccompPodAnnotation, seccomp)
	}
	confined := s.SecurityContext != nil && s.SecurityContext.AppArmorProfile != nil
	for _, containers := range [...][]corev1.Container{s.InitContainers, s.Containers} {
		for i := range containers {
			c := &containers[i]
			if c.SecurityContext == nil || c.SecurityContext.SeccompProfile == nil {
				warn(seccompContainerAnnotation+c.Name, seccomp)
			}
			if !confined && (c.SecurityContext == nil || c.SecurityContext.AppArmorProfile == nil) {
				warn(corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+c.Name, `deprecated since v1.30; use the "appArmorProfile" field instead`)
			}
		}
	}
}

// oldNodeLabels are labels of nodes that have other names now.
var oldNodeLabels = map[string]string{
	"beta.kubernetes.io/arch":                  `deprecated since v1.14; use "kubernetes.io/arch" instead`,
	"beta.kubernetes.io/os":                    `deprecated since v1.14; use "kubernetes.io/os" instead`,
	"failure-domain.beta.kubernetes.io/region": `deprecated since v1.17; use "topology.kubernetes.io/region" instead`,
	"failure-domain.beta.kubernetes.io/zone":   `deprecated since v1.17; use "topology.kubernetes.io/zone" instead`,
	"beta.kubernetes.io/instance-type":         `deprecated since v1.17; use "node.kubernetes.io/instance-type" instead`,
}

// OldNodeLabel says of a label of nodes that it has another name now, and which.
func OldNodeLabel(key string) (detail string, is bool) {
	detail, is = oldNodeLabels[key]
	return detail, is
}

// WarnTerm says which labels that a term asks of nodes have other names now. at is the term's path.
func WarnTerm(t *corev1.NodeSelectorTerm, at string) []string {
	var w warner
	w.nodeTerm(at, t)
	return w.Warnings
}

func (w *warner) nodeLabels(at string, s *corev1.PodSpec) {
	for key := range s.NodeSelector {
		if detail, ok := oldNodeLabels[key]; ok {
			w.Add("%sspec.nodeSelector[%s]: %s", at, key, detail)
		}
	}
	if n := NodeAffinity(s); n != nil {
		for i, term := range RequiredTerms(n) {
			w.nodeTerm(fmt.Sprintf("%sspec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[%d]", at, i), &term)
		}
		for i, term := range n.PreferredDuringSchedulingIgnoredDuringExecution {
			w.nodeTerm(fmt.Sprintf("%sspec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[%d].preference", at, i), &term.Preference)
		}
	}
	for i := range s.TopologySpreadConstraints {
		if detail, ok := oldNodeLabels[s.TopologySpreadConstraints[i].TopologyKey]; ok {
			w.Add("%sspec.topologySpreadConstraints[%d].topologyKey: %s is %s", at, i, s.TopologySpreadConstraints[i].TopologyKey, detail)
		}
	}
}

func (w *warner) nodeTerm(at string, t *corev1.NodeSelectorTerm) {
	for i, e := range t.MatchExpressions {
		if detail, ok := oldNodeLabels[e.Key]; ok {
			w.Add("%s.matchExpressions[%d].key: %s is %s", at, i, e.Key, detail)
		}
	}
}

// selectors warns of selectors that match nothing.
func (w *warner) selectors(at string, s *corev1.PodSpec) {
	const detail = "a null labelSelector results in matching no pod"
	for i := range s.TopologySpreadConstraints {
		if s.TopologySpreadConstraints[i].LabelSelector == nil {
			w.Add("%sspec.topologySpreadConstraints[%d].labelSelector: %s", at, i, detail)
		}
	}
	terms := func(field string, required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) {
		for i := range required {
			if required[i].LabelSelector == nil {
				w.Add("%sspec.affinity.%s.requiredDuringSchedulingIgnoredDuringExecution[%d].labelSelector: %s", at, field, i, detail)
			}
		}
		for i := range preferred {
			if preferred[i].PodAffinityTerm.LabelSelector == nil {
				w.Add("%sspec.affinity.%s.preferredDuringSchedulingIgnoredDuringExecution[%d].podAffinityTerm.labelSelector: %s", at, field, i, detail)
			}
		}
	}
	if s.Affinity != nil && s.Affinity.PodAffinity != nil {
		a := s.Affinity.PodAffinity
		terms("podAffinity", a.RequiredDuringSchedulingIgnoredDuringExecution, a.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if s.Affinity != nil && s.Affinity.PodAntiAffinity != nil {
		a := s.Affinity.PodAntiAffinity
		terms("podAntiAffinity", a.RequiredDuringSchedulingIgnoredDuringExecution, a.PreferredDuringSchedulingIgnoredDuringExecution)
	}
}

func (w *warner) volume(at string, v *corev1.Volume) {
	switch {
	case v.PhotonPersistentDisk != nil:
		w.Add("%s.photonPersistentDisk: deprecated in v1.11, non-functional in v1.16+", at)
	case v.GitRepo != nil:
		w.Add("%s.gitRepo: deprecated in v1.11, and disabled by default in v1.33+", at)
	case v.ScaleIO != nil:
		w.Add("%s.scaleIO: deprecated in v1.16, non-functional in v1.22+", at)
	case v.Flocker != nil:
		w.Add("%s.flocker: deprecated in v1.22, non-functional in v1.25+", at)
	case v.StorageOS != nil:
		w.Add("%s.storageOS: deprecated in v1.22, non-functional in v1.25+", at)
	case v.Quobyte != nil:
		w.Add("%s.quobyte: deprecated in v1.22, non-functional in v1.25+", at)
	case v.Glusterfs != nil:
		w.Add("%s.glusterfs: deprecated in v1.25, non-functional in v1.26+", at)
	case v.CephFS != nil:
		w.Add("%s.cephfs: deprecated in v1.28, non-functional in v1.31+", at)
	case v.RBD != nil:
		w.Add("%s.rbd: deprecated in v1.28, non-functional in v1.31+", at)
	case v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil:
		r := &v.Ephemeral.VolumeClaimTemplate.Spec.Resources
		w.Fractions(at+".ephemeral.volumeClaimTemplate.spec.resources.requests", r.Requests)
		w.Fractions(at+".ephemeral.volumeClaimTemplate.spec.resources.limits", r.Limits)
	}
}

func (w *warner) container(at string, c *corev1.Container) {
	w.Fractions(at+".resources.limits", c.Resources.Limits)
	w.Fractions(at+".resources.requests", c.Resources.Requests)
	for i := range c.Env {
		for j := range c.Env[:i] {
			if c.Env[j].Name == c.Env[i].Name && hides(&c.Env[i]) {
				w.Add("%s.env[%d]: hides previous definition of %q, which may be dropped when using apply", at, i, c.Env[i].Name)
				break
			}
		}
	}
}

// hides reports whether a variable says nothing of what it was before, as one does that adds to it.
func hides(e *corev1.EnvVar) bool {
	before := "$(" + e.Name + ")"
	return e.ValueFrom != nil || e.Value == before || !strings.Contains(e.Value, before)
}
