package node

import (
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	cloudapi "k8s.io/cloud-provider/api"

	"github.com/kemudi/kemudi/internal/api/storage"
)

// taints are those that the node registers with.
func (n *Node) taints() []v1.Taint {
	taints := slices.Clone(n.o.Taints)
	add := func(t v1.Taint) {
		if !slices.ContainsFunc(taints, func(has v1.Taint) bool { return has.Key == t.Key }) {
			taints = append(taints, t)
		}
	}
	if n.o.Closed { // the control plane would add it only a moment later
		add(v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule})
	}
	if n.o.External {
		add(v1.Taint{Key: cloudapi.TaintExternalCloudProvider, Value: "true", Effect: v1.TaintEffectNoSchedule})
	}
	return taints
}

// annotations are those of the Node with the agent's own: how volumes are attached and, for the cloud, which addresses the node
// was told to have.
func (n *Node) annotations(has map[string]string) map[string]string {
	has = maps.Clone(has)
	if has == nil {
		has = map[string]string{}
	}
	has[storage.ManagedAnnotation] = "true"
	if n.o.External && len(n.o.Said) > 0 {
		has[cloudapi.AnnotationAlphaProvidedIPAddr] = strings.Join(n.o.Said, ",")
	}
	return has
}

// statusAddresses are the addresses that the node says it has. Where a cloud knows better, what it
// has said stays.
func (n *Node) statusAddresses(has []v1.NodeAddress) (out []v1.NodeAddress) {
	ips := n.Addresses()
	if n.o.External {
		if len(has) > 0 {
			return has
		}
		ips = n.o.Said
	}
	for _, ip := range ips {
		out = append(out, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip})
	}
	return append(out, v1.NodeAddress{Type: v1.NodeHostName, Address: n.o.Name})
}
