package admissionregistration

import (
	"strings"

	"github.com/google/cel-go/cel"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apicel "k8s.io/apiserver/pkg/cel"

	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/cel/request"
	"github.com/kemudi/kemudi/internal/resource"
)

// maxConditions is how many match conditions a webhook or a policy may have.
const maxConditions = 64

// conditionRules are how match conditions are looked at.
type conditionRules struct {
	params bool            // they may use params
	stored map[string]bool // expressions that are stored already
}

// validateConditions refuses match conditions, of a webhook or a policy, that cannot be
// evaluated.
func validateConditions(errs *resource.Errors, at string, conditions []admissionregistrationv1.MatchCondition, r conditionRules) {
	if len(conditions) > maxConditions {
		errs.TooMany(at, len(conditions), maxConditions)
	}
	names := map[string]bool{}
	for i, c := range conditions {
		one := errs.At(at+"[%d]", i)
		if text := strings.TrimSpace(c.Expression); text == "" {
			one.Required("expression", "")
		} else {
			mode := request.New
			if r.stored[text] {
				mode = request.Stored
			}
			_, err := request.Compile(request.Environment(request.Uses{Params: r.params, Authorizer: true}), mode, text, cel.BoolType)
			refuseExpression(one, "expression", text, err)
		}
		if c.Name == "" {
			one.Required("name", "")
			continue
		}
		check.QualifiedName(one, "name", c.Name)
		if names[c.Name] {
			one.Duplicate("name", c.Name)
		}
		names[c.Name] = true
	}
}

// refuseExpression adds what the compiler has against an expression; nil is nothing.
func refuseExpression(errs *resource.Errors, at, text string, err *apicel.Error) {
	switch {
	case err == nil:
	case err.Type == apicel.ErrorTypeRequired:
		errs.Required(at, err.Detail)
	case err.Type == apicel.ErrorTypeInvalid:
		errs.Add(field.Invalid(errs.Path(at), text, err.Detail))
	default:
		errs.Internal(at, err)
	}
}
