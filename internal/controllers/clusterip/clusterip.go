package clusterip

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/networking"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/resource"
)

// A key is one of these and the key of a Service, or an address.
const (
	ofService = "services/"
	ofAddress = "ipaddresses/"
)

// Controller holds Services and IPAddresses against each other.
var Controller = controller.NewKeyed(controller.Keyed{
	Name: "ipallocator-repair-controller",
	Watches: []controller.Watch{
		{Def: core.Services.Def, Keys: serviceKeys, Same: func(before, after resource.Object) bool {
			return slices.Equal(before.(*corev1.Service).Spec.ClusterIPs, after.(*corev1.Service).Spec.ClusterIPs)
		}},
		{Def: networking.IPAddresses.Def, Keys: addressKeys},
	},
	Reads:  []*resource.Def{networking.ServiceCIDRs.Def},
	Writes: []controller.Permission{controller.Create(networking.IPAddresses.Def), controller.Delete(networking.IPAddresses.Def)},
	Setup: func(k *controller.Kit) func(context.Context, string) (controller.Next, error) {
		r := &reconciler{
			k: k, services: controller.For(k, core.Services), addresses: controller.For(k, networking.IPAddresses), ranges: controller.For(k, networking.ServiceCIDRs),
			metrics: controller.OwnMetrics(k, newMetrics),
		}
		r.metrics.of.Store(r)
		return r.reconcile
	},
})

// serviceKeys wake a Service, and the addresses that it has or had.
func serviceKeys(_ *controller.Kit, obj resource.Object) []string {
	svc := obj.(*corev1.Service)
	keys := []string{ofService + cache.Key(svc.Namespace, svc.Name)}
	for _, ip := range clusterIPs(svc) {
		keys = append(keys, ofAddress+ip.String())
	}
	return keys
}

// addressKeys wake an address and the Service that has it.
func addressKeys(_ *controller.Kit, obj resource.Object) []string {
	a := obj.(*networkingv1.IPAddress)
	keys := []string{ofAddress + a.Name}
	if p := a.Spec.ParentRef; isService(p) {
		keys = append(keys, ofService+cache.Key(p.Namespace, p.Name))
	}
	return keys
}

func isService(p *networkingv1.ParentReference) bool {
	return p != nil && p.Group == "" && p.Resource == "services"
}

// clusterIPs are the addresses that a Service has.
func clusterIPs(svc *corev1.Service) (list []netip.Addr) {
	if svc.Spec.Type == corev1.ServiceTypeExternalName || core.Headless(svc) {
		return nil
	}
	for _, text := range svc.Spec.ClusterIPs {
		if ip, err := netip.ParseAddr(text); err == nil {
			list = append(list, ip)
		}
	}
	return list
}

type reconciler struct {
	k         *controller.Kit
	services  controller.Client[*corev1.Service]
	addresses controller.Client[*networkingv1.IPAddress]
	ranges    controller.Client[*networkingv1.ServiceCIDR]
	metrics   *metrics
}

func (r *reconciler) reconcile(ctx context.Context, key string) (controller.Next, error) {
	err := r.check(ctx, key)
	if err != nil {
		r.metrics.failed.Inc()
	}
	return controller.Done, err
}

func (r *reconciler) check(ctx context.Context, key string) error {
	if address, ok := strings.CutPrefix(key, ofAddress); ok {
		return r.checkAddress(ctx, address)
	}
	namespace, name, _ := strings.Cut(strings.TrimPrefix(key, ofService), "/")
	return r.checkService(ctx, namespace, name)
}

// wrong tells people what is wrong with an address of a Service.
func (r *reconciler) wrong(what string, about client.Deed, reason, message string) {
	r.metrics.wrong.WithLabelValues(what).Inc()
	r.k.Events.Event(about, corev1.EventTypeWarning, reason, message)
}

// checkService sees to it that the addresses of a Service are taken, by it.
func (r *reconciler) checkService(ctx context.Context, namespace, name string) error {
	svc, ok := r.services.Get(namespace, name)
	if !ok {
		return nil // its addresses are looked at
	}
	if err := r.addresses.WaitRev(ctx, resource.Revision(svc)); err != nil {
		return fmt.Errorf("wait for the addresses of service %s/%s: %w", namespace, name, err)
	}
	var errs []error
	for _, ip := range clusterIPs(svc) {
		a, ok := r.addresses.Get("", ip.String())
		if ok && of(a, svc) && networking.LabelledIPAddress(a) && r.inRange(ip) {
			continue
		}
		errs = append(errs, r.mend(ctx, svc, ip))
	}
	return errors.Join(errs...)
}

// of reports that an address is taken for a Service.
func of(a *networkingv1.IPAddress, svc *corev1.Service) bool {
	p := a.Spec.ParentRef
	return isService(p) && p.Namespace == svc.Namespace && p.Name == svc.Name
}

// mend takes an address for a Service that has it, and tells people what was wrong. It looks at the
// newest state: caches do not see what one transaction does at one moment.
func (r *reconciler) mend(ctx context.Context, svc *corev1.Service, ip netip.Addr) error {
	svc, err := r.services.Live(ctx, svc.Namespace, svc.Name)
	if err != nil || !slices.Contains(clusterIPs(svc), ip) {
		return ignoreGone(err)
	}
	about := client.Deed{Object: svc, Action: "ClusterIPAllocation"}
	family := corev1.IPv4Protocol
	if ip.Is6() {
		family = corev1.IPv6Protocol
	}
	if !r.inRange(ip) {
		r.wrong(outOfRange, about, "ClusterIPOutOfRange", fmt.Sprintf("Cluster IP [%v]: %s is not within any configured Service CIDR; please recreate service", family, ip))
		return nil
	}
	a, err := r.addresses.Live(ctx, "", ip.String())
	switch {
	case apierrors.IsNotFound(err):
		r.wrong(missing, about, "ClusterIPNotAllocated", fmt.Sprintf("Cluster IP [%v]: %s is not allocated; repairing", family, ip))
		return r.take(ctx, svc, ip)
	case err != nil:
		return err
	case of(a, svc) && networking.LabelledIPAddress(a):
		return nil
	case of(a, svc):
		return r.replace(ctx, svc, a, ip)
	}
	if p := a.Spec.ParentRef; isService(p) {
		other, err := r.services.Live(ctx, p.Namespace, p.Name)
		if err == nil && slices.Contains(clusterIPs(other), ip) {
			r.wrong(twice, about, "ClusterIPAlreadyAllocated", fmt.Sprintf("Cluster IP [%v]:%s was assigned to multiple services; please recreate service", family, ip))
			return nil
		}
	}
	r.wrong(missing, about, "ClusterIPNotAllocated", fmt.Sprintf("the ClusterIP [%v]: %s for Service %s/%s has a wrong reference; repairing", family, ip, svc.Namespace, svc.Name))
	return r.replace(ctx, svc, a, ip)
}

func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// inRange reports that an address is in a range of Services, whichever state that is in.
func (r *reconciler) inRange(ip netip.Addr) bool {
	all := r.ranges.List("", nil)
	return len(all) == 0 || slices.ContainsFunc(all, func(c *networkingv1.ServiceCIDR) bool {
		return slices.ContainsFunc(networking.ServiceRanges(c), func(p netip.Prefix) bool { return p.Contains(ip) })
	})
}

func (r *reconciler) take(ctx context.Context, svc *corev1.Service, ip netip.Addr) error {
	_, err := r.addresses.Create(ctx, networking.NewIPAddress(ip.String(), resource.Holder{Resource: "services", Namespace: svc.Namespace, Name: svc.Name}))
	return err
}

func (r *reconciler) replace(ctx context.Context, svc *corev1.Service, a *networkingv1.IPAddress, ip netip.Addr) error {
	if err := ignoreGone(r.addresses.Delete(ctx, a)); err != nil {
		return err
	}
	return r.take(ctx, svc, ip)
}

// checkAddress gives up an address that is said to be taken for a Service, and is not.
func (r *reconciler) checkAddress(ctx context.Context, address string) error {
	a, ok := r.addresses.Get("", address)
	if !ok || !networking.AllocatedIPAddress(a) {
		return nil
	}
	if err := r.services.WaitRev(ctx, resource.Revision(a)); err != nil {
		return fmt.Errorf("wait for the service of address %s: %w", address, err)
	}
	p := a.Spec.ParentRef
	if !isService(p) {
		return r.giveUp(ctx, a, changed, "IPAddressNotAllocated", fmt.Sprintf("IPAddress %s appears to have been modified, not referencing a Service %v: cleaning up", a.Name, p))
	}
	svc, ok := r.services.Get(p.Namespace, p.Name)
	if ok && slices.ContainsFunc(clusterIPs(svc), func(ip netip.Addr) bool { return ip.String() == address }) {
		return nil
	}
	svc, err := r.services.Live(ctx, p.Namespace, p.Name)
	switch {
	case apierrors.IsNotFound(err):
		return r.giveUp(ctx, a, leak, "IPAddressNotAllocated", fmt.Sprintf("IPAddress: %s for Service %s/%s appears to have leaked: cleaning up", a.Name, p.Namespace, p.Name))
	case err != nil:
		return err
	case slices.ContainsFunc(clusterIPs(svc), func(ip netip.Addr) bool { return ip.String() == address }):
		return nil
	}
	return r.giveUp(ctx, a, missing, "IPAddressWrongReference", fmt.Sprintf("IPAddress: %s for Service %s/%s has a wrong reference; cleaning up", a.Name, p.Namespace, p.Name))
}

// giveUp deletes an address and tells people why, unless it has gone or changed: its Service has
// gone with it.
func (r *reconciler) giveUp(ctx context.Context, a *networkingv1.IPAddress, what, reason, message string) error {
	now, err := r.addresses.Live(ctx, "", a.Name)
	if err != nil || now.UID != a.UID || now.ResourceVersion != a.ResourceVersion {
		return ignoreGone(err)
	}
	r.wrong(what, client.Deed{Object: a, Action: "IPAddressAllocation"}, reason, message)
	return ignoreGone(r.addresses.Delete(ctx, a))
}
