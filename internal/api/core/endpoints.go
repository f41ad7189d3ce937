package core

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/resource"
)

// Endpoints is the addresses behind a service, in the form before EndpointSlice.
var Endpoints = resource.Define(resource.Spec[*corev1.Endpoints]{
	Names: resource.Names{
		Version: "v1", Kind: "Endpoints", Plural: "endpoints", Short: []string{"ep"}, Namespaced: true, StoragePrefix: "services/endpoints",
		Deprecated: "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
	},
	Update:  resource.UpdateCreates,
	Default: defaultEndpoints, Validate: validateEndpoints, Warn: warnEndpoints,
	Columns: []resource.Column[*corev1.Endpoints]{{
		Name: "Endpoints", Description: corev1.Endpoints{}.SwaggerDoc()["subsets"],
		Value: func(e *corev1.Endpoints) any { return formatSubsets(e.Subsets) },
	}},
})

func defaultEndpoints(e *corev1.Endpoints) {
	for i := range e.Subsets {
		for j := range e.Subsets[i].Ports {
			check.SetIfZero(&e.Subsets[i].Ports[j].Protocol, corev1.ProtocolTCP)
		}
	}
}

func validateEndpoints(e, old *corev1.Endpoints, errs *resource.Errors) {
	var before []string
	if old != nil {
		before = subsetIPs(old.Subsets)
	}
	for i := range e.Subsets {
		s, at := &e.Subsets[i], errs.At("subsets[%d]", i)
		if len(s.Addresses) == 0 && len(s.NotReadyAddresses) == 0 {
			at.Required("", "must specify `addresses` or `notReadyAddresses`")
		}
		for j := range s.Addresses {
			validateEndpointAddress(at.At("addresses[%d]", j), &s.Addresses[j], before)
		}
		for j := range s.NotReadyAddresses {
			validateEndpointAddress(at.At("notReadyAddresses[%d]", j), &s.NotReadyAddresses[j], before)
		}
		for j := range s.Ports {
			validateEndpointPort(at.At("ports[%d]", j), &s.Ports[j], len(s.Ports))
		}
	}
}

func subsetIPs(subsets []corev1.EndpointSubset) (ips []string) {
	for i := range subsets {
		for j := range subsets[i].Addresses {
			ips = append(ips, subsets[i].Addresses[j].IP)
		}
		for j := range subsets[i].NotReadyAddresses {
			ips = append(ips, subsets[i].NotReadyAddresses[j].IP)
		}
	}
	return ips
}

func validateEndpointAddress(errs *resource.Errors, a *corev1.EndpointAddress, before []string) {
	check.IP(errs, "ip", a.IP, before...)
	if a.Hostname != "" {
		check.DNSLabel(errs, "hostname", a.Hostname)
	}
	if a.NodeName != nil {
		check.DNSSubdomain(errs, "nodeName", *a.NodeName)
	}
	CheckNonSpecialIP(errs, "ip", a.IP)
}

func validateEndpointPort(errs *resource.Errors, p *corev1.EndpointPort, ports int) {
	if p.Name != "" {
		check.DNSLabel(errs, "name", p.Name)
	} else if ports > 1 {
		errs.Required("name", "")
	}
	check.Port(errs, "port", p.Port)
	check.Protocol(errs, p.Protocol)
	if p.AppProtocol != nil {
		check.QualifiedName(errs, "appProtocol", *p.AppProtocol)
	}
}

// warnEndpoints says which addresses are in no usual form. The controllers, who make theirs of others', are spared.
func warnEndpoints(e, _ *corev1.Endpoints) []string {
	if _, made := e.Labels["endpoints.kubernetes.io/managed-by"]; made {
		return nil
	}
	var w check.Warnings
	for i := range e.Subsets {
		s := &e.Subsets[i]
		for j := range s.Addresses {
			w.IP(fmt.Sprintf("subsets[%d].addresses[%d].ip", i, j), s.Addresses[j].IP)
		}
		for j := range s.NotReadyAddresses {
			w.IP(fmt.Sprintf("subsets[%d].notReadyAddresses[%d].ip", i, j), s.NotReadyAddresses[j].IP)
		}
	}
	return w
}

// formatSubsets prints the first three ready addresses, with their ports.
func formatSubsets(subsets []corev1.EndpointSubset) string {
	if len(subsets) == 0 {
		return orNone("")
	}
	const most = 3
	var list []string
	count := 0
	add := func(address string) {
		if count++; count <= most {
			list = append(list, address)
		}
	}
	for i := range subsets {
		s := &subsets[i]
		for j := range s.Addresses {
			if len(s.Ports) == 0 {
				add(s.Addresses[j].IP)
			}
		}
		for _, port := range s.Ports {
			for j := range s.Addresses {
				add(net.JoinHostPort(s.Addresses[j].IP, strconv.Itoa(int(port.Port))))
			}
		}
	}
	text := strings.Join(list, ",")
	if count > most {
		text += fmt.Sprintf(" + %d more...", count-most)
	}
	return text // empty where no address is ready
}
