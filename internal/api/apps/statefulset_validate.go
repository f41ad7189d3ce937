package apps

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core/podspec"
	"github.com/kemudi/kemudi/internal/api/core/workload"
	"github.com/kemudi/kemudi/internal/resource"
)

func validateStatefulSet(obj, old *appsv1.StatefulSet, errs *resource.Errors) {
	s := &obj.Spec
	validateStatefulSetStrategy(s, errs)
	validateClaimRetention(s.PersistentVolumeClaimRetentionPolicy, errs)
	errs.NonNegative("spec.replicas", int64(ptr.Deref(s.Replicas, 0)))
	errs.NonNegative("spec.minReadySeconds", int64(s.MinReadySeconds))
	if s.Ordinals != nil {
		errs.NonNegative("spec.ordinals.start", int64(s.Ordinals.Start))
	}
	validateSelected("statefulset", s.Selector, &s.Template, errs)
	if old == nil {
		// What was let in once and cannot be changed any more is not looked at again.
		if s.ServiceName != "" {
			errs.Refuse("spec.serviceName", s.ServiceName, validation.IsDNS1123Label(s.ServiceName))
		}
		for i := range s.VolumeClaimTemplates {
			podspec.ValidateClaimSpec(errs.At("spec.volumeClaimTemplates[%d].spec", i), &s.VolumeClaimTemplates[i].Spec)
		}
		validateTemplate(withClaims(s), errs)
	} else if !equality.Semantic.DeepEqual(s.Template, old.Spec.Template) {
		validateTemplate(withClaims(s), errs)
	}
	workload.Endless("StatefulSet", &s.Template, errs)
	if old != nil {
		validateStatefulSetUpdate(s, &old.Spec, errs)
	}
}

func validateStatefulSetStrategy(s *appsv1.StatefulSetSpec, errs *resource.Errors) {
	switch s.PodManagementPolicy {
	case appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement:
	case "":
		errs.Required("spec.podManagementPolicy", "")
	default:
		errs.Invalid("spec.podManagementPolicy", s.PodManagementPolicy, "must be 'OrderedReady' or 'Parallel'")
	}
	u := &s.UpdateStrategy
	switch u.Type {
	case appsv1.OnDeleteStatefulSetStrategyType:
		if u.RollingUpdate != nil {
			errs.Invalid("spec.updateStrategy.rollingUpdate", u.RollingUpdate, "only allowed for updateStrategy 'RollingUpdate'")
		}
	case appsv1.RollingUpdateStatefulSetStrategyType:
		if u.RollingUpdate == nil {
			break
		}
		errs.NonNegative("spec.updateStrategy.rollingUpdate.partition", int64(ptr.Deref(u.RollingUpdate.Partition, 0)))
		if m := u.RollingUpdate.MaxUnavailable; m != nil {
			errs.IntOrPercent("spec.updateStrategy.rollingUpdate.maxUnavailable", *m)
			if resource.IntOrPercentValue(*m) == 0 {
				errs.Invalid("spec.updateStrategy.rollingUpdate.maxUnavailable", *m, "cannot be 0")
			}
			errs.AtMost100Percent("spec.updateStrategy.rollingUpdate.maxUnavailable", *m)
		}
	case "":
		errs.Required("spec.updateStrategy", "")
	default:
		errs.Invalid("spec.updateStrategy", *u, "must be 'RollingUpdate' or 'OnDelete'")
	}
}

func validateClaimRetention(p *appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy, errs *resource.Errors) {
	if p == nil {
		return
	}
	known := []appsv1.PersistentVolumeClaimRetentionPolicyType{
		appsv1.RetainPersistentVolumeClaimRetentionPolicyType, appsv1.DeletePersistentVolumeClaimRetentionPolicyType,
	}
	if !slices.Contains(known, p.WhenDeleted) {
		resource.NotSupported(errs, "spec.persistentVolumeClaimRetentionPolicy.whenDeleted", p.WhenDeleted, known...)
	}
	if !slices.Contains(known, p.WhenScaled) {
		resource.NotSupported(errs, "spec.persistentVolumeClaimRetentionPolicy.whenScaled", p.WhenScaled, known...)
	}
}

// withClaims is the template as its pods will be: with a volume for every claim,
// and without the host name that each pod gets of its own.
func withClaims(s *appsv1.StatefulSetSpec) *corev1.PodTemplateSpec {
	if len(s.VolumeClaimTemplates) == 0 && s.Template.Spec.Hostname == "" && s.Template.Spec.Subdomain == "" {
		return &s.Template
	}
	t := s.Template.DeepCopy()
	t.Spec.Hostname, t.Spec.Subdomain = "", ""
	for _, c := range s.VolumeClaimTemplates {
		// A claim takes the place of a volume of its name.
		t.Spec.Volumes = slices.DeleteFunc(t.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == c.Name })
		t.Spec.Volumes = append(t.Spec.Volumes, corev1.Volume{Name: c.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c.Name},
		}})
	}
	return t
}

func validateStatefulSetUpdate(s, old *appsv1.StatefulSetSpec, errs *resource.Errors) {
	fixed := *old
	fixed.Replicas, fixed.Ordinals, fixed.Template, fixed.UpdateStrategy = s.Replicas, s.Ordinals, s.Template, s.UpdateStrategy
	fixed.RevisionHistoryLimit, fixed.MinReadySeconds = s.RevisionHistoryLimit, s.MinReadySeconds
	fixed.PersistentVolumeClaimRetentionPolicy = s.PersistentVolumeClaimRetentionPolicy
	if !equality.Semantic.DeepEqual(&fixed, s) {
		errs.Forbidden("spec", "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden")
	}
}

func validateStatefulSetStatus(obj, old *appsv1.StatefulSet, errs *resource.Errors) {
	s := &obj.Status
	errs.NonNegative("status.replicas", int64(s.Replicas))
	errs.NonNegative("status.readyReplicas", int64(s.ReadyReplicas))
	errs.NonNegative("status.currentReplicas", int64(s.CurrentReplicas))
	errs.NonNegative("status.updatedReplicas", int64(s.UpdatedReplicas))
	errs.NonNegative("status.availableReplicas", int64(s.AvailableReplicas))
	errs.NonNegative("status.observedGeneration", s.ObservedGeneration)
	errs.NonNegative("status.collisionCount", int64(ptr.Deref(s.CollisionCount, 0)))
	errs.AtMost("status.readyReplicas", s.ReadyReplicas, "status.replicas", s.Replicas)
	errs.AtMost("status.currentReplicas", s.CurrentReplicas, "status.replicas", s.Replicas)
	errs.AtMost("status.updatedReplicas", s.UpdatedReplicas, "status.replicas", s.Replicas)
	errs.AtMost("status.availableReplicas", s.AvailableReplicas, "status.replicas", s.Replicas)
	errs.AtMost("status.availableReplicas", s.AvailableReplicas, "status.readyReplicas", s.ReadyReplicas)
	notDecremented(s.CollisionCount, old.Status.CollisionCount, errs)
}
