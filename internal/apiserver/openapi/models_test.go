//go:build !race

package openapi

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	apiextensionsopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationv1beta1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1beta1"
	aggregatoropenapi "k8s.io/kube-aggregator/pkg/generated/openapi"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/schemaconv"
	"k8s.io/kube-openapi/pkg/validation/spec"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	"k8s.io/utils/ptr"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"

	"github.com/kemudi/kemudi/internal/api"
	"github.com/kemudi/kemudi/internal/apiserver/openapi/markers"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/texttest"
)

// TestModelsAreThoseOfTheSources makes the schemas anew from the sources of their types.
func TestModelsAreThoseOfTheSources(t *testing.T) {
	made, err := markers.Read(described(t), sourcesOf(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, def := range api.All() {
		addOldFields(t, made, def)
	}
	text := map[string]map[string]*spec.Schema{"schemas": made.Schemas, "swagger": made.Swagger}
	var want bytes.Buffer
	if err := json.NewEncoder(&want).Encode(text); err != nil {
		t.Fatal(err)
	}
	const file = "zz_models.json.gz"
	if *texttest.Update {
		var b bytes.Buffer
		z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
		_, _ = z.Write(want.Bytes())
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	all, err := readModels()
	if err != nil {
		t.Fatal(err)
	}
	for kind, have := range map[string]map[string]json.RawMessage{"schemas": all.Schemas, "swagger": all.Swagger} {
		if got, want := slices.Sorted(maps.Keys(have)), slices.Sorted(maps.Keys(text[kind])); !slices.Equal(got, want) {
			t.Errorf("%s has the %s %v, want %v: run go generate", file, kind, got, want)
		}
		for name, s := range text[kind] {
			if got, want := string(have[name]), asText(t, s); got != want {
				t.Errorf("%s: got of %s %s\nwant %s: run go generate", file, name, got, want)
			}
		}
	}
}

func asText(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// described are the types that documents describe.
func described(t *testing.T) []reflect.Type {
	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		scheme.AddToScheme, apiextensionsv1.AddToScheme, apiextensionsv1beta1.AddToScheme, apiregistrationv1.AddToScheme, apiregistrationv1beta1.AddToScheme, metricsv1beta1.AddToScheme,
	} {
		if err := add(known); err != nil {
			t.Fatal(err)
		}
	}
	types := []reflect.Type{
		reflect.TypeFor[metav1.Status](), reflect.TypeFor[metav1.APIVersions](), reflect.TypeFor[metav1.APIGroup](), reflect.TypeFor[metav1.APIGroupList](),
		reflect.TypeFor[metav1.APIResourceList](), reflect.TypeFor[metav1.DeleteOptions](), reflect.TypeFor[metav1.WatchEvent](), reflect.TypeFor[metav1.Patch](),
		reflect.TypeFor[version.Info](), reflect.TypeFor[corev1.PodLogOptions](),
	}
	for gv, kinds := range served(api.All()) {
		for i := range kinds {
			k := &kinds[i]
			types = append(types, k.typ)
			if list, err := known.New(gv.WithKind(k.listKind())); err == nil {
				types = append(types, typeOf(list))
			}
			for j := range k.subs {
				if b := k.subs[j].Body; b != nil {
					types = append(types, typeOf(b.New()))
				}
			}
		}
	}
	return types
}

// sourcesOf finds the sources of packages.
func sourcesOf(t *testing.T) func(pkg string) (string, error) {
	return func(pkg string) (string, error) {
		if rest, ours := strings.CutPrefix(pkg, "github.com/kemudi/kemudi/"); ours {
			return filepath.Join("../../..", rest), nil
		}
		parts := strings.SplitN(pkg, "/", 3)
		return filepath.Join(texttest.ModuleDir(t, parts[0]+"/"+parts[1]), strings.Join(parts[2:], "")), nil
	}
}

// addOldFields adds the fields of earlier releases that documents of a kind may have: clients refuse to
// compare documents with fields that they find no schema of.
func addOldFields(t *testing.T, m *markers.Models, def *resource.Def) {
	for _, f := range def.OldFields {
		at := m.Schemas[modelName(typeOf(def.New()))]
		for _, name := range f.Path[:len(f.Path)-1] {
			at = m.Schemas[strings.TrimPrefix(at.Properties[name].AllOf[0].Ref.String(), prefix3)]
		}
		p := spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"string"}}}
		if f.Type.Kind() == reflect.Slice {
			items := p
			p = spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"array"}, Items: &spec.SchemaOrArray{Schema: &items}}}
			p.AddExtension("x-kubernetes-list-type", "atomic")
		}
		p.Description = f.Description
		at.Properties[f.Path[len(f.Path)-1]] = p
	}
}

// TestModelsAreThoseOfUpstreamsGenerator compares with what upstream's generator has made of the types
// of two modules, in which its output is.
func TestModelsAreThoseOfUpstreamsGenerator(t *testing.T) {
	all, err := readModels()
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	ref := func(name string) spec.Ref { return spec.MustCreateRef(prefix3 + name) }
	for _, definitions := range []map[string]common.OpenAPIDefinition{apiextensionsopenapi.GetOpenAPIDefinitions(ref), aggregatoropenapi.GetOpenAPIDefinitions(ref)} {
		for name, d := range definitions {
			have := all.Schemas[name]
			if have == nil {
				continue // of a kind that is not served
			}
			compared++
			if v2, ok := d.Schema.Extensions[common.ExtensionV2Schema].(spec.Schema); ok {
				delete(d.Schema.Extensions, common.ExtensionV2Schema)
				if got, want := string(all.Swagger[name]), asText(t, v2); got != want {
					t.Errorf("version 2 of %s: got %s\nwant %s", name, got, want)
				}
			}
			var got spec.Schema
			if err := json.Unmarshal(have, &got); err != nil {
				t.Fatal(err)
			}
			unwrap(&got)
			sameProperties(t, name, &got, &d.Schema)
		}
	}
	if compared < 90 {
		t.Errorf("got %d schemas to compare, want 90", compared)
	}
}

// unwrap puts references where upstream's generator has them.
func unwrap(s *spec.Schema) {
	for name, p := range s.Properties {
		if len(p.AllOf) == 1 {
			p.Ref, p.AllOf = p.AllOf[0].Ref, nil
			s.Properties[name] = p
		}
	}
}

// sameProperties compares two schemas property by property.
func sameProperties(t *testing.T, name string, got, want *spec.Schema) {
	t.Helper()
	for field, w := range want.Properties {
		g, ok := got.Properties[field]
		if g, w := asText(t, g), asText(t, w); !ok || g != w {
			t.Errorf("%s of %s: got %s\nwant %s", field, name, g, w)
		}
	}
	for field := range got.Properties {
		if _, ok := want.Properties[field]; !ok {
			t.Errorf("%s has %s, which upstream has not", name, field)
		}
	}
	g, w := *got, *want
	g.Properties, w.Properties = nil, nil
	if g, w := asText(t, g), asText(t, w); g != w {
		t.Errorf("%s: got %s\nwant %s", name, g, w)
	}
}

// TestModelsAreThoseThatApplyUses holds the schemas against those by which server-side apply merges and client-go makes
// its apply configurations: list types and keys, maps and structs that are replaced whole, defaults.
func TestModelsAreThoseThatApplyUses(t *testing.T) {
	all, err := readModels()
	if err != nil {
		t.Fatal(err)
	}
	models := map[string]*spec.Schema{}
	for name, text := range all.Schemas {
		models[name] = &spec.Schema{}
		if err := json.Unmarshal(text, models[name]); err != nil {
			t.Fatal(err)
		}
	}
	ours, err := schemaconv.ToSchemaFromOpenAPI(models, false)
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{}
	pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	known, err := applyconfigurations.NewTypeConverter(scheme.Scheme).ObjectToTyped(pod)
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, want := range known.Schema().Types {
		if all.Schemas[want.Name] == nil {
			continue // of a kind that is not served
		}
		if want.Name == "io.k8s.apimachinery.pkg.runtime.RawExtension" || want.Name == "io.k8s.apimachinery.pkg.util.intstr.IntOrString" {
			continue // any object and any scalar, which the two name by different words
		}
		got, ok := ours.FindNamedType(want.Name)
		if !ok {
			t.Errorf("%s: there is none", want.Name)
			continue
		}
		compared++
		inOneOrder(&got)
		inOneOrder(&want)
		got = withoutDeviations(got)
		unions := unionsOf(models[want.Name])
		if want.Map == nil {
			if g, w := asText(t, got), asText(t, want); g != w {
				t.Errorf("%s: got %s, want %s", want.Name, g, w)
			}
			continue
		}
		if g, w := asText(t, unions), asText(t, want.Map.Unions); g != w {
			t.Errorf("%s: got unions %s, want %s", want.Name, g, w)
		}
		if g, w := asText(t, got.Map.ElementRelationship), asText(t, want.Map.ElementRelationship); g != w {
			t.Errorf("%s: got relationship %s, want %s", want.Name, g, w)
		}
		for i, w := range want.Map.Fields {
			g := got.Map.Fields[min(i, len(got.Map.Fields)-1)]
			if g, w := asText(t, g), asText(t, w); g != w {
				t.Errorf("%s: got %s, want %s", want.Name, g, w)
				break
			}
		}
		if g, w := len(got.Map.Fields), len(want.Map.Fields); g != w {
			t.Errorf("%s: got %d fields, want %d", want.Name, g, w)
		}
	}
	if compared < 500 {
		t.Errorf("got %d schemas to compare, want 500", compared)
	}
}

// unionsOf are the unions that a schema says there are.
func unionsOf(s *spec.Schema) (out []smd.Union) {
	list, _ := s.Extensions["x-kubernetes-unions"].([]any)
	for _, entry := range list {
		said, _ := entry.(map[string]any)
		u := smd.Union{}
		if d, ok := said["discriminator"].(string); ok {
			u.Discriminator = &d
		}
		fields, _ := said["fields-to-discriminateBy"].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			u.Fields = append(u.Fields, smd.UnionField{FieldName: name, DiscriminatorValue: fmt.Sprint(fields[name])})
		}
		out = append(out, u)
	}
	return out
}

// inOneOrder also writes defaults as texts: the two schemas have numbers and maps of different Go types.
func inOneOrder(d *smd.TypeDef) {
	if d.Map == nil {
		return
	}
	fields := slices.Clone(d.Map.Fields)
	slices.SortFunc(fields, func(a, b smd.StructField) int { return strings.Compare(a.Name, b.Name) })
	for i := range fields {
		// The library reads a reference to any object as what it is.
		if name := fields[i].Type.NamedType; name != nil && *name == "io.k8s.apimachinery.pkg.runtime.RawExtension" {
			fields[i].Type.NamedType = ptr.To("__untyped_atomic_")
		}
		if fields[i].Default != nil {
			fields[i].Default = fmt.Sprint(fields[i].Default)
		}
	}
	d.Map.Fields = fields
}

// withoutDeviations takes away what our schemas have and upstream's have not: fields of earlier releases.
func withoutDeviations(d smd.TypeDef) smd.TypeDef {
	if d.Name != "io.k8s.api.core.v1.ServiceSpec" {
		return d
	}
	d.Map.Fields = slices.DeleteFunc(slices.Clone(d.Map.Fields), func(f smd.StructField) bool { return f.Name == "topologyKeys" || f.Name == "ipFamily" })
	return d
}

// TestQueriesAreDescribedAsUpstream holds what is said of the query parameters of connections against what the types say, which
// is where upstream has it from.
func TestQueriesAreDescribedAsUpstream(t *testing.T) {
	all, err := readModels()
	if err != nil {
		t.Fatal(err)
	}
	s := newSchemas(3, all, nil)
	for _, obj := range []interface{ SwaggerDoc() map[string]string }{
		corev1.PodLogOptions{}, corev1.PodExecOptions{}, corev1.PodAttachOptions{}, corev1.PodPortForwardOptions{}, corev1.PodProxyOptions{}, corev1.NodeProxyOptions{}, corev1.ServiceProxyOptions{},
	} {
		for _, p := range s.connectQuery(reflect.TypeOf(obj)) {
			if want := obj.SwaggerDoc()[p.name]; p.doc != want {
				t.Errorf("%T: got of %s %q, want %q", obj, p.name, p.doc, want)
			}
		}
	}
}

// TestEveryKindHasAModel holds that no kind is described as an object of which nothing is known.
func TestEveryKindHasAModel(t *testing.T) {
	all, err := readModels()
	if err != nil {
		t.Fatal(err)
	}
	for _, typ := range described(t) {
		if all.Schemas[modelName(typ)] == nil {
			t.Errorf("%s: there is no schema of it: run go generate", typ)
		}
	}
	for gv := range served(api.All()) {
		if gv == (schema.GroupVersion{}) {
			t.Error("a kind has no version")
		}
	}
}
