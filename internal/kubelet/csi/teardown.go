package csi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/kubelet/backoff"
	vol "github.com/kemudi/kemudi/internal/kubelet/volume"
	"github.com/kemudi/kemudi/internal/task"
)

// TearDown unpublishes all volumes of a pod, whose containers have ended, and removes what it has of them. What
// was the last use of a volume has Run unstage it.
func (s *Volumes) TearDown(ctx context.Context, uid types.UID) error {
	var errs []error
	for _, dir := range []string{s.at.volumeDir(uid, ""), s.at.deviceLink(uid, "")} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("look for volumes of pod: %w", err))
		}
		for _, e := range entries {
			if err := s.tearDown(ctx, uid, filepath.Join(dir, e.Name())); err != nil {
				errs = append(errs, fmt.Errorf("UnmountVolume.TearDown failed for volume %q : %w", e.Name(), err))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	s.mu.Lock()
	for _, v := range s.mu.volumes {
		delete(v.pods, uid)
	}
	s.forgetTokensLocked(uid)
	maps.DeleteFunc(s.mu.wanted, func(w wish, _ time.Time) bool { return w.pod == uid })
	s.toldLocked()
	s.mu.Unlock()
	s.poke()
	return nil
}

// tearDown unpublishes a volume of which at is the pod's directory or link.
func (s *Volumes) tearDown(ctx context.Context, uid types.UID, at string) error {
	path := filepath.Join(at, mountDir)
	if isLink(at) {
		path = s.at.devicePath(uid, filepath.Base(at))
	}
	r, err := s.recordOf(at)
	if errors.Is(err, errRecord) || errors.Is(err, fs.ErrNotExist) { // nobody knows whose it is
		s.o.Log.Warn("unmount a volume that has no record", "path", path, "err", err)
		return errors.Join(vol.Unmount(path), s.removed(at, path))
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	v := s.volumeLocked(s.dirOf(at, r), r)
	v.pods[uid] = true
	s.mu.Unlock()
	leave, err := v.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	began := time.Now()
	err = s.unpublish(ctx, r, path)
	s.o.Drivers.metrics.did(r.Driver, tearsDown.name(isLink(at)), began, err)
	if err != nil {
		return err
	}
	if err := s.removed(at, path); err != nil {
		return err
	}
	s.mu.Lock()
	delete(v.pods, uid)
	s.mu.Unlock()
	return nil
}

// unpublish has the driver undo what it has published at a path.
func (s *Volumes) unpublish(ctx context.Context, r record, path string) error {
	c, err := s.o.Drivers.find(r.Driver)
	if err != nil {
		return fmt.Errorf("kubernetes.io/csi: Unmounter.TearDownAt failed to get CSI client: %w", err)
	}
	_, err = call(ctx, c, csipb.NodeClient.NodeUnpublishVolume, &csipb.NodeUnpublishVolumeRequest{VolumeId: r.Handle, TargetPath: s.at.told(path)})
	if err != nil && !(status.Code(err) == codes.NotFound && !mounted(path)) {
		return err
	}
	return nil
}

// removed removes what a pod had of a volume that is unpublished, its record last.
func (s *Volumes) removed(at, path string) error {
	if err := removePoint(path); err != nil {
		return err
	}
	s.mu.Lock()
	delete(s.mu.published, path)
	delete(s.mu.changed, path)
	delete(s.mu.held, path)
	s.mu.Unlock()
	if isLink(at) {
		if err := os.Remove(at); err != nil {
			return fmt.Errorf("remove link of device: %w", err)
		}
		_ = os.Remove(filepath.Dir(path)) // unless other pods have the device
		return nil
	}
	return removeRecord(at)
}

// Run unstages volumes that no pod wants any more, each until it works, and measures those that somebody looks at, until
// ctx ends.
func (s *Volumes) Run(ctx context.Context) error {
	g := task.NewGroup(ctx)
	for {
		for _, v := range s.unused() {
			g.Go("unstage volume", func(ctx context.Context) error { s.leave(ctx, v); return nil })
		}
		for _, h := range s.takeAsked() {
			g.Go("measure volume", func(ctx context.Context) error { s.weigh(ctx, h); return nil })
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return errors.Join(g.Wait(), context.Cause(ctx))
		}
	}
}

// unused are volumes that nobody sees to and nobody wants.
func (s *Volumes) unused() (out []*volume) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.mu.volumes {
		if v.recorded && len(v.pods) == 0 && !v.leaving {
			v.leaving = true
			out = append(out, v)
		}
	}
	return out
}

// leave unstages a volume, unless a pod wants it meanwhile.
func (s *Volumes) leave(ctx context.Context, v *volume) {
	defer func() {
		s.mu.Lock()
		v.leaving = false
		s.toldLocked()
		s.mu.Unlock()
		s.poke() // it may have been wanted, and not any more, in between
	}()
	for failures := 1; ; failures++ {
		came := s.o.Drivers.Came()
		err := s.unstage(ctx, v)
		if err == nil || ctx.Err() != nil {
			return
		}
		again := backoff.Call.After(failures)
		s.o.Log.Warn("unstage volume", "driver", v.driver, "volume", v.handle, "err", err, "retry", again)
		select {
		case <-time.After(again):
		case <-came:
		case <-ctx.Done():
			return
		}
	}
}

// unstage has the driver undo what it has staged, and removes its record (S1).
func (s *Volumes) unstage(ctx context.Context, v *volume) error {
	leave, err := v.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	s.mu.Lock()
	wanted := len(v.pods) > 0
	s.mu.Unlock()
	if wanted {
		return nil
	}
	c, err := s.o.Drivers.find(v.driver)
	if err != nil {
		return fmt.Errorf("kubernetes.io/csi: attacher.UnmountDevice failed to create newCsiDriverClient: %w", err)
	}
	can, err := c.abilities(ctx)
	if err != nil {
		return err
	}
	// From now on nobody knows whether it is staged, also if this fails: who wants it then stages it anew.
	s.mu.Lock()
	v.staged = false
	s.mu.Unlock()
	if can.stage() {
		began, at := time.Now(), s.at.staging(v.dir)
		_, err := call(ctx, c, csipb.NodeClient.NodeUnstageVolume, &csipb.NodeUnstageVolumeRequest{VolumeId: v.handle, StagingTargetPath: s.at.told(at)})
		if status.Code(err) == codes.NotFound && !mounted(at) {
			err = nil
		}
		_, device := s.at.deviceOf(v.dir)
		s.o.Drivers.metrics.did(v.driver, unstages.name(device), began, err)
		if err != nil {
			return err
		}
	}
	return s.forget(v)
}

// forget removes what there is of a volume that is not staged, its record last (S1).
func (s *Volumes) forget(v *volume) error {
	if err := removePoint(s.at.staging(v.dir)); err != nil {
		return err
	}
	if err := removeRecord(v.dir); err != nil {
		return err
	}
	if _, device := s.at.deviceOf(v.dir); device {
		_ = os.Remove(filepath.Dir(v.dir)) // which is empty now
	}
	s.mu.Lock()
	v.recorded = false
	s.mu.Unlock()
	return nil
}
