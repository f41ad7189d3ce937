package discovery

import (
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
)

// ReadyNodes are the names of the nodes that have an endpoint which is ready, in slices of one Service.
func ReadyNodes(all []*discoveryv1.EndpointSlice) map[string]bool {
	names := map[string]bool{}
	for _, s := range all {
		for i := range s.Endpoints {
			if e := &s.Endpoints[i]; e.NodeName != nil && ptr.Deref(e.Conditions.Ready, true) {
				names[*e.NodeName] = true
			}
		}
	}
	return names
}
