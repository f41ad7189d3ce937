package cloud

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cloud/call"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/workload"
)

// allRoutes is the one key of the loop of routes.
const allRoutes = "routes"

// NewRoute returns the loop that keeps a route in the cloud for each range of pods' addresses
// of each node, and says of a node whether its routes are there.
func NewRoute(o Options) *controller.Controller {
	o = o.withDefaults()
	changed := &atomic.Bool{} // by nodes, since the last look
	return controller.NewKeyed(controller.Keyed{
		Name: routeName, Source: "route_controller",
		Watches: []controller.Watch{{
			Def: core.Nodes.Def, Same: sameToRoutes,
			Keys: func(*controller.Kit, resource.Object) []string {
				changed.Store(true)
				return []string{allRoutes}
			},
		}},
		Writes:  []controller.Permission{controller.Patch(core.Nodes.Def, "status")},
		Workers: 1,
		Setup: func(k *controller.Kit) func(context.Context, string) (controller.Next, error) {
			cloud, _ := o.Provider.Routes()
			r := &routes{
				k: k, o: o, cloud: cloud, changed: changed, nodes: controller.For(k, core.Nodes), metrics: controller.OwnMetrics(k, newRouteMetrics),
				refused: newPace(0, o.RoutePeriod, lastRetry),
			}
			return r.reconcile
		},
	})
}

// sameToRoutes says that a change of a node is none of its routes.
func sameToRoutes(before, after resource.Object) bool {
	b, a := before.(*corev1.Node), after.(*corev1.Node)
	return slices.Equal(b.Spec.PodCIDRs, a.Spec.PodCIDRs) && slices.Equal(b.Status.Addresses, a.Status.Addresses)
}

type routes struct {
	k       *controller.Kit
	o       Options
	cloud   cloudprovider.Routes
	changed *atomic.Bool
	nodes   controller.Client[*corev1.Node]
	metrics routeMetrics
	refused *pace // of making a route that the cloud did not make
}

// together is how long nodes that come or go one after the other are waited for, that the cloud is not asked for
// all of its routes for each.
const together = time.Second

// reconcile looks at all routes and all nodes, and again after a while: routes that somebody
// has taken away come back.
func (r *routes) reconcile(ctx context.Context, _ string) (controller.Next, error) {
	trigger, outcome := "periodic", "noop"
	if r.changed.Swap(false) {
		trigger = "node_change"
	}
	wrote, err := r.sync(ctx)
	switch {
	case err != nil:
		outcome = "error"
		r.k.Logger.Error("keep the cloud's routes", "err", err)
	case wrote:
		outcome = "changed"
	}
	r.metrics.syncs.WithLabelValues(outcome, trigger).Inc()
	return controller.After(r.o.RoutePeriod).Cool(together), nil
}

func (r *routes) sync(ctx context.Context) (wrote bool, err error) {
	have, err := call.Get(ctx, "ListRoutes", func(ctx context.Context) ([]*cloudprovider.Route, error) {
		return r.cloud.ListRoutes(ctx, r.o.ClusterName)
	})
	if err != nil { // without knowing what there is, nothing is made, and nothing said of nodes
		return false, fmt.Errorf("error listing routes: %w", err)
	}
	have = slices.DeleteFunc(have, func(route *cloudprovider.Route) bool { return route == nil })
	nodes := r.nodes.List("", nil)
	p := planRoutes(nodes, have, r.o.ClusterCIDRs)
	// What goes makes room for what comes: a range may have moved to another node.
	gone, dropErr := workload.SideBySide(len(p.drop), func(i int) error { return r.drop(ctx, p.drop[i]) })
	made, without, makeErr := r.addAll(ctx, p.make)
	_, tellErr := workload.SideBySide(len(nodes), func(i int) error {
		if n := nodes[i]; len(n.Spec.PodCIDRs) > 0 || len(p.routed[types.NodeName(n.Name)]) > 0 {
			return r.tell(ctx, n, len(n.Spec.PodCIDRs) > 0 && !without[n.Name])
		}
		return nil
	})
	return gone+made > 0, errors.Join(dropErr, makeErr, tellErr)
}

// addAll makes routes, but for those that the cloud has not made and is not to be asked for yet. It returns the
// nodes that are without.
func (r *routes) addAll(ctx context.Context, routes []newRoute) (made int, without map[string]bool, err error) {
	missing, waiting := make([]bool, len(routes)), map[string]bool{}
	for _, n := range routes {
		waiting[n.key()] = true
	}
	r.refused.forgetAllBut(waiting)
	_, err = workload.SideBySide(len(routes), func(i int) error {
		n := routes[i]
		if missing[i] = r.refused.left(n.key(), n.about()) > 0; missing[i] {
			return nil
		}
		err := r.add(ctx, n)
		r.refused.asked(n.key(), n.about(), err)
		missing[i] = err != nil
		return err
	})
	without = map[string]bool{}
	for i, m := range missing {
		without[routes[i].node.Name] = without[routes[i].node.Name] || m
		if !m {
			made++
		}
	}
	return made, without, err
}

func (r *routes) drop(ctx context.Context, route *cloudprovider.Route) error {
	if err := call.Do(ctx, "DeleteRoute", func(ctx context.Context) error { return r.cloud.DeleteRoute(ctx, r.o.ClusterName, route) }); err != nil {
		return fmt.Errorf("could not delete route %s %s: %w", route.Name, route.DestinationCIDR, err)
	}
	return nil
}

func (r *routes) add(ctx context.Context, n newRoute) error {
	began, hint := time.Now(), string(n.node.UID)
	err := call.Do(ctx, "CreateRoute", func(ctx context.Context) error { return r.cloud.CreateRoute(ctx, r.o.ClusterName, hint, n.route) })
	if err != nil {
		r.k.Events.Event(n.node, corev1.EventTypeWarning, "FailedToCreateRoute",
			fmt.Sprintf("Could not create route %s %s for node %s after %v: %v", hint, n.route.DestinationCIDR, n.node.Name, time.Since(began), err))
		return fmt.Errorf("create route %s of node %s: %w", n.route.DestinationCIDR, n.node.Name, err)
	}
	return nil
}

// tell says of a node whether its routes are there.
func (r *routes) tell(ctx context.Context, node *corev1.Node, there bool) error {
	now := metav1.Now().Rfc3339Copy()
	want := corev1.NodeCondition{
		Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionTrue, Reason: "NoRouteCreated", Message: "RouteController failed to create a route",
		LastHeartbeatTime: now, LastTransitionTime: now,
	}
	if there {
		want.Status, want.Reason, want.Message = corev1.ConditionFalse, "RouteCreated", "RouteController created a route"
	}
	if c := core.NodeCondition(&node.Status, want.Type); c != nil && c.Status == want.Status && c.Reason == want.Reason {
		return nil
	}
	_, err := r.nodes.StrategicPatch(ctx, node, "status", map[string]any{"status": map[string]any{"conditions": []any{want}}})
	return err
}
