package noderestriction

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/api/core/claims"
	"github.com/kemudi/kemudi/internal/api/core/csi"
)

// audienceVerb is the permission to ask for tokens for an audience, which takes the place of the
// resource, that a pod does not mention (KEP-4412).
const audienceVerb = "request-serviceaccounts-token-audience"

// audience checks that a token is for one whom the pod has a volume with a token for, or whom the
// agent was allowed to ask for.
func (r *restriction) audience(ctx context.Context, a *admission.Attributes, pod *corev1.Pod) error {
	asked := ""
	switch list := a.Object.(*authenticationv1.TokenRequest).Spec.Audiences; len(list) {
	case 0:
	case 1:
		asked = list[0]
	default:
		return a.Forbid("node may only request 0 or 1 audiences")
	}
	if projects(pod, asked) {
		return nil
	}
	mounts, err := r.mounts(ctx, pod, asked)
	switch {
	case err != nil:
		return a.Forbid("error validating audience %q: %w", asked, err)
	case mounts || r.o.Authorizer == nil:
		return nil
	}
	decision, _, err := r.o.Authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: a.User, Verb: audienceVerb, Namespace: a.Namespace, Resource: asked, Name: a.Name, ResourceRequest: true,
	})
	switch {
	case decision == authorizer.DecisionAllow:
		return nil
	case err != nil:
		return a.Forbid("audience %q not found in pod spec volume, error authorizing %s to request tokens for this audience: %w", asked, a.User.GetName(), err)
	}
	return a.Forbid("audience %q not found in pod spec volume, %s is not authorized to request tokens for this audience", asked, a.User.GetName())
}

// projects reports whether a projected volume of the pod has a token for the audience.
func projects(pod *corev1.Pod, audience string) bool {
	for i := range pod.Spec.Volumes {
		p := pod.Spec.Volumes[i].Projected
		if p == nil {
			continue
		}
		for j := range p.Sources {
			if t := p.Sources[j].ServiceAccountToken; t != nil && t.Audience == audience {
				return true
			}
		}
	}
	return false
}

// mounts reports whether the driver of a volume of the pod is given tokens for the audience.
func (r *restriction) mounts(ctx context.Context, pod *corev1.Pod, audience string) (bool, error) {
	for i := range pod.Spec.Volumes {
		name, err := r.driverOf(ctx, pod, &pod.Spec.Volumes[i])
		if err != nil {
			return false, err
		}
		if name == "" {
			continue
		}
		driver, ok, err := admission.Find(ctx, r.o, r.drivers, "", name)
		if err != nil {
			return false, err
		}
		if !ok {
			continue
		}
		for _, t := range driver.Spec.TokenRequests {
			if t.Audience == audience {
				return true, nil
			}
		}
	}
	return false, nil
}

// driverOf is the driver of a volume; empty: it has none that is known.
func (r *restriction) driverOf(ctx context.Context, pod *corev1.Pod, v *corev1.Volume) (string, error) {
	if v.CSI != nil {
		return v.CSI.Driver, nil
	}
	claim := claims.OfVolume(pod, v)
	if claim == "" {
		if pv := csi.Inline(v, pod.Namespace); pv != nil {
			return pv.Spec.CSI.Driver, nil
		}
		return "", nil
	}
	pvc, ok, err := admission.Find(ctx, r.o, r.claims, pod.Namespace, claim)
	if err != nil || !ok || pvc.Spec.VolumeName == "" {
		return "", err
	}
	pv, ok, err := admission.Find(ctx, r.o, r.volumes, "", pvc.Spec.VolumeName)
	if err != nil || !ok {
		return "", err
	}
	if pv = csi.Of(pv); pv != nil {
		return pv.Spec.CSI.Driver, nil
	}
	return "", nil
}
