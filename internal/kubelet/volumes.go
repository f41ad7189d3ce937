package kubelet

import (
	"context"
	"errors"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/kubelet/podstep"
	"github.com/kemudi/kemudi/internal/kubelet/volume"
)

// refreshVolumes is the action of bringing written volumes up to date. The step
// does not ask for it, but must know that it is under way.
const refreshVolumes podstep.Op = "refresh-volumes"

// prepareVolumes makes the pod's volumes.
func (x *actor) prepareVolumes() func(context.Context) after {
	a, pod := x.a, x.d.Pod
	if a.disk == nil {
		return func(context.Context) after {
			return func(x *actor) { x.o.VolumesReady = true }
		}
	}
	a.follow(x, pod)
	return func(ctx context.Context) after {
		again, err := a.disk.volumes.Prepare(ctx, pod, sources{a, ctx})
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			a.tellMountErrors(pod, err)
			return failed(podstep.VolumeFailure, "", err)
		}
		return func(x *actor) {
			delete(x.o.Failures, podstep.VolumeFailure)
			x.o.VolumesReady, x.renewAt = true, again
		}
	}
}

func (a *Agent) tellMountErrors(pod *v1.Pod, err error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range joined.Unwrap() {
			a.tellMountErrors(pod, one)
		}
		return
	}
	a.about(pod, "").event(v1.EventTypeWarning, "FailedMount", err.Error())
}

// stepVolumes starts a refresh of the pod's volumes if one is called for, and
// returns when the next one will be (zero: never).
func (x *actor) stepVolumes(ending bool) time.Time {
	if x.a.disk == nil || !x.o.VolumesReady || ending {
		return time.Time{}
	}
	act := podstep.Action{Op: refreshVolumes}
	if _, doing := x.o.Doing[act.Key()]; doing {
		return time.Time{}
	}
	due := !x.renewAt.IsZero() && !time.Now().Before(x.renewAt)
	if x.refresh || due {
		x.refresh = false
		x.begin(act)
		return time.Time{}
	}
	return x.renewAt
}

// refreshOp brings the pod's written volumes up to date.
func (x *actor) refreshOp() func(context.Context) after {
	a, pod := x.a, x.d.Pod
	return func(ctx context.Context) after {
		again, err := a.disk.volumes.Prepare(ctx, pod, sources{a, ctx})
		if err != nil && ctx.Err() == nil {
			a.tellMountErrors(pod, err)
			again = earliest(again, time.Now().Add(time.Minute))
		}
		return func(x *actor) { x.renewAt = again }
	}
}

// sourceChanged notes that something the pod refers to is another now.
func (x *actor) sourceChanged() {
	x.refresh = true
	clear(x.o.Failures) // perhaps it works now
}

// sources is where volumes get their content from, for one call.
type sources struct {
	a   *Agent
	ctx context.Context
}

var _ volume.Sources = sources{}

func (s sources) ConfigMap(namespace, name string) (*v1.ConfigMap, error) {
	return s.a.objects.in(s.ctx).ConfigMap(namespace, name)
}

func (s sources) Secret(namespace, name string) (*v1.Secret, error) {
	return s.a.objects.in(s.ctx).Secret(namespace, name)
}

func (s sources) IsMissing(err error) bool { return isMissing(err) }

func (s sources) Field(pod *v1.Pod, path string) (string, error) {
	return cri.Field(pod, path, nil, s.a.nodeIPs())
}

func (s sources) ResourceField(pod *v1.Pod, ref *v1.ResourceFieldSelector) (string, error) {
	c := cri.FindContainer(pod, ref.ContainerName)
	if c == nil {
		return "", fmt.Errorf("container %s not found", ref.ContainerName)
	}
	return cri.ResourceField(pod, c, ref, s.a.facts.node.Allocatable)
}

// Token asks the API for a token bound to the pod.
func (s sources) Token(ctx context.Context, pod *v1.Pod, p *v1.ServiceAccountTokenProjection) (volume.Token, error) {
	ctx, cancel := context.WithTimeout(ctx, apiDeadline)
	defer cancel()
	seconds := int64(3600)
	if p.ExpirationSeconds != nil {
		seconds = *p.ExpirationSeconds
	}
	r := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &seconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	if p.Audience != "" {
		r.Spec.Audiences = []string{p.Audience}
	}
	issued := time.Now()
	answer, err := client.For(s.a.o.Transport, core.ServiceAccounts).Post(ctx, pod.Namespace, pod.Spec.ServiceAccountName, "token", r)
	if err != nil {
		return volume.Token{}, err
	}
	got, ok := answer.(*authenticationv1.TokenRequest)
	if !ok {
		return volume.Token{}, errors.New("the API did not answer with a token")
	}
	return volume.Token{Value: got.Status.Token, Issued: issued, Expires: got.Status.ExpirationTimestamp.Time}, nil
}
