// Package serverrole labels the nodes whose machines run a server too: a node may not say that of itself.
package serverrole

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kemudi/kemudi/internal/api/coordination"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/servers"
)

// label is on the nodes that run the control plane too.
const label = "node-role.kubernetes.io/control-plane"

// New returns the controller in a server whose machine is the node own; empty: it is none. Servers
// that are not alone say in their records which nodes they are. The label stays when a server
// ends: it may come back.
func New(own string) *controller.Controller {
	return controller.New(controller.Spec[*corev1.Node]{
		Name: "server-role-controller",
		For:  core.Nodes,
		Watches: []controller.Watch{
			{
				Def: coordination.Leases.Def,
				Keys: func(_ *controller.Kit, obj resource.Object) []string {
					if node := servers.NodeOf(obj.(*coordinationv1.Lease)); node != "" {
						return []string{node}
					}
					return nil
				},
				Same: func(before, after resource.Object) bool {
					return servers.NodeOf(before.(*coordinationv1.Lease)) == servers.NodeOf(after.(*coordinationv1.Lease))
				},
			},
		},
		Writes: []controller.Permission{controller.Patch(core.Nodes.Def, "")},
		Setup: func(k *controller.Kit) controller.Reconciler[*corev1.Node] {
			return &reconciler{own, controller.For(k, core.Nodes), controller.For(k, coordination.Leases)}
		},
	})
}

type reconciler struct {
	own     string
	nodes   controller.Client[*corev1.Node]
	records controller.Client[*coordinationv1.Lease]
}

// Reconcile labels the node of a server.
func (r *reconciler) Reconcile(ctx context.Context, node *corev1.Node) (controller.Next, error) {
	if _, has := node.Labels[label]; has || !r.serves(node.Name) {
		return controller.Done, nil
	}
	_, err := r.nodes.MergePatch(ctx, node, "", map[string]any{"metadata": map[string]any{"labels": map[string]any{label: ""}}})
	if apierrors.IsNotFound(err) {
		err = nil
	}
	return controller.Done, err
}

// serves says that a server runs on the machine of a node.
func (r *reconciler) serves(node string) bool {
	if node == r.own {
		return true
	}
	for _, l := range r.records.List(metav1.NamespaceSystem, labels.Everything()) {
		if servers.NodeOf(l) == node {
			return true
		}
	}
	return false
}
