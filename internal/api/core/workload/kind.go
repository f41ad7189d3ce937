package workload

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kemudi/kemudi/internal/api/core/podspec"
	"github.com/kemudi/kemudi/internal/resource"
)

// Kind says where a kind that makes pods has what all such kinds have.
type Kind[T resource.Object] struct {
	// Template may return nil: the object has none.
	Template func(obj T) *corev1.PodTemplateSpec
	Selector func(obj T) *metav1.LabelSelector
	// SelectorDoc describes the column of the selector; empty: there is no such column.
	SelectorDoc string
	// Replicas is where the number of pods wanted stands, Current the number
	// there is. Both are nil in kinds that are not scaled.
	Replicas func(obj T) **int32
	Current  func(obj T) int32
	// Named: pods begin their names, and host names, with the object's.
	Named bool
}

// Warn says what the pods will hardly want: of a new object, and of one whose
// desired state has changed.
func (k Kind[T]) Warn(obj, old T) []string {
	var none T
	isNew := any(old) == any(none)
	if !isNew && obj.GetGeneration() == old.GetGeneration() {
		return nil
	}
	var warnings []string
	if isNew && k.Named {
		warnings = WarnName(obj.GetName())
	}
	if t := k.Template(obj); t != nil {
		warnings = append(warnings, podspec.WarnTemplate(t, "spec.template")...)
	}
	return warnings
}

// WarnName warns of a name that is no good as the beginning of a host name.
func WarnName(name string) []string {
	if msgs := validation.IsDNS1123Label(name); len(msgs) > 0 {
		return []string{fmt.Sprintf("metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: %v", msgs)}
	}
	return nil
}

// Columns puts the columns that all kinds have with -o wide behind the kind's own.
func (k Kind[T]) Columns(own ...resource.Column[T]) []resource.Column[T] {
	own = append(own,
		resource.Column[T]{Name: "Containers", Priority: 1, Description: "Names of each container in the template.", Value: func(obj T) any { return ContainerNames(k.Template(obj)) }},
		resource.Column[T]{Name: "Images", Priority: 1, Description: "Images referenced by each container in the template.", Value: func(obj T) any { return ContainerImages(k.Template(obj)) }},
	)
	if k.SelectorDoc == "" {
		return own
	}
	return append(own, resource.Column[T]{Name: "Selector", Priority: 1, Description: k.SelectorDoc, Value: func(obj T) any { return metav1.FormatLabelSelector(k.Selector(obj)) }})
}

// ContainerNames is the names of a template's containers; empty for nil.
func ContainerNames(t *corev1.PodTemplateSpec) string {
	return join(t, func(c *corev1.Container) string { return c.Name })
}

// ContainerImages is the images of a template's containers; empty for nil.
func ContainerImages(t *corev1.PodTemplateSpec) string {
	return join(t, func(c *corev1.Container) string { return c.Image })
}

func join(t *corev1.PodTemplateSpec, text func(*corev1.Container) string) string {
	if t == nil {
		return ""
	}
	words := make([]string, len(t.Spec.Containers))
	for i := range t.Spec.Containers {
		words[i] = text(&t.Spec.Containers[i])
	}
	return strings.Join(words, ",")
}

// Endless refuses pods that end by themselves. controller goes into the messages.
func Endless(controller string, template *corev1.PodTemplateSpec, errs *resource.Errors) {
	if template.Spec.RestartPolicy != corev1.RestartPolicyAlways {
		resource.NotSupported(errs, "spec.template.spec.restartPolicy", template.Spec.RestartPolicy, corev1.RestartPolicyAlways)
	}
	if template.Spec.ActiveDeadlineSeconds != nil {
		errs.Forbidden("spec.template.spec.activeDeadlineSeconds", "activeDeadlineSeconds in "+controller+" is not Supported")
	}
}
