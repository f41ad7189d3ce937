package apps

import (
	"fmt"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/resource"
)

// validateSelected checks what every workload of this group has in common: a
// selector that is there, selects something and selects the template's pods,
// and a template whose pods may run for ever. kind goes into the messages.
func validateSelected(kind string, selector *metav1.LabelSelector, template *corev1.PodTemplateSpec, errs *resource.Errors) {
	if selector == nil {
		errs.Required("spec.selector", "")
	} else {
		errs.Add(metavalidation.ValidateLabelSelector(selector, metavalidation.LabelSelectorValidationOptions{}, errs.Path("spec.selector"))...)
		if len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
			errs.Invalid("spec.selector", selector, "empty selector is invalid for "+kind)
		}
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		errs.Invalid("spec.selector", selector, "invalid label selector")
	} else if !s.Empty() && !s.Matches(labels.Set(template.Labels)) {
		errs.Invalid("spec.template.metadata.labels", template.Labels, "`selector` does not match template `labels`")
	}
}

// validateEndless refuses pods that end by themselves. controller goes into the messages.
func validateEndless(controller string, template *corev1.PodTemplateSpec, errs *resource.Errors) {
	if template.Spec.RestartPolicy != corev1.RestartPolicyAlways {
		resource.NotSupported(errs, "spec.template.spec.restartPolicy", template.Spec.RestartPolicy, corev1.RestartPolicyAlways)
	}
	if template.Spec.ActiveDeadlineSeconds != nil {
		errs.Forbidden("spec.template.spec.activeDeadlineSeconds", "activeDeadlineSeconds in "+controller+" is not Supported")
	}
}

// validateTemplate checks a template that no part of is filled in later.
func validateTemplate(template *corev1.PodTemplateSpec, errs *resource.Errors) {
	core.ValidatePodTemplateSpec(template, errs.At("spec.template"))
}

// validateSameSelector refuses a change of spec.selector.
func validateSameSelector(selector, old *metav1.LabelSelector, errs *resource.Errors) {
	if !equality.Semantic.DeepEqual(selector, old) {
		errs.Immutable("spec.selector", selector)
	}
}

// notDecremented refuses a collision count that goes back: names made from it
// would come up a second time.
func notDecremented(count, old *int32, errs *resource.Errors) {
	if old == nil || count != nil && *count >= *old {
		return
	}
	now := int32(0)
	if count != nil {
		now = *count
	}
	errs.Invalid("status.collisionCount", now, "cannot be decremented")
}

// warnTemplate says what pods of a workload will hardly want: for a new one,
// and when it is changed.
func warnTemplate(obj, old metav1.Object, template *corev1.PodTemplateSpec) []string {
	if old != nil && obj.GetGeneration() == old.GetGeneration() {
		return nil
	}
	return core.PodTemplateWarnings(template, "spec.template")
}

// warnPodNames warns of a name that is no good as the beginning of a host name.
func warnPodNames(name string) []string {
	if msgs := validation.IsDNS1123Label(name); len(msgs) > 0 {
		return []string{fmt.Sprintf("metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: %v", msgs)}
	}
	return nil
}

// containerNames and containerImages are columns of kubectl get -o wide.
func containerNames(template *corev1.PodTemplateSpec) string {
	names := make([]string, len(template.Spec.Containers))
	for i := range template.Spec.Containers {
		names[i] = template.Spec.Containers[i].Name
	}
	return strings.Join(names, ",")
}

func containerImages(template *corev1.PodTemplateSpec) string {
	images := make([]string, len(template.Spec.Containers))
	for i := range template.Spec.Containers {
		images[i] = template.Spec.Containers[i].Image
	}
	return strings.Join(images, ",")
}

// scaled is the part of a workload that its scale subresource shows.
type scaled struct {
	meta     *metav1.ObjectMeta
	replicas *int32
	current  int32
	selector *metav1.LabelSelector
}

// scaleMeta is what a Scale has of the metadata of the object it belongs to.
func (s scaled) scaleMeta() metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: s.meta.Name, Namespace: s.meta.Namespace, UID: s.meta.UID,
		ResourceVersion: s.meta.ResourceVersion, CreationTimestamp: s.meta.CreationTimestamp,
	}
}

func (s scaled) wanted() int32 {
	if s.replicas == nil {
		return 0
	}
	return *s.replicas
}

// query is the selector in the form of a query parameter.
func (s scaled) query() string {
	sel, err := metav1.LabelSelectorAsSelector(s.selector)
	if err != nil {
		return ""
	}
	return sel.String()
}

func (s scaled) scale() *autoscalingv1.Scale {
	return &autoscalingv1.Scale{
		ObjectMeta: s.scaleMeta(),
		Spec:       autoscalingv1.ScaleSpec{Replicas: s.wanted()},
		Status:     autoscalingv1.ScaleStatus{Replicas: s.current, Selector: s.query()},
	}
}
