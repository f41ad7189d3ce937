package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/custom"
	"github.com/kemudi/kemudi/internal/gateway"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/wire"
)

// tell writes the statuses that are not as they are to be.
func (r *reconciler) tell(ctx context.Context, defs map[string]*resource.Def, out *gateway.Result) error {
	var errs []error
	for key, d := range r.read {
		if !d.seen {
			continue
		}
		plural, want := r.wanted(d.object, out)
		if want == nil {
			continue
		}
		if err := r.write(ctx, defs[plural], d.object, want); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			errs = append(errs, fmt.Errorf("write status of %s: %w", key, err))
		}
	}
	return errors.Join(errs...)
}

// wanted is the status that an object is to have; nil: the one that it has.
func (r *reconciler) wanted(o metav1.Object, out *gateway.Result) (plural string, status any) {
	key := gateway.Key(o)
	switch o := o.(type) {
	case *gatewayv1.GatewayClass:
		if want, ours := out.Classes[o.Name]; ours {
			want.Conditions = gateway.Merge(o.Status.Conditions, want.Conditions)
			return unlike("gatewayclasses", o.Status, want)
		}
	case *gatewayv1.Gateway:
		if g := out.Gateways[key]; g != nil {
			return unlike("gateways", o.Status, gatewayStatus(o.Status, g.Status))
		}
	case *gatewayv1.ListenerSet:
		if want, ours := out.ListenerSets[key]; ours {
			want.Conditions = gateway.Merge(o.Status.Conditions, want.Conditions)
			for i := range want.Listeners {
				w := &want.Listeners[i]
				if at := slices.IndexFunc(o.Status.Listeners, func(l gatewayv1.ListenerEntryStatus) bool { return l.Name == w.Name }); at >= 0 {
					w.Conditions = timed(o.Status.Listeners[at].Conditions, w.Conditions)
				} else {
					w.Conditions = timed(nil, w.Conditions)
				}
			}
			return unlike("listenersets", o.Status, want)
		}
	case *gatewayv1.HTTPRoute:
		return unlike("httproutes", o.Status.RouteStatus, parents(o.Status.RouteStatus, out.HTTPRoutes[key]))
	case *gatewayv1.GRPCRoute:
		return unlike("grpcroutes", o.Status.RouteStatus, parents(o.Status.RouteStatus, out.GRPCRoutes[key]))
	case *gatewayv1.TLSRoute:
		return unlike("tlsroutes", o.Status.RouteStatus, parents(o.Status.RouteStatus, out.TLSRoutes[key]))
	case *gatewayv1.TCPRoute:
		return unlike("tcproutes", o.Status.RouteStatus, parents(o.Status.RouteStatus, out.TCPRoutes[key]))
	case *gatewayv1.UDPRoute:
		return unlike("udproutes", o.Status.RouteStatus, parents(o.Status.RouteStatus, out.UDPRoutes[key]))
	case *gatewayv1.BackendTLSPolicy:
		return unlike("backendtlspolicies", o.Status, ancestors(o.Status, out.Policies[key]))
	}
	return "", nil
}

func unlike[T any](plural string, had, want T) (string, any) {
	if equality.Semantic.DeepEqual(had, want) {
		return plural, nil
	}
	return plural, want
}

// timed are conditions with the times of those that there were.
func timed(had, want []metav1.Condition) (out []metav1.Condition) {
	for _, c := range want {
		if was := meta.FindStatusCondition(had, c.Type); was != nil {
			out = append(out, *was)
		}
		meta.SetStatusCondition(&out, c)
	}
	return out
}

// ownConditions are those of a Gateway that only this program writes when they are there.
var ownConditions = []string{string(gatewayv1.GatewayConditionResolvedRefs), string(gatewayv1.GatewayConditionInsecureFrontendValidationMode)}

func gatewayStatus(had, want gatewayv1.GatewayStatus) gatewayv1.GatewayStatus {
	kept := slices.DeleteFunc(slices.Clone(had.Conditions), func(c metav1.Condition) bool {
		return slices.Contains(ownConditions, c.Type) && meta.FindStatusCondition(want.Conditions, c.Type) == nil
	})
	want.Conditions = gateway.Merge(kept, want.Conditions)
	want.Listeners = slices.Clone(want.Listeners)
	for i := range want.Listeners {
		w := &want.Listeners[i]
		var was []metav1.Condition
		if at := slices.IndexFunc(had.Listeners, func(l gatewayv1.ListenerStatus) bool { return l.Name == w.Name }); at >= 0 {
			was = had.Listeners[at].Conditions
		}
		w.Conditions = timed(was, w.Conditions)
	}
	return want
}

// parents are those of others as they are, then ours.
func parents(had gatewayv1.RouteStatus, want []gatewayv1.RouteParentStatus) (out gatewayv1.RouteStatus) {
	for _, p := range had.Parents {
		if p.ControllerName != gateway.ControllerName {
			out.Parents = append(out.Parents, p)
		}
	}
	for _, w := range want {
		var was []metav1.Condition
		for _, p := range had.Parents {
			if p.ControllerName == w.ControllerName && equality.Semantic.DeepEqual(p.ParentRef, w.ParentRef) {
				was = p.Conditions
			}
		}
		w.Conditions = timed(was, w.Conditions)
		out.Parents = append(out.Parents, w)
	}
	return out
}

// ancestors likewise.
func ancestors(had gatewayv1.PolicyStatus, want []gatewayv1.PolicyAncestorStatus) (out gatewayv1.PolicyStatus) {
	for _, p := range had.Ancestors {
		if p.ControllerName != gateway.ControllerName {
			out.Ancestors = append(out.Ancestors, p)
		}
	}
	for _, w := range want {
		var was []metav1.Condition
		for _, p := range had.Ancestors {
			if p.ControllerName == w.ControllerName && equality.Semantic.DeepEqual(p.AncestorRef, w.AncestorRef) {
				was = p.Conditions
			}
		}
		w.Conditions = timed(was, w.Conditions)
		out.Ancestors = append(out.Ancestors, w)
	}
	return out
}

// write writes a status.
func (r *reconciler) write(ctx context.Context, def *resource.Def, o metav1.Object, status any) error {
	c := r.k.Transport().Cache(def, "")
	if c == nil {
		return nil
	}
	key := o.GetName()
	if ns := o.GetNamespace(); ns != "" {
		key = gateway.Key(o)
	}
	it := c.Get(key)
	if it == nil || it.Object.GetResourceVersion() != o.GetResourceVersion() {
		return nil // it has changed: that wakes us
	}
	doc, err := json.Marshal(status)
	if err != nil {
		return err
	}
	var tree map[string]any
	if err := wire.DecodeJSON(doc, &tree); err != nil {
		return err
	}
	// What must be there even if there is nothing of it.
	for _, list := range []string{"parents", "ancestors"} {
		if v, there := tree[list]; there && v == nil {
			tree[list] = []any{}
		}
	}
	fresh := it.Object.DeepCopyObject().(*custom.Object)
	fresh.Edit(func(fields map[string]any) { fields["status"] = tree })
	_, err = r.k.Transport().Do(ctx, &client.Request{Verb: "update", Sub: "status", Def: def, Namespace: o.GetNamespace(), Name: o.GetName(), Object: fresh})
	return err
}
