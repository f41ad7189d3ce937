package openapi

import (
	"bytes"
	"compress/gzip"
	_ "embed" // the schemas
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"
)

// The schemas of all Go types that are served, made from their sources.
//
//go:generate go test -run TestModelsAreThoseOfTheSources -update .
//go:embed zz_models.json.gz
var packed []byte

// models are the schemas of Go types by name, as text.
type models struct {
	Schemas map[string]json.RawMessage `json:"schemas"` // of OpenAPI 3
	Swagger map[string]json.RawMessage `json:"swagger"` // of version 2, where that is another
}

func readModels() (*models, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("read the schemas of types: %w", err)
	}
	m := &models{}
	if err := json.NewDecoder(z).Decode(m); err != nil {
		return nil, fmt.Errorf("read the schemas of types: %w", err)
	}
	return m, nil
}

// text is the schema of a name in a version of documents; nil if there is none.
func (m *models) text(name string, form int) json.RawMessage {
	if text := m.Swagger[name]; form == 2 && text != nil {
		return text
	}
	return m.Schemas[name]
}

const prefix3 = "#/components/schemas/"

var references = regexp.MustCompile(`"\$ref":"` + prefix3 + `([^"]+)"`)

// uses are the names of the schemas that a schema refers to.
func uses(text []byte) (names []string) {
	for _, m := range references.FindAllSubmatch(text, -1) {
		names = append(names, string(m[1]))
	}
	return names
}

// modelName is the name of a type's schema.
func modelName(t reflect.Type) string {
	if m, ok := reflect.New(t).Interface().(interface{ OpenAPIModelName() string }); ok {
		return m.OpenAPIModelName()
	}
	path := strings.NewReplacer("k8s.io/", "io/k8s/", "/", ".").Replace(t.PkgPath())
	return path + "." + t.Name()
}
