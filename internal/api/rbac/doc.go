// Package rbac declares the resources of the API group rbac.authorization.k8s.io: roles and
// bindings, one file a kind. Deciding who may do what is not here.
package rbac
