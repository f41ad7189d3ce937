package request

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apimachinery/pkg/util/version"
	apicel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
	"k8s.io/apiserver/pkg/cel/mutation"
	"k8s.io/apiserver/pkg/cel/mutation/dynamic"
)

// patches lets expressions make Object{} and JSONPatch{}, and escape keys of paths.
var patches = environment.VersionedOptions{
	IntroducedVersion: version.MajorMinor(1, 0),
	EnvOptions: []cel.EnvOption{
		common.ResolverEnvOption(&mutation.DynamicTypeResolver{}),
		environment.UnversionedLib(library.JSONPatch),
	},
}

// Types of the expressions that say how an object is to be changed.
var (
	appliedType    = types.NewObjectType(mutation.ObjectTypeName)
	operationsType = cel.ListType(types.NewObjectType(mutation.JSONPatchTypeName))
)

// CompileApplied compiles an expression that makes what is to be applied to an object.
func (s *Scope) CompileApplied(text string) (*Expression, *apicel.Error) {
	return s.compile(text, wants{authorizer: true, patches: true}, appliedType)
}

// CompileOperations compiles an expression that makes a JSON patch.
func (s *Scope) CompileOperations(text string) (*Expression, *apicel.Error) {
	return s.compile(text, wants{authorizer: true, patches: true}, operationsType)
}

// Applied is the value of an expression that [Scope.CompileApplied] has compiled: a part of an
// object, without kind and apiVersion.
func Applied(v ref.Val) (map[string]any, error) {
	obj, ok := v.(*dynamic.ObjectVal)
	if !ok {
		return nil, fmt.Errorf("unsupported return type from ApplyConfiguration expression: %v", v.Type())
	}
	if err := obj.CheckTypeNamesMatchFieldPathNames(); err != nil {
		return nil, fmt.Errorf("type mismatch: %w", err)
	}
	tree, ok := obj.Value().(map[string]any)
	if !ok {
		return nil, fmt.Errorf("invalid return type: %T", v)
	}
	return tree, nil
}

// operation is one of a JSON patch.
type operation struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	From  string          `json:"from,omitempty"`
	Value json.RawMessage `json:"value,omitempty"`
}

// Operations is the value of an expression that [Scope.CompileOperations] has compiled: a JSON
// patch.
func Operations(v ref.Val) ([]byte, error) {
	list, ok := v.(traits.Lister)
	if !ok {
		return nil, errors.New("type mismatch: JSONPatchType.expression should evaluate to array")
	}
	all := []operation{}
	for it := list.Iterator(); it.HasNext() == types.True; {
		next := it.Next()
		p, ok := next.(*mutation.JSONPatchVal)
		if !ok {
			return nil, fmt.Errorf("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch, got element of %v", next.Type())
		}
		op := operation{Op: p.Op, Path: p.Path, From: p.From}
		var err error
		if op.Value, err = patchValue(p.Val); err != nil {
			return nil, err
		}
		all = append(all, op)
	}
	return json.Marshal(all)
}

// patchValue is the value of an operation in JSON; nil: it has none.
func patchValue(v ref.Val) (json.RawMessage, error) {
	if v == nil {
		return nil, nil
	}
	if obj, ok := v.(*dynamic.ObjectVal); ok {
		if err := obj.CheckTypeNamesMatchFieldPathNames(); err != nil {
			return nil, fmt.Errorf("type mismatch: %w", err)
		}
	}
	native, err := v.ConvertToNative(types.JSONValueType)
	var out json.RawMessage
	if err == nil {
		out, err = json.Marshal(native)
	}
	if err != nil {
		return nil, fmt.Errorf("JSONPath valueExpression evaluated to a type that could not marshal to JSON: %w", err)
	}
	return out, nil
}
