package request

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/ref"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	apicel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// Expression is a compiled expression. It may be used from several goroutines.
type Expression struct {
	Text    string
	Type    *cel.Type // of its value
	program cel.Program
}

// Modes of [Compile]: an expression that is to be stored may say what this version and the one
// before know, one that is stored already whatever was valid when it was written.
const (
	New    = environment.NewExpressions
	Stored = environment.StoredExpressions
)

// Compile compiles an expression whose value must be of one of the types; [cel.AnyType] is
// any. The error's type and detail are those of upstream's validation.
func Compile(env *environment.EnvSet, mode environment.Type, text string, want ...*cel.Type) (*Expression, *apicel.Error) {
	refuse := func(kind apicel.ErrorType, cause error, format string, args ...any) (*Expression, *apicel.Error) {
		return nil, &apicel.Error{Type: kind, Detail: fmt.Sprintf(format, args...), Cause: cause}
	}
	e, err := env.Env(mode)
	if err != nil {
		return refuse(apicel.ErrorTypeInternal, nil, "unexpected error loading CEL environment: %v", err)
	}
	ast, issues := e.Compile(text)
	if issues != nil {
		return refuse(apicel.ErrorTypeInvalid, apicel.NewCompilationError(issues), "compilation failed: %s", issues.String())
	}
	is := ast.OutputType()
	if !slices.ContainsFunc(want, func(t *cel.Type) bool { return is.IsExactType(t) || cel.AnyType.IsExactType(t) }) {
		if len(want) == 1 {
			return refuse(apicel.ErrorTypeInvalid, nil, "must evaluate to %v but got %v", want[0], is)
		}
		return refuse(apicel.ErrorTypeInvalid, nil, "must evaluate to one of %v but got %v", want, is)
	}
	program, err := e.Program(ast, cel.InterruptCheckFrequency(celconfig.CheckFrequency))
	if err != nil {
		return refuse(apicel.ErrorTypeInternal, nil, "program instantiation failed: %v", err)
	}
	return &Expression{Text: text, Type: is, program: program}, nil
}

// ErrBudget says that expressions cost more than what belongs to a request. No further ones
// are to be evaluated with the budget.
var ErrBudget = errors.New("validation failed due to running out of cost budget, no further validation rules will be run")

// Budget is what the expressions of something may still cost, in the library's units.
type Budget int64

// MatchBudget is what the match conditions of one webhook or policy may cost.
const MatchBudget Budget = celconfig.RuntimeCELCostBudgetMatchConditions

// Spend takes a cost off, and fails with [ErrBudget] when that is not left.
func (b *Budget) Spend(cost uint64) error {
	if *b < 0 || cost > uint64(*b) {
		*b = -1
		return ErrBudget
	}
	*b -= Budget(cost)
	return nil
}

// Eval is the expression's value for a request. It ends with ctx.
func (e *Expression) Eval(ctx context.Context, in *Input, b *Budget) (ref.Val, error) {
	value, details, err := e.program.ContextEval(ctx, in)
	if details == nil || details.ActualCost() == nil {
		return nil, fmt.Errorf("runtime cost could not be calculated for expression: %v, no further expression will be run: %w", e.Text, ErrBudget)
	}
	if err := b.Spend(*details.ActualCost()); err != nil {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("expression '%v' resulted in error: %w", e.Text, err)
	}
	return value, nil
}
