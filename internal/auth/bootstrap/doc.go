// Package bootstrap has the roles and bindings that every cluster begins with,
// under upstream's names: those of users (cluster-admin, admin, edit, view), of
// the system's own parts and of node agents.
//
// clusterroles.go and system.go are the cluster roles, namespaced.go the roles
// within kube-system and kube-public, bindings.go who gets them. [Reconcile]
// brings them into a cluster and adds what has been taken away from them since,
// unless the annotation rbac.authorization.kubernetes.io/autoupdate says "false".
// The roles of controllers are derived from their declarations elsewhere and
// given to Reconcile.
package bootstrap
