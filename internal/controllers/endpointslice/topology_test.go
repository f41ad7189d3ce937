package endpointslice

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestEndpointsAreSharedOutAmongZones writes an endpoint as a letter and its
// zone, "a1"; the result is the zone that it is meant for.
func TestEndpointsAreSharedOutAmongZones(t *testing.T) {
	for _, c := range []struct {
		name      string
		share     map[string]float64
		endpoints string
		before    map[identity]string
		want      string
	}{
		{"each in its own zone", map[string]float64{"1": 0.5, "2": 0.5}, "a1 b1 c2 d2", nil, "a1 b1 c2 d2"},
		{"one zone has more than it needs", map[string]float64{"1": 0.5, "2": 0.5}, "a1 b1 c1 d1 e1 f2", nil, "a1 b1 c1 d2 e2 f2"},
		{"one of them was given away before", map[string]float64{"1": 0.5, "2": 0.5}, "a1 b1 c1 d1 e1 f2", map[identity]string{{address: "b"}: "2"}, "a1 b2 c1 d1 e2 f2"},
		{"a zone without endpoints", map[string]float64{"1": 0.25, "2": 0.75}, "a1 b1 c1 d1", nil, "a1 b2 c2 d2"},
		{"a zone without nodes", map[string]float64{"1": 0.5, "2": 0.5}, "a1 b2 c3 d3", nil, "a1 b2 c2 d1"},
		{"fewer endpoints than zones", map[string]float64{"1": 0.3, "2": 0.3, "3": 0.4}, "a1 b2", nil, "Insufficient number of endpoints (2 endpoints, 3 zones)"},
		{
			"a zone that is twice as large, but two endpoints", map[string]float64{"1": 2.0 / 3, "2": 1.0 / 3}, "a1 b2", nil,
			"Unable to allocate minimum required endpoints to each zone without exceeding overload threshold (2 endpoints, 2 zones)",
		},
		{"an endpoint without a zone", map[string]float64{"1": 0.5, "2": 0.5}, "a1 b2 c d2", nil, "One or more endpoints do not have a zone specified"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := &group{}
			for _, word := range strings.Fields(c.endpoints) {
				e := discoveryv1.Endpoint{Addresses: []string{word[:1]}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}, TargetRef: &corev1.ObjectReference{}}
				if zone := word[1:]; zone != "" {
					e.Zone = &zone
				}
				g.endpoints = append(g.endpoints, e)
			}
			got := string(allocate([]*group{g}, c.share, c.before))
			if got == "" {
				var words []string
				for _, e := range g.endpoints {
					words = append(words, e.Addresses[0]+e.Hints.ForZones[0].Name)
				}
				slices.Sort(words)
				got = strings.Join(words, " ")
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestZonesShareByTheCPUOfTheirNodes(t *testing.T) {
	node := func(zone, cpu string, ready corev1.ConditionStatus, labels ...string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{corev1.LabelTopologyZone: zone}}}
		for _, l := range labels {
			n.Labels[l] = ""
		}
		n.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
		return n
	}
	one, two := node("a", "1", corev1.ConditionTrue), node("b", "2", corev1.ConditionTrue)
	for _, c := range []struct {
		name  string
		nodes []*corev1.Node
		want  string
	}{
		{"by CPU", []*corev1.Node{one, one, two, two, two}, `map[a:0.25 b:0.75] ""`},
		{"not those that are not ready or for the control plane", []*corev1.Node{one, one, two, node("b", "64", corev1.ConditionUnknown), node("c", "64", corev1.ConditionTrue, controlPlane)}, `map[a:0.5 b:0.5] ""`},
		{"one zone", []*corev1.Node{one, one}, `map[] "Nodes only ready in one zone"`},
		{"a node without a zone", []*corev1.Node{one, two, node("", "1", corev1.ConditionTrue)}, `map[] "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes"`},
	} {
		share, why := shares(c.nodes)
		if got := fmt.Sprintf("%v %q", share, why); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}
