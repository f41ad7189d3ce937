package worker

import (
	"cmp"
	"context"
	"net/netip"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/kemudi/kemudi/internal/api/networking"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/podnet"
	"github.com/kemudi/kemudi/internal/proxy"
)

// followRanges tells the pod network and the proxy which are the addresses of services, as they
// come and go, until ctx ends.
func (w *Worker) followRanges(ctx context.Context, pods *podnet.Network, services *proxy.Proxy) error {
	ranges := client.Cached(w.c.Transport, networking.ServiceCIDRs, "")
	var last []netip.Prefix // none: what an earlier process has left may be other ones
	return ranges.Each(ctx, cache.FollowOptions{}, func([]cache.Delta) error {
		if now := rangesOf(ranges.List("", nil), w.c.Settings.ServiceCIDRs); !slices.Equal(now, last) {
			last = now
			pods.SetServiceCIDRs(now)
			services.SetServiceCIDRs(now)
		}
		return nil
	})
}

// rangesOf are the ranges in whichever state: services may have addresses of all of them. Where
// there are none, the servers are older than that, and the cluster's settings have them.
func rangesOf(all []*networkingv1.ServiceCIDR, settings []netip.Prefix) []netip.Prefix {
	if len(all) == 0 {
		return settings
	}
	var list []netip.Prefix
	for _, c := range all {
		for _, p := range networking.ServiceRanges(c) {
			if !slices.Contains(list, p) {
				list = append(list, p)
			}
		}
	}
	// Those of the settings first, in their order: what has not changed is to look like it.
	place := func(p netip.Prefix) int {
		if i := slices.Index(settings, p); i >= 0 {
			return i
		}
		return len(settings)
	}
	slices.SortStableFunc(list, func(a, b netip.Prefix) int {
		return cmp.Or(place(a)-place(b), a.Addr().Compare(b.Addr()), a.Bits()-b.Bits())
	})
	return list
}
