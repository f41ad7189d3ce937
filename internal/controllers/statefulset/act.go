package statefulset

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kemudi/kemudi/internal/workload"
)

// act carries a plan out. Pods that are too many go first, whatever comes of the rest: a quota
// may have no room for others before. What is removed for the sake of others is removed only
// if all else could be done.
func (r *reconciler) act(ctx context.Context, v *view, p plan) error {
	for i := range p.care {
		if err := r.care(ctx, v, &p.care[i]); err != nil {
			return err
		}
	}
	err := errors.Join(r.remove(ctx, v, p.excess), r.create(ctx, v, p.create), r.remove(ctx, v, p.replace))
	if err != nil {
		return err
	}
	return r.remove(ctx, v, p.remove)
}

// care gives a pod what is its own.
func (r *reconciler) care(ctx context.Context, v *view, c *care) error {
	for _, claim := range c.contested {
		r.tellContested(v, claim)
	}
	err := r.careFor(ctx, v, c)
	switch {
	case workload.Expected(err):
	case err != nil:
		r.k.Events.Event(v.set, corev1.EventTypeWarning, "FailedUpdate", fmt.Sprintf("update Pod %s in StatefulSet %s failed error: %v", c.name, v.set.Name, err))
	case c.tell:
		r.k.Events.Event(v.set, corev1.EventTypeNormal, "SuccessfulUpdate", fmt.Sprintf("update Pod %s in StatefulSet %s successful", c.name, v.set.Name))
	}
	return err
}

func (r *reconciler) careFor(ctx context.Context, v *view, c *care) error {
	if c.make || c.pod != nil {
		claims := r.makeClaims(ctx, v, c.number)
		r.tellClaims(v, c.name, claims)
		if err := claims.failed(); err != nil {
			return err
		}
	}
	for _, claim := range c.claims {
		name := claim.Name
		if _, err := r.claims.Update(ctx, claim); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("could not update claim %s for delete policy ownerRefs: %w", name, err)
		}
	}
	if c.pod != nil {
		if _, err := r.pods.Update(ctx, c.pod); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// made is what came of one claim.
type made struct {
	claim     string
	contested bool
	err       error // nil: it was there already if it is not new
	fresh     bool
}

type madeClaims []made

// failed is why not all claims are there.
func (m madeClaims) failed() error {
	var errs []error
	for _, c := range m {
		if c.err != nil {
			errs = append(errs, c.err)
		}
	}
	return errors.Join(errs...)
}

// makeClaims makes those claims of a number that are not there.
func (r *reconciler) makeClaims(ctx context.Context, v *view, n int) madeClaims {
	var all madeClaims
	k := keeper{set: v.set, pod: podName(v.set, n)}
	for i := range v.set.Spec.VolumeClaimTemplates {
		template := &v.set.Spec.VolumeClaimTemplates[i]
		m := made{claim: claimName(v.set, template.Name, n)}
		switch has := v.claim(m.claim); {
		case has == nil:
			claim := newClaim(v.set, template, n)
			if owned, _ := k.owned(claim); owned != nil {
				claim = owned
			}
			m.fresh = true
			if _, err := r.claims.Create(ctx, claim); err != nil {
				m.err = fmt.Errorf("failed to create PVC %s: %w", m.claim, err)
			}
		case has.DeletionTimestamp != nil:
			m.err = fmt.Errorf("pvc %s is being deleted", m.claim)
		default:
			_, m.contested = k.owned(has)
		}
		all = append(all, m)
	}
	return all
}

// tellClaims tells of claims that were made for a pod, or could not be.
func (r *reconciler) tellClaims(v *view, pod string, claims madeClaims) {
	for _, m := range claims {
		switch {
		case m.contested:
			r.tellContested(v, m.claim)
		case !m.fresh || apierrors.IsAlreadyExists(m.err) || workload.NamespaceEnds(m.err):
		case m.err != nil:
			r.k.Events.Event(v.set, corev1.EventTypeWarning, "FailedCreate",
				fmt.Sprintf("create Claim %s for Pod %s in StatefulSet %s failed error: %v", m.claim, pod, v.set.Name, errors.Unwrap(m.err)))
		default:
			r.k.Events.Event(v.set, corev1.EventTypeNormal, "SuccessfulCreate",
				fmt.Sprintf("create Claim %s Pod %s in StatefulSet %s success", m.claim, pod, v.set.Name))
		}
	}
}

func (r *reconciler) tellContested(v *view, claim string) {
	r.k.Events.Event(v.set, corev1.EventTypeWarning, "ConflictingController",
		fmt.Sprintf("PersistentVolumeClaim %s has a conflicting OwnerReference that acts as a manging controller, the retention policy is ignored for this claim", claim))
}

// create makes the pods of numbers, each after its claims, in growing batches.
func (r *reconciler) create(ctx context.Context, v *view, numbers []int) error {
	claims, errs := make([]madeClaims, len(numbers)), make([]error, len(numbers))
	tried := make([]bool, len(numbers))
	_, err := workload.SlowStartWide(len(numbers), func(i int) error {
		tried[i] = true
		claims[i] = r.makeClaims(ctx, v, numbers[i])
		if errs[i] = claims[i].failed(); errs[i] == nil {
			revision := v.revision(numbers[i])
			_, errs[i] = r.pods.Create(ctx, newPod(v.set, v.templates[revision], revision, numbers[i]))
		}
		return errs[i]
	})
	for i, n := range numbers {
		if !tried[i] {
			continue
		}
		name := podName(v.set, n)
		r.tellClaims(v, name, claims[i])
		switch {
		case errs[i] == nil:
			r.k.Events.Event(v.set, corev1.EventTypeNormal, "SuccessfulCreate", fmt.Sprintf("create Pod %s in StatefulSet %s successful", name, v.set.Name))
		case apierrors.IsAlreadyExists(errs[i]) || workload.NamespaceEnds(errs[i]):
		default:
			r.k.Events.Event(v.set, corev1.EventTypeWarning, "FailedCreate", fmt.Sprintf("create Pod %s in StatefulSet %s failed error: %v", name, v.set.Name, errs[i]))
		}
	}
	if workload.NamespaceEnds(err) {
		return nil // the set goes with it
	}
	return err
}

// remove deletes pods, whatever has become of them since they were read.
func (r *reconciler) remove(ctx context.Context, v *view, pods []*corev1.Pod) error {
	errs := make([]error, len(pods))
	_, err := workload.SideBySide(len(pods), func(i int) error {
		errs[i] = r.pods.DeleteByUID(ctx, pods[i])
		if workload.Gone(errs[i]) {
			return nil
		}
		return errs[i]
	})
	for i, pod := range pods {
		switch {
		case errs[i] == nil:
			r.k.Events.Event(v.set, corev1.EventTypeNormal, "SuccessfulDelete", fmt.Sprintf("delete Pod %s in StatefulSet %s successful", pod.Name, v.set.Name))
		case !workload.Gone(errs[i]):
			r.k.Events.Event(v.set, corev1.EventTypeWarning, "FailedDelete", fmt.Sprintf("delete Pod %s in StatefulSet %s failed error: %v", pod.Name, v.set.Name, errs[i]))
		}
	}
	return err
}
