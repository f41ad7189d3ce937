package nodelifecycle

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/trace"
)

func TestTheRateOfEvictionDependsOnHowMuchOfTheZoneIsLost(t *testing.T) {
	defaults := Options{}.withDefaults()
	custom := Options{EvictionRate: 2, SecondaryEvictionRate: 0.5, UnhealthyZoneThreshold: 0.3, LargeClusterSize: 10}.withDefaults()
	for _, c := range []struct {
		name  string
		o     Options
		zone  health
		state disruption
		rate  float64

		proves string
	}{
		{"one of two", defaults, health{ready: 1, lost: 1}, normal, 0.1, ""},
		{"two of three: too few to tell", defaults, health{ready: 1, lost: 2}, normal, 0.1, ""},
		{"three of six", defaults, health{ready: 3, lost: 3}, normal, 0.1, "NODE-055"},
		{"exactly the threshold, 55 %", defaults, health{ready: 9, lost: 11}, partial, 0, "NODE-056 NODE-057"},
		{"most of a zone of 50", defaults, health{ready: 10, lost: 40}, partial, 0, "NODE-058"},
		{"most of a zone of 51", defaults, health{ready: 11, lost: 40}, partial, 0.01, "NODE-059"},
		{"a whole zone, small", defaults, health{lost: 3}, full, 0.1, "NODE-062"},
		{"a whole zone, large", defaults, health{lost: 300}, full, 0.1, "NODE-062"},
		{"other settings, normal", custom, health{ready: 8, lost: 2}, normal, 2, ""},
		{"other settings, small", custom, health{ready: 7, lost: 3}, partial, 0, ""},
		{"other settings, large", custom, health{ready: 7, lost: 4}, partial, 0.5, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.proves != "" {
				trace.Proves(t, strings.Fields(c.proves)...)
			}
			if got := c.zone.state(c.o.UnhealthyZoneThreshold); got != c.state {
				t.Errorf("got state %d, want %d", got, c.state)
			}
			if got := c.o.rate(&c.zone); got != c.rate {
				t.Errorf("got rate %g, want %g", got, c.rate)
			}
		})
	}
}

func TestNodesAreCountedByZone(t *testing.T) {
	trace.Proves(t, "NODE-060", "NODE-061")
	node := func(ready corev1.ConditionStatus, labels map[string]string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: labels}}
		if ready != "" {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
		}
		return n
	}
	east := map[string]string{corev1.LabelTopologyRegion: "east", corev1.LabelTopologyZone: "a"}
	old := map[string]string{corev1.LabelFailureDomainBetaRegion: "east", corev1.LabelFailureDomainBetaZone: "a"}
	west := map[string]string{corev1.LabelTopologyRegion: "west", corev1.LabelTopologyZone: "a"}
	zones := count([]*corev1.Node{
		node(corev1.ConditionTrue, east), node(corev1.ConditionUnknown, old), node(corev1.ConditionFalse, east), node("", east),
		node(corev1.ConditionUnknown, west),
		node(corev1.ConditionTrue, nil), node(corev1.ConditionTrue, nil),
		node(corev1.ConditionUnknown, map[string]string{noDisruption: ""}),
	})
	for zone, want := range map[string]health{"east:\x00:a": {1, 2}, "west:\x00:a": {0, 1}, "": {2, 0}} {
		if got := zones[zone]; got == nil || *got != want {
			t.Errorf("zone %s: got %v, want %v", zone, got, want)
		}
	}
	if allLost(zones) {
		t.Error("all nodes are said to be lost, but three are ready")
	}
}

func TestOneNodeOfAZoneIsEmptiedAtATime(t *testing.T) {
	trace.Proves(t, "NODE-055", "NODE-060")
	p := pacer{}
	now := time.Unix(1000, 0)
	if !p.take("a", 0.1, now) || !p.take("b", 0.1, now) {
		t.Fatal("the first node of a zone must wait")
	}
	if p.take("a", 0.1, now.Add(9999*time.Millisecond)) {
		t.Error("the second node of a zone begins before 10 s are over")
	}
	if !p.take("a", 0.1, now.Add(10*time.Second)) {
		t.Error("the second node of a zone must wait for more than 10 s")
	}
	if p.take("c", 0, now) {
		t.Error("a node begins though the rate is 0")
	}
}

func TestNodesThatWereAllLostHaveTimeToComeBack(t *testing.T) {
	trace.Proves(t, "NODE-063")
	status := corev1.ConditionUnknown
	nodes := func() []*corev1.Node {
		var out []*corev1.Node
		for _, s := range []corev1.ConditionStatus{status, corev1.ConditionUnknown} {
			out = append(out, &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: s}}}})
		}
		return out
	}
	p := pacer{}
	now := time.Unix(1000, 0)
	p.recount(nodes, now, time.Minute)
	if !p.lost || p.take("/", 0.1, now) {
		t.Fatal("a node begins though all are lost")
	}
	status, now = corev1.ConditionTrue, now.Add(time.Hour)
	p.recount(nodes, now, time.Minute)
	if p.take("/", 0.1, now.Add(59*time.Second)) {
		t.Error("a node begins before the others could come back")
	}
	if !p.take("/", 0.1, now.Add(time.Minute)) {
		t.Error("no node begins though there was time to come back")
	}
}
