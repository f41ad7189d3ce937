package endpointslice

import (
	"fmt"
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/kemudi/kemudi/internal/api/core"
)

// overload is how much more traffic than its share an endpoint may get.
const overload = 0.2

// disabled says why endpoints have no hints though their service asks for them;
// empty: they have.
type disabled string

const (
	noNodeInfo   disabled = "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes"
	oneZone      disabled = "Nodes only ready in one zone"
	noZone       disabled = "One or more endpoints do not have a zone specified"
	tooFew       disabled = "Insufficient number of endpoints"
	overloaded   disabled = "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold"
	nowEnabled            = "Topology Aware Hints has been enabled"
	nowDisabled           = "Topology Aware Hints has been disabled"
	reasonOn              = "TopologyAwareHintsEnabled"
	reasonOff             = "TopologyAwareHintsDisabled"
	controlPlane          = "node-role.kubernetes.io/control-plane"
	master                = "node-role.kubernetes.io/master"
)

// shares is how much of the cluster's CPU each zone has, of ready nodes that are
// for everybody.
func shares(nodes []*corev1.Node) (map[string]float64, disabled) {
	cpu, all := map[string]float64{}, 0.0
	for _, n := range nodes {
		_, head := n.Labels[controlPlane]
		_, old := n.Labels[master]
		if head || old || !core.NodeIsReady(n) {
			continue
		}
		zone, milli := n.Labels[corev1.LabelTopologyZone], float64(n.Status.Allocatable.Cpu().MilliValue())
		if zone == "" || milli <= 0 {
			return nil, noNodeInfo
		}
		cpu[zone] += milli
		all += milli
	}
	if len(cpu) < 2 {
		return nil, oneZone
	}
	for zone := range cpu {
		cpu[zone] /= all
	}
	return cpu, ""
}

// allocate gives every ready endpoint a hint for one zone, so that each zone has
// endpoints for its share of the CPUs: most for their own zone, some of a zone
// that has many for one that has few. Those that had a hint keep it if they can.
func allocate(groups []*group, share map[string]float64, before map[identity]string) disabled {
	var ready []*discoveryv1.Endpoint
	for _, g := range groups {
		for i := range g.endpoints {
			if e := &g.endpoints[i]; *e.Conditions.Ready {
				ready = append(ready, e)
			}
		}
	}
	counts := fmt.Sprintf(" (%d endpoints, %d zones)", len(ready), len(share))
	if len(ready) < len(share) {
		return tooFew + disabled(counts)
	}
	least, sum := map[string]int{}, 0
	for zone, part := range share {
		least[zone] = int(math.Ceil(part * float64(len(ready)) / (1 + overload)))
		sum += least[zone]
	}
	if sum > len(ready) {
		return overloaded + disabled(counts)
	}
	byZone := map[string][]*discoveryv1.Endpoint{} // by the zone of the hint
	for _, e := range ready {
		if e.Zone == nil {
			return noZone
		}
		byZone[*e.Zone] = append(byZone[*e.Zone], e)
	}
	for _, to := range slices.Sorted(maps.Keys(share)) {
		for len(byZone[to]) < least[to] {
			move(byZone, richest(byZone, share, least, len(ready)), to, before)
		}
	}
	for zone, endpoints := range byZone {
		for _, e := range endpoints {
			e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: zone}}}
		}
	}
	return ""
}

// richest is the zone that has the most endpoints beyond its share, and more
// than it needs.
func richest(byZone map[string][]*discoveryv1.Endpoint, share map[string]float64, least map[string]int, all int) string {
	best, most := "", math.Inf(-1)
	for _, zone := range slices.Sorted(maps.Keys(byZone)) {
		has := len(byZone[zone])
		if beyond := float64(has) - share[zone]*float64(all); has > least[zone] && beyond > most {
			best, most = zone, beyond
		}
	}
	return best
}

// move takes an endpoint from one zone to another: one that was there before, or
// else the last one by name.
func move(byZone map[string][]*discoveryv1.Endpoint, from, to string, before map[identity]string) {
	list := byZone[from]
	slices.SortFunc(list, func(a, b *discoveryv1.Endpoint) int { return identityOf(a).compare(identityOf(b)) })
	i := slices.IndexFunc(list, func(e *discoveryv1.Endpoint) bool { return before[identityOf(e)] == to })
	if i < 0 {
		i = len(list) - 1
	}
	byZone[to] = append(byZone[to], list[i])
	byZone[from] = slices.Delete(list, i, i+1)
}

// hinted is the zone that each endpoint of the slices is meant for.
func hinted(existing []*discoveryv1.EndpointSlice) map[identity]string {
	out := map[identity]string{}
	for _, s := range existing {
		for i := range s.Endpoints {
			if h := s.Endpoints[i].Hints; h != nil && len(h.ForZones) > 0 {
				out[identityOf(&s.Endpoints[i])] = h.ForZones[0].Name
			}
		}
	}
	return out
}

// topology gives the endpoints of one address family their hints, if the service
// asks for them, and tells when that begins and ends.
func (r *reconciler) topology(svc *corev1.Service, groups []*group, existing []*discoveryv1.EndpointSlice) {
	family := string(groups[0].family)
	before := hinted(slices.DeleteFunc(slices.Clone(existing), func(s *discoveryv1.EndpointSlice) bool { return string(s.AddressType) != family }))
	if !core.TopologyModeAuto(svc) {
		if svc.Spec.TrafficDistribution == nil && len(before) > 0 {
			r.tell(svc, nowDisabled, family)
		}
		return
	}
	share, why := shares(r.nodes.List("", nil))
	if why == "" {
		why = allocate(groups, share, before)
	}
	switch {
	case why == "" && len(before) == 0:
		r.k.Events.Event(svc, corev1.EventTypeNormal, reasonOn, nowEnabled+", addressType: "+family)
	case why != "":
		r.tell(svc, string(why), family)
	}
}

func (r *reconciler) tell(svc *corev1.Service, message, family string) {
	r.k.Events.Event(svc, corev1.EventTypeWarning, reasonOff, message+", addressType: "+family)
}
