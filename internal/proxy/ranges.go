package proxy

import (
	"net/netip"
	"slices"
)

// SetServiceCIDRs says which addresses cluster IPs are taken from, from now on. It may be called at
// any time.
func (p *Proxy) SetServiceCIDRs(list []netip.Prefix) {
	p.feed.put("servicecidr", false, 1, func(m *Model) { m.SetServiceCIDRs(list) })
}

// SetServiceCIDRs takes in which addresses cluster IPs are taken from.
func (m *Model) SetServiceCIDRs(list []netip.Prefix) {
	if !slices.Equal(list, m.cfg.ServiceCIDRs) {
		m.cfg.ServiceCIDRs, m.rebase = list, true
	}
}
