package scheduler

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kemudi/kemudi/internal/api/apps"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
)

// owners find what pods belong with a pod by its controller.
type owners struct {
	replicaSets            client.Reader[*appsv1.ReplicaSet]
	statefulSets           client.Reader[*appsv1.StatefulSet]
	replicationControllers client.Reader[*corev1.ReplicationController]
}

func newOwners(t client.Transport) owners {
	return owners{
		replicaSets:            client.Cached(t, apps.ReplicaSets, ""),
		statefulSets:           client.Cached(t, apps.StatefulSets, ""),
		replicationControllers: client.Cached(t, core.ReplicationControllers, ""),
	}
}

// selector is what pods a controller selects; ok is false if it is not known.
func (o owners) selector(kind, namespace, name string) (sel labels.Selector, ok bool) {
	var ls *metav1.LabelSelector
	switch kind {
	case "ReplicaSet":
		if rs, ok := o.replicaSets.Get(namespace, name); ok {
			ls = rs.Spec.Selector
		}
	case "StatefulSet":
		if set, ok := o.statefulSets.Get(namespace, name); ok {
			ls = set.Spec.Selector
		}
	case "ReplicationController":
		if rc, ok := o.replicationControllers.Get(namespace, name); ok {
			ls = &metav1.LabelSelector{MatchLabels: rc.Spec.Selector}
		}
	}
	if ls == nil {
		return nil, false
	}
	sel, err := metav1.LabelSelectorAsSelector(ls)
	return sel, err == nil
}
