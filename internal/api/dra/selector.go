package dra

import (
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apiserver/pkg/cel"

	"github.com/kemudi/kemudi/internal/cel/device"
	"github.com/kemudi/kemudi/internal/resource"
)

// checkSelectors compiles expressions that choose devices. stored: they are there
// already, and were valid when they were written.
func checkSelectors(errs *resource.Errors, list []resourcev1.DeviceSelector, stored bool) {
	if !atMost(errs, "selectors", len(list), resourcev1.DeviceSelectorsMaxSize) {
		return
	}
	for i := range list {
		switch at := errs.At("selectors[%d]", i); {
		case list[i].CEL == nil:
			at.Required("cel", "")
		case !stored:
			checkExpression(at, "cel.expression", list[i].CEL.Expression)
		}
	}
}

func checkExpression(errs *resource.Errors, path, expression string) {
	if len(expression) > resourcev1.CELSelectorExpressionMaxLength {
		errs.TooLong(path, resourcev1.CELSelectorExpressionMaxLength)
		return // not worth compiling
	}
	cost, err := device.Check(expression)
	switch {
	case err == nil && cost > resourcev1.CELSelectorExpressionMaxCost:
		errs.Forbidden(path, "too complex, exceeds cost limit")
	case err == nil:
	case err.Type == cel.ErrorTypeRequired:
		errs.Required(path, err.Detail)
	case err.Type == cel.ErrorTypeInvalid:
		errs.Invalid(path, expression, err.Detail)
	default:
		errs.Internal(path, err)
	}
}
