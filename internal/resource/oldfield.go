package resource

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// OldField is a field that a kind had in earlier releases and its Go type has no
// more. A document of the storage version that still has it is read as if it
// said the same by today's means, and its sender is warned. What is stored and
// answered has today's form only.
type OldField struct {
	Path    []string // where it stands: "spec", "topologyKeys"
	Instead []string // where its value is kept now
	// To returns what is kept of the field's value. there is what the document
	// itself says in the new place, nil if it says nothing.
	To func(value, there any) (any, error)
	// From returns the field's value, given what is kept of it.
	From func(kept any) any

	Warning string // of the Warning header

	// For the schemas that are published.
	Type        reflect.Type
	Description string
}

// String is the field's path as error texts have it.
func (f *OldField) String() string { return strings.Join(f.Path, ".") }

// pointer is the field's path as JSON patches have it.
func (f *OldField) pointer() string { return "/" + strings.Join(f.Path, "/") }

// HasOldFields says quickly whether a JSON document may have old fields.
func (d *Def) HasOldFields(doc []byte) bool {
	for i := range d.OldFields {
		path := d.OldFields[i].Path
		if bytes.Contains(doc, []byte(`"`+path[len(path)-1]+`"`)) {
			return true
		}
	}
	return false
}

// Modernize moves the values of old fields in a document to where they are kept
// now, and returns the warnings for its sender. In a merge patch (patch is set) a
// null takes away what is kept.
func (d *Def) Modernize(doc map[string]any, patch bool) (warnings []string, err error) {
	for i := range d.OldFields {
		f := &d.OldFields[i]
		value, ok := lookUp(doc, f.Path)
		if !ok {
			continue
		}
		remove(doc, f.Path)
		if value == nil {
			if patch {
				put(doc, f.Instead, nil)
			}
			continue
		}
		there, _ := lookUp(doc, f.Instead)
		kept, err := f.To(value, there)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
		put(doc, f.Instead, kept)
		warnings = append(warnings, f.Warning)
	}
	return warnings, nil
}

// ModernizeJSON does the same with the bytes of a document.
func (d *Def) ModernizeJSON(doc []byte, patch bool) (out []byte, warnings []string, err error) {
	var m map[string]any
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.UseNumber()
	if dec.Decode(&m) != nil {
		return doc, nil, nil // whoever reads it next says what is wrong
	}
	if warnings, err = d.Modernize(m, patch); err != nil {
		return nil, nil, err
	}
	out, err = json.Marshal(m)
	return out, warnings, err
}

// Antiquate gives a document the old fields that a JSON patch names, so that the
// patch finds them, and takes away what is kept in their place. It returns the
// document as it is if the patch names none.
func (d *Def) Antiquate(doc, patch []byte) ([]byte, error) {
	var m map[string]any
	for i := range d.OldFields {
		f := &d.OldFields[i]
		if !bytes.Contains(patch, []byte(`"`+f.pointer()+`"`)) && !bytes.Contains(patch, []byte(`"`+f.pointer()+`/`)) {
			continue
		}
		if m == nil {
			dec := json.NewDecoder(bytes.NewReader(doc))
			dec.UseNumber()
			if err := dec.Decode(&m); err != nil {
				return nil, fmt.Errorf("decode document: %w", err)
			}
		}
		if kept, ok := lookUp(m, f.Instead); ok {
			remove(m, f.Instead)
			put(m, f.Path, f.From(kept))
		}
	}
	if m == nil {
		return doc, nil
	}
	return json.Marshal(m)
}

func lookUp(doc map[string]any, path []string) (any, bool) {
	for _, name := range path[:len(path)-1] {
		doc, _ = doc[name].(map[string]any)
	}
	v, ok := doc[path[len(path)-1]]
	return v, ok
}

func remove(doc map[string]any, path []string) {
	for _, name := range path[:len(path)-1] {
		doc, _ = doc[name].(map[string]any)
	}
	delete(doc, path[len(path)-1])
}

func put(doc map[string]any, path []string, v any) {
	for _, name := range path[:len(path)-1] {
		inner, ok := doc[name].(map[string]any)
		if !ok {
			inner = map[string]any{}
		}
		doc[name] = inner
		doc = inner
	}
	doc[path[len(path)-1]] = v
}
