// Package cloud has the loops that keep a cluster and its cloud in agreement, over the
// interface of k8s.io/cloud-provider: nodes get what the cloud knows of their machines (node.go),
// nodes whose machines are off are marked and those whose machines are gone go (lifecycle.go),
// pods of other nodes are reached by routes of the cloud (route.go; routes.go is the pure
// part), and services of type LoadBalancer get balancers (service.go; balancer.go is what
// matters of a service).
//
// Which clouds there are is not known here. What a cloud says is not believed blindly: what the
// API would not take, or what contradicts itself, changes nothing and is said in the error.
//
// Every call of the cloud has a deadline (package call); one that outlasts it is an error like another.
package cloud
