package pod

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/kubelet/csi"
)

// growAgain is how long after a failure it is tried again to have a volume fill its new size.
const growAgain = time.Minute

// grow has a volume fill the size that it has now, if that is more than its claim knows of and the node is to see to it.
func (d *driven) grow(f found) {
	want := f.PV.Spec.Capacity[v1.ResourceStorage]
	if have := f.claim.Status.Capacity[v1.ResourceStorage]; want.Cmp(have) <= 0 || !forNode(f.claim) {
		return
	}
	about := d.s.Runner.About(d.pod, "")
	if f.Volume.PersistentVolumeClaim != nil && f.Volume.PersistentVolumeClaim.ReadOnly {
		about.Event(v1.EventTypeWarning, "FileSystemResizeFailed", fmt.Sprintf("MountVolume.NodeExpandVolume failed for volume %q requested read-only file system", f.Name()))
		return
	}
	never, err := d.growOne(f)
	if err == nil {
		message := fmt.Sprintf("MountVolume.NodeExpandVolume succeeded for volume %q %s", f.Name(), d.s.Runner.Facts.Name)
		about.Event(v1.EventTypeNormal, "FileSystemResizeSuccessful", message)
		d.s.Runner.Events.Event(f.claim, v1.EventTypeNormal, "FileSystemResizeSuccessful", message)
		return
	}
	if d.ctx.Err() != nil {
		return
	}
	message := fmt.Sprintf("NodeExpandVolume.NodeExpandVolume failed for volume %q : %v", f.Name(), err)
	about.Event(v1.EventTypeWarning, "VolumeResizeFailed", message)
	d.s.Runner.Events.Event(f.claim, v1.EventTypeWarning, "VolumeResizeFailed", message)
	if !never {
		if f.PV.Spec.CSI != nil {
			d.s.Runner.Disk.Driven.Recheck(d.s.Runner.Disk.Driven.Path(f.Request))
		}
		d.later(time.Now().Add(growAgain))
	}
}

// forNode reports whether what is left of growing a claim's volume is the node's to do.
func forNode(c *v1.PersistentVolumeClaim) bool {
	switch c.Status.AllocatedResourceStatuses[v1.ResourceStorage] {
	case v1.PersistentVolumeClaimNodeResizePending, v1.PersistentVolumeClaimNodeResizeInProgress:
		return true
	case "":
		return slices.ContainsFunc(c.Status.Conditions, func(c v1.PersistentVolumeClaimCondition) bool {
			return c.Type == v1.PersistentVolumeClaimFileSystemResizePending && c.Status == v1.ConditionTrue
		})
	}
	return false
}

// growOne says in the claim's status how far it is. never: it is of no use to try it again.
func (d *driven) growOne(f found) (never bool, err error) {
	err = d.claimStatus(f.claim, func(s *v1.PersistentVolumeClaimStatus) { resizeStatus(s, v1.PersistentVolumeClaimNodeResizeInProgress) })
	if err != nil {
		return false, err
	}
	if f.PV.Spec.CSI != nil {
		err = d.s.Runner.Disk.Driven.Expand(d.ctx, f.Request)
	} else {
		err = d.s.Runner.Disk.Volumes.Grow(d.ctx, f.PV)
	}
	if err != nil {
		never = csi.Infeasible(err)
		return never, errors.Join(err, d.claimStatus(f.claim, func(s *v1.PersistentVolumeClaimStatus) {
			resizeFailed(s, err)
			if never {
				resizeStatus(s, v1.PersistentVolumeClaimNodeResizeInfeasible)
			}
		}))
	}
	return false, d.claimStatus(f.claim, func(s *v1.PersistentVolumeClaimStatus) {
		if s.Capacity == nil {
			s.Capacity = v1.ResourceList{}
		}
		s.Capacity[v1.ResourceStorage] = f.PV.Spec.Capacity[v1.ResourceStorage]
		delete(s.AllocatedResourceStatuses, v1.ResourceStorage)
		s.Conditions = slices.DeleteFunc(s.Conditions, func(c v1.PersistentVolumeClaimCondition) bool {
			switch c.Type {
			case v1.PersistentVolumeClaimFileSystemResizePending, v1.PersistentVolumeClaimResizing, v1.PersistentVolumeClaimNodeResizeError:
				return true
			}
			return false
		})
	})
}

// resizeFailed says that it has failed, and of the first time why: each change of the claim has it tried again.
func resizeFailed(s *v1.PersistentVolumeClaimStatus, why error) {
	if slices.ContainsFunc(s.Conditions, func(c v1.PersistentVolumeClaimCondition) bool {
		return c.Type == v1.PersistentVolumeClaimNodeResizeError
	}) {
		return
	}
	s.Conditions = append(s.Conditions, v1.PersistentVolumeClaimCondition{
		Type: v1.PersistentVolumeClaimNodeResizeError, Status: v1.ConditionTrue, LastTransitionTime: metav1.Now(), Message: fmt.Sprintf("failed to expand pvc with %v", why),
	})
}

func resizeStatus(s *v1.PersistentVolumeClaimStatus, now v1.ClaimResourceStatus) {
	if s.AllocatedResourceStatuses == nil {
		s.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{}
	}
	s.AllocatedResourceStatuses[v1.ResourceStorage] = now
}

// claimStatus changes the status of a claim, as it is now.
func (d *driven) claimStatus(claim *v1.PersistentVolumeClaim, change func(*v1.PersistentVolumeClaimStatus)) error {
	ctx, cancel := context.WithTimeout(d.ctx, apiDeadline)
	defer cancel()
	c := client.For(d.s.Transport, core.PersistentVolumeClaims)
	for {
		now, err := c.Get(ctx, claim.Namespace, claim.Name)
		switch {
		case err != nil:
			return fmt.Errorf("get claim: %w", err)
		case now.UID != claim.UID:
			return fmt.Errorf("claim %s/%s is another one now", claim.Namespace, claim.Name)
		}
		now = now.DeepCopy()
		change(&now.Status)
		if _, err = c.UpdateStatus(ctx, now); err == nil {
			return nil
		}
		if !apierrors.IsConflict(err) {
			return fmt.Errorf("write status of claim: %w", err)
		}
	}
}
