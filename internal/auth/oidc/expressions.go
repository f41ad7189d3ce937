package oidc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/lazy"
)

// claimsValue is what expressions see of claims: each is read when one asks for it.
type claimsValue struct{ traits.Mapper }

// seen are the claims for expressions.
func (e *evaluation) seen() traits.Mapper {
	if e.value.Mapper == nil {
		all := lazy.NewMapValue(types.NewObjectType("kubernetes.claims"))
		for name, text := range e.claims {
			all.Append(name, func(*lazy.MapValue) ref.Val {
				var value any
				if err := json.Unmarshal(text, &value); err != nil {
					return types.NewErr("claim %q: %v", name, err)
				}
				return native(value)
			})
		}
		e.value.Mapper = all
	}
	return e.value.Mapper
}

// userValue is what expressions see of a user.
func userValue(u *user.DefaultInfo) traits.Mapper {
	all := lazy.NewMapValue(types.NewObjectType("kubernetes.UserInfo"))
	for name, value := range map[string]any{"username": u.Name, "uid": u.UID, "groups": u.Groups, "extra": u.Extra} {
		all.Append(name, func(*lazy.MapValue) ref.Val { return native(value) })
	}
	return all
}

// native is a value of Go for expressions, which write what is no name in CEL with escapes: a.b as a__dot__b.
func native(value any) ref.Val { return escaped(types.DefaultTypeAdapter.NativeToValue(value)) }

func escaped(v ref.Val) ref.Val {
	switch v := v.(type) {
	case traits.Mapper:
		return escapedMap{v}
	case traits.Lister:
		return escapedList{v}
	}
	return v
}

type escapedMap struct{ traits.Mapper }

// Find finds a value by its key or by what that is escaped for.
func (m escapedMap) Find(key ref.Val) (ref.Val, bool) {
	if name, ok := key.(types.String); ok {
		if plain, ok := cel.Unescape(string(name)); ok {
			key = types.String(plain)
		}
	}
	v, ok := m.Mapper.Find(key)
	return escaped(v), ok
}

type escapedList struct{ traits.Lister }

// Get gets an element.
func (l escapedList) Get(index ref.Val) ref.Val { return escaped(l.Lister.Get(index)) }

// word evaluates an expression that is a string.
func (e *evaluation) word(ctx context.Context, m authenticationcel.ClaimsMapper) (string, error) {
	result, err := m.EvalClaimMapping(ctx, e.seen())
	if err != nil {
		return "", err
	}
	text, ok := result.EvalResult.(types.String)
	if !ok {
		return "", errors.New("expression must return a string")
	}
	return string(text), nil
}

// wordsOf evaluates an expression that is a string or a list of strings.
func (e *evaluation) wordsOf(ctx context.Context, m authenticationcel.ClaimsMapper) ([]string, error) {
	result, err := m.EvalClaimMapping(ctx, e.seen())
	if err != nil {
		return nil, err
	}
	return listOf(result.EvalResult)
}

// extras evaluates the expressions of extra attributes.
func (e *evaluation) extras(ctx context.Context) (map[string][]string, error) {
	results, err := e.mapper.Extra.EvalClaimMappings(ctx, e.seen())
	if err != nil {
		return nil, err
	}
	all := map[string][]string{}
	for _, result := range results {
		about, ok := result.ExpressionAccessor.(*authenticationcel.ExtraMappingExpression)
		if !ok {
			return nil, fmt.Errorf("oidc: an extra attribute comes of a %T", result.ExpressionAccessor)
		}
		if all[about.Key], err = listOf(result.EvalResult); err != nil {
			return nil, fmt.Errorf("oidc: error evaluating extra claim expression: %s: %w", about.Expression, err)
		}
	}
	return all, nil
}

// listOf reads a string or a list of strings; empty ones, and null, are nothing.
func listOf(v ref.Val) (list []string, _ error) {
	errKind := errors.New("expression must return a string or a list of strings")
	add := func(v ref.Val) bool {
		text, ok := v.(types.String)
		if ok && text != "" {
			list = append(list, string(text))
		}
		return ok
	}
	switch v := v.(type) {
	case types.Null:
		return nil, nil
	case types.String:
		add(v)
		return list, nil
	case traits.Lister:
		for it := v.Iterator(); it.HasNext() == types.True; {
			if !add(it.Next()) {
				return nil, errKind
			}
		}
		return list, nil
	}
	return nil, errKind
}

// allTrue fails with the message of the first rule that does not hold.
func allTrue(results []authenticationcel.EvaluationResult) error {
	for _, result := range results {
		holds, ok := result.EvalResult.(types.Bool)
		if !ok {
			return errors.New("validation expression must return a boolean")
		}
		if holds {
			continue
		}
		message := ""
		switch about := result.ExpressionAccessor.(type) {
		case *authenticationcel.ClaimValidationCondition:
			message = about.Message
		case *authenticationcel.UserValidationCondition:
			message = about.Message
		}
		return fmt.Errorf("validation expression '%s' failed: %s", result.ExpressionAccessor.GetExpression(), message)
	}
	return nil
}
