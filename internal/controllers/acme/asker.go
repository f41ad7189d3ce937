package acme

import (
	"context"
	"fmt"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/kemudi/kemudi/internal/api/networking"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/custom"
	"github.com/kemudi/kemudi/internal/gateway"
	"github.com/kemudi/kemudi/internal/resource"
)

// asker is an Ingress, or a Gateway or ListenerSet of a class that is served here, that wants a Secret filled.
type asker struct {
	object resource.Object
	hosts  []string        // that the Secret is to be good for
	asked  resource.Object // whose annotation says to edges by which account they answer: the object, or the Gateway of a ListenerSet
	def    *resource.Def   // of a Gateway that is asked; nil: it is an Ingress
	far    bool            // no ACME server can ask it
	waits  bool            // it is not reached at any address yet, or its Gateway does not have it
}

// askers are those that want a Secret filled.
func (r *reconciler) askers(namespace, secret string) (all []asker) {
	for _, i := range r.ingresses.List(namespace, nil) {
		if slices.Contains(secretsOf(i), secret) {
			all = append(all, asker{object: i, asked: i, hosts: hostsOf(secret, i)})
		}
	}
	def := kind(r.kinds, "gateways")
	gateways, sets := objects(r.k, def, ""), readSets(r.k, r.kinds)
	add := func(o *custom.Object, hosts []string, key string, waits bool) {
		i := slices.IndexFunc(gateways, func(g *custom.Object) bool { return gateway.Key(g) == key })
		if i < 0 || len(hosts) == 0 {
			return
		}
		g := &gatewayv1.Gateway{}
		if gateway.Decode(gateways[i], g) != nil || !r.served(g) {
			return
		}
		with := []metav1.Object{g}
		for _, s := range sets {
			if gateway.ParentOf(s.set) == key {
				with = append(with, s.set)
			}
		}
		all = append(all, asker{
			object: o, asked: gateways[i], hosts: hosts, def: def, far: !gateway.Askable(with...), waits: waits || len(g.Status.Addresses) == 0,
		})
	}
	for _, o := range gateways {
		if o.Namespace == namespace {
			if g := read(o); g != nil {
				add(o, gateway.Ordered(g)[secret], gateway.Key(o), false)
			}
		}
	}
	for _, s := range sets {
		if s.object.Namespace == namespace {
			add(s.object, gateway.Ordered(s.set)[secret], gateway.ParentOf(s.set), !gateway.Attached(s.set))
		}
	}
	return all
}

// listenerSet is a ListenerSet, as it is stored and as it is read.
type listenerSet struct {
	object *custom.Object
	set    *gatewayv1.ListenerSet
}

// readSets are all ListenerSets that can be read.
func readSets(k *controller.Kit, kinds controller.Kinds) (all []listenerSet) {
	for _, o := range objects(k, kind(kinds, "listenersets"), "") {
		s := &gatewayv1.ListenerSet{}
		if gateway.Decode(o, s) == nil {
			all = append(all, listenerSet{o, s})
		}
	}
	return all
}

// kind is one of the Gateway API's; nil: it is not served at the moment.
func kind(kinds controller.Kinds, plural string) *resource.Def {
	defs, _ := kinds.Defs()
	if i := slices.IndexFunc(defs, func(d *resource.Def) bool { return ofGateways(d) && d.Plural == plural }); i >= 0 {
		return defs[i]
	}
	return nil
}

// ofGateways says that a kind is one of those that are read.
func ofGateways(d *resource.Def) bool {
	return d.Dynamic != nil && d.Group == gateway.Group && slices.Contains([]string{"gateways", "gatewayclasses", "listenersets"}, d.Plural)
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
	return slices.ContainsFunc(objects(r.k, kind(r.kinds, "gatewayclasses"), ""), func(o *custom.Object) bool {
		class := &gatewayv1.GatewayClass{}
		return o.Name == string(g.Spec.GatewayClassName) && gateway.Decode(o, class) == nil && class.Spec.ControllerName == gateway.ControllerName
	})
}

// wantedBy are the keys of the Secrets that a Gateway, with its ListenerSets, or a ListenerSet wants filled.
func wantedBy(k *controller.Kit, kinds controller.Kinds, def *resource.Def, obj resource.Object) (keys []string) {
	o, ok := obj.(*custom.Object)
	if !ok {
		return nil
	}
	add := func(m metav1.Object) {
		for name := range gateway.Ordered(m) {
			keys = append(keys, cache.Key(m.GetNamespace(), name))
		}
	}
	switch def.Plural {
	case "gateways":
		if g := read(o); g != nil {
			add(g)
		}
		for _, s := range readSets(k, kinds) {
			if gateway.ParentOf(s.set) == gateway.Key(o) {
				add(s.set)
			}
		}
	case "listenersets":
		if s := (&gatewayv1.ListenerSet{}); networking.WantsACME(o) && gateway.Decode(o, s) == nil {
			add(s)
		}
	}
	return keys
}

// introduce tells the edges by which account they answer for who asks, and says whether that is new.
func (r *reconciler) introduce(ctx context.Context, print string, from []asker) (changed bool, _ error) {
	for i, a := range from {
		if a.asked.GetAnnotations()[networking.AnnotationACMEAccount] == print || slices.ContainsFunc(from[:i], func(b asker) bool { return b.asked == a.asked }) {
			continue
		}
		if err := r.annotate(ctx, a, print); err != nil {
			return changed, fmt.Errorf("say in %s by which account it is answered: %w", a.asked.GetName(), err)
		}
		changed = true
	}
	return changed, nil
}

func (r *reconciler) annotate(ctx context.Context, a asker, print string) error {
	fresh := a.asked.DeepCopyObject().(resource.Object)
	said := fresh.GetAnnotations()
	if said == nil {
		said = map[string]string{}
	}
	said[networking.AnnotationACMEAccount] = print
	fresh.SetAnnotations(said)
	if i, ok := fresh.(*networkingv1.Ingress); ok {
		_, err := r.ingresses.Update(ctx, i)
		return err
	}
	_, err := r.k.Transport().Do(ctx, &client.Request{Verb: "update", Def: a.def, Namespace: fresh.GetNamespace(), Name: fresh.GetName(), Object: fresh})
	return err
}
