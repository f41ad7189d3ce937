package servicecidr

import (
	"net/netip"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/kemudi/kemudi/internal/api/networking"
)

// covers reports that all of p is in one of the ranges.
func covers(ranges []netip.Prefix, p netip.Prefix) bool {
	return slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Bits() <= p.Bits() && r.Contains(p.Addr()) })
}

func contains(ranges []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(a) })
}

// others are the ranges that stay when c goes.
func others(c *networkingv1.ServiceCIDR, all []*networkingv1.ServiceCIDR) (stay []netip.Prefix) {
	for _, o := range all {
		if o.Name != c.Name && o.DeletionTimestamp == nil {
			stay = append(stay, networking.ServiceRanges(o)...)
		}
	}
	return stay
}

// inUse reports that an address of a Service is in the ranges of c alone.
func inUse(c *networkingv1.ServiceCIDR, all []*networkingv1.ServiceCIDR, addresses func() []*networkingv1.IPAddress) bool {
	stay := others(c, all)
	own := slices.DeleteFunc(networking.ServiceRanges(c), func(p netip.Prefix) bool { return covers(stay, p) })
	if len(own) == 0 {
		return false
	}
	return slices.ContainsFunc(addresses(), func(a *networkingv1.IPAddress) bool {
		if !networking.AllocatedIPAddress(a) {
			return false
		}
		ip, err := netip.ParseAddr(a.Name)
		return err == nil && contains(own, ip) && !contains(stay, ip)
	})
}
