package nodelifecycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/core"
)

// noDisruption is the label of nodes that do not count when it is asked how
// much of a zone is lost.
const noDisruption = "node.kubernetes.io/exclude-disruption"

// disruption is how much of a zone is lost.
type disruption int

const (
	normal  disruption = iota
	partial            // so many nodes that the network may be to blame
	full               // all nodes
)

// fewest is how many nodes must be lost before a zone is partially disrupted.
const fewest = 3

// health counts the nodes of a zone.
type health struct{ ready, lost int }

// zoneOf is the zone of a node, as metrics name it; all nodes without one are in the same, without a name.
func zoneOf(n *corev1.Node) string {
	label := func(today, old string) string {
		if v := n.Labels[today]; v != "" {
			return v
		}
		return n.Labels[old]
	}
	region, zone := label(corev1.LabelTopologyRegion, corev1.LabelFailureDomainBetaRegion), label(corev1.LabelTopologyZone, corev1.LabelFailureDomainBetaZone)
	if region == "" && zone == "" {
		return ""
	}
	return region + ":\x00:" + zone
}

// count counts nodes by zone. Those that have not reported yet do not count.
func count(nodes []*corev1.Node) map[string]*health {
	zones := map[string]*health{}
	for _, n := range nodes {
		c := core.NodeCondition(&n.Status, corev1.NodeReady)
		if _, excluded := n.Labels[noDisruption]; c == nil || excluded {
			continue
		}
		z := zones[zoneOf(n)]
		if z == nil {
			z = &health{}
			zones[zoneOf(n)] = z
		}
		if c.Status == corev1.ConditionTrue {
			z.ready++
		} else {
			z.lost++
		}
	}
	return zones
}

func (h *health) state(threshold float64) disruption {
	switch {
	case h.lost > 0 && h.ready == 0:
		return full
	case h.lost >= fewest && float64(h.lost) >= threshold*float64(h.lost+h.ready):
		return partial
	}
	return normal
}

// allLost says that no node of any zone is ready: then it is more likely that
// we are cut off.
func allLost(zones map[string]*health) bool {
	lost := 0
	for _, z := range zones {
		if z.ready > 0 {
			return false
		}
		lost += z.lost
	}
	return lost > 0
}

// rate is how many nodes of a zone may begin to be emptied in a second.
func (o *Options) rate(h *health) float64 {
	if h == nil || h.state(o.UnhealthyZoneThreshold) != partial {
		return o.EvictionRate // a zone that is lost as a whole should move to the others
	}
	if h.ready+h.lost > o.LargeClusterSize {
		return o.SecondaryEvictionRate
	}
	return 0
}

// pacer says when the next node of a zone may be emptied. Its owner locks.
type pacer struct {
	counted time.Time
	zones   map[string]*health
	lost    bool                 // all nodes were lost when they were counted last
	resume  time.Time            // no node is emptied before: all were lost until a short while ago
	next    map[string]time.Time // of each zone: no node before
}

// fresh is how long a count of the nodes is good for.
const fresh = time.Second

// recount counts the nodes, unless that was done a moment ago. Nodes that were
// all lost have grace to come back, one after the other.
func (p *pacer) recount(nodes func() []*corev1.Node, now time.Time, grace time.Duration) {
	if p.zones != nil && now.Sub(p.counted) < fresh {
		return
	}
	p.zones, p.counted = count(nodes()), now
	lost := allLost(p.zones)
	if p.lost && !lost {
		p.resume = now.Add(grace)
	}
	p.lost = lost
}

// take asks for a node of a zone to be emptied. If it may not, ok is false.
func (p *pacer) take(zone string, rate float64, now time.Time) (ok bool) {
	if p.lost || rate <= 0 || now.Before(p.resume) || now.Before(p.next[zone]) {
		return false
	}
	if p.next == nil {
		p.next = map[string]time.Time{}
	}
	p.next[zone] = now.Add(time.Duration(float64(time.Second) / rate))
	return true
}
