// Package endpointslicemirroring keeps EndpointSlices of the Endpoints that
// people write themselves, for services without a selector: proxies read slices
// alone.
package endpointslicemirroring
