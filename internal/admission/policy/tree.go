package policy

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kemudi/kemudi/internal/custom"
	"github.com/kemudi/kemudi/internal/patch"
	"github.com/kemudi/kemudi/internal/wire"
)

// document is an object as mutations see it: its values can become parts of patches.
type document struct{ *unstructured.Unstructured }

// View is the whole document.
func (d document) View() map[string]any { return d.Object }

// treeOf is an object as a tree of its own.
func treeOf(obj runtime.Object) (map[string]any, error) {
	if o, ok := obj.(*custom.Object); ok {
		return o.Tree(), nil
	}
	return runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
}

// same reports that two objects of one type say the same.
func same(a, b runtime.Object) bool {
	x, isCustom := a.(*custom.Object)
	y, areCustom := b.(*custom.Object)
	if isCustom && areCustom {
		return equality.Semantic.DeepEqual(x.View(), y.View())
	}
	return equality.Semantic.DeepEqual(a, b)
}

// merged is the object with a part applied.
func merged(c *call, part map[string]any) (runtime.Object, error) {
	live := c.form.Object
	o, isCustom := live.(*custom.Object)
	if isCustom {
		live = &unstructured.Unstructured{Object: o.Tree()}
	}
	content, err := patch.Merged(c.t.Attributes().Def, live, part)
	if err != nil {
		return nil, fmt.Errorf("error applying patch: %w", err)
	}
	if isCustom {
		return custom.FromTree(content)
	}
	out := blank(live)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, out); err != nil {
		return nil, fmt.Errorf("error applying patch: %w", err)
	}
	return out, nil
}

// operated is the object after a JSON patch. A patch that makes something of it that is no such object is
// refused whatever the policy wants.
func operated(c *call, operations []byte) (runtime.Object, error) {
	live := c.form.Object
	o, isCustom := live.(*custom.Object)
	var doc []byte
	var err error
	if isCustom {
		tree := o.Tree()
		doc, err = wire.AppendJSON(nil, &tree)
	} else {
		doc, err = wire.AppendJSON(nil, live)
	}
	if err != nil {
		return nil, fmt.Errorf("failed to create JSON patch: %w", err)
	}
	if doc, err = patch.Operated(doc, operations); err != nil {
		return nil, fmt.Errorf("JSON Patch: %w", err)
	}
	if isCustom {
		var content map[string]any
		if err := wire.DecodeJSON(doc, &content); err != nil {
			return nil, apierrors.NewInternalError(err)
		}
		return custom.FromTree(content)
	}
	out := blank(live)
	strict, err := wire.DecodeJSONStrict(doc, out)
	if err == nil && len(strict) > 0 {
		texts := make([]string, len(strict))
		for i, s := range strict {
			texts[i] = s.Error()
		}
		err = errors.New("strict decoding error: " + strings.Join(texts, ", "))
	}
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	return out, nil
}

// blank is an empty object of the type of another.
func blank(like runtime.Object) runtime.Object {
	return reflect.New(reflect.TypeOf(like).Elem()).Interface().(runtime.Object)
}
