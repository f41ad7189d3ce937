package admission

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// Configurations is what plugins are told beyond that they are on, by their names:
// a document of the plugin's own, in YAML or JSON.
type Configurations map[string][]byte

// configurationFile is an AdmissionConfiguration as clusters have it.
type configurationFile struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Plugins    []struct {
		Name          string                `json:"name"`
		Path          string                `json:"path"` // relative to the file
		Configuration *runtime.RawExtension `json:"configuration"`
	} `json:"plugins"`
}

// ReadConfigurations reads an AdmissionConfiguration, and the files that it names.
func ReadConfigurations(file string) (Configurations, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read admission configuration: %w", err)
	}
	var doc configurationFile
	if err := yaml.UnmarshalStrict(data, &doc); err != nil {
		return nil, fmt.Errorf("read admission configuration %s: %w", file, err)
	}
	if !slices.Contains([]string{"apiserver.config.k8s.io/v1", "apiserver.k8s.io/v1alpha1"}, doc.APIVersion) || doc.Kind != "AdmissionConfiguration" {
		return nil, fmt.Errorf("admission configuration %s: is %s %s, want apiserver.config.k8s.io/v1 AdmissionConfiguration", file, doc.APIVersion, doc.Kind)
	}
	all := Configurations{}
	for i, p := range doc.Plugins {
		switch {
		case p.Name == "":
			return nil, fmt.Errorf("admission configuration %s: plugins[%d].name: is required", file, i)
		case all[p.Name] != nil:
			return nil, fmt.Errorf("admission configuration %s: plugins[%d].name: there is %s before", file, i, p.Name)
		case p.Configuration != nil:
			all[p.Name] = p.Configuration.Raw
		case p.Path != "":
			path := p.Path
			if !filepath.IsAbs(path) {
				path = filepath.Join(filepath.Dir(file), path)
			}
			if all[p.Name], err = os.ReadFile(path); err != nil {
				return nil, fmt.Errorf("admission configuration %s: plugins[%d].path: %w", file, i, err)
			}
		default:
			all[p.Name] = []byte{}
		}
	}
	return all, nil
}

// Read reads what a plugin is told into a struct, whose fields keep their values if
// it is told nothing. The document must be of one of the kinds, if any are given, each
// written as "group/version Kind".
func (c Configurations) Read(plugin string, into any, kinds ...string) error {
	data := c[plugin]
	if len(data) == 0 {
		return nil
	}
	var is struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	err := yaml.Unmarshal(data, &is)
	if err == nil && len(kinds) > 0 && !slices.Contains(kinds, is.APIVersion+" "+is.Kind) {
		err = fmt.Errorf("is %s %s, want %s", is.APIVersion, is.Kind, kinds[0])
	}
	if err == nil {
		err = yaml.UnmarshalStrict(data, into)
	}
	if err != nil {
		return Misconfigured(plugin, err)
	}
	return nil
}

// Misconfigured says that what a plugin is told cannot be. err names the fields.
func Misconfigured(plugin string, err error) error {
	return fmt.Errorf("configuration of admission plugin %s: %w", plugin, err)
}
