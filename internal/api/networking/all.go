package networking

import "github.com/kemudi/kemudi/internal/resource"

// All lists the resources of networking.k8s.io, by kind.
func All() []*resource.Def {
	return []*resource.Def{
		Ingresses.Def,
		IngressClasses.Def,
		IPAddresses.Def,
		NetworkPolicies.Def,
		ServiceCIDRs.Def,
	}
}
