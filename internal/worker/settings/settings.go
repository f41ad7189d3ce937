// Package settings says what all machines of a cluster have in common. It knows
// neither flags nor parts: who runs one takes from here what it needs.
package settings

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Servers publish the settings under Key of this ConfigMap in kube-system.
const (
	ConfigMap = "kemudi-cluster"
	Key       = "cluster.yaml"
)

// Settings are those of a cluster.
type Settings struct {
	ClusterCIDRs  []netip.Prefix `json:"clusterCIDRs"`        // addresses of pods, one range of each family
	ServiceCIDRs  []netip.Prefix `json:"serviceCIDRs"`        // addresses of services
	ClusterDNS    netip.Addr     `json:"clusterDNS"`          // address of the DNS service
	ClusterDomain string         `json:"clusterDomain"`       // zone of the cluster's names
	PodNetwork    string         `json:"podNetwork"`          // how packets get to the pods of other nodes; empty: as the worker does by default
	VXLANPort     uint16         `json:"vxlanPort"`           // to which nodes send to those that are no neighbours; 0: likewise
	VXLANID       uint32         `json:"vxlanID"`             // number of their network; 0: likewise
	NodePorts     string         `json:"nodePorts,omitempty"` // of services, as --service-node-port-range has them
	// CloudProvider is external where a cloud says what nodes are; empty: they say it themselves.
	CloudProvider string `json:"cloudProvider,omitempty"`
	// Servers is what the servers alone have in common, each by the name of its flag and as that has it.
	Servers map[string]string `json:"servers,omitempty"`
}

// Encode returns the settings as text for [Parse].
func (s Settings) Encode() (string, error) {
	text, err := yaml.Marshal(s)
	if err != nil {
		return "", fmt.Errorf("encode the cluster's settings: %w", err)
	}
	return string(text), nil
}

// ParseSaid reads what a machine has been told, which may be nothing. What it does not know is for
// machines of a later version.
func ParseSaid(text string) (Settings, error) {
	var s Settings
	if err := yaml.Unmarshal([]byte(text), &s); err != nil {
		return s, fmt.Errorf("read the cluster's settings: %w", err)
	}
	return s, nil
}

// Parse reads the settings of a cluster.
func Parse(text string) (Settings, error) {
	s, err := ParseSaid(text)
	if err != nil {
		return s, err
	}
	if len(s.ClusterCIDRs) == 0 || len(s.ServiceCIDRs) == 0 || !s.ClusterDNS.IsValid() || s.ClusterDomain == "" {
		return s, errors.New("read the cluster's settings: clusterCIDRs, serviceCIDRs, clusterDNS and clusterDomain must all be there")
	}
	return s, nil
}

// Check refuses what a machine has been told that is not so in its cluster. What said
// leaves out is as the cluster has it.
func (s Settings) Check(said Settings) error {
	var errs []error
	differ := func(flag, said, is string) {
		errs = append(errs, fmt.Errorf("--%s %s: the cluster has %s; leave the flag out, as machines ask the servers for it", flag, said, is))
	}
	for _, r := range []struct {
		flag     string
		said, is []netip.Prefix
	}{{"cluster-cidr", said.ClusterCIDRs, s.ClusterCIDRs}, {"service-cluster-ip-range", said.ServiceCIDRs, s.ServiceCIDRs}} {
		if len(r.said) > 0 && !slices.Equal(r.said, r.is) {
			differ(r.flag, join(r.said), join(r.is))
		}
	}
	if said.ClusterDNS.IsValid() && said.ClusterDNS != s.ClusterDNS {
		differ("cluster-dns", said.ClusterDNS.String(), s.ClusterDNS.String())
	}
	if said.ClusterDomain != "" && said.ClusterDomain != s.ClusterDomain {
		differ("cluster-domain", said.ClusterDomain, s.ClusterDomain)
	}
	if said.PodNetwork != "" && said.PodNetwork != s.PodNetwork {
		differ("pod-network", said.PodNetwork, s.PodNetwork)
	}
	if said.VXLANPort != 0 && said.VXLANPort != s.VXLANPort {
		differ("vxlan-port", fmt.Sprint(said.VXLANPort), fmt.Sprint(s.VXLANPort))
	}
	if said.VXLANID != 0 && said.VXLANID != s.VXLANID {
		differ("vxlan-id", fmt.Sprint(said.VXLANID), fmt.Sprint(s.VXLANID))
	}
	if said.NodePorts != "" && s.NodePorts != "" && said.NodePorts != s.NodePorts { // older servers do not say it
		differ("service-node-port-range", said.NodePorts, s.NodePorts)
	}
	if said.CloudProvider != "" && said.CloudProvider != s.CloudProvider {
		differ("cloud-provider", said.CloudProvider, cmp.Or(s.CloudProvider, "none"))
	}
	for _, flag := range slices.Sorted(maps.Keys(said.Servers)) {
		if is, known := s.Servers[flag]; known && is != said.Servers[flag] {
			errs = append(errs, fmt.Errorf("--%s %s: the other servers have %s; leave the flag out to have what they have, or stop them all to change it", flag, cmp.Or(said.Servers[flag], "none"), cmp.Or(is, "none")))
		}
	}
	return errors.Join(errs...)
}

func join(list []netip.Prefix) string {
	var text []string
	for _, p := range list {
		text = append(text, p.String())
	}
	return strings.Join(text, ",")
}
