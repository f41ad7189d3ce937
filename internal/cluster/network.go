package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/kemudi/kemudi/internal/kubelet"
)

// Network says which addresses the cluster uses. The zero value is the default
// network.
type Network struct {
	ServiceCIDRs  []netip.Prefix // of cluster IPs (--service-cluster-ip-range)
	ClusterCIDRs  []netip.Prefix // of pods (--cluster-cidr)
	NodePorts     PortRange      // of NodePort services (--service-node-port-range)
	ClusterDNS    netip.Addr     // of the DNS service (--cluster-dns); default the tenth cluster IP
	ClusterDomain string         // --cluster-domain
	ResolvConf    string         // --resolv-conf: the machine's resolver, for names outside the cluster
	SecondNodeIP  netip.Addr     // --node-ip: the node's of the other family, where pods have both; default as Options.NodeIP

	NodePortAddresses []netip.Prefix // --nodeport-addresses: of the node's, those that serve node ports; none, and not NodePortPrimary: all
	NodePortPrimary   bool           // --nodeport-addresses: the node's first of each family does, whichever that is
	MasqueradeAll     bool           // --masquerade-all: hide who connects to cluster IPs
}

// PortRange is a range of ports, both ends included.
type PortRange struct{ First, Last uint16 }

// String is the range as the flag takes it.
func (r PortRange) String() string { return fmt.Sprintf("%d-%d", r.First, r.Last) }

func defaultNetwork() Network {
	return Network{
		ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}, ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")},
		NodePorts: PortRange{30000, 32767}, ClusterDomain: "cluster.local", ResolvConf: kubelet.DefaultResolvConf,
	}
}

// withDefaults fills in what is not set, and checks the rest.
func (n Network) withDefaults() (Network, error) {
	d := defaultNetwork()
	if len(n.ServiceCIDRs) == 0 {
		n.ServiceCIDRs = d.ServiceCIDRs
	}
	if len(n.ClusterCIDRs) == 0 {
		n.ClusterCIDRs = d.ClusterCIDRs
	}
	n.NodePorts, n.ClusterDomain = cmp.Or(n.NodePorts, d.NodePorts), cmp.Or(n.ClusterDomain, d.ClusterDomain)
	if err := oneOfEach("--service-cluster-ip-range", n.ServiceCIDRs); err != nil {
		return n, err
	}
	if err := oneOfEach("--cluster-cidr", n.ClusterCIDRs); err != nil {
		return n, err
	}
	for _, s := range n.ServiceCIDRs {
		if !slices.ContainsFunc(n.ClusterCIDRs, func(p netip.Prefix) bool { return p.Addr().Is4() == s.Addr().Is4() }) {
			return n, fmt.Errorf("--service-cluster-ip-range %s: --cluster-cidr has no pod addresses of that family", s)
		}
		for _, p := range n.ClusterCIDRs {
			if s.Overlaps(p) {
				return n, fmt.Errorf("--service-cluster-ip-range %s and --cluster-cidr %s overlap", s, p)
			}
		}
	}
	if !n.ClusterDNS.IsValid() {
		n.ClusterDNS = nth(n.ServiceCIDRs[0], 10)
	}
	if !n.ServiceCIDRs[0].Contains(n.ClusterDNS) {
		return n, fmt.Errorf("--cluster-dns %s is not in --service-cluster-ip-range %s", n.ClusterDNS, n.ServiceCIDRs[0])
	}
	if n.NodePorts.First == 0 || n.NodePorts.Last < n.NodePorts.First {
		return n, fmt.Errorf("--service-node-port-range %s is not a range of ports", n.NodePorts)
	}
	return n, nil
}

// oneOfEach reports an error unless there is one range, or one of each family.
func oneOfEach(flag string, list []netip.Prefix) error {
	if len(list) > 2 || len(list) == 2 && list[0].Addr().Is4() == list[1].Addr().Is4() {
		return fmt.Errorf("%s: want one range, or one of each family", flag)
	}
	return nil
}

// checkShare reports an error unless a prefix of so many bits can be a node's share of
// the addresses of pods; 0: nobody has said how many.
func (n Network) checkShare(bits int) error {
	if bits == 0 {
		return nil
	}
	if len(n.ClusterCIDRs) > 1 {
		return errors.New("--node-cidr-mask-size is for pods with addresses of one family: here, say --node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6")
	}
	if most := n.ClusterCIDRs[0].Addr().BitLen(); bits > most {
		return fmt.Errorf("--node-cidr-mask-size %d is not between 1 and %d", bits, most)
	}
	return nil
}

// APIServiceIP is the cluster IP of the service "kubernetes".
func (n Network) APIServiceIP() netip.Addr { return nth(n.ServiceCIDRs[0], 1) }

// settings are what allocations of addresses depend on, by the flag's name.
func (n Network) settings() map[string]string {
	cidrs := make([]string, len(n.ServiceCIDRs))
	for i, p := range n.ServiceCIDRs {
		cidrs[i] = p.String()
	}
	return map[string]string{
		"service-cluster-ip-range": strings.Join(cidrs, ","),
		"service-node-port-range":  n.NodePorts.String(),
	}
}

// nth is the n-th address of a prefix.
func nth(p netip.Prefix, n int) netip.Addr {
	a := p.Masked().Addr()
	for range n {
		a = a.Next()
	}
	return a
}
