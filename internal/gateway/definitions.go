package gateway

import (
	"embed"
	"fmt"
	"io/fs"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/kemudi/kemudi/internal/wire"
)

// definitions are those of the standard channel, as the release has them: data, not code.
//
//go:embed definitions
var definitions embed.FS

// AnnotationBundle of a definition is the version of the Gateway API that it is of.
const AnnotationBundle = "gateway.networking.k8s.io/bundle-version"

// Definitions are the definitions of the kinds of the Gateway API.
func Definitions() (list []*apiextensionsv1.CustomResourceDefinition, err error) {
	err = fs.WalkDir(definitions, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := definitions.ReadFile(path)
		if err != nil {
			return err
		}
		doc, duplicate, err := wire.YAMLToJSON(text, false)
		if err == nil {
			err = duplicate
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err == nil {
			err = wire.DecodeJSON(doc, crd)
		}
		if err != nil {
			return fmt.Errorf("read definition %s: %w", path, err)
		}
		crd.Status = apiextensionsv1.CustomResourceDefinitionStatus{}
		list = append(list, crd)
		return nil
	})
	return list, err
}
