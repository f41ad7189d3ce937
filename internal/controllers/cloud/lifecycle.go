package cloud

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	cloudprovider "k8s.io/cloud-provider"
	cloudapi "k8s.io/cloud-provider/api"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/controller"
)

// NewNodeLifecycle returns the loop that asks the cloud about nodes that are not ready: one
// whose machine is gone is deleted, one whose machine is off is tainted until it is ready again.
// Nodes that are ready are not asked for.
func NewNodeLifecycle(o Options) *controller.Controller {
	o = o.withDefaults()
	return controller.New(controller.Spec[*corev1.Node]{
		Name:    lifecycleName,
		For:     core.Nodes,
		Writes:  []controller.Permission{controller.Update(core.Nodes.Def), controller.Delete(core.Nodes.Def)},
		Workers: 1,
		Setup: func(k *controller.Kit) controller.Reconciler[*corev1.Node] {
			m, _ := o.machines()
			return &lifecycle{k: k, machines: m, nodes: controller.For(k, core.Nodes), pace: newPace(o.MonitorPeriod, o.MonitorPeriod, lastMonitor), metrics: controller.OwnMetrics(k, newLifecycleMetrics)}
		},
	})
}

// lastMonitor is how long a cloud is left alone that has failed many times.
const lastMonitor = time.Minute

type lifecycle struct {
	k        *controller.Kit
	machines machines
	nodes    controller.Client[*corev1.Node]
	pace     *pace // of asking the cloud
	metrics  lifecycleMetrics
}

// shutdown is on nodes whose machines are off.
var shutdown = corev1.Taint{Key: cloudapi.TaintNodeShutdown, Effect: corev1.TaintEffectNoSchedule}

func isShutdown(t corev1.Taint) bool { return t.MatchTaint(&shutdown) }

// Gone forgets a node.
func (r *lifecycle) Gone(_ context.Context, name string) error {
	r.pace.forget(name)
	return nil
}

// Reconcile looks after a node that is not ready, again and again until it is.
func (r *lifecycle) Reconcile(ctx context.Context, node *corev1.Node) (controller.Next, error) {
	if node.DeletionTimestamp != nil {
		return controller.Done, nil
	}
	if core.NodeIsReady(node) {
		r.pace.forget(node.Name)
		return controller.Done, r.taint(ctx, node, false)
	}
	// One that has only just registered is given as long to get ready as others, who
	// look every so often, would give it.
	by := string(node.UID)
	if left := max(r.pace.left(node.Name, by), time.Until(node.CreationTimestamp.Add(r.pace.every))); left > 0 {
		return controller.After(left), nil
	}
	exists, off, err := r.ask(ctx, node)
	if r.pace.asked(node.Name, by, err) { // nothing is known, so nothing is done
		r.k.Logger.Error("ask the cloud about a node that is not ready", "node", node.Name, "err", err)
		r.k.Events.Event(node, corev1.EventTypeWarning, "FailedToCheckNode", fmt.Sprintf("Node stays as it is, and the cloud is asked again: %v", err))
	}
	again := controller.After(r.pace.left(node.Name, by))
	switch {
	case err != nil:
		return again, nil
	case !exists:
		return again, r.remove(ctx, node)
	case off:
		return again, r.taint(ctx, node, true)
	}
	return again, nil
}

// ask asks the cloud whether a node's machine exists, and is off.
func (r *lifecycle) ask(ctx context.Context, node *corev1.Node) (exists, off bool, err error) {
	exists, err = r.machines.exists(ctx, node)
	if err == nil && !exists {
		r.metrics.note("instance_exists", cloudprovider.InstanceNotFound)
	} else {
		r.metrics.note("instance_exists", err)
	}
	if err != nil {
		return false, false, fmt.Errorf("error checking if node %s exists: %w", node.Name, err)
	}
	if !exists {
		return false, false, nil
	}
	off, err = r.machines.off(ctx, node)
	r.metrics.note("instance_shutdown", err)
	if err != nil {
		return true, false, fmt.Errorf("error checking if node %s is shutdown: %w", node.Name, err)
	}
	return true, off, nil
}

// remove deletes a node as it was when the cloud was asked: one that has come back
// meanwhile stays.
func (r *lifecycle) remove(ctx context.Context, node *corev1.Node) error {
	err := r.nodes.Delete(ctx, node)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		r.pace.forget(node.Name)
		return err
	}
	r.k.Events.Event(node, corev1.EventTypeNormal, "DeletingNode", fmt.Sprintf("Deleting node %s because it does not exist in the cloud provider", node.Name))
	if err != nil {
		r.k.Events.Event(node, corev1.EventTypeWarning, "DeletingNodeFailed", fmt.Sprintf("Failed deleting node %s: %v", node.Name, err))
		return fmt.Errorf("delete node %s: %w", node.Name, err)
	}
	return nil
}

// taint says of a node whether its machine is off.
func (r *lifecycle) taint(ctx context.Context, node *corev1.Node, off bool) error {
	if slices.ContainsFunc(node.Spec.Taints, isShutdown) == off {
		return nil
	}
	node = node.DeepCopy()
	if off {
		node.Spec.Taints = append(node.Spec.Taints, shutdown)
	} else {
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, isShutdown)
	}
	_, err := r.nodes.Update(ctx, node)
	return err
}
