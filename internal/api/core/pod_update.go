package core

import (
	"fmt"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/diff"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"github.com/kemudi/kemudi/internal/api/core/podspec"
	"github.com/kemudi/kemudi/internal/resource"
)

// validatePod checks a pod that is created (old is nil) or updated.
func validatePod(p, old *corev1.Pod, errs *resource.Errors) {
	if old != nil {
		validatePodUpdate(p, old, errs)
		return
	}
	podspec.ValidateAnnotations(errs.At("metadata"), p.Annotations, &p.Spec)
	podspec.Validate(errs, p)
	if len(p.Spec.EphemeralContainers) > 0 {
		errs.Forbidden("spec.ephemeralContainers", "cannot be set on create")
	}
	if p.Spec.NodeName != "" && len(p.Spec.SchedulingGates) > 0 {
		errs.Forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared")
	}
	podspec.ValidateProfiles(errs.At("spec"), &p.ObjectMeta, &p.Spec)
}

// validatePodUpdate checks a change of a pod: very little of its spec may change.
func validatePodUpdate(p, old *corev1.Pod, errs *resource.Errors) {
	validateAnnotationChanges(errs.At("metadata"), p.Annotations, old.Annotations)
	podspec.ValidateAnnotations(errs.At("metadata"), p.Annotations, &p.Spec)
	if equality.Semantic.DeepEqual(p.Spec, old.Spec) {
		return // it was good when it was written
	}
	podspec.Validate(errs, p)
	at := errs.At("spec")
	for _, list := range []struct {
		name     string
		new, old []corev1.Container
	}{
		{"containers", p.Spec.Containers, old.Spec.Containers},
		{"initContainers", p.Spec.InitContainers, old.Spec.InitContainers},
	} {
		if len(list.new) != len(list.old) {
			at.Forbidden(list.name, "pod updates may not add or remove containers")
			return
		}
	}
	validateDeadlineChange(at, p.Spec.ActiveDeadlineSeconds, old.Spec.ActiveDeadlineSeconds)
	validateTolerationChange(at, p.Spec.Tolerations, old.Spec.Tolerations)
	for i, gate := range p.Spec.SchedulingGates {
		if !slices.Contains(old.Spec.SchedulingGates, gate) {
			at.At("schedulingGates[%d]", i).Forbidden("name",
				fmt.Sprintf("only deletion is allowed, but found new scheduling gate '%s'", gate.Name))
		}
	}
	rest := withoutAllowedChanges(at, &p.Spec, &old.Spec)
	if !equality.Semantic.DeepEqual(rest, &old.Spec) {
		errs.Forbidden("spec", fmt.Sprintf("pod updates may not change fields other than %s\n%v",
			strings.Join(updatablePodFields, ","), diff.Diff(old.Spec, rest)))
	}
}

// updatablePodFields is what a client may change in the spec of a pod.
var updatablePodFields = []string{
	"`spec.containers[*].image`",
	"`spec.initContainers[*].image`",
	"`spec.activeDeadlineSeconds`",
	"`spec.tolerations` (only additions to existing tolerations)",
	"`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
}

// withoutAllowedChanges is the spec s with all changes undone that a pod may
// undergo: what still differs from old is forbidden.
func withoutAllowedChanges(errs *resource.Errors, s, old *corev1.PodSpec) *corev1.PodSpec {
	rest := *s // its parts are replaced, never changed
	rest.Containers = withImagesOf(s.Containers, old.Containers)
	rest.InitContainers = withImagesOf(s.InitContainers, old.InitContainers)
	rest.ActiveDeadlineSeconds = old.ActiveDeadlineSeconds
	rest.Tolerations = old.Tolerations
	rest.SchedulingGates = old.SchedulingGates
	if len(old.SchedulingGates) == 0 {
		return &rest
	}
	// As long as a pod is gated, the choice of its nodes may become narrower.
	validateSelectorChange(errs, s.NodeSelector, old.NodeSelector)
	rest.NodeSelector = old.NodeSelector
	validateNodeAffinityChange(errs.At("affinity.nodeAffinity"), podspec.NodeAffinity(s), podspec.NodeAffinity(old))
	rest.Affinity = withNodeAffinityOf(s.Affinity, old.Affinity)
	return &rest
}

func withImagesOf(containers, old []corev1.Container) []corev1.Container {
	containers = slices.Clone(containers)
	for i := range containers {
		containers[i].Image = old[i].Image
	}
	return containers
}

func validateDeadlineChange(errs *resource.Errors, seconds, old *int64) {
	switch {
	case seconds == nil && old != nil:
		errs.Invalid("activeDeadlineSeconds", nil, "must not update from a positive integer to nil value")
	case seconds == nil:
	case *seconds < 0 || *seconds > math.MaxInt32:
		errs.Invalid("activeDeadlineSeconds", *seconds, utilvalidation.InclusiveRangeError(0, math.MaxInt32))
	case old != nil && *seconds > *old:
		errs.Invalid("activeDeadlineSeconds", *seconds, "must be less than or equal to previous value")
	}
}

// validateTolerationChange lets tolerations be added, and the time of those that
// are there be changed.
func validateTolerationChange(errs *resource.Errors, tolerations, old []corev1.Toleration) {
	for _, was := range old {
		kept := slices.ContainsFunc(tolerations, func(t corev1.Toleration) bool {
			return t.Key == was.Key && t.Operator == was.Operator && t.Value == was.Value && t.Effect == was.Effect
		})
		if !kept {
			errs.Forbidden("tolerations", "existing toleration can not be modified except its tolerationSeconds")
			return
		}
	}
}

func validateSelectorChange(errs *resource.Errors, selector, old map[string]string) {
	for key, value := range old {
		if now, ok := selector[key]; !ok || now != value {
			errs.Invalid("nodeSelector", selector, "only additions to spec.nodeSelector are allowed (no mutations or deletions)")
			return
		}
	}
}

// withNodeAffinityOf is a with the node affinity of old, and nil where old is nil
// and nothing else is in it.
func withNodeAffinityOf(a, old *corev1.Affinity) *corev1.Affinity {
	var rest corev1.Affinity
	if a != nil {
		rest = *a
	}
	rest.NodeAffinity = nil
	if old != nil {
		rest.NodeAffinity = old.NodeAffinity
	}
	if rest == (corev1.Affinity{}) && old == nil {
		return nil
	}
	return &rest
}

func validateNodeAffinityChange(errs *resource.Errors, affinity, old *corev1.NodeAffinity) {
	terms, was := podspec.RequiredTerms(affinity), podspec.RequiredTerms(old)
	if len(was) == 0 {
		return
	}
	at := errs.At("requiredDuringSchedulingIgnoredDuringExecution")
	if len(terms) != len(was) {
		at.Invalid("nodeSelectorTerms", terms, "no additions/deletions to non-empty NodeSelectorTerms list are allowed")
		return
	}
	for i := range was {
		if !onlyAdds(&terms[i], &was[i]) {
			at.At("nodeSelectorTerms[%d]", i).Invalid("", terms[i], "only additions are allowed (no mutations or deletions)")
		}
	}
}

// onlyAdds reports whether a term has all requirements of an earlier one, first
// and in order. A term without any matches nothing, and must stay so.
func onlyAdds(t, old *corev1.NodeSelectorTerm) bool {
	if len(old.MatchExpressions)+len(old.MatchFields) == 0 {
		return len(t.MatchExpressions)+len(t.MatchFields) == 0
	}
	begins := func(list, with []corev1.NodeSelectorRequirement) bool {
		return len(list) >= len(with) && equality.Semantic.DeepEqual(list[:len(with)], with)
	}
	return begins(t.MatchExpressions, old.MatchExpressions) && begins(t.MatchFields, old.MatchFields)
}

// validateAnnotationChanges keeps annotations that were read when the pod was made.
func validateAnnotationChanges(errs *resource.Errors, annotations, old map[string]string) {
	for key, was := range old {
		if now, ok := annotations[key]; ok && now == was {
			continue
		}
		switch {
		case strings.HasPrefix(key, corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix):
			errs.At("annotations[%s]", key).Forbidden("", "may not remove or update AppArmor annotations")
		case key == corev1.MirrorPodAnnotationKey:
			errs.At("annotations[%s]", key).Forbidden("", "may not remove or update mirror pod annotation")
		}
	}
	for key := range annotations {
		if _, ok := old[key]; ok {
			continue
		}
		switch {
		case strings.HasPrefix(key, corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix):
			errs.At("annotations[%s]", key).Forbidden("", "may not add AppArmor annotations")
		case key == corev1.MirrorPodAnnotationKey:
			errs.At("annotations[%s]", key).Forbidden("", "may not add mirror pod annotation")
		}
	}
}

// mergeEphemeralContainers lets a client change the debugging containers and
// nothing else.
func mergeEphemeralContainers(p, old *corev1.Pod) {
	ephemeral := p.Spec.EphemeralContainers
	p.Spec, p.Status = old.Spec, old.Status
	p.Spec.EphemeralContainers = ephemeral
	keepMeta(&p.ObjectMeta, &old.ObjectMeta)
}

// validateEphemeralUpdate lets debugging containers be added only.
func validateEphemeralUpdate(p, old *corev1.Pod, errs *resource.Errors) {
	if IsMirror(old) {
		errs.Forbidden("[]", "static pods do not support ephemeral containers")
		return
	}
	podspec.Validate(errs, p)
	for i := range old.Spec.EphemeralContainers {
		was := &old.Spec.EphemeralContainers[i]
		at := slices.IndexFunc(p.Spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool { return c.Name == was.Name })
		if at < 0 {
			errs.Forbidden("spec.ephemeralContainers", fmt.Sprintf("existing ephemeral containers %q may not be removed\n", was.Name))
			continue
		}
		if now := &p.Spec.EphemeralContainers[at]; !equality.Semantic.DeepEqual(was, now) {
			errs.Forbidden("spec.ephemeralContainers",
				fmt.Sprintf("existing ephemeral containers %q may not be changed\n%v", was.Name, diff.Diff(was, now)))
		}
	}
}

// keepMeta undoes changes of metadata where a subresource may not make any.
func keepMeta(meta, old *metav1.ObjectMeta) {
	meta.DeletionTimestamp = old.DeletionTimestamp
	meta.Generation = old.Generation
	meta.Labels = old.Labels
	meta.Annotations = old.Annotations
	meta.Finalizers = old.Finalizers
	meta.OwnerReferences = old.OwnerReferences
}
