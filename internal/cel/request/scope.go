package request

import (
	"context"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apimachinery/pkg/util/version"
	apicel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/lazy"
)

// Scope is what the expressions of one policy are compiled in: besides what others see,
// they see the variables that the policy has declared ahead of them. A Scope is for one
// goroutine; what it has compiled is for any.
type Scope struct {
	// Mode is that of [Compile], but for the expressions that Known has: those are [Stored].
	Mode  environment.Type
	Known map[string]bool
	// Params: the policy has some.
	Params bool
	// Base, if not nil, is what expressions are compiled in, whatever they use: an environment
	// that knows the types of objects. It has no variables of a policy.
	Base *environment.EnvSet

	declared *apicel.DeclType
	all      []variable
	envs     map[wants]*environment.EnvSet
}

// wants is what an expression wants of its environment.
type wants struct{ authorizer, patches bool }

// variable is a named expression of a policy.
type variable struct {
	name string
	is   *Expression
	err  *apicel.Error // nil: it could be compiled
}

// variablesType is the type of the variable that has the others.
const variablesType = "kubernetes.variables"

// Declare adds a variable for the expressions that follow. One that cannot be compiled is
// there all the same: who uses it fails.
func (s *Scope) Declare(name, text string) *apicel.Error {
	v := variable{name: name}
	t := apicel.DynType
	if v.is, v.err = s.Compile(text, true, cel.AnyType, cel.DynType); v.err == nil {
		t = declared(v.is.Type)
	}
	if s.declared == nil {
		s.declared, s.envs = apicel.NewObjectType(variablesType, map[string]*apicel.DeclField{}), nil
	}
	s.declared.Fields[name] = apicel.NewDeclField(name, t, true, nil, nil)
	s.all = append(s.all, v)
	return v.err
}

// Compile compiles an expression whose value must be of one of the types. authorizer
// says whether it may ask what users are allowed.
func (s *Scope) Compile(text string, authorizer bool, want ...*cel.Type) (*Expression, *apicel.Error) {
	return s.compile(text, wants{authorizer: authorizer}, want...)
}

func (s *Scope) compile(text string, w wants, want ...*cel.Type) (*Expression, *apicel.Error) {
	env, err := s.environment(w)
	if err != nil {
		return nil, &apicel.Error{Type: apicel.ErrorTypeInternal, Detail: "unexpected error loading CEL environment: " + err.Error(), Cause: err}
	}
	mode := s.Mode
	if s.Known[text] {
		mode = Stored
	}
	return Compile(env, mode, text, want...)
}

// environment is made at need: to extend one costs more than to compile in it.
func (s *Scope) environment(w wants) (*environment.EnvSet, error) {
	if env := s.envs[w]; env != nil {
		return env, nil
	}
	base := s.Base
	if base == nil {
		base = Environment(Uses{Params: s.Params, Authorizer: w.authorizer})
	}
	variables := s.declared
	if variables == nil {
		variables = apicel.NewObjectType(variablesType, map[string]*apicel.DeclField{})
	}
	all := []environment.VersionedOptions{{
		IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions:        []cel.EnvOption{cel.Variable(Variables, variables.CelType())},
		DeclTypes:         []*apicel.DeclType{variables},
	}}
	env, err := base.Extend(all...)
	if err == nil && w.patches {
		env, err = env.Extend(patches)
	}
	if err != nil {
		return nil, err
	}
	if s.envs == nil {
		s.envs = map[wants]*environment.EnvSet{}
	}
	s.envs[w] = env
	return env, nil
}

// Declared are the variables of a policy.
type Declared struct {
	kind *apicel.DeclType
	all  []variable
}

// Declared returns the variables that there are.
func (s *Scope) Declared() *Declared { return &Declared{s.declared, s.all} }

// Bind lets the expressions of a request use the variables. Each is evaluated when the first
// of them asks for it, and its cost is taken off the budget.
func (d *Declared) Bind(ctx context.Context, in *Input, b *Budget) {
	if len(d.all) == 0 {
		return
	}
	values := lazy.NewMapValue(d.kind)
	for i := range d.all {
		v := &d.all[i]
		values.Append(v.name, func(*lazy.MapValue) ref.Val {
			if v.err != nil {
				return types.NewErr("composited variable %q fails to compile: %v", v.name, v.err)
			}
			value, details, err := v.is.program.ContextEval(ctx, in)
			if details == nil || details.ActualCost() == nil {
				return types.NewErr("unable to calculate cost of variable %q", v.name)
			}
			if err := b.Spend(*details.ActualCost()); err != nil {
				return types.WrapErr(err)
			}
			if err != nil {
				return types.NewErr("composited variable %q fails to evaluate: %v", v.name, err)
			}
			return value
		})
	}
	in.Variables = values
}

// simple are types that variables have as themselves.
var simple = map[*cel.Type]*apicel.DeclType{
	cel.AnyType: apicel.AnyType, cel.BoolType: apicel.BoolType, cel.BytesType: apicel.BytesType, cel.DoubleType: apicel.DoubleType,
	cel.DurationType: apicel.DurationType, cel.IntType: apicel.IntType, cel.NullType: apicel.NullType, cel.StringType: apicel.StringType,
	cel.TimestampType: apicel.TimestampType, cel.UintType: apicel.UintType,
}

// declared is the type of a variable whose expression has the type t: of objects
// nothing is known.
func declared(t *cel.Type) *apicel.DeclType {
	if t == nil {
		return apicel.DynType
	}
	if d := simple[t]; d != nil {
		return d
	}
	if p := t.Parameters(); t.HasTrait(traits.ContainerType) && t.HasTrait(traits.IndexerType) {
		switch len(p) {
		case 1:
			return apicel.NewListType(declared(p[0]), -1)
		case 2:
			return apicel.NewMapType(declared(p[0]), declared(p[1]), -1)
		}
	}
	return apicel.DynType
}
