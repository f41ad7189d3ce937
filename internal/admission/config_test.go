package admission

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// write makes a file in a directory of the test's own.
func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"

func TestConfigurationsAreInTheFileOrBesideIt(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", "apiVersion: example.com/v1\nkind: A\nsize: 1\n")
	config, err := ReadConfigurations(write(t, dir, "admission.yaml", head+`
- name: A
  path: a.yaml
- name: B
  path: `+write(t, t.TempDir(), "b.yaml", "size: 2")+`
- name: C
  configuration: {apiVersion: example.com/v1beta1, kind: A, size: 3}
- name: D
`))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"A": 1, "B": 2, "C": 3, "D": 9, "E": 9} {
		got := struct {
			APIVersion, Kind string
			Size             int
		}{Size: 9}
		kinds := []string{"example.com/v1 A", "example.com/v1beta1 A"}
		if name == "B" {
			kinds = nil
		}
		if err := config.Read(name, &got, kinds...); err != nil || got.Size != want {
			t.Errorf("%s: got %+v, %v; want size %d", name, got, err, want)
		}
	}
	if len(config) != 4 {
		t.Errorf("got %d configurations, want 4", len(config))
	}
}

func TestConfigurationsThatCannotBeAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"plugins: 1":       "cannot unmarshal",
		"kind: Pod":        "want apiserver.config.k8s.io/v1 AdmissionConfiguration",
		head + "- nam: A":  `unknown field "nam"`,
		head + "- path: x": "plugins[0].name: is required",
		head + "- name: A\n  configuration: {a: 1}\n- name: A\n  path: x": "plugins[1].name: there is A before",
		head + "- name: A\n  path: gone.yaml":                             "plugins[0].path: open ",
	} {
		_, err := ReadConfigurations(write(t, t.TempDir(), "admission.yaml", text))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "admission.yaml") {
			t.Errorf("%s: got %v, want the file and %q", text, err, want)
		}
	}
	if _, err := ReadConfigurations("/nowhere.yaml"); err == nil {
		t.Error("a file that is not there: got no error")
	}
	config := Configurations{"A": []byte("apiVersion: v1\nkind: Pod"), "B": []byte("apiVersion: example.com/v1\nkind: B\nsiz: 1")}
	var into struct {
		APIVersion, Kind string
		Size             int
	}
	for name, want := range map[string]string{
		"A": "configuration of admission plugin A: is v1 Pod, want example.com/v1 B",
		"B": `configuration of admission plugin B: error unmarshaling JSON: while decoding JSON: json: unknown field "siz"`,
	} {
		if err := config.Read(name, &into, "example.com/v1 B"); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", name, err, want)
		}
	}
}
