// Package nodettl tells kubelets how long they may show pods what they have last read of Secrets and
// ConfigMaps: the longer, the more nodes there are. Those of today watch what they need; upstream's
// do as they are told where --config has configMapAndSecretChangeDetectionStrategy: Cache.
package nodettl

import (
	"context"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/controller"
)

// annotation is where a node reads it, in seconds.
const annotation = "node.alpha.kubernetes.io/ttl"

// step is a size of clusters. One that grows beyond most takes the next one, one that shrinks below least
// the one before: sizes overlap, so that a node that comes and goes changes nothing.
type step struct{ least, most, seconds int }

var steps = []step{{0, 100, 0}, {90, 500, 15}, {450, 1000, 30}, {900, 2000, 60}, {1800, 1 << 30, 300}}

// Controller annotates nodes. When the size of the cluster changes, each is annotated anew with its next change:
// not all at once.
var Controller = controller.New(controller.Spec[*corev1.Node]{
	Name:   "ttl-controller",
	For:    core.Nodes,
	Writes: []controller.Permission{controller.Patch(core.Nodes.Def, "")},
	Setup: func(k *controller.Kit) controller.Reconciler[*corev1.Node] {
		r := &reconciler{nodes: controller.For(k, core.Nodes)}
		r.mu.known = map[string]bool{}
		return r
	},
})

type reconciler struct {
	nodes controller.Client[*corev1.Node]

	mu struct {
		sync.Mutex
		known map[string]bool // names of the nodes that there are
		at    int             // of steps
	}
}

var _ controller.Goner = (*reconciler)(nil)

// Reconcile annotates a node.
func (r *reconciler) Reconcile(ctx context.Context, node *corev1.Node) (controller.Next, error) {
	want := strconv.Itoa(r.size(node.Name, true).seconds)
	if node.Annotations[annotation] == want || node.DeletionTimestamp != nil {
		return controller.Done, nil
	}
	_, err := r.nodes.MergePatch(ctx, node, "", map[string]any{"metadata": map[string]any{"annotations": map[string]any{annotation: want}}})
	if apierrors.IsNotFound(err) {
		err = nil
	}
	return controller.Done, err
}

// Gone counts a node no more.
func (r *reconciler) Gone(_ context.Context, name string) error {
	r.size(name, false)
	return nil
}

// size is how large the cluster is, now that a node is there or is not.
func (r *reconciler) size(node string, there bool) step {
	r.mu.Lock()
	defer r.mu.Unlock()
	if there {
		r.mu.known[node] = true
	} else {
		delete(r.mu.known, node)
	}
	r.mu.at = next(r.mu.at, len(r.mu.known))
	return steps[r.mu.at]
}

// next is the step after that at a cluster of so many nodes.
func next(at, nodes int) int {
	for at+1 < len(steps) && nodes > steps[at].most {
		at++
	}
	for at > 0 && nodes < steps[at].least {
		at--
	}
	return at
}
