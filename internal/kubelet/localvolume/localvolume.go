// Package localvolume removes the node's own persistent volumes when their claims
// are gone and their policy says so: first the data, then the object, so that whoever is
// killed in between tries again. Volumes that are to be kept, and directories of which
// the API knows nothing, are left alone.
package localvolume

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/core/claims"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
)

// retry is how long after a failure the next try is made.
const retry = 10 * time.Second

// Collector removes volumes of one node. All fields are required.
type Collector struct {
	Node      string
	Transport client.Transport
	Erase     func(handle string) error // removes the data of a volume
	Log       *slog.Logger
}

// Run removes volumes until ctx ends.
func (c *Collector) Run(ctx context.Context) error {
	volumes := client.Cached(c.Transport, core.PersistentVolumes, claims.LocalNode+"="+c.Node)
	select {
	case <-volumes.Synced():
	case <-ctx.Done():
		return nil
	}
	f := volumes.Follow(cache.FollowOptions{Index: claims.LocalNode, Value: c.Node})
	defer f.Close()
	left := map[string]*v1.PersistentVolume{} // that are still to be removed, by name
	for {
		var again <-chan time.Time
		if len(left) > 0 {
			again = time.After(retry)
		}
		select {
		case <-f.Ready():
		case <-again:
		case <-ctx.Done():
			return nil
		}
		for _, d := range f.Next() {
			v := d.Last().Object.(*v1.PersistentVolume)
			delete(left, v.Name)
			if d.Now != nil && (leftover(v) || letGo(v)) {
				left[v.Name] = v
			}
		}
		for name, v := range left {
			if err := c.remove(ctx, v); err != nil {
				c.Log.Warn("remove local volume", "volume", name, "err", err)
				continue
			}
			delete(left, name)
		}
	}
}

// leftover reports whether a volume is to be removed.
func leftover(v *v1.PersistentVolume) bool {
	return v.Spec.PersistentVolumeReclaimPolicy == v1.PersistentVolumeReclaimDelete && v.Status.Phase == v1.VolumeReleased && v.Spec.ClaimRef != nil
}

// letGo reports whether a volume that is to go waits for this node alone.
func letGo(v *v1.PersistentVolume) bool {
	return v.DeletionTimestamp != nil && v.Status.Phase != v1.VolumeBound && slices.Contains(v.Finalizers, claims.DeletedByDriver)
}

func (c *Collector) remove(ctx context.Context, v *v1.PersistentVolume) error {
	ctx, cancel := context.WithTimeout(ctx, retry)
	defer cancel()
	if leftover(v) {
		if err := c.Erase(v.Spec.CSI.VolumeHandle); err != nil {
			return err
		}
	}
	volumes := client.For(c.Transport, core.PersistentVolumes)
	if letGo(v) {
		v = v.DeepCopy()
		v.Finalizers = slices.DeleteFunc(v.Finalizers, func(name string) bool { return name == claims.DeletedByDriver })
		if _, err := volumes.Update(ctx, v); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) { // who has changed it brings it back
			return fmt.Errorf("let go of the volume that was erased: %w", err)
		}
		return nil
	}
	if v.DeletionTimestamp != nil {
		return nil
	}
	err := volumes.Delete(ctx, "", v.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &v.UID},
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete the volume that was erased: %w", err)
	}
	return nil
}
