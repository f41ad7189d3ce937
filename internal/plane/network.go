package plane

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Network says which addresses are given out. The zero value has the defaults.
type Network struct {
	ServiceCIDRs []netip.Prefix // of cluster IPs (--service-cluster-ip-range)
	ClusterCIDRs []netip.Prefix // of pods (--cluster-cidr)
	NodePorts    PortRange      // of NodePort services (--service-node-port-range)
	ClusterDNS   netip.Addr     // of the DNS service (--cluster-dns); default the tenth cluster IP
}

// PortRange is a range of ports, both ends included.
type PortRange struct{ First, Last uint16 }

// String is the range as the flag takes it.
func (r PortRange) String() string { return fmt.Sprintf("%d-%d", r.First, r.Last) }

// ParsePortRange reads a range as String writes it.
func ParsePortRange(text string) (r PortRange, _ error) {
	first, last, ok := strings.Cut(text, "-")
	if !ok {
		return r, errors.New("not of the form 30000-32767")
	}
	for _, end := range []struct {
		text string
		to   *uint16
	}{{first, &r.First}, {last, &r.Last}} {
		n, err := strconv.ParseUint(end.text, 10, 16)
		if err != nil {
			return r, fmt.Errorf("not of the form 30000-32767: %w", err)
		}
		*end.to = uint16(n)
	}
	return r, nil
}

// DefaultNetwork is the network of a control plane that is told of none.
func DefaultNetwork() Network {
	return Network{
		ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}, ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")},
		NodePorts: PortRange{30000, 32767},
	}
}

// WithDefaults fills in what is not set, and checks the rest.
func (n Network) WithDefaults() (Network, error) {
	d := DefaultNetwork()
	if len(n.ServiceCIDRs) == 0 {
		n.ServiceCIDRs = d.ServiceCIDRs
	}
	if len(n.ClusterCIDRs) == 0 {
		n.ClusterCIDRs = d.ClusterCIDRs
	}
	n.NodePorts = cmp.Or(n.NodePorts, d.NodePorts)
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
		n.ClusterDNS = n.ServiceIP(10)
	}
	if !n.ServiceCIDRs[0].Contains(n.ClusterDNS) {
		return n, fmt.Errorf("--cluster-dns %s is not in --service-cluster-ip-range %s", n.ClusterDNS, n.ServiceCIDRs[0])
	}
	if n.NodePorts.First == 0 || n.NodePorts.Last < n.NodePorts.First {
		return n, fmt.Errorf("--service-node-port-range %s is not a range of ports", n.NodePorts)
	}
	return n, nil
}

// ServiceIP is the nth cluster IP.
func (n Network) ServiceIP(nth int) netip.Addr {
	a := n.ServiceCIDRs[0].Masked().Addr()
	for range nth {
		a = a.Next()
	}
	return a
}

// oneOfEach reports an error unless there is one range, or one of each family.
func oneOfEach(flag string, list []netip.Prefix) error {
	if len(list) > 2 || len(list) == 2 && list[0].Addr().Is4() == list[1].Addr().Is4() {
		return fmt.Errorf("%s: want one range, or one of each family", flag)
	}
	return nil
}

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
