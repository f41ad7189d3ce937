package nodelifecycle

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
)

// managed are the keys of the taints that follow from conditions; others are
// the administrator's and are left alone.
var managed = []string{
	corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeMemoryPressure, corev1.TaintNodeDiskPressure,
	corev1.TaintNodePIDPressure, corev1.TaintNodeNetworkUnavailable, corev1.TaintNodeUnschedulable,
}

// eviction is what becomes of the taints that drive pods away.
type eviction int

const (
	keep  eviction = iota // none is added; one that is there and still right stays
	begin                 // they are added
	halt                  // they are taken away
)

// evicting says whether pods are being driven away from a node because it is
// not ready.
func evicting(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return t.Effect == corev1.TaintEffectNoExecute && (t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable)
	})
}

// wantedTaints are the taints that a node should have.
func wantedTaints(node *corev1.Node, e eviction) []corev1.Taint {
	var out []corev1.Taint
	for _, t := range node.Spec.Taints {
		if !slices.Contains(managed, t.Key) {
			out = append(out, t)
		}
	}
	add := func(key string, effect corev1.TaintEffect) {
		t := corev1.Taint{Key: key, Effect: effect}
		for _, has := range node.Spec.Taints {
			if has.MatchTaint(&t) {
				out = append(out, has)
				return
			}
		}
		now := metav1.Now().Rfc3339Copy()
		t.TimeAdded = &now
		out = append(out, t)
	}
	for _, c := range node.Status.Conditions {
		if key := taintKey(c); key != "" {
			add(key, corev1.TaintEffectNoSchedule)
		}
	}
	if node.Spec.Unschedulable {
		add(corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule)
	}
	// A node that goes from not ready to unreachable or back only changes the key.
	ready := core.NodeCondition(&node.Status, corev1.NodeReady)
	if ready != nil && ready.Status != corev1.ConditionTrue && (e == begin || e == keep && evicting(node)) {
		add(taintKey(*ready), corev1.TaintEffectNoExecute)
	}
	return out
}

// taintKey is the taint that a condition calls for; empty if none.
func taintKey(c corev1.NodeCondition) string {
	switch {
	case c.Type == corev1.NodeReady && c.Status == corev1.ConditionFalse:
		return corev1.TaintNodeNotReady
	case c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown:
		return corev1.TaintNodeUnreachable
	case c.Status != corev1.ConditionTrue:
		return ""
	}
	switch c.Type {
	case corev1.NodeMemoryPressure:
		return corev1.TaintNodeMemoryPressure
	case corev1.NodeDiskPressure:
		return corev1.TaintNodeDiskPressure
	case corev1.NodePIDPressure:
		return corev1.TaintNodePIDPressure
	case corev1.NodeNetworkUnavailable:
		return corev1.TaintNodeNetworkUnavailable
	}
	return ""
}

// renamed are labels of nodes by the names that they had once, for those who still ask for these.
var renamed = map[string]string{"beta.kubernetes.io/os": corev1.LabelOSStable, "beta.kubernetes.io/arch": corev1.LabelArchStable}

// oldLabels are the labels by old names that a node lacks, or that say something else than today's.
func oldLabels(node *corev1.Node) map[string]string {
	var out map[string]string
	for old, today := range renamed {
		value, ok := node.Labels[today]
		if has, there := node.Labels[old]; !ok || there && has == value {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[old] = value
	}
	return out
}
