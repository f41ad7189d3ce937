package device

import (
	"context"
	"fmt"
	"reflect"
	"sync"

	"k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	dracel "k8s.io/dynamic-resource-allocation/cel"
)

// features are those of the expressions' environment that are on by default in this
// version.
var features = dracel.Features{EnableConsumableCapacity: true}

// maxCompiled is how many expressions stay compiled: more than the classes and
// templates of a cluster have, as a rule. Each takes some 10 KB.
const maxCompiled = 256

// compiled keeps expressions that were compiled, the last used ones.
var compiled = sync.OnceValue(func() *dracel.Cache { return dracel.NewCache(maxCompiled, features) })

// A Selector is a compiled expression. It may be used from several goroutines.
type Selector struct{ result dracel.CompilationResult }

// Compile compiles an expression that is stored already: whatever was valid when it
// was written is. An expression that was compiled lately costs a look into a map.
func Compile(expression string) (*Selector, error) {
	result := compiled().GetOrCompile(expression)
	if result.Error != nil {
		return nil, result.Error
	}
	return &Selector{result}, nil
}

// Check compiles an expression that is to be stored, and returns what evaluating it
// costs at worst, to be compared with resourcev1.CELSelectorExpressionMaxCost.
func Check(expression string) (cost uint64, err *cel.Error) {
	envType := environment.NewExpressions
	result := dracel.GetCompiler(features).CompileCELExpression(expression, dracel.Options{EnvType: &envType})
	return result.MaxCost, result.Error
}

var boolType = reflect.TypeFor[bool]()

// Matches reports whether the device satisfies the expression. What goes wrong while
// it is evaluated (an attribute that is not there, a cost above the limit) is an error:
// such an expression chooses nothing, and whoever allocates devices gives up.
func (s *Selector) Matches(ctx context.Context, in *Input) (bool, error) {
	out, _, err := s.result.Program.ContextEval(ctx, in.vars)
	switch {
	case err != nil && ctx.Err() != nil:
		return false, fmt.Errorf("%w: %w", err, context.Cause(ctx))
	case err != nil:
		return false, dracel.EnhanceRuntimeError(err)
	}
	if matches, ok := out.Value().(bool); ok {
		return matches, nil
	}
	if _, err = out.ConvertToNative(boolType); err == nil {
		return false, fmt.Errorf("CEL native result value should have been a bool, got instead: %T", out.Value())
	}
	return false, fmt.Errorf("CEL result of type %s could not be converted to bool: %w", out.Type().TypeName(), err)
}
