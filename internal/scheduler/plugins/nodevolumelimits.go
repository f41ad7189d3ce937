package plugins

import (
	"slices"

	"github.com/kemudi/kemudi/internal/api/core/claims"
	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

// nodeVolumeLimits refuses nodes that have as many volumes of a CSI driver as the
// driver says they take: those of their pods, and those that are attached although no pod
// uses them, not yet or no longer.
type nodeVolumeLimits struct {
	full *Reason
	pod  []attachment // of the pod at hand
}

// attachment is a volume of a driver's as a node counts it: once, however many pods
// use it.
type attachment struct{ driver, volume string }

func newNodeVolumeLimits(i int) *nodeVolumeLimits {
	return &nodeVolumeLimits{full: passing(i, "node(s) exceed max volume count")}
}

func (*nodeVolumeLimits) Name() string { return "NodeVolumeLimits" }

func (p *nodeVolumeLimits) PreFilter(c *Cycle) PreFilterResult {
	p.pod = attachments(p.pod[:0], c.Snapshot, c.Pod)
	return PreFilterResult{Skip: len(p.pod) == 0}
}

// attachments adds to a list the volumes of drivers that a pod uses or will use.
func attachments(list []attachment, s *snapshot.Snapshot, p *snapshot.Pod) []attachment {
	for _, key := range p.Claims {
		claim := s.Claim(key)
		if claim == nil {
			continue
		}
		a := attachment{}
		if v := s.Volume(claim.Spec.VolumeName); v != nil {
			if v.Obj.Spec.CSI != nil {
				a = attachment{v.Obj.Spec.CSI.Driver, v.Obj.Spec.CSI.VolumeHandle}
			}
		} else if sc := s.StorageClass(claims.Class(claim)); sc != nil {
			a = attachment{sc.Provisioner, "for " + key}
		}
		if a.driver != "" && !slices.Contains(list, a) {
			list = append(list, a)
		}
	}
	return list
}

func (p *nodeVolumeLimits) Filter(c *Cycle, n *snapshot.Node) *Reason {
	limits := c.Snapshot.VolumeLimits(n.Name)
	if len(p.pod) == 0 || len(limits) == 0 {
		return nil
	}
	var there []attachment
	for _, other := range n.Pods {
		there = attachments(there, c.Snapshot, other)
	}
	for driver, v := range c.Snapshot.Attached(n.Name) {
		if csi := v.Obj.Spec.CSI; csi != nil {
			if a := (attachment{driver, csi.VolumeHandle}); !slices.Contains(there, a) {
				there = append(there, a)
			}
		}
	}
	counts := map[string]int32{}
	for _, a := range there {
		counts[a.driver]++
	}
	for _, a := range p.pod {
		limit, limited := limits[a.driver]
		if !limited || slices.Contains(there, a) {
			continue
		}
		if counts[a.driver]++; counts[a.driver] > limit {
			return p.full
		}
	}
	return nil
}

func (*nodeVolumeLimits) Wakers() Events {
	return ClaimChanged | NodeAdded | PodRemoved | VolumeDetached
}
