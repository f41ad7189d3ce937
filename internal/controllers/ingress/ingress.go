package ingress

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/networking"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/version"
)

// key is the only one of the controller of what is there once.
const key = metav1.NamespaceSystem + "/" + networking.EdgeService

// Controller makes the class of Ingresses that edges obey, once a node has an edge, and the
// service that is there while one of them is needed.
var Controller = controller.NewKeyed(controller.Keyed{
	Name: "ingress-controller",
	Watches: []controller.Watch{
		{Def: core.Nodes.Def, Keys: only, Same: func(before, after resource.Object) bool {
			return hasEdge(before.(*corev1.Node)) == hasEdge(after.(*corev1.Node))
		}},
		{Def: networking.Ingresses.Def, Keys: only, Same: sameSpec},
		{Def: networking.IngressClasses.Def, Keys: only},
		controller.Mapped(core.Services, func(_ *controller.Kit, s *corev1.Service) []string {
			if cache.Key(s.Namespace, s.Name) != key {
				return nil
			}
			return []string{key}
		}),
	},
	Writes: []controller.Permission{
		controller.Create(networking.IngressClasses.Def), controller.Create(core.Services.Def), controller.Delete(core.Services.Def),
	},
	Workers: 1,
	Setup: func(k *controller.Kit) func(context.Context, string) (controller.Next, error) {
		r := &reconciler{
			nodes: controller.For(k, core.Nodes), ingresses: controller.For(k, networking.Ingresses),
			classes: classes{controller.For(k, networking.IngressClasses)}, services: controller.For(k, core.Services),
		}
		return r.reconcile
	},
})

func only(*controller.Kit, resource.Object) []string { return []string{key} }

// sameSpec says that a change of an Ingress is one of its status alone.
func sameSpec(before, after resource.Object) bool {
	b, a := before.(*networkingv1.Ingress), after.(*networkingv1.Ingress)
	bn, bs := networking.ClassOf(b)
	an, as := networking.ClassOf(a)
	return bn == an && bs == as
}

// hasEdge says that a node is this program's.
func hasEdge(n *corev1.Node) bool { return version.Ours(n.Status.NodeInfo.KubeletVersion) }

// classes are the IngressClasses as a controller knows them.
type classes struct {
	controller.Client[*networkingv1.IngressClass]
}

func (c classes) Class(name string) *networkingv1.IngressClass {
	class, _ := c.Get("", name)
	return class
}

func (c classes) Default() *networkingv1.IngressClass {
	return networking.DefaultClass(c.List("", nil))
}

type reconciler struct {
	nodes     controller.Client[*corev1.Node]
	ingresses controller.Client[*networkingv1.Ingress]
	classes   classes
	services  controller.Client[*corev1.Service]
}

func (r *reconciler) reconcile(ctx context.Context, _ string) (controller.Next, error) {
	edges := slices.ContainsFunc(r.nodes.List("", nil), hasEdge)
	if edges && r.classes.Class(networking.EdgeClass) == nil {
		// The Ingresses that it is the class of are looked at when it is seen.
		_, err := r.classes.Create(ctx, class(r.classes.Default() == nil))
		return controller.Done, err
	}
	needed := edges && slices.ContainsFunc(r.ingresses.List("", nil), func(i *networkingv1.Ingress) bool { return networking.Obeyed(i, r.classes) })
	svc, there := r.services.Get(metav1.NamespaceSystem, networking.EdgeService)
	var err error
	switch {
	case needed && !there:
		_, err = r.services.Create(ctx, service())
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			err = nil
		}
	case !needed && there:
		if err = r.services.Delete(ctx, svc); apierrors.IsNotFound(err) {
			err = nil
		}
	}
	return controller.Done, err
}

// class is the one that edges obey. Where there is no other default, it is that of Ingresses which
// name none.
func class(byDefault bool) *networkingv1.IngressClass {
	c := &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: networking.EdgeClass}, Spec: networkingv1.IngressClassSpec{Controller: networking.EdgeController}}
	if byDefault {
		c.Annotations = map[string]string{networkingv1.AnnotationIsDefaultIngressClass: "true"}
	}
	return c
}

// service has no endpoints: that it exists is what it says.
func service() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceSystem, Name: networking.EdgeService,
			Labels: map[string]string{"kubernetes.io/cluster-service": "true"},
		},
		Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone,
			Ports: []corev1.ServicePort{
				{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(80)},
				{Name: "https", Port: 443, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(443)},
			},
		},
	}
}
