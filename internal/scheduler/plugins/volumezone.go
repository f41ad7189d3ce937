package plugins

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

// volumeZone refuses nodes that are not in the zone and region that the labels
// of a bound volume name.
type volumeZone struct {
	elsewhere *Reason
	places    []zonePlace // of the pod at hand
}

// zonePlace is a label and the values that are near enough.
type zonePlace struct {
	key, old string // the label, and what it was called once or is called now
	values   []string
}

func newVolumeZone(i int) *volumeZone {
	return &volumeZone{elsewhere: lasting(i, "node(s) had no available volume zone")}
}

// zoneLabels are the labels that say where a volume is, each with its other name.
var zoneLabels = [][2]string{
	{corev1.LabelTopologyZone, corev1.LabelFailureDomainBetaZone},
	{corev1.LabelTopologyRegion, corev1.LabelFailureDomainBetaRegion},
	{corev1.LabelFailureDomainBetaZone, corev1.LabelTopologyZone},
	{corev1.LabelFailureDomainBetaRegion, corev1.LabelTopologyRegion},
}

func (*volumeZone) Name() string { return "VolumeZone" }

func (p *volumeZone) PreFilter(c *Cycle) PreFilterResult {
	p.places = p.places[:0]
	for _, key := range c.Pod.Claims {
		claim := c.Snapshot.Claim(key)
		if claim == nil {
			continue
		}
		v := c.Snapshot.Volume(claim.Spec.VolumeName)
		if v == nil {
			continue
		}
		for _, label := range zoneLabels {
			if value, ok := v.Obj.Labels[label[0]]; ok {
				p.places = append(p.places, zonePlace{label[0], label[1], strings.Split(value, "__")})
			}
		}
	}
	return PreFilterResult{Skip: len(p.places) == 0}
}

// Filter passes nodes that say nothing of zones at all.
func (p *volumeZone) Filter(_ *Cycle, n *snapshot.Node) *Reason {
	if len(p.places) == 0 || !hasZone(n) {
		return nil
	}
	for _, place := range p.places {
		value, ok := n.Obj.Labels[place.key]
		if !ok {
			value, ok = n.Obj.Labels[place.old]
		}
		if !ok || !slices.Contains(place.values, value) {
			return p.elsewhere
		}
	}
	return nil
}

func hasZone(n *snapshot.Node) bool {
	for _, label := range zoneLabels {
		if _, ok := n.Obj.Labels[label[0]]; ok {
			return true
		}
	}
	return false
}

func (*volumeZone) Wakers() Events { return ClaimChanged | NodeAdded | NodeLabels }
