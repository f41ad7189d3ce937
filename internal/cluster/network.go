package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"

	"github.com/kemudi/kemudi/internal/plane"
	"github.com/kemudi/kemudi/internal/podnet"
)

// Network says which addresses the cluster uses. The zero value is the default
// network.
type Network struct {
	plane.Network
	ClusterDomain string       // --cluster-domain
	PodNetwork    podnet.Mode  // --pod-network
	VXLAN         podnet.VXLAN // --vxlan-port, --vxlan-id
}

// PortRange is a range of ports, both ends included.
type PortRange = plane.PortRange

// ParsePortRange reads a range as its String writes it.
func ParsePortRange(text string) (PortRange, error) { return plane.ParsePortRange(text) }

func defaultNetwork() Network {
	return Network{Network: plane.DefaultNetwork(), ClusterDomain: "cluster.local", PodNetwork: podnet.Auto, VXLAN: podnet.DefaultVXLAN()}
}

// withDefaults fills in what is not set, and checks the rest.
func (n Network) withDefaults() (Network, error) {
	var err error
	if n.Network, err = n.Network.WithDefaults(); err != nil {
		return n, err
	}
	d := defaultNetwork()
	n.ClusterDomain, n.PodNetwork = cmp.Or(n.ClusterDomain, d.ClusterDomain), cmp.Or(n.PodNetwork, d.PodNetwork)
	n.VXLAN.Port, n.VXLAN.ID = cmp.Or(n.VXLAN.Port, d.VXLAN.Port), cmp.Or(n.VXLAN.ID, d.VXLAN.ID)
	return n, errors.Join(n.PodNetwork.Check(), n.VXLAN.Check())
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
func (n Network) APIServiceIP() netip.Addr { return n.ServiceIP(1) }
