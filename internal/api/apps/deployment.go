package apps

import (
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core/podspec"
	"github.com/kemudi/kemudi/internal/api/core/workload"
	"github.com/kemudi/kemudi/internal/resource"
)

var deployments = workload.Kind[*appsv1.Deployment]{
	Template:    func(d *appsv1.Deployment) *corev1.PodTemplateSpec { return &d.Spec.Template },
	Selector:    func(d *appsv1.Deployment) *metav1.LabelSelector { return d.Spec.Selector },
	SelectorDoc: appsv1.DeploymentSpec{}.SwaggerDoc()["selector"],
	Replicas:    func(d *appsv1.Deployment) **int32 { return &d.Spec.Replicas },
	Current:     func(d *appsv1.Deployment) int32 { return d.Status.Replicas },
	Named:       true,
}

// Deployments roll pods forward and back over ReplicaSets. The versions before
// apps/v1 are in deployment_legacy.go.
var Deployments = resource.Define(resource.Spec[*appsv1.Deployment]{
	Names:         resource.Names{Group: "apps", Version: "v1", Kind: "Deployment", Plural: "deployments", Short: []string{"deploy"}, Categories: []string{"all"}, Namespaced: true},
	HasGeneration: true,
	Needs:         podspec.NeedsGroups(func(d *appsv1.Deployment) *corev1.PodSpec { return &d.Spec.Template.Spec }),
	Default:       defaultDeployment,
	Prepare:       prepareDeployment,
	Validate:      validateDeployment,
	Warn:          deployments.Warn,
	Columns: deployments.Columns([]resource.Column[*appsv1.Deployment]{
		{Name: "Ready", Description: "Number of the pod with ready state", Value: func(d *appsv1.Deployment) any {
			return fmt.Sprintf("%d/%d", d.Status.ReadyReplicas, ptr.Deref(d.Spec.Replicas, 0))
		}},
		{Name: "Up-to-date", Description: appsv1.DeploymentStatus{}.SwaggerDoc()["updatedReplicas"], Value: func(d *appsv1.Deployment) any { return int64(d.Status.UpdatedReplicas) }},
		{Name: "Available", Description: appsv1.DeploymentStatus{}.SwaggerDoc()["availableReplicas"], Value: func(d *appsv1.Deployment) any { return int64(d.Status.AvailableReplicas) }},
	}...),
	Sub: []resource.Sub[*appsv1.Deployment]{
		{
			Name: "status", Keeps: resource.KeepsLabels,
			Merge:    func(obj, old *appsv1.Deployment) { obj.Spec = old.Spec },
			Validate: validateDeploymentStatus,
		},
		deployments.Scale(),
	},
	Versions: deploymentVersions,
})

func defaultDeployment(d *appsv1.Deployment) {
	s := &d.Spec
	podspec.DefaultTemplate(&s.Template)
	if s.Replicas == nil {
		s.Replicas = ptr.To[int32](1)
	}
	if s.Strategy.Type == "" {
		s.Strategy.Type = appsv1.RollingUpdateDeploymentStrategyType
	}
	if s.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		if s.Strategy.RollingUpdate == nil {
			s.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{}
		}
		if s.Strategy.RollingUpdate.MaxUnavailable == nil {
			s.Strategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromString("25%"))
		}
		if s.Strategy.RollingUpdate.MaxSurge == nil {
			s.Strategy.RollingUpdate.MaxSurge = ptr.To(intstr.FromString("25%"))
		}
	}
	if s.RevisionHistoryLimit == nil {
		s.RevisionHistoryLimit = ptr.To[int32](10)
	}
	if s.ProgressDeadlineSeconds == nil {
		s.ProgressDeadlineSeconds = ptr.To[int32](600)
	}
}

func prepareDeployment(obj, old *appsv1.Deployment) {
	podspec.DropUnsupported(&obj.Spec.Template.Spec)
	if old == nil {
		obj.Status = appsv1.DeploymentStatus{}
		return
	}
	obj.Status = old.Status
	if !equality.Semantic.DeepEqual(obj.Annotations, old.Annotations) {
		obj.Generation = old.Generation + 1 // its sets are to have them, too
	}
}

func validateDeployment(obj, old *appsv1.Deployment, errs *resource.Errors) {
	validateDeploymentSpec(obj, errs)
	if old != nil {
		validateSameSelector(obj.Spec.Selector, old.Spec.Selector, errs)
	}
}

// validateDeploymentSpec is all but the selector's immutability, which the
// oldest versions do not have.
func validateDeploymentSpec(d *appsv1.Deployment, errs *resource.Errors) {
	s := &d.Spec
	errs.NonNegative("spec.replicas", int64(ptr.Deref(s.Replicas, 0)))
	validateSelected("deployment", s.Selector, &s.Template, errs)
	validateTemplate(&s.Template, errs)
	workload.Endless("ReplicaSet", &s.Template, errs)
	validateDeploymentStrategy(&s.Strategy, errs)
	errs.NonNegative("spec.minReadySeconds", int64(s.MinReadySeconds))
	errs.NonNegative("spec.revisionHistoryLimit", int64(ptr.Deref(s.RevisionHistoryLimit, 0)))
	if p := s.ProgressDeadlineSeconds; p != nil {
		errs.NonNegative("spec.progressDeadlineSeconds", int64(*p))
		if *p <= s.MinReadySeconds {
			errs.Invalid("spec.progressDeadlineSeconds", *p, "must be greater than minReadySeconds")
		}
	}
	if r, ok := d.Annotations[appsv1.DeprecatedRollbackTo]; ok {
		if n, err := strconv.ParseInt(r, 10, 64); err != nil {
			errs.Invalid("metadata.annotations[deprecated.deployment.rollback.to]", r, "must be a revision number")
		} else {
			errs.NonNegative("spec.rollback.version", n)
		}
	}
}

func validateDeploymentStrategy(s *appsv1.DeploymentStrategy, errs *resource.Errors) {
	switch s.Type {
	case appsv1.RecreateDeploymentStrategyType:
		if s.RollingUpdate != nil {
			errs.Forbidden("spec.strategy.rollingUpdate", "may not be specified when strategy `type` is 'Recreate'")
		}
	case appsv1.RollingUpdateDeploymentStrategyType:
		r := s.RollingUpdate
		if r == nil {
			errs.Required("spec.strategy.rollingUpdate", "this should be defaulted and never be nil")
			return
		}
		unavailable, surge := ptr.Deref(r.MaxUnavailable, intstr.IntOrString{}), ptr.Deref(r.MaxSurge, intstr.IntOrString{})
		errs.IntOrPercent("spec.strategy.rollingUpdate.maxUnavailable", unavailable)
		errs.IntOrPercent("spec.strategy.rollingUpdate.maxSurge", surge)
		if resource.IntOrPercentValue(unavailable) == 0 && resource.IntOrPercentValue(surge) == 0 {
			errs.Invalid("spec.strategy.rollingUpdate.maxUnavailable", unavailable, "may not be 0 when `maxSurge` is 0")
		}
		errs.AtMost100Percent("spec.strategy.rollingUpdate.maxUnavailable", unavailable)
	default:
		errs.Add(field.NotSupported(errs.Path("spec.strategy"), s,
			[]appsv1.DeploymentStrategyType{appsv1.RecreateDeploymentStrategyType, appsv1.RollingUpdateDeploymentStrategyType}))
	}
}

func validateDeploymentStatus(obj, old *appsv1.Deployment, errs *resource.Errors) {
	s := &obj.Status
	errs.NonNegative("status.observedGeneration", s.ObservedGeneration)
	errs.NonNegative("status.replicas", int64(s.Replicas))
	errs.NonNegative("status.updatedReplicas", int64(s.UpdatedReplicas))
	errs.NonNegative("status.readyReplicas", int64(s.ReadyReplicas))
	errs.NonNegative("status.availableReplicas", int64(s.AvailableReplicas))
	errs.NonNegative("status.unavailableReplicas", int64(s.UnavailableReplicas))
	errs.NonNegative("status.terminatingReplicas", int64(ptr.Deref(s.TerminatingReplicas, 0)))
	errs.NonNegative("status.collisionCount", int64(ptr.Deref(s.CollisionCount, 0)))
	errs.AtMost("status.updatedReplicas", s.UpdatedReplicas, "status.replicas", s.Replicas)
	errs.AtMost("status.readyReplicas", s.ReadyReplicas, "status.replicas", s.Replicas)
	errs.AtMost("status.availableReplicas", s.AvailableReplicas, "status.replicas", s.Replicas)
	errs.AtMost("status.availableReplicas", s.AvailableReplicas, "readyReplicas", s.ReadyReplicas)
	notDecremented(s.CollisionCount, old.Status.CollisionCount, errs)
}
