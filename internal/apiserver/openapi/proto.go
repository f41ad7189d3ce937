package openapi

import (
	"bytes"
	"math"
	"strconv"
	"strings"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	openapi_v3 "github.com/google/gnostic-models/openapiv3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/kemudi/kemudi/internal/wire"
)

// encoder writes text of OpenAPI as the messages that packages openapi_v2 and openapi_v3 have for it, straight from the
// one to the other: by the packages' own way, all of a document is a tree of nodes in between, twice.
//
// What the messages have no field for is left out.
type encoder map[protoreflect.FullName]*shape

// shape is how a message is made from text.
type shape struct {
	name   protoreflect.Name
	fields map[string]*field // by the names of members
	byName map[protoreflect.Name]*field
	// named are members of any name, each of which becomes a message with its name and its value; x
	// are those of them that begin with x-, where these are told apart. Nil: there is no such field.
	named, x *field
}

// field is one of a message.
type field struct {
	protoreflect.FieldDescriptor
	number protowire.Number
	kind   protoreflect.Kind
	list   bool
	always bool   // also when it is false, 0 or empty: it is the one that a message has
	of     *shape // of a message; of a named one, its value
}

func (e encoder) shape(d protoreflect.MessageDescriptor) *shape {
	if s := e[d.FullName()]; s != nil {
		return s
	}
	s := &shape{name: d.Name(), fields: map[string]*field{}, byName: map[protoreflect.Name]*field{}}
	e[d.FullName()] = s
	for i := range d.Fields().Len() {
		fd := d.Fields().Get(i)
		f := &field{FieldDescriptor: fd, number: fd.Number(), kind: fd.Kind(), list: fd.IsList(), always: fd.ContainingOneof() != nil}
		s.byName[fd.Name()] = f
		name := fd.JSONName()
		if fd.Name() == "_ref" {
			name = "$ref"
		}
		switch m := fd.Message(); {
		case m == nil:
			s.fields[name] = f
		case !strings.HasPrefix(string(m.Name()), "Named"):
			f.of = e.shape(m)
			s.fields[name] = f
		default:
			value := m.Fields().ByName("value")
			if value.Message() != nil {
				f.of = e.shape(value.Message())
			}
			switch fd.Name() {
			case "vendor_extension", "specification_extension":
				s.x = f
			default:
				s.named = f
			}
		}
	}
	return s
}

// document is the shape of a document of version 2.
func (e encoder) document() *shape {
	return e.shape((*openapi_v2.Document)(nil).ProtoReflect().Descriptor())
}

// document3 is the shape of a document of version 3.
func (e encoder) document3() *shape {
	return e.shape((*openapi_v3.Document)(nil).ProtoReflect().Descriptor())
}

// message appends the fields of a message.
func (s *shape) message(b, text []byte) []byte {
	switch s.name {
	case "Any": // JSON is YAML
		b = protowire.AppendTag(b, s.byName["yaml"].number, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(len(text)+1))
		return append(append(b, text...), '\n')
	case "ItemsItem": // one; where there are several, clients take that they be anything, as the library does
		if text[0] == '[' {
			text = []byte("{}")
		}
		for _, only := range s.byName {
			return only.one(b, text)
		}
	case "TypeItem", "StringArray": // one, or several
		for _, only := range s.byName {
			if text[0] == '[' {
				return only.append(b, text)
			}
			return only.one(b, text)
		}
	}
	if chosen := s.byName[s.choice(text)]; chosen != nil { // a name may be of a message with a choice in one version alone
		return chosen.append(b, text)
	}
	if text[0] != '{' {
		return b
	}
	for name, value := range wire.Each(text) {
		b = s.member(b, name, value)
	}
	return b
}

// member appends a member of an object.
func (s *shape) member(b, name, value []byte) []byte {
	f := s.fields[string(name)]
	switch {
	case f != nil:
		return f.append(b, value)
	case s.x != nil && bytes.HasPrefix(name, []byte("x-")):
		f = s.x
	case s.named != nil:
		f = s.named
	default:
		return b
	}
	return nested(b, f.number, func(b []byte) []byte {
		b = protowire.AppendBytes(protowire.AppendTag(b, 1, protowire.BytesType), name)
		if f.of == nil {
			return appendString(b, 2, value)
		}
		return nested(b, 2, func(b []byte) []byte { return f.of.message(b, value) })
	})
}

// append appends a field with its value.
func (f *field) append(b, text []byte) []byte {
	if !f.list {
		return f.one(b, text)
	}
	for element := range wire.Elements(text) {
		b = f.one(b, element)
	}
	return b
}

func (f *field) one(b, text []byte) []byte {
	switch {
	case string(text) == "null" && (f.of == nil || f.of.name != "Any"):
	case f.kind == protoreflect.MessageKind:
		return nested(b, f.number, func(b []byte) []byte { return f.of.message(b, text) })
	case f.kind == protoreflect.StringKind && text[0] == '"' && (f.list || f.always || len(text) > 2):
		return appendString(b, f.number, text)
	case f.kind == protoreflect.BoolKind && (f.always || string(text) == "true"):
		b = protowire.AppendTag(b, f.number, protowire.VarintType)
		return protowire.AppendVarint(b, protowire.EncodeBool(string(text) == "true"))
	case f.kind == protoreflect.DoubleKind, f.kind == protoreflect.Int64Kind:
		n, err := strconv.ParseFloat(string(text), 64)
		switch {
		case err != nil || n == 0 && !f.always:
		case f.kind == protoreflect.Int64Kind:
			b = protowire.AppendTag(b, f.number, protowire.VarintType)
			return protowire.AppendVarint(b, uint64(int64(n)))
		default:
			b = protowire.AppendTag(b, f.number, protowire.Fixed64Type)
			return protowire.AppendFixed64(b, math.Float64bits(n))
		}
	}
	return b
}

// appendString appends a field that is what a string says.
func appendString(b []byte, number protowire.Number, quoted []byte) []byte {
	text, _ := wire.Text(quoted) // an encoder has written it
	return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), text)
}

// member is the value of a member of an object; nil: there is none.
func member(object []byte, name string) []byte {
	for n, value := range wire.Each(object) {
		if string(n) == name {
			return value
		}
	}
	return nil
}

// nested appends a field whose value is preceded by its length.
func nested(b []byte, number protowire.Number, value func([]byte) []byte) []byte {
	b = protowire.AppendTag(b, number, protowire.BytesType)
	at := len(b)
	b = value(append(b, 0)) // most are short
	n := len(b) - at - 1
	more := protowire.SizeVarint(uint64(n)) - 1
	b = append(b, make([]byte, more)...)
	copy(b[at+1+more:], b[at+1:at+1+n])
	protowire.AppendVarint(b[:at], uint64(n))
	return b
}

// choice says which field a message has of those of which it has one, if it is such a message.
func (s *shape) choice(text []byte) protoreflect.Name {
	says := func(name string) string { return strings.Trim(string(member(text, name)), `"`) }
	pick := func(so bool, yes, no protoreflect.Name) protoreflect.Name {
		if so {
			return yes
		}
		return no
	}
	if other := s.byName["reference"]; other != nil { // the one or the other
		for name, f := range s.byName {
			if (f == other) == (says("$ref") != "") {
				return name
			}
		}
	}
	switch s.name {
	case "AdditionalPropertiesItem":
		return pick(text[0] != '{', "boolean", pick(s.byName["schema"] != nil, "schema", "schema_or_reference"))
	case "DefaultType":
		switch c := text[0]; {
		case c == '"':
			return "string"
		case c == 't', c == 'f':
			return "boolean"
		case c == '-', '0' <= c && c <= '9':
			return "number"
		}
	case "ParametersItem":
		return pick(says("$ref") != "", "json_reference", "parameter")
	case "ResponseValue":
		return pick(says("$ref") != "", "json_reference", "response")
	case "SchemaItem":
		return pick(says("type") == "file", "file_schema", "schema")
	case "Parameter":
		return pick(says("in") == "body", "body_parameter", "non_body_parameter")
	case "NonBodyParameter":
		switch says("in") {
		case "header":
			return "header_parameter_sub_schema"
		case "formData":
			return "form_data_parameter_sub_schema"
		case "path":
			return "path_parameter_sub_schema"
		}
		return "query_parameter_sub_schema"
	case "SecurityDefinitionsItem":
		switch says("type") + says("flow") {
		case "basic":
			return "basic_authentication_security"
		case "oauth2implicit":
			return "oauth2_implicit_security"
		case "oauth2password":
			return "oauth2_password_security"
		case "oauth2application":
			return "oauth2_application_security"
		case "oauth2accessCode":
			return "oauth2_access_code_security"
		}
		return "api_key_security"
	}
	return ""
}
