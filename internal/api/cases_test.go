package api_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/api"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/trace"
)

// A testCase is one document of testdata/cases. A document with an object is a
// base that later ones refer to.
type testCase struct {
	Base   string          `json:"base"`   // on an object: its name; else the object to start with
	Object json.RawMessage `json:"object"` // a base

	Name     string          `json:"name"`
	Manifest string          `json:"manifest"` // instead of a base: a file of the documents' manifests
	Version  string          `json:"version"`  // sent as this apiVersion instead
	Old      json.RawMessage `json:"old"`      // update: what is stored differs from the base by this merge patch
	Patch    json.RawMessage `json:"patch"`    // what is sent differs from the base by this merge patch
	Update   bool            `json:"update"`   // the base is stored already
	Sub      string          `json:"sub"`      // written through this subresource

	Errors   []string          `json:"errors"`
	Warnings []string          `json:"warnings"`
	Want     any               `json:"want"`    // part of the object that comes out, in the version of the request
	Stored   any               `json:"stored"`  // part of the object that is stored
	Columns  map[string]string `json:"columns"` // cells of kubectl get
	Proves   []string          `json:"proves"`

	file string
	line int // the first of the document
}

// citation is the line of "proves" in the file.
func (c *testCase) citation(doc string) int {
	before, _, _ := strings.Cut("\n"+doc, "\nproves:")
	return c.line + strings.Count(before, "\n")
}

func TestCases(t *testing.T) {
	files, err := filepath.Glob("testdata/cases/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		bases := map[string]json.RawMessage{}
		line := 1
		for i, doc := range strings.Split(string(text), "\n---\n") {
			c := testCase{file: file, line: line}
			line += strings.Count(doc, "\n") + 2
			if err := yaml.UnmarshalStrict([]byte(doc), &c); err != nil {
				t.Fatalf("%s, document %d: %v\n%s", file, i+1, err, doc)
			}
			if c.Object != nil {
				bases[c.Base] = c.Object
				continue
			}
			name := strings.TrimSuffix(filepath.Base(file), ".yaml") + "/" + c.Name
			t.Run(name, func(t *testing.T) {
				if len(c.Proves) > 0 {
					trace.ProvesAt(t, c.file, c.citation(doc), c.Proves...)
				}
				c.run(t, bases)
			})
		}
	}
}

func (c *testCase) run(t *testing.T, bases map[string]json.RawMessage) {
	base := bases[c.Base]
	if c.Manifest != "" {
		base = readManifest(t, c.Manifest)
	}
	if base == nil {
		t.Fatalf("no base %q", c.Base)
	}
	obj, def, ver := decode(t, c.merged(t, base, c.Patch))
	if def.Namespaced && def.Stored() && obj.GetNamespace() == "" {
		base = json.RawMessage(inDefault(t, base))
		obj.SetNamespace("default") // as the server does
	}
	var old resource.Object
	if c.Update || c.Old != nil || c.Sub != "" {
		old, _, _ = decode(t, c.merged(t, base, c.Old))
		old = stored(t, old, def, ver)
		old.SetUID(uid)
		def.Prepare(old, nil)
		if c.Old != nil {
			keepStatus(t, old, c.Old) // as a controller would have set it
		}
		old.SetResourceVersion("7")
		obj.SetResourceVersion("7")
	}
	if def.Stored() {
		obj.SetUID(uid)
	}
	obj = stored(t, obj, def, ver)
	errs := resource.NewErrors()
	validate, prepare := def.Validate, def.Prepare
	if ver != nil {
		validate, prepare = ver.Validate, ver.Prepare
	}
	if c.Sub != "" {
		sub := def.Subresource(c.Sub)
		sub.Merge(obj, old)
		if sub.Validate != nil {
			validate = sub.Validate
		}
	} else if c.Columns == nil { // cells are of stored objects, with a status
		prepare(obj, old)
	}
	if def.Stored() {
		resource.ValidateMeta(obj, old, def, errs)
	}
	validate(obj, old, errs)
	c.checkErrors(t, errs)
	c.checkObject(t, obj, def, ver)
	if c.Warnings != nil {
		if old != nil {
			obj.SetGeneration(old.GetGeneration() + 1)
		}
		c.checkWarnings(t, def.Warn(obj, old))
	}
}

func (c *testCase) checkErrors(t *testing.T, errs *resource.Errors) {
	t.Helper()
	var got []string
	for _, e := range errs.List() {
		got = append(got, e.Error())
	}
	// Errors of labels come in the order of a map.
	slices.Sort(got)
	slices.Sort(c.Errors)
	if !slices.Equal(got, c.Errors) {
		t.Errorf("errors:\ngot:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(c.Errors, "\n  "))
	}
}

func (c *testCase) checkWarnings(t *testing.T, got []string) {
	t.Helper()
	if !slices.Equal(got, c.Warnings) {
		t.Errorf("warnings:\ngot:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(c.Warnings, "\n  "))
	}
}

func (c *testCase) checkObject(t *testing.T, obj resource.Object, def *resource.Def, ver *resource.VersionDef) {
	t.Helper()
	contains(t, "stored", toMap(t, obj), c.Stored)
	for name, want := range c.Columns {
		if got, ok := cell(def, obj, name); !ok || got != want {
			t.Errorf("column %s: got %q, want %q", name, got, want)
		}
	}
	if ver != nil {
		shown, err := ver.From(obj)
		if err != nil {
			t.Fatalf("From: %v", err)
		}
		obj = shown
	}
	contains(t, "object", toMap(t, obj), c.Want)
}

func (c *testCase) merged(t *testing.T, base, patch json.RawMessage) []byte {
	t.Helper()
	out := []byte(base)
	for _, p := range [][]byte{patch, c.versionPatch()} {
		if p == nil {
			continue
		}
		merged, err := jsonpatch.MergePatch(out, p)
		if err != nil {
			t.Fatal(err)
		}
		out = merged
	}
	return out
}

func inDefault(t *testing.T, base []byte) []byte {
	t.Helper()
	out, err := jsonpatch.MergePatch(base, []byte(`{"metadata":{"namespace":"default"}}`))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (c *testCase) versionPatch() []byte {
	if c.Version == "" {
		return nil
	}
	return fmt.Appendf(nil, `{"apiVersion":%q}`, c.Version)
}

// decode reads an object strictly, and finds what it is.
func decode(t *testing.T, data []byte) (resource.Object, *resource.Def, *resource.VersionDef) {
	t.Helper()
	var meta metav1.TypeMeta
	if err := json.Unmarshal(data, &meta); err != nil {
		t.Fatal(err)
	}
	gvk := schema.FromAPIVersionAndKind(meta.APIVersion, meta.Kind)
	for _, def := range api.All() {
		if def.GVK() == gvk {
			return fill(t, def.New(), data), def, nil
		}
		for i := range def.Versions {
			v := &def.Versions[i]
			if v.Group == gvk.Group && v.Version == gvk.Version && def.Kind == gvk.Kind {
				return fill(t, v.New(), data), def, v
			}
		}
	}
	t.Fatalf("no resource %v", gvk)
	return nil, nil, nil
}

func fill(t *testing.T, obj resource.Object, data []byte) resource.Object {
	t.Helper()
	strict, err := kjson.UnmarshalStrict(data, obj)
	if err != nil || len(strict) > 0 {
		t.Fatalf("%v %v in %s", err, strict, data)
	}
	return obj
}

// stored defaults an object and converts it to what is stored.
func stored(t *testing.T, obj resource.Object, def *resource.Def, ver *resource.VersionDef) resource.Object {
	t.Helper()
	if ver != nil {
		ver.Default(obj)
		out, err := ver.To(obj)
		if err != nil {
			t.Fatalf("To: %v", err)
		}
		obj = out
	}
	def.Default(obj)
	return obj
}

func keepStatus(t *testing.T, obj resource.Object, patch []byte) {
	t.Helper()
	var only struct {
		Status json.RawMessage `json:"status,omitempty"`
	}
	if err := json.Unmarshal(patch, &only); err != nil {
		t.Fatal(err)
	}
	if only.Status != nil {
		data, err := json.Marshal(only)
		if err != nil {
			t.Fatal(err)
		}
		fill(t, obj, data)
	}
}

const uid = "8a3f8a3c-1f0e-4a07-9b5c-6f8f0f6d3a11"

func readManifest(t *testing.T, name string) json.RawMessage {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(manifests, name))
	if err != nil {
		t.Fatal(err)
	}
	data, err := yaml.YAMLToJSON(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return data
}

func cell(def *resource.Def, obj resource.Object, name string) (string, bool) {
	for _, c := range def.Columns {
		if c.Name == name {
			return fmt.Sprint(c.Value(obj)), true
		}
	}
	return "", false
}

// manifests has the objects that the requirements' documents show.
const manifests = "../../docs/requirements/manifests"

// notObjects are the manifests that are no object of a built-in kind.
var notObjects = map[string]string{
	"3.4-runtimeclass-myclass.yaml":                "node.k8s.io/v1beta1 is not served",
	"4.1.3-readiness-gate-fragment.yaml":           "a fragment",
	"4.1.5-default-constraints-reconstructed.yaml": "a configuration file of the scheduler",
	"5.2-topology-node-only.yaml":                  "has a field that is gone",
	"5.2-topology-node-zone-region-any.yaml":       "has a field that is gone",
	"5.2-topology-prefer-node.yaml":                "has a field that is gone",
	"5.2-topology-zone-or-region.yaml":             "has a field that is gone",
	"5.6-ingress-tls-secret.yaml":                  "has words in the place of data",
	"5.10-dual-stack-ipv4-svc.yaml":                "has a field that is gone",
	"5.10-dual-stack-ipv6-svc.yaml":                "has a field that is gone",
}

// refused are the manifests that the server must not take, and why.
var refused = map[string][]string{
	"7-ex7-strategy-merged-invalid.yaml": {
		"spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'",
	},
	"7-ex8-controller-selector.yaml": {
		`spec.selector.matchLabels: Invalid value: "extensions/v1beta1/deployment/nginx": ` + labelValueRule,
		`spec.selector: Invalid value: {"matchLabels":{"controller-selector":"extensions/v1beta1/deployment/nginx"}}: invalid label selector`,
		`spec.template.labels: Invalid value: "extensions/v1beta1/deployment/nginx": ` + labelValueRule,
	},
}

const labelValueRule = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character " +
	"(e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"

func TestManifestsOfTheDocumentsAreAccepted(t *testing.T) {
	trace.Proves(t, "RS-013", "DEP-093")
	files, err := filepath.Glob(filepath.Join(manifests, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, doc := range strings.Split(string(text), "\n---\n") {
			t.Run(filepath.Base(file), func(t *testing.T) {
				if why := notObjects[filepath.Base(file)]; why != "" {
					t.Skip(why)
				}
				data, err := yaml.YAMLToJSON([]byte(doc))
				if err != nil {
					t.Fatal(err)
				}
				var kind metav1.TypeMeta
				if err := json.Unmarshal(data, &kind); err != nil || kind.Kind == "" {
					t.Skip("not an object")
				}
				got := refusals(t, data)
				if want := refused[filepath.Base(file)]; !slices.Equal(got, want) {
					t.Errorf("got:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
				}
			})
		}
	}
}

// refusals creates an object and lists what is wrong with it.
func refusals(t *testing.T, data []byte) []string {
	t.Helper()
	obj, def, ver := decode(t, data)
	if def.Namespaced && obj.GetNamespace() == "" {
		obj.SetNamespace("default")
	}
	obj = stored(t, obj, def, ver)
	obj.SetUID(uid)
	def.Prepare(obj, nil)
	errs := resource.NewErrors()
	resource.ValidateMeta(obj, nil, def, errs)
	def.Validate(obj, nil, errs)
	var texts []string
	for _, e := range errs.List() {
		texts = append(texts, e.Error())
	}
	return texts
}

func toMap(t *testing.T, obj runtime.Object) any {
	t.Helper()
	var out any
	if err := json.Unmarshal([]byte(toJSON(obj)), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// contains fails where got has not all of want. A null in want must not be there.
func contains(t *testing.T, path string, got, want any) {
	t.Helper()
	switch w := want.(type) {
	case nil:
	case map[string]any:
		g, _ := got.(map[string]any)
		for k, v := range w {
			if v == nil {
				if g[k] != nil {
					t.Errorf("%s.%s: got %v, want nothing", path, k, g[k])
				}
				continue
			}
			if _, ok := g[k]; !ok {
				t.Errorf("%s.%s: got nothing, want %v", path, k, v)
				continue
			}
			contains(t, path+"."+k, g[k], v)
		}
	case []any:
		g, _ := got.([]any)
		if len(g) != len(w) {
			t.Errorf("%s: got %d items, want %d", path, len(g), len(w))
			return
		}
		for i := range w {
			contains(t, fmt.Sprintf("%s[%d]", path, i), g[i], w[i])
		}
	default:
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v, want %v", path, got, want)
		}
	}
}

func TestAgesArePrintedAsKubectlDoes(t *testing.T) {
	def := api.All()[0]
	obj := def.New()
	obj.SetCreationTimestamp(metav1.NewTime(time.Now().Add(-90 * time.Second)))
	if got, _ := cell(def, obj, "Age"); got != "90s" {
		t.Errorf("got %q, want 90s", got)
	}
	if got, _ := cell(def, def.New(), "Age"); got != "<unknown>" {
		t.Errorf("got %q, want <unknown>", got)
	}
}
