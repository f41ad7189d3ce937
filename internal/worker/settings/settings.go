// Package settings says what all machines of a cluster have in common. It knows
// neither flags nor parts: who runs one takes from here what it needs.
package settings

import "net/netip"

// Settings are those of a cluster.
type Settings struct {
	ClusterCIDRs  []netip.Prefix // addresses of pods, one range of each family
	ServiceCIDRs  []netip.Prefix // addresses of services
	ClusterDNS    netip.Addr     // address of the DNS service
	ClusterDomain string         // zone of the cluster's names
}
