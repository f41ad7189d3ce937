package acme

import (
	"context"
	"fmt"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/kemudi/kemudi/internal/api/networking"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/custom"
	"github.com/kemudi/kemudi/internal/gateway"
	"github.com/kemudi/kemudi/internal/resource"
)

// asker is an Ingress, or a Gateway of a class that is served here, that wants a Secret filled.
type asker struct {
	object resource.Object
	hosts  []string      // that the Secret is to be good for
	def    *resource.Def // of a Gateway; nil: it is an Ingress
	far    bool          // no ACME server can ask it
	waits  bool          // it is not reached at any address yet
}

// askers are those that want a Secret filled.
func (r *reconciler) askers(namespace, secret string) (all []asker) {
	for _, i := range r.ingresses.List(namespace, nil) {
		if slices.Contains(secretsOf(i), secret) {
			all = append(all, asker{object: i, hosts: hostsOf(secret, i)})
		}
	}
	def := r.kind("gateways")
	for _, o := range objects(r.k, def, namespace) {
		if g := read(o); g != nil && r.served(g) {
			if hosts := gateway.Ordered(g)[secret]; len(hosts) > 0 {
				all = append(all, asker{object: o, hosts: hosts, def: def, far: !gateway.Askable(g), waits: len(g.Status.Addresses) == 0})
			}
		}
	}
	return all
}

// kind is one of the Gateway API's; nil: it is not served at the moment.
func (r *reconciler) kind(plural string) *resource.Def {
	defs, _ := r.kinds.Defs()
	if i := slices.IndexFunc(defs, func(d *resource.Def) bool { return ofGateways(d) && d.Plural == plural }); i >= 0 {
		return defs[i]
	}
	return nil
}

// ofGateways says that a kind is one of those that are read.
func ofGateways(d *resource.Def) bool {
	return d.Dynamic != nil && d.Group == gateway.Group && (d.Plural == "gateways" || d.Plural == "gatewayclasses")
}

// objects are those of a kind that may be nil.
func objects(k *controller.Kit, def *resource.Def, namespace string) (all []*custom.Object) {
	if def == nil {
		return nil
	}
	if c := k.Transport().Cache(def, ""); c != nil {
		for _, it := range c.List(namespace, nil) {
			if o, ok := it.Object.(*custom.Object); ok && o.DeletionTimestamp == nil {
				all = append(all, o)
			}
		}
	}
	return all
}

// read reads a Gateway that wants Secrets filled; nil: it wants none, or is no Gateway.
func read(o *custom.Object) *gatewayv1.Gateway {
	g := &gatewayv1.Gateway{}
	if !networking.WantsACME(o) || gateway.Decode(o, g) != nil {
		return nil
	}
	return g
}

// served says that a Gateway is of a class that edges of this program serve.
func (r *reconciler) served(g *gatewayv1.Gateway) bool {
	return slices.ContainsFunc(objects(r.k, r.kind("gatewayclasses"), ""), func(o *custom.Object) bool {
		class := &gatewayv1.GatewayClass{}
		return o.Name == string(g.Spec.GatewayClassName) && gateway.Decode(o, class) == nil && class.Spec.ControllerName == gateway.ControllerName
	})
}

// wantedBy are the keys of the Secrets that a Gateway wants filled.
func wantedBy(obj resource.Object) (keys []string) {
	if o, ok := obj.(*custom.Object); ok {
		if g := read(o); g != nil {
			for name := range gateway.Ordered(g) {
				keys = append(keys, cache.Key(g.Namespace, name))
			}
		}
	}
	return keys
}

// introduce tells the edges by which account they answer for who asks, and says whether that is new.
func (r *reconciler) introduce(ctx context.Context, print string, from []asker) (changed bool, _ error) {
	for _, a := range from {
		if a.object.GetAnnotations()[networking.AnnotationACMEAccount] == print {
			continue
		}
		if err := r.annotate(ctx, a, print); err != nil {
			return changed, fmt.Errorf("say in %s by which account it is answered: %w", a.object.GetName(), err)
		}
		changed = true
	}
	return changed, nil
}

func (r *reconciler) annotate(ctx context.Context, a asker, print string) error {
	fresh := a.object.DeepCopyObject().(resource.Object)
	fresh.GetAnnotations()[networking.AnnotationACMEAccount] = print
	if i, ok := fresh.(*networkingv1.Ingress); ok {
		_, err := r.ingresses.Update(ctx, i)
		return err
	}
	_, err := r.k.Transport().Do(ctx, &client.Request{Verb: "update", Def: a.def, Namespace: fresh.GetNamespace(), Name: fresh.GetName(), Object: fresh})
	return err
}
