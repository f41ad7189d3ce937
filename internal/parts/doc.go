// Package parts runs single parts of a control plane or of a node as processes of their own,
// by upstream's names: kube-controller-manager, kube-scheduler, kube-proxy. Each asks the API
// over HTTPS, by a kubeconfig file; several of the first two elect who works, by upstream's
// leases. Of a part nothing runs that its name does not say.
//
// What the parts have in common is in a file each: where the API is (api.go), who leads
// (office.go, lease.go), the ports on which a part tells of itself (package secureport, plain.go), whose rights
// controllers have (accounts.go), how parts are configured (configz.go). The parts themselves are controllermanager.go, scheduler.go
// and proxy.go. The API server and the node agent alone are in package cluster: they need what
// a server and an agent are made of.
package parts
