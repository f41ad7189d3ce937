// Package endpoints keeps the older Endpoints object of every Service with a
// selector, for clients that do not read EndpointSlices yet.
package endpoints

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/endpoint"
)

// capacity is how many addresses an Endpoints object holds at the most.
const capacity = 1000

const managedByLabel, managedBy = "endpoints.kubernetes.io/managed-by", "endpoint-controller"

// Controller is the endpoints controller.
var Controller = controller.New(controller.Spec[*corev1.Service]{
	Name: "endpoint-controller",
	For:  core.Services,
	Watches: []controller.Watch{
		endpoint.Selecting,
		controller.Mapped(core.Endpoints, func(_ *controller.Kit, e *corev1.Endpoints) []string {
			return []string{cache.Key(e.Namespace, e.Name)}
		}),
	},
	Writes: []controller.Permission{
		controller.Create(core.Endpoints.Def), controller.Update(core.Endpoints.Def), controller.Delete(core.Endpoints.Def),
	},
	Setup: func(k *controller.Kit) controller.Reconciler[*corev1.Service] {
		r := &reconciler{k: k, pods: controller.For(k, core.Pods), endpoints: controller.For(k, core.Endpoints)}
		r.mu.left = map[string]bool{}
		return r
	},
})

type reconciler struct {
	k         *controller.Kit
	pods      controller.Client[*corev1.Pod]
	endpoints controller.Client[*corev1.Endpoints]
	triggers  endpoint.Triggers
	mu        struct {
		sync.Mutex
		left map[string]bool // keys of the services whose Endpoints are left to others
	}
}

// Gone removes the Endpoints of a deleted service: those that were made here, and those that
// others have written for it, so that the next service of that name does not begin with them.
// Endpoints that never had a service are not its business.
func (r *reconciler) Gone(ctx context.Context, key string) error {
	r.triggers.Forget(key)
	namespace, name, _ := strings.Cut(key, "/")
	e, ok := r.endpoints.Get(namespace, name)
	if had := r.leave(key, false); !ok || e.Labels[managedByLabel] != managedBy && !had {
		return nil
	}
	err := r.endpoints.Delete(ctx, e)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// leave notes whether the Endpoints of a service are left to others, and says whether they were.
func (r *reconciler) leave(key string, left bool) (was bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	was = r.mu.left[key]
	if left {
		r.mu.left[key] = true
	} else {
		delete(r.mu.left, key)
	}
	return was
}

// Reconcile makes the Endpoints of a service hold its pods.
func (r *reconciler) Reconcile(ctx context.Context, svc *corev1.Service) (controller.Next, error) {
	left := len(svc.Spec.Selector) == 0 || svc.Spec.Type == corev1.ServiceTypeExternalName
	r.leave(cache.Key(svc.Namespace, svc.Name), left)
	if left {
		return controller.Done, nil
	}
	began := time.Now()
	want := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: svc.Namespace, Name: svc.Name, Labels: labelsOf(svc)}}
	over := false
	pods := r.pods.List(svc.Namespace, labels.SelectorFromSet(svc.Spec.Selector))
	want.Subsets, over = truncate(subsets(addresses(svc, pods)))
	trigger := r.triggers.Take(svc, pods)
	has, ok := r.endpoints.Get(svc.Namespace, svc.Name)
	if ok {
		want.Annotations = maps.Clone(has.Annotations)
		want.ResourceVersion = has.ResourceVersion
	}
	delete(want.Annotations, corev1.EndpointsOverCapacity)
	if over {
		if want.Annotations == nil {
			want.Annotations = map[string]string{}
		}
		want.Annotations[corev1.EndpointsOverCapacity] = "truncated"
	}
	same := ok && equality.Semantic.DeepEqual(has.Subsets, want.Subsets) && maps.Equal(has.Labels, want.Labels) && maps.Equal(has.Annotations, want.Annotations)
	next := controller.Done.Costly(time.Since(began))
	if same {
		return next, nil
	}
	want.Annotations = endpoint.TriggerAnnotation(want.Annotations, trigger)
	return next, r.write(ctx, want, has)
}

// write stores the Endpoints of a service, in the place of those that are there, if any. What
// goes wrong is told of them, whether they are there or not.
func (r *reconciler) write(ctx context.Context, e, has *corev1.Endpoints) error {
	about := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: e.Name}}
	reason, what := "FailedToCreateEndpoint", "Failed to create endpoint for service"
	var err error
	if has == nil {
		_, err = r.endpoints.Create(ctx, e)
	} else {
		about.UID, reason, what = has.UID, "FailedToUpdateEndpoint", "Failed to update endpoint"
		_, err = r.endpoints.Update(ctx, e)
	}
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil
	case err != nil && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err):
		r.k.Events.Event(about, corev1.EventTypeWarning, reason, fmt.Sprintf("%s %s/%s: %v", what, about.Namespace, about.Name, err))
	}
	return err
}

func labelsOf(svc *corev1.Service) map[string]string {
	l := maps.Clone(svc.Labels)
	if l == nil {
		l = map[string]string{}
	}
	l[managedByLabel] = managedBy
	delete(l, corev1.IsHeadlessService)
	if svc.Spec.ClusterIP == corev1.ClusterIPNone {
		l[corev1.IsHeadlessService] = ""
	}
	return l
}

// address is one pod's address with its ports.
type address struct {
	corev1.EndpointAddress
	ports []corev1.EndpointPort
	ready bool
}

// addresses are those of the pods.
func addresses(svc *corev1.Service, pods []*corev1.Pod) []address {
	var out []address
	for _, pod := range pods {
		ip := primaryIP(svc, pod)
		if ip == "" || !endpoint.Possible(pod) || pod.DeletionTimestamp != nil && !svc.Spec.PublishNotReadyAddresses {
			continue
		}
		a := address{
			EndpointAddress: corev1.EndpointAddress{
				IP:        ip,
				TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
			},
			ready: svc.Spec.PublishNotReadyAddresses || core.PodReady(pod),
		}
		if pod.Spec.NodeName != "" {
			a.NodeName = &pod.Spec.NodeName
		}
		if pod.Spec.Hostname != "" && pod.Spec.Subdomain == svc.Name {
			a.Hostname = pod.Spec.Hostname
		}
		for i := range svc.Spec.Ports {
			p := &svc.Spec.Ports[i]
			if n, ok := endpoint.TargetPort(pod, p); ok {
				a.ports = append(a.ports, corev1.EndpointPort{Name: p.Name, Port: n, Protocol: p.Protocol, AppProtocol: p.AppProtocol})
			}
		}
		if len(svc.Spec.Ports) > 0 && len(a.ports) == 0 {
			continue
		}
		out = append(out, a)
	}
	return out
}

func primaryIP(svc *corev1.Service, pod *corev1.Pod) string {
	six := len(svc.Spec.IPFamilies) > 0 && svc.Spec.IPFamilies[0] == corev1.IPv6Protocol
	for _, ip := range pod.Status.PodIPs {
		if addr, err := netip.ParseAddr(ip.IP); err == nil && addr.Is6() == six {
			return ip.IP
		}
	}
	return ""
}

// subsets packs addresses with the same ports together, in a stable order.
func subsets(addresses []address) []corev1.EndpointSubset {
	byPorts := map[string]*corev1.EndpointSubset{}
	for _, a := range addresses {
		slices.SortFunc(a.ports, func(a, b corev1.EndpointPort) int {
			return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Port, b.Port))
		})
		key := portsKey(a.ports)
		s := byPorts[key]
		if s == nil {
			s = &corev1.EndpointSubset{Ports: a.ports}
			byPorts[key] = s
		}
		if a.ready {
			s.Addresses = append(s.Addresses, a.EndpointAddress)
		} else {
			s.NotReadyAddresses = append(s.NotReadyAddresses, a.EndpointAddress)
		}
	}
	var out []corev1.EndpointSubset
	for _, key := range slices.Sorted(maps.Keys(byPorts)) {
		s := byPorts[key]
		byIP := func(a, b corev1.EndpointAddress) int { return cmp.Compare(a.IP, b.IP) }
		slices.SortFunc(s.Addresses, byIP)
		slices.SortFunc(s.NotReadyAddresses, byIP)
		out = append(out, *s)
	}
	return out
}

func portsKey(ports []corev1.EndpointPort) string {
	var b strings.Builder
	for _, p := range ports {
		fmt.Fprintf(&b, "%s/%s/%d/%s ", p.Name, p.Protocol, p.Port, ptr.Deref(p.AppProtocol, ""))
	}
	return b.String()
}

// truncate keeps as many addresses as there is room for, and says whether there were more: ready
// ones before all others, and of each subset its share, so that none is emptied for another.
func truncate(subsets []corev1.EndpointSubset) ([]corev1.EndpointSubset, bool) {
	ready, others := 0, 0
	for i := range subsets {
		ready += len(subsets[i].Addresses)
		others += len(subsets[i].NotReadyAddresses)
	}
	if ready+others <= capacity {
		return subsets, false
	}
	room := min(ready, capacity)
	share(subsets, room, func(s *corev1.EndpointSubset) *[]corev1.EndpointAddress { return &s.Addresses })
	share(subsets, capacity-room, func(s *corev1.EndpointSubset) *[]corev1.EndpointAddress { return &s.NotReadyAddresses })
	return slices.DeleteFunc(subsets, func(s corev1.EndpointSubset) bool { return len(s.Addresses)+len(s.NotReadyAddresses) == 0 }), true
}

// share cuts the addresses of one sort to so many in all.
func share(subsets []corev1.EndpointSubset, room int, of func(*corev1.EndpointSubset) *[]corev1.EndpointAddress) {
	all, left := 0, room
	for i := range subsets {
		all += len(*of(&subsets[i]))
	}
	for i := range subsets {
		list := of(&subsets[i])
		if len(*list) == 0 {
			continue
		}
		n := min(left, len(*list), (len(*list)*room+all-1)/all)
		left -= n
		if *list = (*list)[:n]; n == 0 {
			*list = nil
		}
	}
}
