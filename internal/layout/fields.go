package layout

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode"
)

// Field is one field of a struct's JSON form.
type Field struct {
	Name   string
	Type   reflect.Type
	Offset uintptr        // from the beginning of the outermost struct
	Omit   func(Ptr) bool // of the field's value: it is left out; nil: never
	Quoted bool           // a scalar that is written within a string
}

// Fields lists the fields of a struct's JSON form.
func Fields(t reflect.Type) ([]Field, error) {
	all, err := collect(nil, t, place{})
	if err != nil {
		return nil, err
	}
	named := map[string][]candidate{}
	for _, c := range all {
		named[c.Name] = append(named[c.Name], c)
	}
	var fields []Field
	for _, c := range all {
		if c.leads(named[c.Name]) {
			fields = append(fields, c.Field)
		}
	}
	return fields, nil
}

// candidate is a field that shows unless another of its name does.
type candidate struct {
	Field
	depth  int
	tagged bool
}

// place is where an embedded struct lies.
type place struct {
	base  uintptr
	depth int
}

// leads reports that c is the one that shows of all with its name.
func (c *candidate) leads(named []candidate) bool {
	rivals := 0
	for _, o := range named {
		if o.depth < c.depth || o.depth == c.depth && o.tagged && !c.tagged {
			return false
		}
		if o.depth == c.depth && o.tagged == c.tagged {
			rivals++ // c itself is one
		}
	}
	return rivals == 1
}

func collect(list []candidate, t reflect.Type, at place) ([]candidate, error) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		bare := f.Type
		if bare.Kind() == reflect.Pointer && bare.Name() == "" {
			bare = bare.Elem()
		}
		inner := f.Anonymous && bare.Kind() == reflect.Struct
		if tag == "-" || !f.IsExported() && !inner {
			continue
		}
		if !isName(name) {
			name = ""
		}
		if inner && name == "" {
			if f.Type != bare {
				return nil, fmt.Errorf("%v embeds a pointer to %v", t, bare)
			}
			var err error
			if list, err = collect(list, f.Type, place{at.base + f.Offset, at.depth + 1}); err != nil {
				return nil, err
			}
			continue
		}
		c := candidate{depth: at.depth, tagged: name != "", Field: Field{
			Name: name, Type: f.Type, Offset: at.base + f.Offset,
			Omit: omitter(f.Type, options), Quoted: hasOption(options, "string") && isScalar(bare.Kind()),
		}}
		if !c.tagged {
			c.Name = f.Name
		}
		list = append(list, c)
	}
	return list, nil
}

// isName reports that a tag may give a field this name.
func isName(s string) bool {
	for _, c := range s {
		if !unicode.IsLetter(c) && !unicode.IsDigit(c) && !strings.ContainsRune("!#$%&()*+-./:;<=>?@[]^_{|}~ ", c) {
			return false
		}
	}
	return s != ""
}

func hasOption(options, name string) bool {
	return slices.Contains(strings.Split(options, ","), name)
}

func isScalar(k reflect.Kind) bool {
	return k >= reflect.Bool && k <= reflect.Float64 || k == reflect.String
}
