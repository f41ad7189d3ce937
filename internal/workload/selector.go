package workload

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Selector is what a workload knows its pods by. It fails for one that says nothing, and for
// one by which the pods of the template are not found: the workload would make some, not know
// them, and make more without end. Validation lets neither through, but what is stored
// may be older than it.
func Selector(s *metav1.LabelSelector, t *corev1.PodTemplateSpec) (labels.Selector, error) {
	sel, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return nil, fmt.Errorf("invalid label selector: %w", err)
	}
	if !sel.Matches(labels.Set(t.Labels)) {
		return nil, errors.New("the selector does not match the labels of the template")
	}
	return sel, nil
}
