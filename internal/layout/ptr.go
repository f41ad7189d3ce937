package layout

import (
	"reflect"
	"unsafe"
)

// Ptr is where a value lies; the zero Ptr is nowhere. Ptrs to the same place are
// equal.
type Ptr struct{ p unsafe.Pointer }

// PtrOf is where the value lies that v points to; v must be a pointer.
func PtrOf(v any) Ptr { return Ptr{reflect.ValueOf(v).UnsafePointer()} }

// New makes a zero value of type t.
func New(t reflect.Type) Ptr { return Ptr{reflect.New(t).UnsafePointer()} }

// At reads a value of type T, or of one with the same layout: a kind's own, and
// for maps that of a key or an element.
func At[T any](p Ptr) *T { return (*T)(p.p) }

// PtrTo is where the elements of a slice lie.
func PtrTo(list reflect.Value) Ptr { return Ptr{list.UnsafePointer()} }

// IsNil reports that p is nowhere.
func (p Ptr) IsNil() bool { return p.p == nil }

// Field is where a struct at p has the field of that offset.
func (p Ptr) Field(offset uintptr) Ptr { return Ptr{unsafe.Add(p.p, offset)} }

// Unexported is the offset of a field of type T that a library's struct S does not
// export; ok: it has one.
func Unexported[S, T any](name string) (offset uintptr, ok bool) {
	f, ok := reflect.TypeFor[S]().FieldByName(name)
	return f.Offset, ok && f.Type == reflect.TypeFor[T]()
}

// Elem is where the pointer, or the map, at p points to.
func (p Ptr) Elem() Ptr { return Ptr{*(*unsafe.Pointer)(p.p)} }

// SetElem lets the pointer at p point to q.
func (p Ptr) SetElem(q Ptr) { *(*unsafe.Pointer)(p.p) = q.p }

// slice is how the runtime lays a slice out.
type slice struct {
	data     unsafe.Pointer
	len, cap int
}

// Slice is where the first element of the slice at p lies, and how many there
// are. A nil slice has its elements nowhere, an empty one somewhere.
func (p Ptr) Slice() (first Ptr, n int) {
	s := (*slice)(p.p)
	return Ptr{s.data}, s.len
}

// SetSlice lets the slice at p be that at q, of the same type.
func (p Ptr) SetSlice(q Ptr) { *(*slice)(p.p) = *(*slice)(q.p) }

// ClearSlice makes the slice at p nil.
func (p Ptr) ClearSlice() { *(*slice)(p.p) = slice{} }

// Index is where element i lies, if p is where the first one does.
func (p Ptr) Index(i int, size uintptr) Ptr { return Ptr{unsafe.Add(p.p, uintptr(i)*size)} }

// Value is the value at p, of type t. It can be set.
func (p Ptr) Value(t reflect.Type) reflect.Value { return reflect.NewAt(t, p.p).Elem() }
