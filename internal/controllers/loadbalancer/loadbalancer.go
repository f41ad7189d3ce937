package loadbalancer

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/discovery"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/ingress"
	"github.com/kemudi/kemudi/internal/resource"
)

// New returns the controller. With options that cannot be it gives nothing; [Options.Check] says so before.
func New(o Options) *controller.Controller {
	from, _ := o.sources()
	b := newBook()
	return controller.New(controller.Spec[*corev1.Service]{
		Name: "load-balancer-controller",
		For:  core.Services,
		Watches: []controller.Watch{
			controller.Mapped(core.Services, func(_ *controller.Kit, svc *corev1.Service) []string { // who waits for it
				return b.waitersOf(cache.Key(svc.Namespace, svc.Name))
			}),
			{
				Def: core.Nodes.Def, Same: sameMachine, Behind: true,
				Keys: func(*controller.Kit, resource.Object) []string { return b.keys() },
			},
			controller.Mapped(discovery.EndpointSlices, func(_ *controller.Kit, s *discoveryv1.EndpointSlice) []string {
				if key := cache.Key(s.Namespace, s.Labels[discoveryv1.LabelServiceName]); b.dependsOnEndpoints(key) {
					return []string{key}
				}
				return nil
			}),
			{Def: core.Secrets.Def, Keys: func(k *controller.Kit, obj resource.Object) (keys []string) {
				for _, svc := range controller.For(k, core.Services).ByIndex(core.IndexCertificate, cache.Key(obj.GetNamespace(), obj.GetName())) {
					keys = append(keys, cache.Key(svc.Namespace, svc.Name))
				}
				return keys
			}},
		},
		Writes:  []controller.Permission{controller.Update(core.Services.Def), controller.UpdateStatus(core.Services.Def)},
		Workers: 1, // who comes first has it
		Setup: func(k *controller.Kit) controller.Reconciler[*corev1.Service] {
			r := &reconciler{
				k: k, from: from, beside: o.Beside, book: b, services: controller.For(k, core.Services), nodes: controller.For(k, core.Nodes),
				slices: controller.For(k, discovery.EndpointSlices), secrets: controller.For(k, core.Secrets),
			}
			r.load()
			return r
		},
	})
}

type reconciler struct {
	k        *controller.Kit
	from     []source
	beside   bool
	book     *book
	services controller.Client[*corev1.Service]
	nodes    controller.Client[*corev1.Node]
	slices   controller.Client[*discoveryv1.EndpointSlice]
	secrets  controller.Client[*corev1.Secret]
	machines machines
}

// wants says that a Service is ours.
func (r *reconciler) wants(svc *corev1.Service) bool {
	if svc.Spec.Type != corev1.ServiceTypeLoadBalancer || len(r.from) == 0 {
		return false
	}
	if class := svc.Spec.LoadBalancerClass; class != nil {
		return *class == Class
	}
	return !r.beside
}

// load has the book begin with what Services have, the oldest first (B2).
func (r *reconciler) load() {
	r.book.clear()
	r.book.now = func(key string) (a ask, ok bool) {
		namespace, name, _ := strings.Cut(key, "/")
		svc, ok := r.services.Get(namespace, name)
		if !ok || !r.wants(svc) {
			return a, false
		}
		a, _ = askOf(svc)
		return a, true
	}
	all := slices.DeleteFunc(r.services.List("", nil), func(svc *corev1.Service) bool { return !r.wants(svc) || core.ServiceBalanced(svc) == nil })
	slices.SortStableFunc(all, func(x, y *corev1.Service) int {
		return cmp.Or(x.CreationTimestamp.Compare(y.CreationTimestamp.Time), cmp.Compare(x.UID, y.UID))
	})
	for _, svc := range all {
		a, _ := askOf(svc)
		var addrs []netip.Addr
		for _, in := range svc.Status.LoadBalancer.Ingress {
			addr, err := netip.ParseAddr(in.IP)
			if err != nil {
				continue
			}
			if key, _ := r.book.holder(&a, addr); key == "" { // B1, whatever has been written
				addrs = append(addrs, addr)
			}
		}
		r.book.note(&a)
		r.book.give(a, addrs)
	}
}

// Gone lets others have what a Service had.
func (r *reconciler) Gone(_ context.Context, key string) error {
	r.book.forget(key)
	return nil
}

// Reconcile brings the status of a Service to what it is to have.
func (r *reconciler) Reconcile(ctx context.Context, svc *corev1.Service) (controller.Next, error) {
	switch {
	case svc.DeletionTimestamp != nil: // the proxies lead to it until it is gone, and so it has its addresses
		_, err := r.letGo(ctx, svc)
		if err == nil && r.isOurs(svc) {
			r.k.Events.Event(svc, corev1.EventTypeNormal, "DeletedLoadBalancer", "Deleted load balancer")
		}
		return controller.Done, err
	case !r.wants(svc):
		r.book.forget(cache.Key(svc.Namespace, svc.Name))
		return controller.Done, r.takeBack(ctx, svc)
	}
	if !slices.Contains(svc.Finalizers, core.FinalizerBalancer) { // before there is something to clean up
		r.k.Events.Event(svc, corev1.EventTypeNormal, "EnsuringLoadBalancer", "Ensuring load balancer")
		fresh := svc.DeepCopy()
		fresh.Finalizers = append(fresh.Finalizers, core.FinalizerBalancer)
		var err error
		if svc, err = r.services.Update(ctx, fresh); err != nil {
			return controller.Done, fmt.Errorf("add the finalizer of balancers: %w", err)
		}
	}
	return controller.Done, r.write(ctx, svc, r.decide(svc))
}

// decide is what a Service is to have.
func (r *reconciler) decide(svc *corev1.Service) verdict {
	a, bad := askOf(svc)
	uncertain := r.certificate(svc)
	if bad == nil && len(addressesOf(svc)) == 0 {
		bad = uncertain
	}
	if bad != nil {
		r.book.note(&a)
		r.book.give(a, nil)
		return verdict{problem: bad}
	}
	v := r.place(svc, a)
	if uncertain != nil { // who has its addresses keeps them (B2), and clients are not let in
		v.problem = uncertain
	}
	return v
}

// certificate is why what is in the Secrets by which the balancer speaks TLS cannot be used; nil: it can, or there is none.
func (r *reconciler) certificate(svc *corev1.Service) *problem {
	if p := r.usable(svc, core.AnnotationBalancerCertificate, func(s *corev1.Secret) error {
		_, err := ingress.Certificate(s)
		return err
	}); p != nil {
		return p
	}
	return r.usable(svc, core.AnnotationBalancerBackendSecret, func(s *corev1.Secret) error {
		authorities, _, err := ingress.Trusted(s)
		if err == nil && len(authorities) > 0 && svc.Annotations[core.AnnotationBalancerBackendName] == "" {
			err = fmt.Errorf("it has authorities, and annotation %s does not say whose certificate is wanted", core.AnnotationBalancerBackendName)
		}
		return err
	})
}

// usable says what is wrong with the Secret that an annotation names.
func (r *reconciler) usable(svc *corev1.Service, annotation string, check func(*corev1.Secret) error) *problem {
	name := strings.TrimSpace(svc.Annotations[annotation])
	if name == "" {
		return nil
	}
	s, there := r.secrets.Get(svc.Namespace, name)
	if !there {
		return problemf("InvalidCertificate", "annotation %s: there is no Secret %q in namespace %q", annotation, name, svc.Namespace)
	}
	if err := check(s); err != nil {
		return problemf("InvalidCertificate", "annotation %s: the certificate of Secret %q cannot be used: %v", annotation, name, err)
	}
	return nil
}

// place is where a Service that asks for what can be had is to be reached.
func (r *reconciler) place(svc *corev1.Service, a ask) verdict {
	pools := slices.DeleteFunc(slices.Clone(r.from), func(s source) bool { return s.nodes })
	hasInternal := slices.ContainsFunc(pools, func(s source) bool { return s.name == internalPool })
	if a.internal && a.pool == "" && len(a.addrs) == 0 && (hasInternal || !r.from[0].nodes) {
		a.pool = internalPool
	}
	onNodes := r.from[0].nodes && a.pool == "" && len(a.addrs) == 0 || len(pools) == 0 || a.pool == Nodes && len(pools) < len(r.from)
	if !onNodes {
		return r.book.ofPools(a, pools)
	}
	if a.pool != "" && a.pool != Nodes {
		r.book.note(&a)
		r.book.give(a, nil)
		return verdict{problem: problemf("NoAddressPool", "there is no pool %q (--load-balancer)", a.pool)}
	}
	at := spots(&a, r.serving(svc))
	v := r.book.onNodes(a, at, r.needed())
	switch {
	case len(at) == 0 && a.local:
		v.problem = problemf("NoEndpoints", "no node has an endpoint that is ready, as externalTrafficPolicy Local wants")
	case len(at) == 0 && a.edges:
		v.problem = problemf("NoNodes", "no node that is ready and has an edge has an address of its families")
	case len(at) == 0:
		v.problem = problemf("NoNodes", "no node that is ready has an address of its families")
	}
	return v
}

// sshPort is how people get at the machine of a node.
const sshPort = 22

// needed tells what a node itself needs a port for: a Service that had it would cut off the machine.
func (r *reconciler) needed() func(spot, port) string {
	api := map[int32]bool{}
	for _, s := range r.slices.ByIndex(discovery.IndexService, cache.Key(metav1.NamespaceDefault, "kubernetes")) {
		for i := range s.Ports {
			api[ptr.Deref(s.Ports[i].Port, 0)] = true
		}
	}
	return func(s spot, p port) string {
		switch {
		case p.proto != corev1.ProtocolTCP:
		case p.number == sshPort:
			return fmt.Sprintf("port %s of nodes is that of SSH", p)
		case api[p.number]:
			return fmt.Sprintf("port %s of nodes is that of the API server", p)
		case p.number == s.kubelet:
			return fmt.Sprintf("port %s of node %s is that of the node agent", p, s.node)
		}
		return ""
	}
}

// write brings the status to a verdict, and tells people what is new.
func (r *reconciler) write(ctx context.Context, svc *corev1.Service, v verdict) error {
	var ingress []corev1.LoadBalancerIngress
	for _, addr := range v.addrs {
		ingress = append(ingress, corev1.LoadBalancerIngress{IP: addr.String(), IPMode: ptr.To(corev1.LoadBalancerIPModeVIP)})
	}
	state := metav1.Condition{Type: core.ConditionBalanced, Status: metav1.ConditionTrue, Reason: "Balanced", ObservedGeneration: svc.Generation}
	if v.problem != nil {
		state.Reason, state.Message = v.problem.reason, v.problem.message
	}
	if len(v.addrs) == 0 {
		state.Status = metav1.ConditionFalse
	}
	before, has := core.ServiceBalanced(svc), addressesOf(svc)
	same := slices.Equal(has, v.addrs) && len(has) == len(svc.Status.LoadBalancer.Ingress)
	fresh := svc.DeepCopy()
	fresh.Status.LoadBalancer.Ingress = ingress
	changed := meta.SetStatusCondition(&fresh.Status.Conditions, state)
	if !r.announced(fresh, &v) && !changed && same {
		return nil
	}
	if _, err := r.services.UpdateStatus(ctx, fresh); err != nil {
		return fmt.Errorf("update load balancer status: %w", err)
	}
	switch {
	case same:
	case len(has) == 0:
		r.k.Events.Event(svc, corev1.EventTypeNormal, "EnsuredLoadBalancer", "Ensured load balancer: "+text(v.addrs))
	default:
		r.k.Events.Event(svc, corev1.EventTypeNormal, "UpdatedLoadBalancer", fmt.Sprintf("Updated load balancer: %s, before %s", cmp.Or(text(v.addrs), "none"), text(has)))
	}
	if v.problem != nil && (before == nil || before.Message != v.problem.message) {
		r.k.Events.Event(svc, corev1.EventTypeWarning, "SyncLoadBalancerFailed", "Error syncing load balancer: "+v.problem.message)
	}
	return nil
}

// addressesOf are those in the status of a Service.
func addressesOf(svc *corev1.Service) (all []netip.Addr) {
	for _, in := range svc.Status.LoadBalancer.Ingress {
		if addr, err := netip.ParseAddr(in.IP); err == nil {
			all = append(all, addr)
		}
	}
	return all
}

// takeBack removes what a Service that is ours no more has of us (B4).
func (r *reconciler) takeBack(ctx context.Context, svc *corev1.Service) error {
	if core.ServiceBalanced(svc) == nil {
		return nil
	}
	// The finalizer goes first: by the condition it is known that it was ours.
	fresh, err := r.letGo(ctx, svc)
	if err != nil {
		return err
	}
	fresh = fresh.DeepCopy()
	fresh.Status.LoadBalancer.Ingress = nil
	meta.RemoveStatusCondition(&fresh.Status.Conditions, core.ConditionBalanced)
	meta.RemoveStatusCondition(&fresh.Status.Conditions, core.ConditionAnnounced)
	if _, err := r.services.UpdateStatus(ctx, fresh); err != nil {
		return fmt.Errorf("clear load balancer status: %w", err)
	}
	r.k.Events.Event(svc, corev1.EventTypeNormal, "DeletedLoadBalancer", "Deleted load balancer")
	return nil
}

// isOurs says that a Service is or has been ours, and has our finalizer.
func (r *reconciler) isOurs(svc *corev1.Service) bool {
	return (core.ServiceBalanced(svc) != nil || r.wants(svc)) && slices.Contains(svc.Finalizers, core.FinalizerBalancer)
}

// letGo removes the finalizer from a Service that is or has been ours.
func (r *reconciler) letGo(ctx context.Context, svc *corev1.Service) (*corev1.Service, error) {
	if !r.isOurs(svc) {
		return svc, nil
	}
	r.k.Events.Event(svc, corev1.EventTypeNormal, "DeletingLoadBalancer", "Deleting load balancer")
	fresh := svc.DeepCopy()
	fresh.Finalizers = slices.DeleteFunc(fresh.Finalizers, func(f string) bool { return f == core.FinalizerBalancer })
	fresh, err := r.services.Update(ctx, fresh)
	if err != nil {
		return nil, fmt.Errorf("remove the finalizer of balancers: %w", err)
	}
	return fresh, nil
}
