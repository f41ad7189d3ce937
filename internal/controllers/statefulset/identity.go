package statefulset

import (
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/apps"
	"github.com/kemudi/kemudi/internal/workload"
)

// first is the lowest number of the set's pods.
func first(set *appsv1.StatefulSet) int {
	if set.Spec.Ordinals == nil {
		return 0
	}
	return int(set.Spec.Ordinals.Start)
}

// past is the number after the highest.
func past(set *appsv1.StatefulSet) int { return first(set) + replicas(set) }

func replicas(set *appsv1.StatefulSet) int { return int(ptr.Deref(set.Spec.Replicas, 1)) }

func podName(set *appsv1.StatefulSet, n int) string { return set.Name + "-" + strconv.Itoa(n) }

// numberOf is the number of the set's pod of that name; false if it cannot be one.
func numberOf(set *appsv1.StatefulSet, pod string) (int, bool) {
	owner, n, ok := splitName(pod)
	return n, ok && owner == set.Name
}

// splitName takes a pod's name apart into that of the set and the number.
func splitName(pod string) (set string, n int, ok bool) {
	at := strings.LastIndexByte(pod, '-')
	if at < 0 {
		return "", 0, false
	}
	n, err := strconv.Atoi(pod[at+1:])
	if err != nil || strconv.Itoa(n) != pod[at+1:] {
		return "", 0, false
	}
	return pod[:at], n, true
}

// newPod makes the pod of a number from the template of a revision.
func newPod(set *appsv1.StatefulSet, template *corev1.PodTemplateSpec, revision string, n int) *corev1.Pod {
	p := workload.PodFromTemplate(template, set, apps.StatefulSets.Def)
	p.Name = podName(set, n)
	identify(p, n)
	p.Labels[appsv1.StatefulSetRevisionLabel] = revision
	p.Spec.Hostname, p.Spec.Subdomain = p.Name, set.Spec.ServiceName
	p.Spec.Volumes = volumes(set, p.Spec.Volumes, n)
	return p
}

// identify labels the pod of a number. The labels are a map of the pod's own.
func identify(p *corev1.Pod, n int) {
	if p.Labels == nil {
		p.Labels = map[string]string{}
	}
	p.Labels[appsv1.StatefulSetPodNameLabel] = p.Name
	p.Labels[appsv1.PodIndexLabel] = strconv.Itoa(n)
}

// volumes are those of a template with the claims of a number, which come first
// and take the place of volumes of their name.
func volumes(set *appsv1.StatefulSet, of []corev1.Volume, n int) []corev1.Volume {
	var all []corev1.Volume
	for i := range set.Spec.VolumeClaimTemplates {
		name := set.Spec.VolumeClaimTemplates[i].Name
		all = append(all, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claimName(set, name, n)},
		}})
	}
	claimed := len(all)
	for i := range of {
		if !slices.ContainsFunc(all[:claimed], func(v corev1.Volume) bool { return v.Name == of[i].Name }) {
			all = append(all, of[i])
		}
	}
	return all
}

// mended is a pod as that of its number should be: one that was adopted may lack
// labels or claims. Nil says that it is so. The API lets labels be changed; that it
// refuses other volumes is what people are told then.
func mended(set *appsv1.StatefulSet, pod *corev1.Pod, n int) *corev1.Pod {
	named := pod.Labels[appsv1.StatefulSetPodNameLabel] == pod.Name && pod.Labels[appsv1.PodIndexLabel] == strconv.Itoa(n)
	if named && hasClaims(set, pod, n) {
		return nil
	}
	p := pod.DeepCopy()
	identify(p, n)
	if !hasClaims(set, pod, n) {
		p.Spec.Volumes = volumes(set, p.Spec.Volumes, n)
	}
	return p
}

// hasClaims says that a pod's volumes are those of the set's claims of its number.
func hasClaims(set *appsv1.StatefulSet, pod *corev1.Pod, n int) bool {
	for i := range set.Spec.VolumeClaimTemplates {
		name := set.Spec.VolumeClaimTemplates[i].Name
		if !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
			return v.Name == name && v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claimName(set, name, n)
		}) {
			return false
		}
	}
	return true
}
