package endpointslicemirroring

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/discovery"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/controller"
)

const (
	// managedBy is the value of the label that marks slices as this controller's.
	managedBy = "endpointslicemirroring-controller.k8s.io"
	// leader is the annotation of Endpoints that are a lock, not addresses.
	leader = "control-plane.alpha.kubernetes.io/leader"
)

// Options configure the controller. The zero value is upstream's.
type Options struct {
	// MaxEndpointsPerSubset is how many addresses of a subset of hand-made Endpoints are
	// mirrored (--mirroring-max-endpoints-per-subset).
	MaxEndpointsPerSubset int
}

// Defaults are the options of a controller that is given none.
func Defaults() Options { return Options{}.withDefaults() }

func (o Options) withDefaults() Options {
	o.MaxEndpointsPerSubset = cmp.Or(o.MaxEndpointsPerSubset, 1000)
	return o
}

// Check says what is wrong with the options.
func (o Options) Check() error {
	return controller.CheckRange("mirroring-max-endpoints-per-subset", o.MaxEndpointsPerSubset, 1, 1000)
}

// New returns the mirroring controller.
func New(o Options) *controller.Controller {
	limit := o.withDefaults().MaxEndpointsPerSubset
	return controller.New(controller.Spec[*corev1.Endpoints]{
		Name: "endpointslicemirroring-controller", Source: "endpoint-slice-mirroring-controller",
		For: core.Endpoints,
		Watches: []controller.Watch{
			controller.Mapped(core.Services, func(_ *controller.Kit, s *corev1.Service) []string {
				return []string{cache.Key(s.Namespace, s.Name)}
			}),
			controller.Mapped(discovery.EndpointSlices, func(_ *controller.Kit, s *discoveryv1.EndpointSlice) []string {
				if s.Labels[discoveryv1.LabelManagedBy] != managedBy {
					return nil
				}
				return []string{cache.Key(s.Namespace, s.Labels[discoveryv1.LabelServiceName])}
			}),
		},
		Writes: []controller.Permission{
			controller.Create(discovery.EndpointSlices.Def), controller.Update(discovery.EndpointSlices.Def), controller.Delete(discovery.EndpointSlices.Def),
		},
		Setup: func(k *controller.Kit) controller.Reconciler[*corev1.Endpoints] {
			r := &reconciler{
				k: k, limit: limit, services: controller.For(k, core.Services), slices: controller.For(k, discovery.EndpointSlices),
				metrics: controller.OwnMetrics(k, newMetrics),
			}
			r.metrics.of.Store(r)
			return r
		},
	})
}

type reconciler struct {
	k        *controller.Kit
	limit    int
	services controller.Client[*corev1.Service]
	slices   controller.Client[*discoveryv1.EndpointSlice]
	metrics  *metrics
}

// Gone removes the slices of Endpoints that were deleted.
func (r *reconciler) Gone(ctx context.Context, key string) error {
	namespace, name, _ := strings.Cut(key, "/")
	return r.remove(ctx, r.existing(namespace, name))
}

// Reconcile makes the slices of Endpoints hold their addresses.
func (r *reconciler) Reconcile(ctx context.Context, e *corev1.Endpoints) (controller.Next, error) {
	defer r.metrics.looked(time.Now())
	existing := r.existing(e.Namespace, e.Name)
	svc, ok := r.services.Get(e.Namespace, e.Name)
	if !ok || svc.Spec.Selector != nil || !mirrored(e) {
		return controller.Done, r.remove(ctx, existing)
	}
	wanted, invalid, over := plan(e, r.limit)
	r.metrics.skipped.Observe(float64(invalid + over))
	r.metrics.planned(wanted, existing)
	if invalid > 0 {
		r.k.Events.Event(e, corev1.EventTypeWarning, "InvalidIPAddress",
			fmt.Sprintf("Skipped %d invalid IP addresses when mirroring to EndpointSlices", invalid))
	}
	if over > 0 {
		r.k.Events.Event(e, corev1.EventTypeWarning, "TooManyAddressesToMirror",
			fmt.Sprintf("A max of %d addresses can be mirrored to EndpointSlices per Endpoints subset. %d addresses were skipped", r.limit, over))
	}
	return controller.Done, r.write(ctx, wanted, existing)
}

func (r *reconciler) existing(namespace, name string) []*discoveryv1.EndpointSlice {
	return slices.DeleteFunc(r.slices.ByIndex(discovery.IndexService, cache.Key(namespace, name)), func(s *discoveryv1.EndpointSlice) bool {
		return s.Labels[discoveryv1.LabelManagedBy] != managedBy
	})
}

func (r *reconciler) remove(ctx context.Context, all []*discoveryv1.EndpointSlice) error {
	for _, s := range all {
		if err := r.metrics.wrote("delete", r.slices.Delete(ctx, s)); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// write turns the existing slices into the wanted ones: each into one of its
// address type and ports, or of its address type at least.
func (r *reconciler) write(ctx context.Context, wanted, existing []*discoveryv1.EndpointSlice) error {
	take := func(fits func(*discoveryv1.EndpointSlice) bool) *discoveryv1.EndpointSlice {
		i := slices.IndexFunc(existing, fits)
		if i < 0 {
			return nil
		}
		s := existing[i]
		existing = slices.Delete(slices.Clone(existing), i, i+1)
		return s
	}
	has := make([]*discoveryv1.EndpointSlice, len(wanted))
	for i, w := range wanted {
		has[i] = take(func(s *discoveryv1.EndpointSlice) bool {
			return s.AddressType == w.AddressType && equality.Semantic.DeepEqual(s.Ports, w.Ports)
		})
	}
	for i, w := range wanted {
		if has[i] == nil {
			has[i] = take(func(s *discoveryv1.EndpointSlice) bool { return s.AddressType == w.AddressType })
		}
		if err := r.put(ctx, w, has[i]); err != nil {
			if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
				return nil
			}
			return err
		}
	}
	return r.remove(ctx, existing)
}

func (r *reconciler) put(ctx context.Context, want, has *discoveryv1.EndpointSlice) error {
	if has == nil {
		_, err := r.slices.Create(ctx, want)
		return r.metrics.wrote("create", err)
	}
	if maps.Equal(has.Labels, want.Labels) && maps.Equal(has.Annotations, want.Annotations) &&
		equality.Semantic.DeepEqual(has.Ports, want.Ports) && equality.Semantic.DeepEqual(has.Endpoints, want.Endpoints) {
		return nil
	}
	s := has.DeepCopy()
	s.Labels, s.Annotations, s.OwnerReferences, s.Ports, s.Endpoints = want.Labels, want.Annotations, want.OwnerReferences, want.Ports, want.Endpoints
	_, err := r.slices.Update(ctx, s)
	return r.metrics.wrote("update", err)
}

// mirrored says whether Endpoints are to be mirrored at all.
func mirrored(e *corev1.Endpoints) bool {
	_, lock := e.Annotations[leader]
	return e.Labels[discoveryv1.LabelSkipMirror] != "true" && !lock && e.DeletionTimestamp == nil
}

// plan makes the slices of Endpoints: one for each set of ports and address
// family. It also returns how many addresses are none, and how many were too many.
func plan(e *corev1.Endpoints, limit int) (wanted []*discoveryv1.EndpointSlice, invalid, over int) {
	byKey := map[string]*discoveryv1.EndpointSlice{}
	for _, subset := range merge(e.Subsets) {
		left := limit
		add := func(addresses []corev1.EndpointAddress, ready bool) {
			for i := range addresses {
				ip, err := netip.ParseAddr(addresses[i].IP)
				switch {
				case err != nil:
					invalid++
					continue
				case left == 0:
					over++
					continue
				}
				left--
				family := discoveryv1.AddressTypeIPv6
				if ip.Is4() {
					family = discoveryv1.AddressTypeIPv4
				}
				key := string(family) + " " + portsKey(subset.Ports)
				if byKey[key] == nil {
					byKey[key] = blank(e, family, subset.Ports)
				}
				byKey[key].Endpoints = append(byKey[key].Endpoints, endpoint(&addresses[i], ready))
			}
		}
		add(subset.Addresses, true)
		add(subset.NotReadyAddresses, false)
	}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		wanted = append(wanted, byKey[key])
	}
	return wanted, invalid, over
}

// offer is who offers a port, in the order of the subsets.
type offer struct {
	port  *corev1.EndpointPort // nil: of those that say no port
	order []string             // identities
	who   map[string]*corev1.EndpointAddress
	ready map[string]bool
}

// add notes addresses. One that is ready and not ready is not ready; one that is there twice
// counts once.
func (o *offer) add(addresses []corev1.EndpointAddress, ready bool) {
	for i := range addresses {
		id := identity(&addresses[i])
		if o.who[id] == nil {
			o.order, o.who[id], o.ready[id] = append(o.order, id), &addresses[i], ready
		}
		o.ready[id] = o.ready[id] && ready
	}
}

// crowd tells apart who offers what: those who are the same, and as ready, have the same.
func (o *offer) crowd() string {
	ids := slices.Sorted(slices.Values(o.order))
	for i, id := range ids {
		ids[i] = fmt.Sprintf("%s %t", id, o.ready[id])
	}
	return strings.Join(ids, ",")
}

// merge puts subsets together as few as can be: each port has all who offer it, wherever that
// is said, and ports that the same offer are one subset.
func merge(subsets []corev1.EndpointSubset) []corev1.EndpointSubset {
	offers := map[string]*offer{}
	note := func(port *corev1.EndpointPort, key string, s *corev1.EndpointSubset) {
		if offers[key] == nil {
			offers[key] = &offer{port: port, who: map[string]*corev1.EndpointAddress{}, ready: map[string]bool{}}
		}
		offers[key].add(s.Addresses, true)
		offers[key].add(s.NotReadyAddresses, false)
	}
	for i := range subsets {
		s := &subsets[i]
		if len(s.Ports) == 0 {
			note(nil, "", s)
		}
		for j := range s.Ports {
			note(&s.Ports[j], portsKey(s.Ports[j:j+1]), s)
		}
	}
	var out []corev1.EndpointSubset
	at := map[string]int{}
	for _, key := range slices.Sorted(maps.Keys(offers)) {
		o := offers[key]
		i, ok := at[o.crowd()]
		if !ok {
			i = len(out)
			at[o.crowd()] = i
			out = append(out, corev1.EndpointSubset{})
			for _, id := range o.order {
				if o.ready[id] {
					out[i].Addresses = append(out[i].Addresses, *o.who[id])
				} else {
					out[i].NotReadyAddresses = append(out[i].NotReadyAddresses, *o.who[id])
				}
			}
		}
		if o.port != nil {
			out[i].Ports = append(out[i].Ports, *o.port)
		}
	}
	return out
}

func identity(a *corev1.EndpointAddress) string {
	if a.TargetRef == nil {
		return a.IP
	}
	return a.IP + " " + string(a.TargetRef.UID)
}

func portsKey(ports []corev1.EndpointPort) string {
	var parts []string
	for _, p := range ports {
		parts = append(parts, fmt.Sprintf("%s/%s/%d/%s", p.Name, cmp.Or(p.Protocol, corev1.ProtocolTCP), p.Port, ptr.Deref(p.AppProtocol, "")))
	}
	slices.Sort(parts)
	return strings.Join(parts, " ")
}

// portsOf tells the ports of slices apart.
func portsOf(s *discoveryv1.EndpointSlice) string {
	var parts []string
	for _, p := range s.Ports {
		parts = append(parts, fmt.Sprintf("%s/%s/%d", ptr.Deref(p.Name, ""), ptr.Deref(p.Protocol, ""), ptr.Deref(p.Port, 0)))
	}
	return strings.Join(parts, " ")
}

// blank is an empty slice of Endpoints.
func blank(e *corev1.Endpoints, family discoveryv1.AddressType, ports []corev1.EndpointPort) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: e.Namespace, GenerateName: e.Name + "-", Labels: maps.Clone(e.Labels), Annotations: maps.Clone(e.Annotations),
			OwnerReferences: []metav1.OwnerReference{*controller.ControllerRef(e, core.Endpoints.Def)},
		},
		AddressType: family,
	}
	if s.Labels == nil {
		s.Labels = map[string]string{}
	}
	s.Labels[discoveryv1.LabelServiceName], s.Labels[discoveryv1.LabelManagedBy] = e.Name, managedBy
	// These two are about the Endpoints themselves.
	delete(s.Annotations, corev1.EndpointsLastChangeTriggerTime)
	delete(s.Annotations, corev1.LastAppliedConfigAnnotation)
	for _, p := range ports {
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{
			Name: ptr.To(p.Name), Port: ptr.To(p.Port), Protocol: ptr.To(cmp.Or(p.Protocol, corev1.ProtocolTCP)), AppProtocol: p.AppProtocol,
		})
	}
	return s
}

func endpoint(a *corev1.EndpointAddress, ready bool) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{
		Addresses: []string{a.IP}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}, TargetRef: a.TargetRef, NodeName: a.NodeName,
	}
	if a.Hostname != "" {
		e.Hostname = ptr.To(a.Hostname)
	}
	return e
}
