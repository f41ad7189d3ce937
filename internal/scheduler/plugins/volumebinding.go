package plugins

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

// volumeBinding refuses pods whose claims are not there or not bound, and nodes
// that a bound volume cannot be used on. It does not bind claims to volumes: that
// is for the volume controllers, before the pod is scheduled.
type volumeBinding struct {
	plugin                            int
	unbound, lost, outOfReach, delays *Reason
	bound                             []*snapshot.Volume // of the pod at hand
	missing, waits                    bool               // a bound volume is not there; a claim waits for a node
}

func newVolumeBinding(i int) *volumeBinding {
	return &volumeBinding{
		plugin:     i,
		unbound:    lasting(i, "pod has unbound immediate PersistentVolumeClaims"),
		lost:       lasting(i, "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"),
		outOfReach: lasting(i, "node(s) didn't match PersistentVolume's node affinity"),
		delays:     lasting(i, "node(s) didn't find available persistent volumes to bind"),
	}
}

func (*volumeBinding) Name() string { return "VolumeBinding" }

func (p *volumeBinding) PreFilter(c *Cycle) PreFilterResult {
	p.bound, p.missing, p.waits = p.bound[:0], false, false
	for _, key := range c.Pod.Claims {
		claim := c.Snapshot.Claim(key)
		_, name, _ := strings.Cut(key, "/")
		switch {
		case claim == nil && madeFor(c.Pod.Obj, name):
			return PreFilterResult{Reject: lasting(p.plugin, `waiting for ephemeral volume controller to create the persistentvolumeclaim "`+name+`"`)}
		case claim == nil:
			return PreFilterResult{Reject: lasting(p.plugin, `persistentvolumeclaim "`+name+`" not found`)}
		case claim.DeletionTimestamp != nil:
			return PreFilterResult{Reject: lasting(p.plugin, `persistentvolumeclaim "`+name+`" is being deleted`)}
		case claim.Status.Phase == corev1.ClaimLost:
			return PreFilterResult{Reject: lasting(p.plugin, `persistentvolumeclaim "`+name+`" bound to non-existent persistentvolume "`+claim.Spec.VolumeName+`"`)}
		case isBound(claim):
			if v := c.Snapshot.Volume(claim.Spec.VolumeName); v != nil {
				p.bound = append(p.bound, v)
			} else {
				p.missing = true
			}
		case claim.Spec.StorageClassName != nil && c.Snapshot.Waits(*claim.Spec.StorageClassName):
			p.waits = true
		default:
			return PreFilterResult{Reject: p.unbound}
		}
	}
	return PreFilterResult{Skip: len(p.bound) == 0 && !p.missing && !p.waits}
}

// madeFor reports whether a claim is to be made for one of the pod's volumes.
func madeFor(p *corev1.Pod, claim string) bool {
	for i := range p.Spec.Volumes {
		if v := &p.Spec.Volumes[i]; v.Ephemeral != nil && p.Name+"-"+v.Name == claim {
			return true
		}
	}
	return false
}

func isBound(c *corev1.PersistentVolumeClaim) bool {
	_, completed := c.Annotations["pv.kubernetes.io/bind-completed"]
	return c.Spec.VolumeName != "" && (completed || c.Status.Phase == corev1.ClaimBound)
}

func (p *volumeBinding) Filter(_ *Cycle, n *snapshot.Node) *Reason {
	if p.missing {
		return p.lost
	}
	for _, v := range p.bound {
		if !v.Reaches(n) {
			return p.outOfReach
		}
	}
	if p.waits {
		return p.delays
	}
	return nil
}

func (*volumeBinding) Wakers() Events { return ClaimChanged | NodeAdded | NodeLabels }
