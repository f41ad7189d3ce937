package plugins

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

// volumeRestrictions refuses nodes where a disk is used already that the pod
// needs and that cannot be used twice on one node, and all nodes if another pod
// uses a claim of the pod's that is for one pod only.
type volumeRestrictions struct {
	taken, alone *Reason

	// About the pod at hand.
	disks bool     // it has some that matter
	solo  []string // its claims that are for one pod only
}

func newVolumeRestrictions(i int) *volumeRestrictions {
	return &volumeRestrictions{
		taken: passing(i, "node(s) had no available disk"),
		alone: passing(i, "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"),
	}
}

func (*volumeRestrictions) Name() string { return "VolumeRestrictions" }

func (p *volumeRestrictions) PreFilter(c *Cycle) PreFilterResult {
	p.disks, p.solo = false, p.solo[:0]
	for i := range c.Pod.Obj.Spec.Volumes {
		p.disks = p.disks || isDisk(&c.Pod.Obj.Spec.Volumes[i])
	}
	for _, key := range c.Pod.Claims {
		if claim := c.Snapshot.Claim(key); claim != nil && slices.Contains(claim.Spec.AccessModes, corev1.ReadWriteOncePod) {
			p.solo = append(p.solo, key)
		}
	}
	return PreFilterResult{Skip: !p.disks && len(p.solo) == 0}
}

func (p *volumeRestrictions) Filter(c *Cycle, n *snapshot.Node) *Reason {
	if p.disks {
		for _, other := range n.Pods {
			if shareDisk(c.Pod.Obj, other.Obj) {
				return p.taken
			}
		}
	}
	for _, key := range p.solo {
		if c.Snapshot.ClaimUsers(key) > 0 {
			return p.alone
		}
	}
	return nil
}

func isDisk(v *corev1.Volume) bool {
	return v.GCEPersistentDisk != nil || v.AWSElasticBlockStore != nil || v.ISCSI != nil || v.RBD != nil
}

// shareDisk reports whether two pods use a disk that only one of them could on
// one node.
func shareDisk(a, b *corev1.Pod) bool {
	for i := range a.Spec.Volumes {
		if !isDisk(&a.Spec.Volumes[i]) {
			continue
		}
		for j := range b.Spec.Volumes {
			if sameDisk(&a.Spec.Volumes[i], &b.Spec.Volumes[j]) {
				return true
			}
		}
	}
	return false
}

// sameDisk: read-only use is no conflict, but with EBS.
func sameDisk(a, b *corev1.Volume) bool {
	if x, y := a.GCEPersistentDisk, b.GCEPersistentDisk; x != nil && y != nil && x.PDName == y.PDName {
		return !(x.ReadOnly && y.ReadOnly)
	}
	if x, y := a.AWSElasticBlockStore, b.AWSElasticBlockStore; x != nil && y != nil && x.VolumeID == y.VolumeID {
		return true
	}
	if x, y := a.ISCSI, b.ISCSI; x != nil && y != nil && x.IQN == y.IQN {
		return !(x.ReadOnly && y.ReadOnly)
	}
	if x, y := a.RBD, b.RBD; x != nil && y != nil && x.RBDPool == y.RBDPool && x.RBDImage == y.RBDImage {
		shared := slices.ContainsFunc(x.CephMonitors, func(m string) bool { return slices.Contains(y.CephMonitors, m) })
		return shared && !(x.ReadOnly && y.ReadOnly)
	}
	return false
}

func (*volumeRestrictions) Wakers() Events { return ClaimChanged | NodeAdded | PodRemoved }

// Hint: a pod that left helps if it used the same disk or claim.
func (p *volumeRestrictions) Hint(c *Cycle, e *Event) bool {
	if e.Kind != PodRemoved {
		return true
	}
	return shareDisk(c.Pod.Obj, e.Pod.Obj) ||
		slices.ContainsFunc(c.Pod.Claims, func(key string) bool { return slices.Contains(e.Pod.Claims, key) })
}
