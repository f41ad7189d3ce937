package plugins

import (
	"slices"

	"github.com/kemudi/kemudi/internal/api/core/claims"
	"github.com/kemudi/kemudi/internal/api/core/csi"
	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

// nodeVolumeLimits refuses nodes that have as many volumes of a CSI driver as the
// driver says they take: those of their pods, and those that are attached although no pod
// uses them, not yet or no longer; and nodes without a driver that says that it must be there.
type nodeVolumeLimits struct {
	plugin  int
	full    *Reason
	missing map[string]*Reason // by the driver
	pod     []attachment       // of the pod at hand
}

// attachment is a volume of a driver's as a node counts it: once, however many pods
// use it.
type attachment struct{ driver, volume string }

func newNodeVolumeLimits(i int) *nodeVolumeLimits {
	return &nodeVolumeLimits{plugin: i, full: passing(i, "node(s) exceed max volume count"), missing: map[string]*Reason{}}
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
			if v.CSI != nil {
				a = attachment{v.CSI.Driver, v.CSI.VolumeHandle}
			}
		} else if sc := s.StorageClass(claims.Class(claim)); sc != nil {
			a = attachment{sc.Provisioner, "for " + key}
			if driver, ok := csi.Driver(sc.Provisioner); ok {
				a.driver = driver
			}
		}
		if a.driver != "" && !slices.Contains(list, a) {
			list = append(list, a)
		}
	}
	for i := range p.Obj.Spec.Volumes {
		if v := csi.Inline(&p.Obj.Spec.Volumes[i], p.Obj.Namespace); v != nil {
			if a := (attachment{v.Spec.CSI.Driver, v.Spec.CSI.VolumeHandle}); !slices.Contains(list, a) {
				list = append(list, a)
			}
		}
	}
	return list
}

func (p *nodeVolumeLimits) Filter(c *Cycle, n *snapshot.Node) *Reason {
	for _, a := range p.pod {
		if c.Snapshot.Lacks(n.Name, a.driver) {
			return p.lacks(a.driver)
		}
	}
	limits := c.Snapshot.VolumeLimits(n.Name)
	if len(p.pod) == 0 || len(limits) == 0 {
		return nil
	}
	var there []attachment
	for _, other := range n.Pods {
		there = attachments(there, c.Snapshot, other)
	}
	for driver, v := range c.Snapshot.Attached(n.Name) {
		if v.CSI != nil {
			if a := (attachment{driver, v.CSI.VolumeHandle}); !slices.Contains(there, a) {
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

// lacks is the reason that a driver is not there.
func (p *nodeVolumeLimits) lacks(driver string) *Reason {
	why := p.missing[driver]
	if why == nil {
		why = passing(p.plugin, driver+" CSI driver is not installed on the node")
		p.missing[driver] = why
	}
	return why
}

func (*nodeVolumeLimits) Wakers() Events {
	return ClaimChanged | NodeAdded | PodRemoved | VolumeDetached
}
