// Package discovery declares the resources of the API group discovery.k8s.io: EndpointSlices,
// the addresses behind Services.
package discovery
