package pod

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/kubelet/csi"
)

// growAgain is how long after a failure it is tried again to have a volume fill its new size.
const growAgain = time.Minute

// grow has a volume fill the size that it has now, if that is more than its claim knows of and the node is to see to it.
func (d *driven) grow(f found) {
	want := wanted(f)
	if have := f.claim.Status.Capacity[v1.ResourceStorage]; want.Cmp(have) <= 0 || !forNode(f.claim) {
		return
	}
	about := d.s.Runner.About(d.pod, "")
	if f.Volume.PersistentVolumeClaim != nil && f.Volume.PersistentVolumeClaim.ReadOnly {
		message := fmt.Sprintf("MountVolume.NodeExpandVolume failed for volume %q requested read-only file system", f.Name())
		about.Event(v1.EventTypeWarning, "FileSystemResizeFailed", message)
		d.s.Runner.Events.Event(f.claim, v1.EventTypeWarning, "FileSystemResizeFailed", message)
		return
	}
	never, err := d.growOne(f, want)
	if csi.InUse(err) { // it is tried again when the volume comes to a pod anew
		return
	}
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

// wanted is how large the volume is to be for the claim, which may ask for less by now than what was not possible: its
// controller says then how much it is to get.
func wanted(f found) resource.Quantity {
	if q, ok := f.claim.Status.AllocatedResources[v1.ResourceStorage]; ok {
		return q
	}
	return f.PV.Spec.Capacity[v1.ResourceStorage]
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
func (d *driven) growOne(f found, size resource.Quantity) (never bool, err error) {
	err = d.claimStatus(f.claim, func(s *v1.PersistentVolumeClaimStatus) { resizeStatus(s, v1.PersistentVolumeClaimNodeResizeInProgress) })
	if err != nil {
		return false, err
	}
	if f.PV.Spec.CSI != nil {
		err = d.s.Runner.Disk.Driven.Expand(d.ctx, f.Request, size)
	} else {
		err = d.s.Runner.Disk.Volumes.Grow(d.ctx, f.PV)
	}
	if err != nil {
		if !csi.Final(err) { // it may have worked all the same
			return false, err
		}
		never = csi.Infeasible(err) || givenUp(f.claim, size)
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
		s.Capacity[v1.ResourceStorage] = size
		delete(s.AllocatedResourceStatuses, v1.ResourceStorage)
		s.Conditions = slices.DeleteFunc(s.Conditions, func(c v1.PersistentVolumeClaimCondition) bool {
			switch c.Type {
			case v1.PersistentVolumeClaimFileSystemResizePending, v1.PersistentVolumeClaimResizing, v1.PersistentVolumeClaimControllerResizeError,
				v1.PersistentVolumeClaimNodeResizeError:
				return true
			}
			return false
		})
	})
}

// givenUp reports whether a claim asks for another size by now, after it has failed to give it this one: its controller is to
// see whether that can be.
func givenUp(c *v1.PersistentVolumeClaim, size resource.Quantity) bool {
	asked := c.Spec.Resources.Requests[v1.ResourceStorage]
	return asked.Cmp(size) != 0 && hasFailed(&c.Status)
}

// hasFailed reports whether it is said of a claim that its volume could not fill its size.
func hasFailed(s *v1.PersistentVolumeClaimStatus) bool {
	return slices.ContainsFunc(s.Conditions, func(c v1.PersistentVolumeClaimCondition) bool {
		return c.Type == v1.PersistentVolumeClaimNodeResizeError
	})
}

// resizeFailed says that it has failed, and of the first time why: each change of the claim has it tried again.
func resizeFailed(s *v1.PersistentVolumeClaimStatus, why error) {
	if hasFailed(s) {
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
