package discovery

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	netutils "k8s.io/utils/net"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/resource"
)

// What one slice may hold.
const (
	maxEndpoints  = 1000
	maxAddresses  = 100
	maxPorts      = 20000
	maxHints      = 8
	maxTopology   = 16
	zoneLabel     = corev1.LabelTopologyZone
	hostnameLabel = corev1.LabelHostname
)

func validateEndpointSlice(obj, old *discoveryv1.EndpointSlice, errs *resource.Errors) {
	switch obj.AddressType {
	case discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6, discoveryv1.AddressTypeFQDN:
	case "":
		errs.Required("addressType", "")
	default:
		resource.NotSupported(errs, "addressType", obj.AddressType, discoveryv1.AddressTypeFQDN, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6)
	}
	validatePorts(obj.Ports, errs)
	// Endpoints that an older server let in do not stand in the way of a change elsewhere.
	if old == nil || !equality.Semantic.DeepEqual(obj.Endpoints, old.Endpoints) {
		validateEndpoints(obj.Endpoints, obj.AddressType, errs)
	}
	if old != nil && obj.AddressType != old.AddressType {
		errs.Immutable("addressType", obj.AddressType)
	}
}

func validatePorts(ports []discoveryv1.EndpointPort, errs *resource.Errors) {
	if len(ports) > maxPorts {
		errs.TooMany("ports", len(ports), maxPorts)
		return
	}
	seen := map[string]bool{}
	for i := range ports {
		p, at := &ports[i], errs.At("ports[%d]", i)
		name := ""
		if p.Name != nil {
			name = *p.Name
		}
		if name != "" {
			at.Refuse("name", name, validation.IsDNS1123Label(name))
		}
		if seen[name] {
			at.Duplicate("name", name)
		}
		seen[name] = true
		switch {
		case p.Protocol == nil:
			at.Required("protocol", "")
		case *p.Protocol != corev1.ProtocolTCP && *p.Protocol != corev1.ProtocolUDP && *p.Protocol != corev1.ProtocolSCTP:
			resource.NotSupported(at, "protocol", *p.Protocol, corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)
		}
		if p.AppProtocol != nil {
			at.Refuse("appProtocol", *p.AppProtocol, validation.IsQualifiedName(*p.AppProtocol))
		}
	}
}

func validateEndpoints(endpoints []discoveryv1.Endpoint, kind discoveryv1.AddressType, errs *resource.Errors) {
	if len(endpoints) > maxEndpoints {
		errs.TooMany("endpoints", len(endpoints), maxEndpoints)
		return
	}
	for i := range endpoints {
		e, at := &endpoints[i], errs.At("endpoints[%d]", i)
		if len(e.Addresses) == 0 {
			at.Required("addresses", "must contain at least 1 address")
		} else if len(e.Addresses) > maxAddresses {
			at.TooMany("addresses", len(e.Addresses), maxAddresses)
		}
		for j, a := range e.Addresses {
			validateAddress(a, kind, at.At("addresses[%d]", j))
		}
		if e.NodeName != nil {
			at.Refuse("nodeName", *e.NodeName, resource.DNS1123Subdomain(*e.NodeName, false))
		}
		if len(e.DeprecatedTopology) > maxTopology {
			at.TooMany("deprecatedTopology", len(e.DeprecatedTopology), maxTopology)
		}
		at.Add(metavalidation.ValidateLabels(e.DeprecatedTopology, at.Path("deprecatedTopology"))...)
		if e.Hostname != nil {
			at.Refuse("hostname", *e.Hostname, validation.IsDNS1123Label(*e.Hostname))
		}
		if e.Hints != nil {
			validateHints(e.Hints, at)
		}
	}
}

// validateAddress checks one address of the slice's type; at is the address.
func validateAddress(address string, kind discoveryv1.AddressType, at *resource.Errors) {
	switch kind {
	case discoveryv1.AddressTypeFQDN:
		at.Add(validation.IsFullyQualifiedDomainName(at.Path(""), address)...)
	case discoveryv1.AddressTypeIPv4:
		if problems := validation.IsValidIPForLegacyField(at.Path(""), address, true, nil); len(problems) > 0 {
			at.Add(problems...)
			return
		}
		if !netutils.IsIPv4String(address) {
			at.Invalid("", address, "must be an IPv4 address")
		}
		core.CheckNonSpecialIP(at, "", address)
	case discoveryv1.AddressTypeIPv6:
		if problems := validation.IsValidIP(at.Path(""), address); len(problems) > 0 {
			at.Add(problems...)
			return
		}
		if !netutils.IsIPv6String(address) {
			at.Invalid("", address, "must be an IPv6 address")
		}
		core.CheckNonSpecialIP(at, "", address)
	}
}

func validateHints(h *discoveryv1.EndpointHints, at *resource.Errors) {
	if len(h.ForZones) > maxHints {
		at.TooMany("hints.forZones", len(h.ForZones), maxHints)
		return
	}
	var seen []string
	for i, z := range h.ForZones {
		in := at.At("hints.forZones[%d]", i)
		if slices.Contains(seen, z.Name) {
			in.Duplicate("name", z.Name)
		}
		seen = append(seen, z.Name)
		in.Refuse("name", z.Name, validation.IsValidLabelValue(z.Name))
	}
	if len(h.ForNodes) > maxHints {
		at.TooMany("hints.forNodes", len(h.ForNodes), maxHints)
		return
	}
	seen = nil
	for i, n := range h.ForNodes {
		in := at.At("hints.forNodes[%d]", i)
		if slices.Contains(seen, n.Name) {
			in.Duplicate("name", n.Name)
		}
		seen = append(seen, n.Name)
		in.Refuse("name", n.Name, resource.DNS1123Subdomain(n.Name, false))
	}
}
