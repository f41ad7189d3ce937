package daemonset

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// fit says on which nodes the pods of a template may run.
type fit struct {
	nodeName    string // the only one, if the template names it
	affinity    nodeaffinity.RequiredNodeAffinity
	tolerations []corev1.Toleration
}

func newFit(t *corev1.PodTemplateSpec) *fit {
	return &fit{
		nodeName:    t.Spec.NodeName,
		affinity:    nodeaffinity.NewRequiredNodeAffinity(t.Spec.NodeSelector, t.Spec.Affinity),
		tolerations: tolerations(&t.Spec),
	}
}

// on says whether a node is to run a pod, and whether one that runs there
// already may stay.
func (f *fit) on(node *corev1.Node) (runs, stays bool) {
	if f.nodeName != "" && f.nodeName != node.Name {
		return false, false
	}
	if ok, err := f.affinity.Match(node); err != nil || !ok {
		return false, false
	}
	runs, stays = true, true
	for i := range node.Spec.Taints {
		taint := &node.Spec.Taints[i]
		if taint.Effect == corev1.TaintEffectPreferNoSchedule || f.tolerates(taint) {
			continue
		}
		runs = false
		stays = stays && taint.Effect != corev1.TaintEffectNoExecute
	}
	return runs, stays
}

func (f *fit) tolerates(taint *corev1.Taint) bool {
	return slices.ContainsFunc(f.tolerations, func(t corev1.Toleration) bool {
		return t.ToleratesTaint(klog.Logger{}, taint, true)
	})
}
