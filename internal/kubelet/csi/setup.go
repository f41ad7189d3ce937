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
	"k8s.io/utils/ptr"

	vol "github.com/kemudi/kemudi/internal/kubelet/volume"
)

// republish is how often drivers are told of a volume that want to be told again and again.
const republish = time.Minute

// SetUp makes a volume ready that Want has been told of, and returns where it lies: it is staged on the node, if
// the driver does that, and published to the pod. To call it again is harmless. An error is a [vol.MountError].
func (s *Volumes) SetUp(ctx context.Context, r *Request) (path string, err error) {
	u := &setUp{s: s, r: r, path: s.Path(r)}
	began := time.Now()
	err = u.do(ctx)
	s.o.Drivers.metrics.did(r.Driver(), setsUp.name(r.Device()), began, err)
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w := wish{r.Pod.UID, u.path}
	if since, ok := s.mu.wanted[w]; ok {
		s.o.Drivers.metrics.has(r.Driver(), since)
		delete(s.mu.wanted, w)
	}
	if s.mu.changed[u.path] { // while it was set up
		return u.path, nil
	}
	p := publication{driver: r.Driver()}
	if r.Republished() {
		p.again = time.Now().Add(republish)
	}
	s.mu.published[u.path] = p
	return u.path, nil
}

// setUp is one volume that is made ready.
type setUp struct {
	s    *Volumes
	r    *Request
	path string
	v    *volume
	c    client
	can  abilities
}

func (u *setUp) do(ctx context.Context) error {
	u.s.mu.Lock()
	u.v = u.s.volumeLocked(u.s.home(u.r), u.s.record(u.r))
	u.v.wantLocked(u.r.Pod.UID)
	u.s.mu.Unlock()
	leave, err := u.v.enter(ctx)
	if err != nil {
		return u.fail(publishStep, err)
	}
	defer leave()
	if err := u.check(); err != nil {
		return u.fail(publishStep, err)
	}
	if !u.r.inline() && vol.Alone(u.r.PV) && u.s.elsewhere(u.v, u.r.Pod.UID) {
		return u.fail(aloneStep, vol.ErrInUse)
	}
	there := mounted(u.path)
	if there && !u.r.Republished() {
		return u.begun()
	}
	// Of a driver that is not there nothing is written down, which it would have to undo.
	if err := u.connect(ctx); err != nil {
		return err
	}
	if !u.r.inline() && u.can.stage() && !u.isStaged() {
		if err := u.stage(ctx); err != nil {
			return u.fail(stageStep, err)
		}
	}
	if err := u.begun(); err != nil {
		return err
	}
	if err := u.publish(ctx); err != nil {
		return u.fail(publishStep, err)
	}
	if there || u.r.Device() || u.can.group() {
		return nil
	}
	g := vol.Giving{Pod: u.r.Pod, Tell: u.r.Sources, Log: u.s.o.Log}
	if err := g.Give(u.path, u.r.given()); err != nil {
		return u.fail(publishStep, err)
	}
	return nil
}

// step is one of those that a volume goes through, as people are told of it: with a file system, and as a device.
type step struct{ mount, device string }

var (
	stageStep   = step{"MountVolume.MountDevice", "MapVolume.SetUpDevice"}
	publishStep = step{"MountVolume.SetUp", "MapVolume.MapPodDevice"}
	aloneStep   = step{"MountVolume.SetUp", "MapVolume.SetUpDevice"}
)

// fail says what has failed.
func (u *setUp) fail(at step, err error) error {
	if u.r.Device() {
		return &vol.MountError{Step: at.device, Volume: u.r.Name(), Device: true, Err: err}
	}
	return &vol.MountError{Step: at.mount, Volume: u.r.Name(), Err: err}
}

// check looks at what is asked for.
func (u *setUp) check() error {
	if err := errors.Join(checkDriver(u.r.Driver()), checkName(u.r.Name())); err != nil {
		return err
	}
	if err := u.r.checkMode(); err != nil {
		return fmt.Errorf("kubernetes.io/csi: %w", err)
	}
	return nil
}

// begun writes down that it is begun to publish the volume.
func (u *setUp) begun() error {
	if err := u.begin(); err != nil {
		return u.fail(publishStep, err)
	}
	return nil
}

// begin writes down what the pod has of the volume (S1).
func (u *setUp) begin() error {
	r := u.r
	u.s.mu.Lock()
	u.v.pods[r.Pod.UID] = true
	u.s.mu.Unlock()
	if !r.Device() {
		return write(u.s.at.volumeDir(r.Pod.UID, r.Name()), u.s.record(r))
	}
	if err := u.recorded(); err != nil {
		return err
	}
	link := u.s.at.deviceLink(r.Pod.UID, r.Name())
	if err := os.MkdirAll(filepath.Dir(link), 0o750); err != nil {
		return fmt.Errorf("make directory of devices: %w", err)
	}
	if err := os.Symlink(u.path, link); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("link device: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(u.path), 0o750); err != nil {
		return fmt.Errorf("make directory of devices: %w", err)
	}
	return nil
}

// recorded writes the record of the volume itself.
func (u *setUp) recorded() error {
	if err := write(u.v.dir, u.s.record(u.r)); err != nil {
		return err
	}
	u.s.mu.Lock()
	defer u.s.mu.Unlock()
	u.v.recorded = true
	return nil
}

// connect finds the driver, and asks what it can do.
func (u *setUp) connect(ctx context.Context) error {
	var err error
	if u.c, err = u.s.o.Drivers.find(u.r.Driver()); err != nil {
		switch {
		case u.r.inline():
			return u.fail(publishStep, fmt.Errorf("kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: %w", err))
		case u.r.Device():
			return u.fail(stageStep, fmt.Errorf("kubernetes.io/csi: blockMapper.SetUpDevice failed to get CSI client: %w", err))
		}
		return u.fail(stageStep, fmt.Errorf("kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient: %w", err))
	}
	if u.can, err = u.c.abilities(ctx); err == nil {
		return nil
	}
	if u.r.inline() {
		return u.fail(publishStep, err)
	}
	return u.fail(stageStep, err)
}

func (u *setUp) isStaged() bool {
	u.s.mu.Lock()
	defer u.s.mu.Unlock()
	return u.v.staged
}

func (u *setUp) stage(ctx context.Context) error {
	at := u.s.at.staging(u.v.dir)
	secrets, err := u.r.secrets(u.r.PV.Spec.CSI.NodeStageSecretRef)
	if err != nil {
		return fmt.Errorf("fetching NodeStageSecretRef %w", err)
	}
	if err := u.recorded(); err != nil {
		return err
	}
	if err := os.MkdirAll(at, 0o750); err != nil {
		return fmt.Errorf("make directory to stage a volume: %w", err)
	}
	_, err = call(ctx, u.c, csipb.NodeClient.NodeStageVolume, &csipb.NodeStageVolumeRequest{
		VolumeId: u.r.Handle(), PublishContext: u.r.Context, StagingTargetPath: u.s.at.told(at),
		VolumeCapability: u.r.capability(u.can), Secrets: secrets, VolumeContext: u.r.attributes(),
	})
	if err != nil {
		if Final(err) {
			u.unrecorded()
		}
		return err
	}
	u.s.mu.Lock()
	defer u.s.mu.Unlock()
	u.v.staged = true
	return nil
}

// Final reports whether an error of a driver says that it does nothing any more of what it was asked to, and has undone
// what it had done: any, unless it is one of those that leave that open.
func Final(err error) bool {
	switch status.Code(err) {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted, codes.Aborted:
		return false
	}
	return true
}

// unrecorded removes the record of a volume of which nothing is staged, unless a pod may have it all the same (S1): an earlier
// process has staged it then. What cannot be removed is left to who unstages it.
func (u *setUp) unrecorded() {
	u.s.mu.Lock()
	others := len(u.v.pods) > 1
	u.s.mu.Unlock()
	if others || mounted(u.path) {
		return
	}
	if err := u.s.forget(u.v); err != nil {
		u.s.o.Log.Warn("forget a volume that was not staged", "volume", u.v.handle, "err", err)
	}
}

func (u *setUp) publish(ctx context.Context) error {
	r := u.r
	secrets, err := r.secrets(r.publishSecret())
	if err != nil {
		return fmt.Errorf("fetching NodePublishSecretRef %w", err)
	}
	in := &csipb.NodePublishVolumeRequest{
		VolumeId: r.Handle(), PublishContext: r.Context, TargetPath: u.s.at.told(u.path), VolumeCapability: r.capability(u.can),
		Readonly: r.readOnly(), Secrets: secrets, VolumeContext: maps.Clone(r.attributes()),
	}
	if u.can.stage() && !r.inline() {
		in.StagingTargetPath = u.s.at.told(u.s.at.staging(u.v.dir))
	}
	told := map[string]string{}
	if r.About != nil && ptr.Deref(r.About.Spec.PodInfoOnMount, false) {
		told = r.podAttributes()
	}
	tokens, err := u.s.tokens(ctx, r)
	switch {
	case err != nil:
		return fmt.Errorf("kubernetes.io/csi: %w", err)
	case tokens == "":
	case ptr.Deref(r.About.Spec.ServiceAccountTokenInSecrets, false):
		if in.Secrets == nil {
			in.Secrets = map[string]string{}
		}
		in.Secrets[tokensKey] = tokens
	default:
		told[tokensKey] = tokens
	}
	if len(told) > 0 {
		if in.VolumeContext == nil {
			in.VolumeContext = map[string]string{}
		}
		maps.Copy(in.VolumeContext, told)
	}
	_, err = call(ctx, u.c, csipb.NodeClient.NodePublishVolume, in)
	return err
}
