package gateway

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/apiextensions"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/discovery"
	"github.com/kemudi/kemudi/internal/api/networking"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/gateway"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/version"
)

// Options are what people set.
type Options struct {
	// Define has the kinds of the Gateway API defined: --gateway-api.
	Define bool
}

// key is the only one: what one route does depends on many other objects, and all are looked at together.
const key = metav1.NamespaceSystem + "/" + networking.GatewayService

// plurals are the kinds that are read.
var plurals = []string{"gatewayclasses", "gateways", "listenersets", "httproutes", "grpcroutes", "tlsroutes", "tcproutes", "udproutes", "backendtlspolicies", "referencegrants"}

func watched(def *resource.Def) bool {
	return def.Dynamic != nil && def.Group == gateway.Group && slices.Contains(plurals, def.Plural)
}

// New returns the controller of Gateways.
func New(kinds controller.Kinds, o Options) *controller.Controller {
	s := &shared{}
	only := func(*controller.Kit, resource.Object) []string { return []string{key} }
	named := func(kind string) func(*controller.Kit, resource.Object) []string {
		return func(_ *controller.Kit, obj resource.Object) []string {
			if s.names(kind, obj) {
				return []string{key}
			}
			return nil
		}
	}
	return controller.NewKeyed(controller.Keyed{
		Name: "gateway-controller",
		Watches: []controller.Watch{
			{Def: core.Nodes.Def, Keys: only, Same: func(before, after resource.Object) bool {
				return slices.Equal(addressesOf(before.(*corev1.Node)), addressesOf(after.(*corev1.Node)))
			}},
			{Def: core.Namespaces.Def, Keys: named("Namespace")},
			{Def: core.Services.Def, Keys: named("Service")},
			{Def: core.Secrets.Def, Keys: named("Secret")},
			{Def: core.ConfigMaps.Def, Keys: named("ConfigMap")},
			{Def: discovery.EndpointSlices.Def, Keys: func(_ *controller.Kit, obj resource.Object) []string {
				if obj.GetLabels()[labelManagedBy] == manager {
					return []string{key}
				}
				return nil
			}},
			{Def: apiextensions.CustomResourceDefinitions.Def, Keys: func(_ *controller.Kit, obj resource.Object) []string {
				if obj.(*apiextensionsv1.CustomResourceDefinition).Spec.Group == gateway.Group {
					return []string{key}
				}
				return nil
			}},
		},
		Every: &controller.Every{
			Kinds: kinds,
			Of: func(def *resource.Def) (controller.Watch, bool) {
				return controller.Watch{Def: def, Keys: only}, watched(def)
			},
			Changed: func(*controller.Kit) []string { return []string{key} },
		},
		Writes: []controller.Permission{
			controller.Create(core.Services.Def), controller.Update(core.Services.Def), controller.Delete(core.Services.Def),
			controller.Create(core.Secrets.Def), controller.Update(core.Secrets.Def), controller.Delete(core.Secrets.Def),
			controller.Create(discovery.EndpointSlices.Def), controller.Update(discovery.EndpointSlices.Def), controller.Delete(discovery.EndpointSlices.Def),
			controller.Create(apiextensions.CustomResourceDefinitions.Def), controller.Update(apiextensions.CustomResourceDefinitions.Def),
		},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{gateway.Group}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch", "create"}},
			{APIGroups: []string{gateway.Group}, Resources: []string{"*/status"}, Verbs: []string{"update"}},
		},
		Workers: 1,
		Setup: func(k *controller.Kit) func(context.Context, string) (controller.Next, error) {
			r := &reconciler{
				k: k, o: o, kinds: kinds, shared: s, read: map[string]*decoded{},
				nodes: controller.For(k, core.Nodes), namespaces: controller.For(k, core.Namespaces), services: controller.For(k, core.Services),
				secrets: controller.For(k, core.Secrets), configMaps: controller.For(k, core.ConfigMaps), slices: controller.For(k, discovery.EndpointSlices),
				crds: controller.For(k, apiextensions.CustomResourceDefinitions),
			}
			return r.reconcile
		},
	})
}

// shared is what watches know of the last look.
type shared struct {
	used atomic.Pointer[map[string]bool] // nil: there is no Gateway
}

// names says that an object was looked for, or is from here.
func (s *shared) names(kind string, obj resource.Object) bool {
	used := s.used.Load()
	if used == nil {
		return false
	}
	return (*used)[kind+"/"+obj.GetNamespace()+"/"+obj.GetName()] || obj.GetLabels()[labelManagedBy] == manager
}

type reconciler struct {
	k          *controller.Kit
	o          Options
	kinds      controller.Kinds
	shared     *shared
	nodes      controller.Client[*corev1.Node]
	namespaces controller.Client[*corev1.Namespace]
	services   controller.Client[*corev1.Service]
	secrets    controller.Client[*corev1.Secret]
	configMaps controller.Client[*corev1.ConfigMap]
	slices     controller.Client[*discoverySlice]
	crds       controller.Client[*apiextensionsv1.CustomResourceDefinition]

	read map[string]*decoded // by kind, namespace and name; of the one worker
}

// hasEdge says that a node is this program's.
func hasEdge(n *corev1.Node) bool { return version.Ours(n.Status.NodeInfo.KubeletVersion) }

func (r *reconciler) reconcile(ctx context.Context, _ string) (controller.Next, error) {
	began := time.Now()
	if err := r.define(ctx); err != nil {
		return controller.Done, err
	}
	defs := map[string]*resource.Def{}
	all, _ := r.kinds.Defs()
	for _, def := range all {
		if watched(def) {
			defs[def.Plural] = def
		}
	}
	if len(defs) == 0 && r.shared.used.Load() == nil {
		return controller.Done, nil
	}
	o := r.objects(defs)
	if err := r.class(ctx, defs, &o); err != nil {
		return controller.Done, err
	}
	out := gateway.Compile(o)
	used := out.Used
	if len(out.Gateways) == 0 {
		r.shared.used.Store(nil)
	} else {
		r.shared.used.Store(&used)
	}
	took := time.Since(began)
	err := errors.Join(r.serve(ctx, out), r.tell(ctx, defs, out))
	return controller.Done.Costly(took), err
}

// define defines the kinds, if that is wanted: those that nobody has defined, and those of ours that are of an older
// version.
func (r *reconciler) define(ctx context.Context) error {
	if !r.o.Define {
		return nil
	}
	missing := false
	for _, plural := range plurals {
		crd, there := r.crds.Get("", plural+"."+gateway.Group)
		missing = missing || !there || crd.Labels[labelManagedBy] == manager && crd.Annotations[gateway.AnnotationBundle] != gateway.Bundle
	}
	if !missing {
		return nil
	}
	list, err := gateway.Definitions()
	if err != nil {
		return err
	}
	for _, crd := range list {
		was, there := r.crds.Get("", crd.Name)
		crd.Labels = map[string]string{labelManagedBy: manager}
		switch {
		case !there:
			if _, err := r.crds.Create(ctx, crd); err != nil && !apierrors.IsAlreadyExists(err) {
				return err
			}
		case was.Labels[labelManagedBy] == manager && was.Annotations[gateway.AnnotationBundle] != gateway.Bundle:
			fresh := was.DeepCopy()
			fresh.Annotations, fresh.Spec = crd.Annotations, crd.Spec
			if _, err := r.crds.Update(ctx, fresh); err != nil {
				return err
			}
		}
	}
	return nil
}
