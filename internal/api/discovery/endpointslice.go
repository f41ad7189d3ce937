package discovery

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/resource"
)

// EndpointSlices list the addresses behind a Service. What is checked is in
// endpointslice_validate.go, v1beta1 in endpointslice_legacy.go.
var EndpointSlices = resource.Define(resource.Spec[*discoveryv1.EndpointSlice]{
	Names:         resource.Names{Group: "discovery.k8s.io", Version: "v1", Kind: "EndpointSlice", Plural: "endpointslices", Namespaced: true},
	HasGeneration: true,
	Default:       defaultEndpointSlice,
	Prepare:       prepareSlice,
	Validate:      validateEndpointSlice,
	Warn:          warnEndpointSlice,
	Columns: []resource.Column[*discoveryv1.EndpointSlice]{
		{Name: "AddressType", Description: discoveryv1.EndpointSlice{}.SwaggerDoc()["addressType"], Value: func(s *discoveryv1.EndpointSlice) any { return string(s.AddressType) }},
		{Name: "Ports", Description: discoveryv1.EndpointSlice{}.SwaggerDoc()["ports"], Value: func(s *discoveryv1.EndpointSlice) any { return portsText(s.Ports) }},
		{Name: "Endpoints", Description: discoveryv1.EndpointSlice{}.SwaggerDoc()["endpoints"], Value: func(s *discoveryv1.EndpointSlice) any { return endpointsText(s.Endpoints) }},
	},
	Index: map[string]func(*discoveryv1.EndpointSlice) []string{
		IndexService: func(s *discoveryv1.EndpointSlice) []string {
			if name := s.Labels[discoveryv1.LabelServiceName]; name != "" {
				return []string{s.Namespace + "/" + name}
			}
			return nil
		},
		IndexAddress: func(s *discoveryv1.EndpointSlice) []string {
			var all []string
			for i := range s.Endpoints {
				all = append(all, s.Endpoints[i].Addresses...)
			}
			return all
		},
	},
	Versions: []resource.Version[*discoveryv1.EndpointSlice]{endpointSliceV1beta1},
})

// ManagedByController is the value of the label that marks the slices which are
// made of Services and their pods.
const ManagedByController = "endpointslice-controller.k8s.io"

// Indexes of EndpointSlices.
const (
	IndexService = "service" // namespace/name of the Service they belong to
	IndexAddress = "address" // the addresses in them
)

func defaultEndpointSlice(s *discoveryv1.EndpointSlice) {
	for i := range s.Ports {
		p := &s.Ports[i]
		if p.Name == nil {
			p.Name = ptr.To("")
		}
		if p.Protocol == nil {
			p.Protocol = ptr.To(corev1.ProtocolTCP)
		}
	}
}

func prepareSlice(obj, old *discoveryv1.EndpointSlice) {
	if old != nil && !equality.Semantic.DeepEqual(obj.Labels, old.Labels) {
		obj.Generation = old.Generation + 1 // they say of which Service it is
	}
	dropTopology(obj, old)
}

// dropTopology takes away deprecatedTopology, which can be read in v1 but not
// written, unless the write leaves all endpoints as they are. The slices that we
// make of Services say there in which region an endpoint is: nothing else can.
func dropTopology(obj, old *discoveryv1.EndpointSlice) {
	if obj.Labels[discoveryv1.LabelManagedBy] == ManagedByController ||
		old != nil && equality.Semantic.DeepEqual(obj.Endpoints, old.Endpoints) {
		return
	}
	for i := range obj.Endpoints {
		obj.Endpoints[i].DeprecatedTopology = nil
	}
}

func portsText(ports []discoveryv1.EndpointPort) string {
	var list []string
	for _, p := range ports {
		switch {
		case p.Port != nil:
			list = append(list, strconv.Itoa(int(*p.Port)))
		case p.Name != nil:
			list = append(list, *p.Name)
		default:
			list = append(list, "*")
		}
	}
	return firstThree(list)
}

func endpointsText(endpoints []discoveryv1.Endpoint) string {
	var list []string
	for i := range endpoints {
		list = append(list, endpoints[i].Addresses...)
	}
	return firstThree(list)
}

func firstThree(list []string) string {
	switch {
	case len(list) == 0:
		return "<unset>"
	case len(list) > 3:
		return fmt.Sprintf("%s + %d more...", strings.Join(list[:3], ","), len(list)-3)
	}
	return strings.Join(list, ",")
}

// warnEndpointSlice warns of names.
func warnEndpointSlice(s, old *discoveryv1.EndpointSlice) []string {
	if s.AddressType == discoveryv1.AddressTypeFQDN && old == nil {
		return []string{"spec.addressType: FQDN endpoints are deprecated"}
	}
	return nil
}
