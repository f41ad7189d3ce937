// Package backend finds what a Service of the cluster stands for, for requests that the control
// plane itself makes: to servers of aggregated APIs and to webhooks. Start at [Services].
//
// Endpoints come from the process's own caches, so that neither the cluster's DNS nor a service
// proxy is needed on the machine. How a connection to one is made is its user's business, and so
// is who is believed at the other end: whoever may write endpoint slices says where a Service is,
// as it is for every client within the cluster.
package backend
