package pod

import (
	"context"
	"errors"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/core/claims"
	csiapi "github.com/kemudi/kemudi/internal/api/core/csi"
	"github.com/kemudi/kemudi/internal/api/storage"
	"github.com/kemudi/kemudi/internal/kubelet/csi"
	"github.com/kemudi/kemudi/internal/kubelet/podstep"
	"github.com/kemudi/kemudi/internal/kubelet/volume"
)

// attachPatience is how long a pod waits for its volumes to be attached before people are told, and it is
// tried again.
const attachPatience = 2*time.Minute + 3*time.Second

// driven are the volumes of a pod that CSI drivers see to, while they are made ready.
type driven struct {
	s     *Set
	ctx   context.Context
	pod   *v1.Pod
	found []found
	again time.Time // when they are to be seen to again; zero: never
	errs  []error
}

// found is such a volume, and the claim that it is of; nil: it stands in the pod.
type found struct {
	*csi.Request
	claim *v1.PersistentVolumeClaim
}

// placeVolumes gives the pod the volumes that are not made for it alone, and those of drivers, as far as it has not got them
// yet. It returns when that is to be done again; zero: never.
func (s *Set) placeVolumes(ctx context.Context, pod *v1.Pod) (time.Time, error) {
	d := &driven{s: s, ctx: ctx, pod: pod}
	used := volume.Uses(pod)
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if _, ok := used[v.Name]; !ok {
			continue
		}
		if err := d.look(v); err != nil {
			d.errs = append(d.errs, err)
		}
	}
	for _, f := range d.found { // all of them, so that they are attached side by side
		s.Runner.Disk.Driven.Want(f.Request)
	}
	if len(d.found) > 0 {
		d.setUp()
	}
	return d.again, errors.Join(d.errs...)
}

// look finds out what one of the pod's volumes is, and gives it to the pod unless that is for a driver to do.
func (d *driven) look(v *v1.Volume) error {
	if v.CSI != nil {
		return d.add(found{Request: &csi.Request{Pod: d.pod, Volume: v}})
	}
	name, pv := claims.OfVolume(d.pod, v), csiapi.Inline(v, d.pod.Namespace)
	if pv == nil {
		pv = volume.Inline(v, d.pod.Namespace)
	}
	if name == "" && pv == nil {
		return nil
	}
	volumes := d.s.Runner.Disk.Volumes
	path, placed := volumes.Path(d.pod, v), false
	if path != "" && d.s.Runner.Disk.Driven.Owns(path) {
		if d.done(path) {
			return nil
		}
		d.s.Runner.Disk.Driven.Look(path)
	} else if placed = volumes.Placed(d.pod, v); placed && !volumes.MayGrow(path) {
		return nil
	}
	var claim *v1.PersistentVolumeClaim
	if pv == nil {
		var err error
		if claim, pv, err = d.s.Runner.Objects.VolumeOf(d.ctx, d.pod, v); err != nil && placed {
			return nil
		} else if err != nil {
			return d.unless(path, &volume.ClaimError{Volume: v.Name, Namespace: d.pod.Namespace, Claim: name, Err: err})
		}
		node, _ := d.s.Runner.Node.Seen()
		if err := volume.Check(d.pod, v, pv, node); err != nil && !placed {
			return d.unless(path, err)
		}
	}
	if of := core.Attachable(pv); of != nil {
		return d.add(found{&csi.Request{Pod: d.pod, Volume: v, PV: of}, claim})
	}
	if !placed {
		if err := volumes.Place(d.ctx, sources{d.s, d.ctx}, d.pod, v, pv); err != nil {
			if claim != nil { // else it is the pod's own, and no object of the API
				d.s.reportFormat(pv, err)
			}
			return err
		}
	}
	if pv.Spec.Local != nil {
		d.s.followClaim(claim, d.pod.UID, "")
		d.grow(found{&csi.Request{Pod: d.pod, Volume: v, PV: pv}, claim})
	}
	return nil
}

// unless is the error, but if a volume is published at the path: then it is there, whatever the API says now, and asked about
// again later.
func (d *driven) unless(path string, err error) error {
	if path == "" || !d.s.Runner.Disk.Driven.Mounted(path) {
		return err
	}
	d.later(time.Now().Add(time.Minute))
	return nil
}

// done reports whether the volume that is published at a path needs nothing now.
func (d *driven) done(path string) bool {
	again, ok := d.s.Runner.Disk.Driven.Due(path)
	if !ok || !again.IsZero() && !time.Now().Before(again) {
		return false
	}
	d.later(again)
	return true
}

// later notes that the volumes are to be seen to again at a time; zero: never.
func (d *driven) later(at time.Time) { d.again = volume.Sooner(d.again, at) }

// add notes a volume that its driver is to make ready, unless it is.
func (d *driven) add(f found) error {
	path := d.s.Runner.Disk.Driven.Path(f.Request)
	if d.done(path) {
		return nil
	}
	f.Sources = sources{d.s, d.ctx}
	var err error
	if f.About, err = d.s.Runner.Objects.CSIDriver(d.ctx, f.Driver()); err != nil {
		return d.unless(path, &volume.MountError{Volume: f.Name(), Device: f.Device(), Err: err})
	}
	if f.PV != nil && storage.Attaches(f.About) {
		f.Attachment = storage.AttachmentName(f.Handle(), f.Driver(), d.s.Runner.Facts.Name)
	}
	d.found = append(d.found, f)
	return nil
}

// setUp makes ready what was found.
func (d *driven) setUp() {
	ctx, cancel := context.WithTimeoutCause(d.ctx, attachPatience, context.DeadlineExceeded)
	defer cancel()
	for _, f := range d.found {
		if err := d.setUpOne(ctx, f); err != nil {
			d.errs = append(d.errs, err)
		}
	}
}

// setUpOne makes one volume ready; what it is attached by is waited for until waiting ends.
func (d *driven) setUpOne(waiting context.Context, f found) error {
	s := d.s.Runner.Disk.Driven
	if f.Attachment != "" {
		if !s.Mounted(s.Path(f.Request)) {
			if err := d.s.Runner.Node.AwaitAttached(waiting, csiapi.Name(f.Driver(), f.Handle())); err != nil {
				return d.notAttached(f, err)
			}
		}
		var err error
		if f.Context, err = d.s.Runner.Objects.Attached(d.ctx, f.Attachment); err != nil {
			step := "MountVolume.WaitForAttach"
			if f.Device() {
				step = "MapVolume.WaitForAttach"
			}
			return d.unless(s.Path(f.Request), &volume.MountError{Step: step, Volume: f.Name(), Device: f.Device(), Err: err})
		}
	}
	fresh := f.Device() && !s.Mounted(s.Path(f.Request))
	path, err := s.SetUp(d.ctx, f.Request)
	if err != nil {
		return err
	}
	if fresh {
		d.s.Runner.About(d.pod, "").Event(v1.EventTypeNormal, "SuccessfulMountVolume",
			fmt.Sprintf("MapVolume.MapPodDevice succeeded for volume %q volumeMapPath %q", f.Name(), s.DevicesOf(d.pod.UID)))
	}
	d.done(path) // which says when it is due
	if f.PV == nil {
		return nil
	}
	if err := d.s.Runner.Disk.Volumes.Link(d.pod, f.Volume, path); err != nil {
		return err
	}
	if f.claim != nil {
		d.s.followClaim(f.claim, d.pod.UID, path)
		d.grow(f)
	}
	return nil
}

// notAttached says why a volume was not attached in time: if the node takes no more, its driver is asked how many it takes, so
// that no further pods come here for that.
func (d *driven) notAttached(f found, why error) error {
	err := volume.AttachError{Volume: f.Volume.Name, Err: why}
	if d.ctx.Err() == nil && d.s.Runner.Objects.Exhausted(d.ctx, f.Attachment) && d.s.Runner.Disk.Driven.Recount(f.Request) {
		return &volume.FullError{AttachError: err}
	}
	return &err
}

// followClaim has a pod look at its volume whenever the claim changes: it may be larger. path is where a driver publishes it;
// empty: none does.
func (s *Set) followClaim(claim *v1.PersistentVolumeClaim, uid types.UID, path string) {
	x := s.actor(uid)
	if x == nil { // it has ended
		return
	}
	s.Runner.Objects.FollowClaim(s.group, claim, uid, func() {
		x.post(func(x *Actor) {
			if path != "" {
				s.Runner.Disk.Driven.Recheck(path)
			}
			x.volumesStale()
		})
	})
}

// DriverCame has what has failed for want of a CSI driver tried again.
func (s *Set) DriverCame() {
	for _, x := range s.all() {
		x.post(func(x *Actor) {
			for _, op := range []podstep.Op{podstep.PrepareVolumes, podstep.RefreshVolumes, podstep.CleanUp} {
				delete(x.o.Failures, podstep.Action{Op: op}.Key())
			}
		})
	}
}

// ServiceAccountToken asks for a token of the pod's service account for a driver.
func (s sources) ServiceAccountToken(ctx context.Context, pod *v1.Pod, r storagev1.TokenRequest) (authenticationv1.TokenRequestStatus, error) {
	got, err := s.set.Runner.Objects.RequestToken(ctx, pod, r.Audience, r.ExpirationSeconds)
	if err != nil {
		return authenticationv1.TokenRequestStatus{}, fmt.Errorf("fetch token: %w", err)
	}
	return got.Status, nil
}
