package controller

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kemudi/kemudi/internal/resource"
)

// Claimer brings children and the owners that select them together. The
// controller needs Patch on the children.
type Claimer[T, O resource.Object] struct {
	Children Client[T]
	Owners   Client[O]
	// Open says which children may be adopted and released still; nil: all.
	Open func(T) bool
	// Finalizer is what children have as long as they are claimed; empty: nothing.
	Finalizer string
}

// Claim returns the children that owner controls and its selector matches. On
// the way it adopts matching objects of the namespace that nobody controls, and
// releases controlled ones that match no more.
func (c Claimer[T, O]) Claim(ctx context.Context, owner O, sel labels.Selector) ([]T, error) {
	var mine []T
	var errs []error
	for _, child := range c.Children.ByIndex(resource.IndexController, string(owner.GetUID())) {
		if child.GetNamespace() != owner.GetNamespace() {
			continue
		}
		if sel.Matches(labels.Set(child.GetLabels())) {
			mine = append(mine, child)
		} else if owner.GetDeletionTimestamp() == nil && c.open(child) {
			errs = append(errs, c.release(ctx, child, owner))
		}
	}
	adopted, err := c.adopt(ctx, owner, sel)
	return append(mine, adopted...), errors.Join(append(errs, err)...)
}

func (c Claimer[T, O]) open(child T) bool { return c.Open == nil || c.Open(child) }

// Adopters is an input of controllers that claim: an object that nobody controls
// wakes the owners that could adopt it. A controller with several such inputs
// shares one [Selection].
func Adopters[T, O resource.Object](children *resource.Resource[T], owners *resource.Resource[O], selector func(O) *metav1.LabelSelector) Watch {
	return NewSelection(owners, Claiming(selector)).Adopters(children.Def)
}

// Claiming is the selector of owners that claim by a label selector: an empty
// one claims nothing.
func Claiming[O resource.Object](selector func(O) *metav1.LabelSelector) func(O) labels.Selector {
	return func(owner O) labels.Selector {
		sel, err := metav1.LabelSelectorAsSelector(selector(owner))
		if err != nil || sel.Empty() {
			return nil
		}
		return sel
	}
}

func (c Claimer[T, O]) adopt(ctx context.Context, owner O, sel labels.Selector) ([]T, error) {
	if owner.GetDeletionTimestamp() != nil || sel.Empty() {
		return nil, nil
	}
	var adopted []T
	checked := false
	for _, child := range c.Children.ByIndex(resource.IndexController, resource.Uncontrolled(owner.GetNamespace())) {
		if child.GetDeletionTimestamp() != nil || !c.open(child) || !sel.Matches(labels.Set(child.GetLabels())) {
			continue
		}
		if !checked {
			if err := stillThere(ctx, c.Owners, owner); err != nil {
				return adopted, err
			}
			checked = true
		}
		metadata := map[string]any{"ownerReferences": []any{*ControllerRef(owner, c.Owners.Def)}}
		if c.Finalizer != "" {
			metadata["finalizers"] = []any{c.Finalizer}
		}
		child, err := c.Children.StrategicPatch(ctx, child, "", map[string]any{"metadata": metadata})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return adopted, fmt.Errorf("adopt %s: %w", child.GetName(), err)
		}
		adopted = append(adopted, child)
	}
	return adopted, nil
}

// stillThere makes sure, past the cache, that owner may still adopt.
func stillThere[O resource.Object](ctx context.Context, owners Client[O], owner O) error {
	live, err := owners.Live(ctx, owner.GetNamespace(), owner.GetName())
	if err != nil {
		return err
	}
	if live.GetUID() != owner.GetUID() || live.GetDeletionTimestamp() != nil {
		return apierrors.NewConflict(owners.Def.GroupResource(), owner.GetName(), errors.New("it is gone or being deleted"))
	}
	return nil
}

func (c Claimer[T, O]) release(ctx context.Context, child T, owner O) error {
	metadata := map[string]any{"ownerReferences": []any{map[string]any{"$patch": "delete", "uid": string(owner.GetUID())}}}
	if c.Finalizer != "" {
		metadata["$deleteFromPrimitiveList/finalizers"] = []any{c.Finalizer}
	}
	_, err := c.Children.StrategicPatch(ctx, child, "", map[string]any{"metadata": metadata})
	if apierrors.IsNotFound(err) || apierrors.IsInvalid(err) {
		return nil // it is gone, or has no owners left
	}
	if err != nil {
		return fmt.Errorf("release %s: %w", child.GetName(), err)
	}
	return nil
}

// ControllerRef is the reference that makes owner, a def, the controller of an object.
func ControllerRef(owner resource.Object, def *resource.Def) *metav1.OwnerReference {
	return metav1.NewControllerRef(owner, def.GVK())
}
