package discovery

import (
	"maps"

	discoveryv1 "k8s.io/api/discovery/v1"
	discoveryv1beta1 "k8s.io/api/discovery/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/resource"
)

// endpointSliceV1beta1 has zone and node in a map of topology labels, which v1
// has fields for. Labels of any other kind stay in v1's deprecatedTopology.
var endpointSliceV1beta1 = resource.Version[*discoveryv1.EndpointSlice]{
	Group: "discovery.k8s.io", Version: "v1beta1",
	Deprecated: "discovery.k8s.io/v1beta1 EndpointSlice is deprecated in v1.21+, unavailable in v1.25+; use discovery.k8s.io/v1 EndpointSlice",
	New:        func() resource.Object { return &discoveryv1beta1.EndpointSlice{} },
	// The topology may be written in this version.
	Prepare: func(_, _ *discoveryv1.EndpointSlice) {},
	To: func(obj resource.Object) (*discoveryv1.EndpointSlice, error) {
		return toV1(obj.(*discoveryv1beta1.EndpointSlice)), nil
	},
	From: func(obj *discoveryv1.EndpointSlice) (resource.Object, error) { return toV1beta1(obj.DeepCopy()), nil },
}

func toV1(in *discoveryv1beta1.EndpointSlice) *discoveryv1.EndpointSlice {
	out := &discoveryv1.EndpointSlice{ObjectMeta: in.ObjectMeta, AddressType: discoveryv1.AddressType(in.AddressType)}
	for _, p := range in.Ports {
		out.Ports = append(out.Ports, discoveryv1.EndpointPort(p))
	}
	for i := range in.Endpoints {
		e := &in.Endpoints[i]
		o := discoveryv1.Endpoint{
			Addresses: e.Addresses, Conditions: discoveryv1.EndpointConditions(e.Conditions), Hostname: e.Hostname,
			TargetRef: e.TargetRef, NodeName: e.NodeName, DeprecatedTopology: maps.Clone(e.Topology),
		}
		if zone, ok := e.Topology[zoneLabel]; ok {
			o.Zone = &zone
			delete(o.DeprecatedTopology, zoneLabel)
		}
		// Only a host name that is not the node's is worth keeping besides it.
		if host, ok := e.Topology[hostnameLabel]; ok && e.NodeName != nil && host == *e.NodeName {
			delete(o.DeprecatedTopology, hostnameLabel)
		}
		if len(o.DeprecatedTopology) == 0 {
			o.DeprecatedTopology = nil
		}
		if e.Hints != nil {
			o.Hints = &discoveryv1.EndpointHints{}
			for _, z := range e.Hints.ForZones {
				o.Hints.ForZones = append(o.Hints.ForZones, discoveryv1.ForZone(z))
			}
			for _, n := range e.Hints.ForNodes {
				o.Hints.ForNodes = append(o.Hints.ForNodes, discoveryv1.ForNode(n))
			}
		}
		out.Endpoints = append(out.Endpoints, o)
	}
	return out
}

// toV1beta1 may use parts of in.
func toV1beta1(in *discoveryv1.EndpointSlice) *discoveryv1beta1.EndpointSlice {
	out := &discoveryv1beta1.EndpointSlice{ObjectMeta: in.ObjectMeta, AddressType: discoveryv1beta1.AddressType(in.AddressType)}
	for _, p := range in.Ports {
		out.Ports = append(out.Ports, discoveryv1beta1.EndpointPort(p))
	}
	for i := range in.Endpoints {
		e := &in.Endpoints[i]
		o := discoveryv1beta1.Endpoint{
			Addresses: e.Addresses, Conditions: discoveryv1beta1.EndpointConditions(e.Conditions), Hostname: e.Hostname,
			TargetRef: e.TargetRef, NodeName: e.NodeName, Topology: e.DeprecatedTopology,
		}
		if e.Zone != nil {
			o.Topology = withLabel(o.Topology, zoneLabel, *e.Zone)
		}
		if e.NodeName != nil && o.Topology[hostnameLabel] == "" {
			o.Topology = withLabel(o.Topology, hostnameLabel, ptr.Deref(e.NodeName, ""))
		}
		if e.Hints != nil {
			o.Hints = &discoveryv1beta1.EndpointHints{}
			for _, z := range e.Hints.ForZones {
				o.Hints.ForZones = append(o.Hints.ForZones, discoveryv1beta1.ForZone(z))
			}
			for _, n := range e.Hints.ForNodes {
				o.Hints.ForNodes = append(o.Hints.ForNodes, discoveryv1beta1.ForNode(n))
			}
		}
		out.Endpoints = append(out.Endpoints, o)
	}
	return out
}

func withLabel(labels map[string]string, key, value string) map[string]string {
	if labels == nil {
		labels = map[string]string{}
	}
	labels[key] = value
	return labels
}
