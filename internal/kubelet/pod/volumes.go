package pod

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/kubelet/objects"
	"github.com/kemudi/kemudi/internal/kubelet/podstep"
	"github.com/kemudi/kemudi/internal/kubelet/volume"
)

// prepareVolumes makes the pod's volumes.
type prepareVolumes struct {
	s     *Set
	pod   *v1.Pod
	renew time.Time // when to write them anew; zero: never

	refused *podstep.Failure // the node cannot take them
}

func (x *Actor) prepareVolumes() work {
	if x.s.Runner.Disk != nil {
		x.s.Runner.Objects.Follow(x.s.group, x.d.Pod, func() { x.post((*Actor).sourceChanged) })
	}
	return &prepareVolumes{s: x.s, pod: x.d.Pod}
}

func (w *prepareVolumes) do(ctx context.Context) (err error) {
	w.renew, err = w.s.writeVolumes(ctx, w.pod)
	if full := (*volume.FullError)(nil); errors.As(err, &full) {
		w.refused = &podstep.Failure{Reason: reasonFull, Message: "Pod was rejected: " + full.Error()}
		return nil // it is not tried again
	}
	return err
}

func (w *prepareVolumes) note(x *Actor, err error) {
	switch {
	case err != nil:
	case w.refused != nil:
		x.d.Fail = w.refused
	case sameUses(w.pod, x.d.Pod):
		x.o.Volumes.Ready, x.o.Volumes.RenewAt, x.o.Storage.Since = true, w.renew, x.now
	}
}

// sameUses reports whether the containers of two versions of a pod use the same volumes: only those for debugging come later.
func sameUses(a, b *v1.Pod) bool {
	return len(a.Spec.EphemeralContainers) == len(b.Spec.EphemeralContainers) || maps.Equal(volume.Uses(a), volume.Uses(b))
}

// refreshVolumes brings the pod's written volumes up to date.
type refreshVolumes prepareVolumes

func (w *refreshVolumes) do(ctx context.Context) (err error) {
	w.renew, err = w.s.writeVolumes(ctx, w.pod)
	return err
}

func (w *refreshVolumes) note(x *Actor, err error) { x.o.Volumes.RenewAt = w.renew }

// writeVolumes makes the pod's volumes, or brings them up to date, and returns when
// that is to be done again (zero: never), also if it has not worked for all of them.
func (s *Set) writeVolumes(ctx context.Context, pod *v1.Pod) (time.Time, error) {
	if s.Runner.Disk == nil {
		return time.Time{}, nil
	}
	again, err := s.Runner.Disk.Volumes.Prepare(ctx, pod, sources{s, ctx})
	placed, placeErr := s.placeVolumes(ctx, pod)
	if err = errors.Join(err, placeErr); err != nil && ctx.Err() == nil {
		s.reportMountErrors(pod, err)
	}
	return volume.Sooner(again, placed), err
}

// reasonFull is why a pod is rejected whose volumes the node cannot take, as many as it has.
const reasonFull = "VolumeAttachmentLimitExceeded"

func (s *Set) reportMountErrors(pod *v1.Pod, err error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range joined.Unwrap() {
			s.reportMountErrors(pod, one)
		}
		return
	}
	reason := "FailedMount"
	if full := (*volume.FullError)(nil); errors.As(err, &full) {
		reason = reasonFull
	} else if m := (*volume.MountError)(nil); errors.As(err, &m) && m.Device {
		reason = "FailedMapVolume"
	}
	s.Runner.About(pod, "").Event(v1.EventTypeWarning, reason, err.Error())
}

// reportFormat tells of a volume, beside its pods, that there is another file system on it than it is said to have, if err is that.
func (s *Set) reportFormat(pv *v1.PersistentVolume, err error) {
	if other := (*volume.FormatError)(nil); errors.As(err, &other) {
		s.Runner.Events.Event(pv, v1.EventTypeWarning, "FailedMountOnFilesystemMismatch", fmt.Sprintf("MountVolume failed for volume %q %v", pv.Name, other))
	}
}

// sourceChanged notes that something the pod refers to is another now.
func (x *Actor) sourceChanged() {
	x.volumesStale()
	clear(x.o.Failures) // perhaps it works now
}

// volumesStale notes that the pod's volumes may have to say something else now.
func (x *Actor) volumesStale() { x.o.Volumes.Stale = x.s.Runner.Disk != nil }

// sources is where volumes get their content from, for one call.
type sources struct {
	set *Set
	ctx context.Context
}

var _ volume.Sources = sources{}

func (s sources) ConfigMap(namespace, name string) (*v1.ConfigMap, error) {
	return s.set.Runner.Objects.In(s.ctx).ConfigMap(namespace, name)
}

func (s sources) Secret(namespace, name string) (*v1.Secret, error) {
	return s.set.Runner.Objects.In(s.ctx).Secret(namespace, name)
}

func (s sources) TrustBundles(p *v1.ClusterTrustBundleProjection) ([]*certificatesv1.ClusterTrustBundle, error) {
	return s.set.Runner.Objects.TrustBundles(s.ctx, p)
}

func (s sources) RequestCertificate(ctx context.Context, pod *v1.Pod, p *v1.PodCertificateProjection, stub []byte) (string, error) {
	return s.set.Runner.Objects.RequestCertificate(ctx, pod, p, stub)
}

func (s sources) CertificateRequest(ctx context.Context, pod *v1.Pod, name string) (*certificatesv1.PodCertificateRequest, error) {
	return s.set.Runner.Objects.CertificateRequest(ctx, pod, name)
}

func (s sources) TellOf(pod *v1.Pod, reason, message string) {
	s.set.Runner.About(pod, "").Event(v1.EventTypeWarning, reason, message)
}

func (s sources) IsMissing(err error) bool { return objects.IsMissing(err) }

func (s sources) Field(pod *v1.Pod, path string) (string, error) {
	return cri.Field(pod, path, nil, s.set.Runner.Node.Addresses())
}

func (s sources) ResourceField(pod *v1.Pod, ref *v1.ResourceFieldSelector) (string, error) {
	c := cri.FindContainer(pod, ref.ContainerName)
	if c == nil {
		return "", fmt.Errorf("container %s not found", ref.ContainerName)
	}
	return cri.ResourceField(pod, c, ref, s.set.Runner.Facts.Allocatable)
}

// Token asks the API for a token bound to the pod.
func (s sources) Token(ctx context.Context, pod *v1.Pod, p *v1.ServiceAccountTokenProjection) (volume.Token, error) {
	issued := time.Now()
	got, err := s.set.Runner.Objects.RequestToken(ctx, pod, p.Audience, ptr.To(ptr.Deref(p.ExpirationSeconds, 3600)))
	if err != nil {
		return volume.Token{}, err
	}
	return volume.Token{Value: got.Status.Token, Issued: issued, Expires: got.Status.ExpirationTimestamp.Time}, nil
}
