//go:build !race

package openapi

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	openapi_v3 "github.com/google/gnostic-models/openapiv3"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"
	"sigs.k8s.io/yaml"

	"k8s.io/kube-openapi/pkg/validation/spec"
)

// same holds that encoded is what the library makes of the text of a document of version 2.
func same(t *testing.T, text, encoded []byte) {
	t.Helper()
	want, err := openapi_v2.ParseDocument(text)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, encoded, &openapi_v2.Document{}, want)
}

// same3 holds it of version 3.
func same3(t *testing.T, text, encoded []byte) {
	t.Helper()
	want, err := openapi_v3.ParseDocument(text)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, encoded, &openapi_v3.Document{}, want)
}

// equal holds that encoded, read into got, is want. Values of any form are texts within it, which say the same in
// other words.
func equal(t *testing.T, encoded []byte, got, want proto.Message) {
	t.Helper()
	if err := proto.Unmarshal(encoded, got); err != nil {
		t.Fatal(err)
	}
	plain(t, want)
	plain(t, got)
	if proto.Equal(got, want) {
		return
	}
	g, w := strings.Split(prototext.Format(got), "\n"), strings.Split(prototext.Format(want), "\n")
	for i := range w {
		if i >= len(g) || !slices.Equal(strings.Fields(g[i]), strings.Fields(w[i])) {
			t.Fatalf("line %d: got\n%s\nwant\n%s", i, strings.Join(g[max(0, i-8):min(i+5, len(g))], "\n"), strings.Join(w[max(0, i-8):min(i+5, len(w))], "\n"))
		}
	}
	t.Error("got more than wanted")
}

// plain writes all values of any form in the same words.
func plain(t *testing.T, doc proto.Message) {
	t.Helper()
	err := protorange.Range(doc.ProtoReflect(), func(v protopath.Values) error {
		m, ok := v.Index(-1).Value.Interface().(protoreflect.Message)
		if !ok || m.Descriptor().Name() != "Any" {
			return nil
		}
		text := m.Descriptor().Fields().ByName("yaml")
		var value any
		if err := yaml.Unmarshal([]byte(m.Get(text).String()), &value); err != nil {
			return err
		}
		same, err := json.Marshal(value)
		m.Set(text, protoreflect.ValueOfString(string(same)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestProtobufIsWhatTheLibraryMakesOfTheText(t *testing.T) {
	s := service()
	var b bytes.Buffer
	if err := s.write(&b, swaggerName, proto2); err != nil {
		t.Fatal(err)
	}
	same(t, written(t, s, swaggerName), b.Bytes())
}

func TestProtobufOfVersion3IsWhatTheLibraryMakesOfTheText(t *testing.T) {
	s := service()
	for _, name := range s.layout().names {
		var b bytes.Buffer
		if err := s.write(&b, name, proto3); err != nil {
			t.Fatal(err)
		}
		same3(t, written(t, s, name), b.Bytes())
	}
}

// everyForm3 has what kinds that are known at run time may have in a document of version 3, and our own have not.
const everyForm3 = `{
 "openapi": "3.0.0", "info": {"title": "t", "version": "1", "x-info": [1]}, "paths": {"x-paths": 1, "/a": {"get": {"responses": {"default": {"$ref": "#/components/responses/A"}}}}},
 "components": {"schemas": {
  "A": {
   "type": "object", "nullable": true, "required": ["a", "b"], "minProperties": 1, "maxProperties": 7, "description": "a \"quoted\" \\ \u00e4\n", "title": "t", "externalDocs": {"url": "u"},
   "not": {"type": "string"}, "oneOf": [{"$ref": "#/a"}, {"required": ["a"]}], "anyOf": [{}, {"enum": ["x", 1, null, {"a": []}]}], "allOf": [{"$ref": "#/b"}], "example": {"a": null},
   "additionalProperties": {"$ref": "#/components/schemas/B"}, "x-kubernetes-validations": [{"rule": "true"}], "x-kubernetes-preserve-unknown-fields": true,
   "properties": {
    "x-named": {"type": "string", "default": ""}, "default": {"default": "x", "minLength": 1, "maxLength": 300, "pattern": "^a$"}, "type": {"default": 0, "minimum": -1.5, "maximum": 10, "exclusiveMinimum": true, "exclusiveMaximum": true, "multipleOf": 1e3},
    "true": {"default": true}, "false": {"default": false}, "object": {"default": {}}, "list": {"type": "array", "default": [], "items": {"$ref": "#/a"}, "minItems": 1, "maxItems": 1000000, "uniqueItems": true}, "number": {"default": -2.5, "format": "double"},
    "items": {"items": {"type": "integer", "format": "int64"}, "x-kubernetes-list-map-keys": ["a"]}, "properties": {"properties": {}}
   }
  },
  "B": {"additionalProperties": false}, "C": {"additionalProperties": true}, "D": {"additionalProperties": {"type": "string"}}
 }}
}`

func TestEveryFormOfVersion3HasItsMessage(t *testing.T) {
	same3(t, []byte(everyForm3), encoder{}.document3().message(nil, []byte(everyForm3)))
}

// everyForm has each kind of message that documents of others may have, and members of any form.
const everyForm = `{
 "swagger": "2.0", "host": "h", "basePath": "/", "schemes": ["https"], "consumes": ["a/b"], "produces": [],
 "info": {"title": "t \"quoted\" \\ \u00e4\n", "version": "1", "contact": {"name": "c", "x-of": [1, {"a": null}]}, "license": {"name": "l", "url": "u"}, "x-info": "text"},
 "tags": [{"name": "one", "description": "d", "externalDocs": {"url": "u", "x-docs": {}}}, {"name": "two"}],
 "externalDocs": {"url": "docs"}, "x-document": {"b": [true, 1.5, "x"]},
 "security": [{"basic": [], "oauth": ["read", "write"]}],
 "securityDefinitions": {
  "basic": {"type": "basic", "description": "d"}, "key": {"type": "apiKey", "name": "k", "in": "header"},
  "implicit": {"type": "oauth2", "flow": "implicit", "authorizationUrl": "a", "scopes": {"read": "reads", "x": ""}},
  "password": {"type": "oauth2", "flow": "password", "tokenUrl": "t"}, "application": {"type": "oauth2", "flow": "application", "tokenUrl": "t"},
  "code": {"type": "oauth2", "flow": "accessCode", "authorizationUrl": "a", "tokenUrl": "t", "x-code": 1}
 },
 "parameters": {"shared": {"name": "s", "in": "query", "type": "array", "items": {"type": "string", "enum": ["a", 1], "items": {"type": "integer"}}, "collectionFormat": "multi"}},
 "responses": {"gone": {"description": "gone"}},
 "paths": {
  "x-paths": [1],
  "/a": {
   "$ref": "#/paths/b", "parameters": [{"$ref": "#/parameters/shared"}, {"name": "p", "in": "path", "required": true, "type": "integer", "minimum": -1.5, "maximum": 10, "exclusiveMinimum": true, "multipleOf": 3, "default": 0}],
   "get": {
    "operationId": "get", "tags": ["one", "two"], "summary": "s", "description": "d", "deprecated": true, "schemes": ["http"], "externalDocs": {"url": "u"}, "security": [],
    "consumes": ["*/*"], "produces": ["a/b", "c/d"], "x-operation": null,
    "parameters": [
     {"name": "h", "in": "header", "type": "string", "minLength": 2, "maxLength": 300, "pattern": "^a$", "enum": ["a"]},
     {"name": "f", "in": "formData", "type": "file", "allowEmptyValue": true},
     {"name": "q", "in": "query", "type": "boolean", "allowEmptyValue": true, "uniqueItems": true, "x-q": "q"},
     {"name": "body", "in": "body", "required": true, "description": "b", "schema": {"$ref": "#/definitions/A", "description": "beside"}, "x-body": 1}
    ],
    "responses": {
     "200": {"description": "ok", "schema": {"type": "object"}, "headers": {"H": {"type": "integer", "format": "int64", "maxItems": 4, "minItems": 1}}, "examples": {"a/b": {"c": 1}}, "x-response": 1},
     "201": {"description": "file", "schema": {"type": "file", "readOnly": true}}, "404": {"$ref": "#/responses/gone"}, "default": {"description": "else"}, "x-responses": "of it"
    }
   },
   "put": {"responses": {}}, "post": {"responses": {}}, "delete": {"responses": {}}, "options": {"responses": {}}, "head": {"responses": {}}, "patch": {"responses": {}}
  }
 },
 "definitions": {
  "A": {
   "type": "object", "required": ["a"], "properties": {
    "x-named": {"type": "string"}, "default": {"type": ["string", "null"], "default": "x", "enum": ["x", 1, null]}, "with \"quotes\"": {"type": "number", "format": "double", "minimum": 0.25, "multipleOf": 1e3, "example": {"a": [1]}},
    "list": {"type": "array", "items": {"$ref": "#/definitions/A"}, "minItems": 1, "maxItems": 1000000, "uniqueItems": true}, "several": {"type": "array", "items": [{"type": "string"}, {}]}
   },
   "additionalProperties": false, "minProperties": 1, "maxProperties": 7, "x-kubernetes-group-version-kind": [{"group": "g", "kind": "A", "version": "v1"}]
  },
  "B": {"allOf": [{"$ref": "#/definitions/A"}, {"title": "t"}], "discriminator": "d", "readOnly": true, "externalDocs": {"url": "u"}, "xml": {"name": "n", "attribute": true, "x-xml": "z"}},
  "C": {"additionalProperties": {"type": "string"}, "exclusiveMaximum": true, "maximum": 9}, "D": {"additionalProperties": true}, "E": {"properties": {}}
 }
}`

func TestEveryFormOfADocumentHasItsMessage(t *testing.T) {
	same(t, []byte(everyForm), encoder{}.document().message(nil, []byte(everyForm)))
	var doc any
	if err := json.Unmarshal([]byte(everyForm), &doc); err != nil {
		t.Fatal(err)
	}
	dense, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	same(t, dense, encoder{}.document().message(nil, dense))
}

// TestSchemasOfVersion2AreTheSame holds the way by which text is made into that of version 2 against one by values.
func TestSchemasOfVersion2AreTheSame(t *testing.T) {
	for text, want := range map[string]string{
		`{}`: `{}`,
		`{"description":"a \"default\" {","default":{"a":[1]},"type":"object"}`:                       `{"description":"a \"default\" {","type":"object"}`,
		`{"properties":{"default":{"default":1,"type":"string"},"allOf":{"allOf":[{"$ref":"#/a"}]}}}`: `{"properties":{"default":{"type":"string"},"allOf":{"$ref":"#/a"}}}`,
		`{"properties":{},"items":{"default":{},"allOf":[{"$ref":"#/a"}]}}`:                           `{"properties":{},"items":{"$ref":"#/a"}}`,
		`{"allOf":[{"$ref":"#/a"},{"$ref":"#/b"}]}`:                                                   `{"allOf":[{"$ref":"#/a"},{"$ref":"#/b"}]}`,
		`{"allOf":[{"type":"string"}]}`:                                                               `{"allOf":[{"type":"string"}]}`,
		`{"additionalProperties":{"default":"x","type":"string"}}`:                                    `{"additionalProperties":{"type":"string"}}`,
		`{"additionalProperties":true}`:                                                               `{"additionalProperties":true}`,
	} {
		if got := string(swagger(nil, []byte(text))); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
	all, err := readModels()
	if err != nil {
		t.Fatal(err)
	}
	for name := range all.Schemas {
		text := all.text(name, 2)
		var got, want spec.Schema
		if err := json.Unmarshal(swagger(nil, text), &got); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatal(err)
		}
		changed(&want)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %s of %s", name, swagger(nil, text), text)
		}
	}
}

// changed is what becomes of a schema in version 2.
func changed(s *spec.Schema) {
	s.Default = nil
	if len(s.AllOf) == 1 && s.AllOf[0].Ref.String() != "" {
		s.Ref, s.AllOf = s.AllOf[0].Ref, nil
	}
	for name, p := range s.Properties {
		changed(&p)
		s.Properties[name] = p
	}
	if s.Items != nil && s.Items.Schema != nil {
		changed(s.Items.Schema)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		changed(s.AdditionalProperties.Schema)
	}
}
