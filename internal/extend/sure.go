package extend

import (
	"math"
	"regexp"
	"slices"
	"unicode/utf8"

	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
)

// sure is what of a schema can be decided about a value at a glance. It never holds a value for
// right in which the library finds something wrong; which is which, and in which words, the library says. Nil decides nothing.
type sure struct {
	kind     string // of JSON schemas; "" with intText: an integer or a text
	intText  bool
	nullable bool

	low, high *float64 // of numbers
	size      [2]int64 // of texts in characters, of lists and objects in elements
	pattern   *regexp.Regexp
	enum      []string // of texts; nil: any

	required []string
	fields   map[string]*sure // some may be nil
	rest     *sure            // of other fields
	anyRest  bool             // other fields may be anything
	items    *sure
}

// newSure reads a schema; nil: there is something in it that is not decided here.
func newSure(s *structural.Structural) *sure {
	if s == nil {
		return nil
	}
	c := &sure{kind: s.Type, intText: s.XIntOrString, nullable: s.Nullable, anyRest: true, size: [2]int64{0, math.MaxInt64}}
	if !c.limit(s.ValueValidation) {
		return nil
	}
	switch {
	case s.XEmbeddedResource, s.Type == "" && !s.XIntOrString, s.Type == "array" && s.Items == nil:
		return nil
	case s.Type == "array":
		c.items = newSure(s.Items)
	}
	c.fields = make(map[string]*sure, len(s.Properties))
	for name := range s.Properties {
		field := s.Properties[name]
		c.fields[name] = newSure(&field)
	}
	if more := s.AdditionalProperties; more != nil {
		if more.Structural == nil && !more.Bool {
			return nil
		}
		c.anyRest, c.rest = more.Structural == nil, newSure(more.Structural)
	}
	return c
}

// limit reads the limits of values, and reports that they are all decided here.
func (c *sure) limit(v *structural.ValueValidation) bool {
	if v == nil {
		return true
	}
	if c.kind == "" && (v.MinLength != nil || v.MaxLength != nil) { // of the text alone
		return false
	}
	if v.UniqueItems || v.MultipleOf != nil || v.ExclusiveMinimum || v.ExclusiveMaximum || v.Not != nil ||
		len(v.AllOf) > 0 || len(v.OneOf) > 0 || len(v.AnyOf) > 0 || v.Format != "" && (v.Format != "int64" || c.kind != "integer") {
		return false
	}
	c.low, c.high, c.required = v.Minimum, v.Maximum, v.Required
	var least, most *int64
	switch c.kind {
	case "string":
		least, most = v.MinLength, v.MaxLength
	case "array":
		least, most = v.MinItems, v.MaxItems
	case "object":
		least, most = v.MinProperties, v.MaxProperties
	}
	if least != nil {
		c.size[0] = *least
	}
	if most != nil {
		c.size[1] = *most
	}
	if v.Pattern != "" {
		var err error
		if c.pattern, err = regexp.Compile(v.Pattern); err != nil {
			return false
		}
	}
	for _, e := range v.Enum {
		text, ok := e.Object.(string)
		if !ok || c.kind != "string" {
			return false
		}
		c.enum = append(c.enum, text)
	}
	return true
}

// field is what can be decided about a field.
func (c *sure) field(name string) *sure {
	if c == nil {
		return nil
	}
	return c.fields[name]
}

// holds reports that a value is right; false: ask the library.
func (c *sure) holds(v any) bool {
	if c == nil {
		return false
	}
	switch v := v.(type) {
	case nil:
		return c.nullable && c.enum == nil
	case string:
		n := int64(utf8.RuneCountInString(v))
		return (c.kind == "string" || c.kind == "" && c.intText) && c.size[0] <= n && n <= c.size[1] &&
			(c.pattern == nil || c.pattern.MatchString(v)) && (c.enum == nil || slices.Contains(c.enum, v))
	case bool:
		return c.kind == "boolean"
	case int64:
		return (c.kind == "integer" || c.kind == "number" || c.kind == "" && c.intText) && c.between(float64(v))
	case float64:
		return c.kind == "number" && c.between(v)
	case []any:
		return c.kind == "array" && c.size[0] <= int64(len(v)) && int64(len(v)) <= c.size[1] && !slices.ContainsFunc(v, func(e any) bool { return !c.items.holds(e) })
	case map[string]any:
		return c.kind == "object" && c.size[0] <= int64(len(v)) && int64(len(v)) <= c.size[1] && c.members(v)
	}
	return false
}

func (c *sure) between(n float64) bool {
	return (c.low == nil || n >= *c.low) && (c.high == nil || n <= *c.high)
}

func (c *sure) members(v map[string]any) bool {
	for _, name := range c.required {
		if _, there := v[name]; !there {
			return false
		}
	}
	for name, value := range v {
		field, known := c.fields[name]
		switch {
		case known && !field.holds(value), !known && !c.anyRest && !c.rest.holds(value):
			return false
		}
	}
	return true
}
