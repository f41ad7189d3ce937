// Package apiregistration declares the resource of the API group apiregistration.k8s.io: APIServices,
// which say who serves a group-version, this server or another one. It also says where the
// group-versions of this server stand among those of others ([PriorityOf]).
//
// Who asks the other servers, and hands requests on to them, is package aggregate.
package apiregistration
