package action

import (
	"errors"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// narrow narrows what is asked about by the selectors of a question. What of them is not
// understood is left out: the question is then about more, and the answer says so.
func narrow(attrs *authorizer.AttributesRecord, r *authorizationv1.ResourceAttributes) {
	if s := r.FieldSelector; s != nil {
		if s.RawSelector != "" {
			if parsed, err := fields.ParseSelector(s.RawSelector); err != nil {
				attrs.FieldSelectorParsingErr = err
			} else {
				attrs.FieldSelectorRequirements = parsed.Requirements()
			}
		} else {
			attrs.FieldSelectorRequirements, attrs.FieldSelectorParsingErr = fieldsOf(s.Requirements)
		}
	}
	if s := r.LabelSelector; s != nil {
		if s.RawSelector != "" {
			if parsed, err := labels.ParseToRequirements(s.RawSelector); err != nil {
				attrs.LabelSelectorParsingErr = err
			} else {
				attrs.LabelSelectorRequirements = parsed
			}
		} else {
			attrs.LabelSelectorRequirements, attrs.LabelSelectorParsingErr = labelsOf(s.Requirements)
		}
	}
}

func fieldsOf(list []metav1.FieldSelectorRequirement) (all fields.Requirements, _ error) {
	var errs []error
	for _, r := range list {
		var op selection.Operator
		switch r.Operator {
		case metav1.FieldSelectorOpIn:
			op = selection.Equals
		case metav1.FieldSelectorOpNotIn:
			op = selection.NotEquals
		case metav1.FieldSelectorOpExists, metav1.FieldSelectorOpDoesNotExist:
			errs = append(errs, fmt.Errorf("fieldSelectors do not yet support %v", r.Operator))
			continue
		default:
			errs = append(errs, fmt.Errorf("%q is not a valid field selector operator", r.Operator))
			continue
		}
		if len(r.Values) != 1 {
			errs = append(errs, fmt.Errorf("fieldSelectors in must have one value, got %d", len(r.Values)))
			continue
		}
		all = append(all, fields.Requirement{Field: r.Key, Operator: op, Value: r.Values[0]})
	}
	return all, utilerrors.NewAggregate(errs)
}

func labelsOf(list []metav1.LabelSelectorRequirement) (all labels.Requirements, _ error) {
	var errs []error
	for _, r := range list {
		var op selection.Operator
		switch r.Operator {
		case metav1.LabelSelectorOpIn:
			op = selection.In
		case metav1.LabelSelectorOpNotIn:
			op = selection.NotIn
		case metav1.LabelSelectorOpExists:
			op = selection.Exists
		case metav1.LabelSelectorOpDoesNotExist:
			op = selection.DoesNotExist
		default:
			errs = append(errs, fmt.Errorf("%q is not a valid label selector operator", r.Operator))
			continue
		}
		one, err := labels.NewRequirement(r.Key, op, r.Values)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all = append(all, *one)
	}
	return all, utilerrors.NewAggregate(errs)
}

// evaluationError is what went wrong with an answer: an authorizer's error, and selectors that it did
// not look at.
func evaluationError(err error, attrs *authorizer.AttributesRecord) string {
	var errs []error
	if err != nil {
		errs = append(errs, err)
	}
	for _, s := range []struct {
		err   error
		known int
		whole string
		part  string
	}{
		{attrs.FieldSelectorParsingErr, len(attrs.FieldSelectorRequirements), "spec.resourceAttributes.fieldSelector ignored due to parse error", "spec.resourceAttributes.fieldSelector partially ignored due to parse error"},
		{attrs.LabelSelectorParsingErr, len(attrs.LabelSelectorRequirements), "spec.resourceAttributes.labelSelector ignored due to parse error", "spec.resourceAttributes.labelSelector partially ignored due to parse error"},
	} {
		switch {
		case s.err == nil:
		case s.known > 0:
			errs = append(errs, errors.New(s.part))
		default:
			errs = append(errs, errors.New(s.whole))
		}
	}
	if len(errs) == 0 {
		return ""
	}
	return utilerrors.NewAggregate(errs).Error()
}
