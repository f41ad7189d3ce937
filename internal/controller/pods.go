package controller

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
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
			OwnerReferences: []metav1.OwnerReference{*ControllerRef(owner, def)},
		},
		Spec: *t.Spec.DeepCopy(),
	}
}

// PodActive says that the pod is neither finished nor being deleted.
func PodActive(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && !core.PodTerminal(p)
}

// PodsOn are the keys of the pods that are bound to a node.
func PodsOn(k *Kit, node string) []string {
	var keys []string
	for _, p := range For(k, core.Pods).ByIndex("spec.nodeName", node) {
		keys = append(keys, cache.Key(p.Namespace, p.Name))
	}
	return keys
}

// SlowStart calls do n times in growing batches (1, 2, 4 ...) that stop at the
// first batch with an error: a request that cannot succeed is not made a
// thousand times. It returns how many calls succeeded and the first error.
func SlowStart(n int, do func() error) (int, error) {
	done := 0
	for batch := 1; done < n; batch *= 2 {
		var failed error
		for range min(batch, n-done) {
			if err := do(); err != nil {
				failed = err
				break
			}
			done++
		}
		if failed != nil {
			return done, failed
		}
	}
	return done, nil
}
