package resource

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Errors collects what is wrong with the fields of an object. Field paths are
// written whole ("spec.ttlSecondsAfterFinished"), so that the path in a message
// leads to the check by a search; a part that several kinds share (a pod
// template) is checked under a prefix made with At.
//
// At is cheap: a path is put together only when there is an error to report.
type Errors struct {
	list   *field.ErrorList
	parent *Errors // nil: the root
	format string  // the path below parent
	args   []any
}

// NewErrors returns an empty collection.
func NewErrors() *Errors { return &Errors{list: &field.ErrorList{}} }

// List is what has been collected so far, in order.
func (e *Errors) List() field.ErrorList { return *e.list }

// Len is the number of errors so far.
func (e *Errors) Len() int { return len(*e.list) }

// At returns the same collection seen from a deeper field: paths given to the
// result are below the one made from format and args (at once, if there are none).
func (e *Errors) At(format string, args ...any) *Errors {
	return &Errors{list: e.list, parent: e, format: format, args: args}
}

// Path is the full path of a field as the Kubernetes validation helpers want
// it; pass their result to Add.
func (e *Errors) Path(path string) *field.Path { return field.NewPath(e.path(path)) }

// Add appends errors made by a helper of the Kubernetes libraries.
func (e *Errors) Add(errs ...*field.Error) { *e.list = append(*e.list, errs...) }

// Required says that a value must be given.
func (e *Errors) Required(path, detail string) {
	e.Add(&field.Error{Type: field.ErrorTypeRequired, Field: e.path(path), BadValue: "", Detail: detail})
}

// Invalid says that a value is malformed.
func (e *Errors) Invalid(path string, value any, detail string) {
	e.Add(&field.Error{Type: field.ErrorTypeInvalid, Field: e.path(path), BadValue: value, Detail: detail})
}

// Immutable says that a value may not be changed any more.
func (e *Errors) Immutable(path string, value any) { e.Invalid(path, value, "field is immutable") }

// Forbidden says that a value may not be given here.
func (e *Errors) Forbidden(path, detail string) {
	e.Add(&field.Error{Type: field.ErrorTypeForbidden, Field: e.path(path), BadValue: "", Detail: detail})
}

// Internal says that a value could not be checked, by a fault of ours.
func (e *Errors) Internal(path string, err error) {
	e.Add(field.InternalError(e.Path(path), err))
}

// NotSupported says that a value is not one of those allowed, which are listed
// in the order given.
func NotSupported[S ~string](e *Errors, path string, value S, allowed ...S) {
	e.Add(field.NotSupported(e.Path(path), value, allowed))
}

// Duplicate says that a value occurs twice in a list that must not repeat.
func (e *Errors) Duplicate(path string, value any) {
	e.Add(&field.Error{Type: field.ErrorTypeDuplicate, Field: e.path(path), BadValue: value})
}

// DuplicateBecause is Duplicate with a detail.
func (e *Errors) DuplicateBecause(path string, value any, detail string) {
	e.Add(&field.Error{Type: field.ErrorTypeDuplicate, Field: e.path(path), BadValue: value, Detail: detail})
}

// NotFound says that a value refers to something that is not there.
func (e *Errors) NotFound(path string, value any) {
	e.Add(&field.Error{Type: field.ErrorTypeNotFound, Field: e.path(path), BadValue: value})
}

// NotFoundBecause is NotFound with a detail.
func (e *Errors) NotFoundBecause(path string, value any, detail string) {
	e.Add(&field.Error{Type: field.ErrorTypeNotFound, Field: e.path(path), BadValue: value, Detail: detail})
}

// TooLong says that a value has more than limit bytes.
func (e *Errors) TooLong(path string, limit int) {
	e.Add(field.TooLong(e.Path(path), "", limit))
}

// TooMany says that a list has more than limit items.
func (e *Errors) TooMany(path string, actual, limit int) {
	e.Add(field.TooMany(e.Path(path), actual, limit))
}

func (e *Errors) path(path string) string {
	if e.parent == nil {
		return path
	}
	at := e.format
	if len(e.args) > 0 {
		at = fmt.Sprintf(e.format, e.args...)
	}
	switch {
	case path == "", strings.HasPrefix(path, "["):
		at += path
	default:
		at += "." + path
	}
	return e.parent.path(at)
}

// Errors of Tx.
var (
	ErrAllocated = errors.New("provided value is already allocated")
	ErrExhausted = errors.New("no free value is left")
)
