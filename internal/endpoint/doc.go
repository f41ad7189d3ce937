// Package endpoint is what the controllers that turn services into endpoints
// share: which services select a pod, whether a pod can be an endpoint, the port of
// it that a service port leads to, and when that happened which made endpoints change.
//
// The objects that hold the endpoints, Endpoints and EndpointSlices, are the
// affair of their controllers.
package endpoint
