package daemonset

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// tolerations are those of a pod template with what every daemon tolerates: the
// troubles of its node.
func tolerations(s *corev1.PodSpec) []corev1.Toleration {
	all := slices.Clone(s.Tolerations)
	add := func(key string, effect corev1.TaintEffect) {
		t := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect}
		if at := slices.IndexFunc(all, func(has corev1.Toleration) bool { return has.MatchToleration(&t) }); at >= 0 {
			all[at] = t // it is there, perhaps for some time only
			return
		}
		all = append(all, t)
	}
	add(corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute)
	add(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute)
	add(corev1.TaintNodeDiskPressure, corev1.TaintEffectNoSchedule)
	add(corev1.TaintNodeMemoryPressure, corev1.TaintEffectNoSchedule)
	add(corev1.TaintNodePIDPressure, corev1.TaintEffectNoSchedule)
	add(corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule)
	if s.HostNetwork {
		add(corev1.TaintNodeNetworkUnavailable, corev1.TaintEffectNoSchedule)
	}
	return all
}

// podTemplate is what the pods of a DaemonSet are made from, but for their node;
// hash is that of the revision.
func podTemplate(ds *appsv1.DaemonSet, hash string) *corev1.PodTemplateSpec {
	t := ds.Spec.Template.DeepCopy()
	t.Spec.Tolerations = tolerations(&t.Spec)
	if t.Labels == nil {
		t.Labels = map[string]string{}
	}
	t.Labels[appsv1.DefaultDaemonSetUniqueLabelKey] = hash
	if n, ok := ds.Annotations[appsv1.DeprecatedTemplateGeneration]; ok {
		t.Labels[extensionsv1beta1.DaemonSetTemplateGenerationKey] = n
	}
	return t
}

// onNode is an affinity that leads to one node; it takes the place of what the
// pod required of its node, which the choice of the node has looked at.
func onNode(a *corev1.Affinity, node string) *corev1.Affinity {
	a = a.DeepCopy()
	if a == nil {
		a = &corev1.Affinity{}
	}
	if a.NodeAffinity == nil {
		a.NodeAffinity = &corev1.NodeAffinity{}
	}
	a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
	}}}
	return a
}

// nodeOf is the node that a pod runs on or waits for; empty if it is for none in
// particular.
func nodeOf(pod *corev1.Pod) string {
	if pod.Spec.NodeName != "" || pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil {
		return pod.Spec.NodeName
	}
	required := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil {
		return ""
	}
	for _, term := range required.NodeSelectorTerms {
		for _, r := range term.MatchFields {
			if r.Key == metav1.ObjectNameField && r.Operator == corev1.NodeSelectorOpIn && len(r.Values) == 1 {
				return r.Values[0]
			}
		}
	}
	return ""
}
