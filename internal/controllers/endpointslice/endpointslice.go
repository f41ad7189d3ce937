package endpointslice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/discovery"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/endpoint"
	"github.com/kemudi/kemudi/internal/resource"
)

// Options configure the controller. The zero value is upstream's.
type Options struct {
	// MaxEndpointsPerSlice is how many endpoints a slice holds (--max-endpoints-per-slice).
	MaxEndpointsPerSlice int
}

// Defaults are the options of a controller that is given none.
func Defaults() Options { return Options{}.withDefaults() }

func (o Options) withDefaults() Options {
	o.MaxEndpointsPerSlice = cmp.Or(o.MaxEndpointsPerSlice, 100)
	return o
}

// Check says what is wrong with the options.
func (o Options) Check() error {
	return controller.CheckRange("max-endpoints-per-slice", o.MaxEndpointsPerSlice, 1, 1000)
}

// New returns the endpointslice controller.
func New(o Options) *controller.Controller {
	limit := o.withDefaults().MaxEndpointsPerSlice
	return controller.New(controller.Spec[*corev1.Service]{
		Name: "endpointslice-controller", Source: "endpoint-slice-controller",
		For: core.Services,
		Watches: []controller.Watch{
			endpoint.Selecting,
			controller.Mapped(discovery.EndpointSlices, func(_ *controller.Kit, s *discoveryv1.EndpointSlice) []string {
				if s.Labels[discoveryv1.LabelManagedBy] != discovery.ManagedByController {
					return nil
				}
				return []string{cache.Key(s.Namespace, s.Labels[discoveryv1.LabelServiceName])}
			}),
			zones,
		},
		Writes: []controller.Permission{
			controller.Create(discovery.EndpointSlices.Def), controller.Update(discovery.EndpointSlices.Def), controller.Delete(discovery.EndpointSlices.Def),
		},
		Setup: func(k *controller.Kit) controller.Reconciler[*corev1.Service] {
			r := &reconciler{
				k: k, limit: limit, services: controller.For(k, core.Services), pods: controller.For(k, core.Pods),
				nodes: controller.For(k, core.Nodes), slices: controller.For(k, discovery.EndpointSlices),
				metrics: controller.OwnMetrics(k, newMetrics),
			}
			r.metrics.of.Store(r)
			return r
		},
	})
}

// zones wakes the services of the pods on a node that comes, goes, or moves to
// another zone or region, and those whose hints follow from how much CPU each zone has.
var zones = controller.Watch{
	Def: core.Nodes.Def,
	Keys: func(k *controller.Kit, node resource.Object) []string {
		var keys []string
		for _, pod := range controller.For(k, core.Pods).ByIndex("spec.nodeName", node.GetName()) {
			keys = append(keys, endpoint.Selecting.Keys(k, pod)...)
		}
		for _, svc := range controller.For(k, core.Services).ByIndex(core.IndexTopologyMode, core.TopologyAuto) {
			keys = append(keys, cache.Key(svc.Namespace, svc.Name))
		}
		return keys
	},
	Same: func(before, after resource.Object) bool { return about(before) == about(after) },
}

// about is what counts of a node.
func about(obj resource.Object) (a struct {
	zone, region string

	ready corev1.ConditionStatus
	cpu   int64
},
) {
	node := obj.(*corev1.Node)
	a.zone, a.region = node.Labels[corev1.LabelTopologyZone], node.Labels[corev1.LabelTopologyRegion]
	a.cpu = node.Status.Allocatable.Cpu().MilliValue()
	if c := core.NodeCondition(&node.Status, corev1.NodeReady); c != nil {
		a.ready = c.Status
	}
	return a
}

type reconciler struct {
	k        *controller.Kit
	limit    int
	services controller.Client[*corev1.Service]
	pods     controller.Client[*corev1.Pod]
	nodes    controller.Client[*corev1.Node]
	slices   controller.Client[*discoveryv1.EndpointSlice]
	triggers endpoint.Triggers
	metrics  *metrics
}

// Gone forgets a service; its slices go with it.
func (r *reconciler) Gone(_ context.Context, key string) error {
	r.triggers.Forget(key)
	return nil
}

// Reconcile makes the slices of a service hold its pods.
func (r *reconciler) Reconcile(ctx context.Context, svc *corev1.Service) (controller.Next, error) {
	if len(svc.Spec.Selector) == 0 || svc.DeletionTimestamp != nil {
		return controller.Done, nil // somebody else makes its slices; those of a deleted service go with it
	}
	began := time.Now()
	existing, strange := r.existing(svc)
	var groups []*group
	pods := r.pods.List(svc.Namespace, labels.SelectorFromSet(svc.Spec.Selector))
	if svc.Spec.Type != corev1.ServiceTypeExternalName {
		for _, family := range families(svc) {
			some := r.groups(svc, family, pods)
			r.topology(svc, some, existing)
			groups = append(groups, some...)
		}
	}
	trigger := r.triggers.Take(svc, pods)
	p := planner{limit: r.limit, labels: labelsOf(svc)}
	p.blank = func(g *group) *discoveryv1.EndpointSlice { return blank(svc, g, p.labels) }
	c := p.plan(groups, existing)
	for _, s := range strange {
		c.delete = append(c.delete, s)
		c.removed += len(s.Endpoints)
	}
	for _, s := range slices.Concat(c.create, c.update) {
		s.Annotations = endpoint.TriggerAnnotation(s.Annotations, trigger)
	}
	next := controller.Done.Costly(time.Since(began))
	r.metrics.planned(svc, &c)
	r.tellUnplaced(svc, pods)
	err := r.write(ctx, svc, &c)
	r.metrics.looked(err)
	return next, err
}

// tellUnplaced tells people of pods that are left out because their node is not there. It
// wakes the service when it comes.
func (r *reconciler) tellUnplaced(svc *corev1.Service, pods []*corev1.Pod) {
	if svc.Spec.Type == corev1.ServiceTypeExternalName {
		return
	}
	for _, pod := range pods {
		if endpoint.Possible(pod) && !r.placed(svc, pod) {
			r.failed(svc, fmt.Errorf("skipping Pod %s for Service %s/%s: Node %s Not Found", pod.Name, svc.Namespace, svc.Name, pod.Spec.NodeName))
		}
	}
}

func (r *reconciler) failed(svc *corev1.Service, err error) {
	r.k.Events.Event(svc, corev1.EventTypeWarning, "FailedToUpdateEndpointSlices",
		fmt.Sprintf("Error updating Endpoint Slices for Service %s/%s: %v", svc.Namespace, svc.Name, err))
}

// existing are the slices that were made of a service, in the order of their names, without those
// that are being deleted: something may hold them for long. Those that were made of another service
// of that name, which is gone, are strange: they go with it.
func (r *reconciler) existing(svc *corev1.Service) (own, strange []*discoveryv1.EndpointSlice) {
	for _, s := range r.slices.ByIndex(discovery.IndexService, cache.Key(svc.Namespace, svc.Name)) {
		switch {
		case s.Labels[discoveryv1.LabelManagedBy] != discovery.ManagedByController, s.DeletionTimestamp != nil:
		case slices.ContainsFunc(s.OwnerReferences, func(ref metav1.OwnerReference) bool { return ref.UID == svc.UID }):
			own = append(own, s)
		default:
			strange = append(strange, s)
		}
	}
	slices.SortFunc(own, func(a, b *discoveryv1.EndpointSlice) int { return strings.Compare(a.Name, b.Name) })
	return own, strange
}

func (r *reconciler) write(ctx context.Context, svc *corev1.Service, c *changes) error {
	var errs []error
	for _, s := range c.create {
		_, err := r.slices.Create(ctx, s)
		err = r.metrics.wrote("create", err)
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return nil
		}
		errs = append(errs, err)
	}
	for _, s := range c.update {
		_, err := r.slices.Update(ctx, s)
		errs = append(errs, r.metrics.wrote("update", err))
	}
	for _, s := range c.delete {
		if err := r.metrics.wrote("delete", r.slices.Delete(ctx, s)); !apierrors.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	for _, err := range errs {
		if apierrors.IsConflict(err) {
			return err // old caches are nothing to tell people about
		}
	}
	if err := errors.Join(errs...); err != nil {
		r.failed(svc, err)
		return err
	}
	return nil
}

func families(svc *corev1.Service) []discoveryv1.AddressType {
	if len(svc.Spec.IPFamilies) == 0 {
		return []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4}
	}
	var out []discoveryv1.AddressType
	for _, f := range svc.Spec.IPFamilies {
		out = append(out, discoveryv1.AddressType(f))
	}
	return out
}

// groups sorts the endpoints of one family by their ports: pods may give the
// same port name different numbers. There is always at least one group.
func (r *reconciler) groups(svc *corev1.Service, family discoveryv1.AddressType, pods []*corev1.Pod) []*group {
	var order []*group
	for _, pod := range pods {
		address := addressOf(pod, family)
		if address == "" || !endpoint.Possible(pod) || !r.placed(svc, pod) {
			continue
		}
		i := 0
		if len(order) == 0 || named(svc) {
			ports := portsOf(svc, pod)
			i = slices.IndexFunc(order, func(g *group) bool { return slices.EqualFunc(g.ports, ports, samePort) })
			if i < 0 {
				i, order = len(order), append(order, &group{family: family, ports: ports})
			}
		}
		order[i].endpoints = append(order[i].endpoints, r.endpoint(svc, pod, address))
	}
	if len(order) == 0 {
		return []*group{{family: family}}
	}
	return order
}

// named says whether a pod is asked which port it means.
func named(svc *corev1.Service) bool {
	return slices.ContainsFunc(svc.Spec.Ports, func(p corev1.ServicePort) bool { return p.TargetPort.Type == intstr.String })
}

// samePort compares the ports that two pods have for one port of their service.
func samePort(a, b discoveryv1.EndpointPort) bool { return *a.Name == *b.Name && *a.Port == *b.Port }

// placed says whether the node of a pod is there: pods of a node that was removed
// go soon, and nobody tells how they are.
func (r *reconciler) placed(svc *corev1.Service, pod *corev1.Pod) bool {
	_, ok := r.nodes.Get("", pod.Spec.NodeName)
	return ok || pod.Spec.NodeName == "" || svc.Spec.PublishNotReadyAddresses
}

func addressOf(pod *corev1.Pod, family discoveryv1.AddressType) string {
	for _, ip := range pod.Status.PodIPs {
		addr, err := netip.ParseAddr(ip.IP)
		if err == nil && addr.Is4() == (family == discoveryv1.AddressTypeIPv4) {
			return ip.IP
		}
	}
	return ""
}

func portsOf(svc *corev1.Service, pod *corev1.Pod) []discoveryv1.EndpointPort {
	var ports []discoveryv1.EndpointPort
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		number, ok := endpoint.TargetPort(pod, p)
		if !ok {
			continue
		}
		ports = append(ports, discoveryv1.EndpointPort{
			Name: ptr.To(p.Name), Port: ptr.To(number), Protocol: ptr.To(cmp.Or(p.Protocol, corev1.ProtocolTCP)), AppProtocol: p.AppProtocol,
		})
	}
	return ports
}

func (r *reconciler) endpoint(svc *corev1.Service, pod *corev1.Pod, address string) discoveryv1.Endpoint {
	serving, terminating := core.PodReady(pod), pod.DeletionTimestamp != nil
	ready := svc.Spec.PublishNotReadyAddresses || serving && !terminating
	e := discoveryv1.Endpoint{
		Addresses:  []string{address},
		Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating},
		TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
	}
	if pod.Spec.Hostname != "" && pod.Spec.Subdomain == svc.Name {
		e.Hostname = ptr.To(pod.Spec.Hostname)
	}
	if pod.Spec.NodeName == "" {
		return e
	}
	e.NodeName = ptr.To(pod.Spec.NodeName)
	if node, ok := r.nodes.Get("", pod.Spec.NodeName); ok {
		if zone := node.Labels[corev1.LabelTopologyZone]; zone != "" {
			e.Zone = &zone
		}
		region := node.Labels[corev1.LabelTopologyRegion]
		if region != "" && slices.Contains(core.TopologyKeys(svc), corev1.LabelTopologyRegion) {
			e.DeprecatedTopology = map[string]string{corev1.LabelTopologyRegion: region}
		}
	}
	e.Hints = hints(svc, &e)
	return e
}

// hints tell proxies which clients an endpoint is meant for.
func hints(svc *corev1.Service, e *discoveryv1.Endpoint) *discoveryv1.EndpointHints {
	if svc.Spec.TrafficDistribution == nil || core.TopologyModeAuto(svc) || !*e.Conditions.Ready {
		return nil
	}
	var h discoveryv1.EndpointHints
	if e.Zone != nil {
		h.ForZones = []discoveryv1.ForZone{{Name: *e.Zone}}
	}
	if *svc.Spec.TrafficDistribution == corev1.ServiceTrafficDistributionPreferSameNode && e.NodeName != nil {
		h.ForNodes = []discoveryv1.ForNode{{Name: *e.NodeName}}
	}
	if h.ForZones == nil && h.ForNodes == nil {
		return nil
	}
	return &h
}

// blank is an empty slice of a service for a group.
func blank(svc *corev1.Service, g *group, labels map[string]string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: svc.Namespace, GenerateName: svc.Name + "-", Labels: maps.Clone(labels),
			OwnerReferences: []metav1.OwnerReference{*controller.ControllerRef(svc, core.Services.Def)},
		},
		AddressType: g.family, Ports: g.ports,
	}
}

// labelsOf are the labels of a service's slices: its own and some more.
func labelsOf(svc *corev1.Service) map[string]string {
	want := maps.Clone(svc.Labels)
	if want == nil {
		want = map[string]string{}
	}
	for _, reserved := range []string{discoveryv1.LabelManagedBy, discoveryv1.LabelServiceName, corev1.IsHeadlessService} {
		delete(want, reserved)
	}
	want[discoveryv1.LabelServiceName], want[discoveryv1.LabelManagedBy] = svc.Name, discovery.ManagedByController
	if svc.Spec.ClusterIP == corev1.ClusterIPNone {
		want[corev1.IsHeadlessService] = ""
	}
	return want
}
