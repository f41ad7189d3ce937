package workload

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/resource"
)

// PodFromTemplate makes the pod that a workload (a def) asks for with a template.
func PodFromTemplate(t *corev1.PodTemplateSpec, owner resource.Object, def *resource.Def) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       owner.GetNamespace(),
			GenerateName:    owner.GetName() + "-",
			Labels:          maps.Clone(t.Labels),
			Annotations:     maps.Clone(t.Annotations),
			Finalizers:      slices.Clone(t.Finalizers),
			OwnerReferences: []metav1.OwnerReference{*controller.ControllerRef(owner, def)},
		},
		Spec: *t.Spec.DeepCopy(),
	}
}

// PodActive says that the pod is neither finished nor being deleted.
func PodActive(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && !core.PodTerminal(p)
}

// PodsOn are the keys of the pods that are bound to a node.
func PodsOn(k *controller.Kit, node string) []string {
	var keys []string
	for _, p := range controller.For(k, core.Pods).ByIndex("spec.nodeName", node) {
		keys = append(keys, cache.Key(p.Namespace, p.Name))
	}
	return keys
}
