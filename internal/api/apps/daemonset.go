package apps

import (
	"maps"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	appsv1beta2 "k8s.io/api/apps/v1beta2"
	corev1 "k8s.io/api/core/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core/podspec"
	"github.com/kemudi/kemudi/internal/api/core/workload"
	"github.com/kemudi/kemudi/internal/resource"
)

var daemonSets = workload.Kind[*appsv1.DaemonSet]{
	Template:    func(d *appsv1.DaemonSet) *corev1.PodTemplateSpec { return &d.Spec.Template },
	Selector:    func(d *appsv1.DaemonSet) *metav1.LabelSelector { return d.Spec.Selector },
	SelectorDoc: appsv1.DaemonSetSpec{}.SwaggerDoc()["selector"],
}

// DaemonSets keep one pod on every chosen node.
var DaemonSets = resource.Define(resource.Spec[*appsv1.DaemonSet]{
	Names:         resource.Names{Group: "apps", Version: "v1", Kind: "DaemonSet", Plural: "daemonsets", Short: []string{"ds"}, Categories: []string{"all"}, Namespaced: true},
	HasGeneration: true,
	Needs:         podspec.NeedsGroups(func(ds *appsv1.DaemonSet) *corev1.PodSpec { return &ds.Spec.Template.Spec }),
	Default:       defaultDaemonSet,
	Prepare:       prepareDaemonSet,
	Validate: func(obj, old *appsv1.DaemonSet, errs *resource.Errors) {
		if old != nil {
			validateSameSelector(obj.Spec.Selector, old.Spec.Selector, errs)
		}
		validateDaemonSetSpec(&obj.Spec, errs)
	},
	Warn: daemonSets.Warn,
	Columns: daemonSets.Columns([]resource.Column[*appsv1.DaemonSet]{
		{Name: "Desired", Type: "integer", Description: appsv1.DaemonSetStatus{}.SwaggerDoc()["desiredNumberScheduled"], Value: func(d *appsv1.DaemonSet) any { return int64(d.Status.DesiredNumberScheduled) }},
		{Name: "Current", Type: "integer", Description: appsv1.DaemonSetStatus{}.SwaggerDoc()["currentNumberScheduled"], Value: func(d *appsv1.DaemonSet) any { return int64(d.Status.CurrentNumberScheduled) }},
		{Name: "Ready", Type: "integer", Description: appsv1.DaemonSetStatus{}.SwaggerDoc()["numberReady"], Value: func(d *appsv1.DaemonSet) any { return int64(d.Status.NumberReady) }},
		{Name: "Up-to-date", Type: "integer", Description: appsv1.DaemonSetStatus{}.SwaggerDoc()["updatedNumberScheduled"], Value: func(d *appsv1.DaemonSet) any { return int64(d.Status.UpdatedNumberScheduled) }},
		{Name: "Available", Type: "integer", Description: appsv1.DaemonSetStatus{}.SwaggerDoc()["numberAvailable"], Value: func(d *appsv1.DaemonSet) any { return int64(d.Status.NumberAvailable) }},
		{Name: "Node Selector", Description: "Nodes that the pods may run on.", Value: func(d *appsv1.DaemonSet) any { return labelsText(d.Spec.Template.Spec.NodeSelector) }},
	}...),
	Sub: []resource.Sub[*appsv1.DaemonSet]{{
		Name: "status",
		Merge: func(obj, old *appsv1.DaemonSet) {
			obj.Spec = old.Spec
			setTemplateGeneration(obj, templateGeneration(old))
		},
		Validate: validateDaemonSetStatus,
	}},
	Versions: []resource.Version[*appsv1.DaemonSet]{
		resource.SameWire[*appsv1beta2.DaemonSet](resource.Version[*appsv1.DaemonSet]{
			Group: "apps", Version: "v1beta2",
			Deprecated:         "apps/v1beta2 DaemonSet is deprecated in v1.9+, unavailable in v1.16+; use apps/v1 DaemonSet",
			DefaultPropagation: metav1.DeletePropagationOrphan,
		}),
		withTemplateGeneration(resource.SameWire[*extensionsv1beta1.DaemonSet](resource.Version[*appsv1.DaemonSet]{
			Group: "extensions", Version: "v1beta1",
			Deprecated: "extensions/v1beta1 DaemonSet is deprecated in v1.8+, unavailable in v1.16+; use apps/v1 DaemonSet",
			Default: func(obj resource.Object) {
				d := obj.(*extensionsv1beta1.DaemonSet)
				defaultSelector(&d.ObjectMeta, &d.Spec.Selector, &d.Spec.Template)
				if d.Spec.UpdateStrategy.Type == "" {
					d.Spec.UpdateStrategy.Type = extensionsv1beta1.OnDeleteDaemonSetStrategyType
				}
			},
			// The selector may be changed in this version.
			Validate:           func(obj, _ *appsv1.DaemonSet, errs *resource.Errors) { validateDaemonSetSpec(&obj.Spec, errs) },
			DefaultPropagation: metav1.DeletePropagationOrphan,
		})),
	},
})

func defaultDaemonSet(d *appsv1.DaemonSet) {
	s := &d.Spec
	podspec.DefaultTemplate(&s.Template)
	if s.UpdateStrategy.Type == "" {
		s.UpdateStrategy.Type = appsv1.RollingUpdateDaemonSetStrategyType
	}
	if s.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		if s.UpdateStrategy.RollingUpdate == nil {
			s.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{}
		}
		if s.UpdateStrategy.RollingUpdate.MaxUnavailable == nil {
			s.UpdateStrategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromInt32(1))
		}
		if s.UpdateStrategy.RollingUpdate.MaxSurge == nil {
			s.UpdateStrategy.RollingUpdate.MaxSurge = ptr.To(intstr.FromInt32(0))
		}
	}
	if s.RevisionHistoryLimit == nil {
		s.RevisionHistoryLimit = ptr.To[int32](10)
	}
}

// prepareDaemonSet also counts changes of the template, in an annotation, for
// clients of the version that had a field for the count.
func prepareDaemonSet(obj, old *appsv1.DaemonSet) {
	podspec.DropUnsupported(&obj.Spec.Template.Spec)
	if old == nil {
		obj.Status = appsv1.DaemonSetStatus{}
		setTemplateGeneration(obj, max(templateGeneration(obj), 1))
		return
	}
	obj.Status = old.Status
	n := templateGeneration(old)
	if !equality.Semantic.DeepEqual(obj.Spec.Template, old.Spec.Template) {
		n++
	}
	setTemplateGeneration(obj, n)
}

func templateGeneration(d *appsv1.DaemonSet) int64 {
	n, err := strconv.ParseInt(d.Annotations[appsv1.DeprecatedTemplateGeneration], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func setTemplateGeneration(d *appsv1.DaemonSet, n int64) {
	d.Annotations = maps.Clone(d.Annotations)
	if d.Annotations == nil {
		d.Annotations = map[string]string{}
	}
	d.Annotations[appsv1.DeprecatedTemplateGeneration] = strconv.FormatInt(n, 10)
}

// withTemplateGeneration shows the count of template changes as a field.
func withTemplateGeneration(v resource.Version[*appsv1.DaemonSet]) resource.Version[*appsv1.DaemonSet] {
	to, from := v.To, v.From
	v.To = func(obj resource.Object) (*appsv1.DaemonSet, error) {
		d, err := to(obj)
		if err != nil {
			return nil, err
		}
		setTemplateGeneration(d, obj.(*extensionsv1beta1.DaemonSet).Spec.TemplateGeneration)
		return d, nil
	}
	v.From = func(d *appsv1.DaemonSet) (resource.Object, error) {
		out, err := from(d)
		if err != nil {
			return nil, err
		}
		o := out.(*extensionsv1beta1.DaemonSet)
		delete(o.Annotations, appsv1.DeprecatedTemplateGeneration)
		o.Spec.TemplateGeneration = templateGeneration(d)
		return o, nil
	}
	return v
}

func validateDaemonSetSpec(s *appsv1.DaemonSetSpec, errs *resource.Errors) {
	validateSelected("daemonset", s.Selector, &s.Template, errs)
	validateTemplate(&s.Template, errs)
	workload.Endless("DaemonSet", &s.Template, errs)
	errs.NonNegative("spec.minReadySeconds", int64(s.MinReadySeconds))
	validateDaemonSetStrategy(&s.UpdateStrategy, errs)
	errs.NonNegative("spec.revisionHistoryLimit", int64(ptr.Deref(s.RevisionHistoryLimit, 0)))
}

func validateDaemonSetStrategy(s *appsv1.DaemonSetUpdateStrategy, errs *resource.Errors) {
	switch s.Type {
	case appsv1.OnDeleteDaemonSetStrategyType:
	case appsv1.RollingUpdateDaemonSetStrategyType:
		r := s.RollingUpdate
		if r == nil {
			errs.Required("spec.updateStrategy.rollingUpdate", "")
			return
		}
		unavailable, surge := ptr.Deref(r.MaxUnavailable, intstr.IntOrString{}), ptr.Deref(r.MaxSurge, intstr.IntOrString{})
		errs.IntOrPercent("spec.updateStrategy.rollingUpdate.maxUnavailable", unavailable)
		errs.IntOrPercent("spec.updateStrategy.rollingUpdate.maxSurge", surge)
		errs.AtMost100Percent("spec.updateStrategy.rollingUpdate.maxUnavailable", unavailable)
		errs.AtMost100Percent("spec.updateStrategy.rollingUpdate.maxSurge", surge)
		hasUnavailable, hasSurge := resource.IntOrPercentValue(unavailable) != 0, resource.IntOrPercentValue(surge) != 0
		if hasUnavailable && hasSurge {
			errs.Invalid("spec.updateStrategy.rollingUpdate.maxSurge", surge, "may not be set when maxUnavailable is non-zero")
		} else if !hasUnavailable && !hasSurge {
			errs.Required("spec.updateStrategy.rollingUpdate.maxUnavailable", "cannot be 0 when maxSurge is 0")
		}
	default:
		errs.Add(field.NotSupported(errs.Path("spec.updateStrategy"), s,
			[]appsv1.DaemonSetUpdateStrategyType{appsv1.RollingUpdateDaemonSetStrategyType, appsv1.OnDeleteDaemonSetStrategyType}))
	}
}

func validateDaemonSetStatus(obj, old *appsv1.DaemonSet, errs *resource.Errors) {
	s := &obj.Status
	errs.NonNegative("status.currentNumberScheduled", int64(s.CurrentNumberScheduled))
	errs.NonNegative("status.numberMisscheduled", int64(s.NumberMisscheduled))
	errs.NonNegative("status.desiredNumberScheduled", int64(s.DesiredNumberScheduled))
	errs.NonNegative("status.numberReady", int64(s.NumberReady))
	errs.NonNegative("status.observedGeneration", s.ObservedGeneration)
	errs.NonNegative("status.updatedNumberScheduled", int64(s.UpdatedNumberScheduled))
	errs.NonNegative("status.numberAvailable", int64(s.NumberAvailable))
	errs.NonNegative("status.numberUnavailable", int64(s.NumberUnavailable))
	errs.NonNegative("status.collisionCount", int64(ptr.Deref(s.CollisionCount, 0)))
	notDecremented(s.CollisionCount, old.Status.CollisionCount, errs)
}

func labelsText(set map[string]string) string {
	if len(set) == 0 {
		return "<none>"
	}
	return labels.Set(set).String()
}
