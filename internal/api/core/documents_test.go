package core_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/texttest"
	"github.com/kemudi/kemudi/internal/trace"
)

// defs are the kinds of the core group by name.
var defs = func() map[string]*resource.Def {
	kinds := map[string]*resource.Def{}
	for _, d := range []*resource.Def{
		core.Bindings.Def, core.ConfigMaps.Def, core.Endpoints.Def, core.Events.Def, core.LimitRanges.Def, core.Namespaces.Def,
		core.Nodes.Def, core.PersistentVolumeClaims.Def, core.PersistentVolumes.Def, core.PodTemplates.Def, core.Pods.Def,
		core.ReplicationControllers.Def, core.ResourceQuotas.Def, core.Secrets.Def, core.ServiceAccounts.Def, core.Services.Def,
	} {
		kinds[d.Kind] = d
	}
	return kinds
}()

// created runs what the server does with a new object, without storing it.
func created(def *resource.Def, obj resource.Object) *resource.Errors {
	if def.Namespaced && obj.GetNamespace() == "" {
		obj.SetNamespace("default")
	}
	errs := resource.NewErrors()
	def.Default(obj)
	def.Prepare(obj, nil)
	resource.ValidateMeta(obj, nil, def, errs)
	def.Validate(obj, nil, errs)
	return errs
}

// refused are the documents that do not apply as printed, and what is said of them.
var refused = map[string]string{
	"4.1.3-readiness-gate-fragment.yaml": "metadata.name: Required value",
	"5.6-ingress-tls-secret.yaml":        "illegal base64",

	"5.2-topology-node-only.yaml":            `unknown field "topologyKeys"`,
	"5.2-topology-node-zone-region-any.yaml": `unknown field "topologyKeys"`,
	"5.2-topology-prefer-node.yaml":          `unknown field "topologyKeys"`,
	"5.2-topology-zone-or-region.yaml":       `unknown field "topologyKeys"`,
	"5.10-dual-stack-ipv4-svc.yaml":          `unknown field "ipFamily"`,
	"5.10-dual-stack-ipv6-svc.yaml":          `unknown field "ipFamily"`,
}

func TestDocumentsApplyAsTheySay(t *testing.T) {
	trace.Proves(t, "TSC-004", "PLC-050", "IMG-054", "RTC-011")
	files, err := filepath.Glob("../../../docs/requirements/manifests/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no documents: %v", err)
	}
	applied := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, doc := range strings.Split(string(text), "\n---\n") {
			var meta metav1.TypeMeta
			if err := yaml.Unmarshal([]byte(doc), &meta); err != nil || meta.Kind == "" {
				continue
			}
			if def := defs[meta.Kind]; def != nil && (meta.APIVersion == "v1" || meta.APIVersion == "") {
				applied++
				t.Run(fmt.Sprintf("%s/%d", filepath.Base(file), i), func(t *testing.T) { apply(t, def, doc, refused[filepath.Base(file)]) })
			}
		}
	}
	if applied < 40 {
		t.Errorf("applied %d documents, want at least 40", applied)
	}
}

func apply(t *testing.T, def *resource.Def, doc, want string) {
	obj := def.New()
	var got string
	if err := yaml.UnmarshalStrict([]byte(doc), obj); err != nil {
		got = err.Error()
	} else if errs := created(def, obj); errs.Len() > 0 {
		got = errs.List().ToAggregate().Error()
	}
	if want == "" && got != "" || !strings.Contains(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// golden reads one of the serialized objects in the module of the API types.
func golden(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(texttest.ModuleDir(t, "k8s.io/api"), "testdata", "HEAD", file))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestWireFormsOfEveryKindAgree(t *testing.T) {
	for kind, def := range defs {
		t.Run(kind, func(t *testing.T) {
			text := golden(t, "core.v1."+kind+".json")
			fromJSON, fromProto := def.New(), def.New()
			if err := json.Unmarshal(text, fromJSON); err != nil {
				t.Fatal(err)
			}
			binary := golden(t, "core.v1."+kind+".pb")
			var envelope runtime.Unknown
			if err := envelope.Unmarshal(bytes.TrimPrefix(binary, []byte("k8s\x00"))); err != nil {
				t.Fatal(err)
			}
			if err := fromProto.(interface{ Unmarshal([]byte) error }).Unmarshal(envelope.Raw); err != nil {
				t.Fatal(err)
			}
			fromProto.GetObjectKind().SetGroupVersionKind(def.GVK())
			if !equality.Semantic.DeepEqual(fromJSON, fromProto) {
				t.Errorf("%s: JSON and protobuf differ", kind)
			}
			again, err := json.MarshalIndent(fromJSON, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(bytes.TrimSpace(again), bytes.TrimSpace(text)) {
				t.Errorf("%s: JSON is not written as it was read", kind)
			}
		})
	}
}

func TestFullObjectsPassThroughEveryFunction(t *testing.T) {
	for kind, def := range defs {
		t.Run(kind, func(t *testing.T) {
			obj := def.New()
			if err := json.Unmarshal(golden(t, "core.v1."+kind+".json"), obj); err != nil {
				t.Fatal(err)
			}
			def.Default(obj)
			once := obj.DeepCopyObject().(resource.Object)
			def.Default(obj)
			if !equality.Semantic.DeepEqual(once, obj) {
				t.Error("defaults change what has them already")
			}
			old := obj.DeepCopyObject().(resource.Object)
			def.Validate(obj, nil, resource.NewErrors())
			def.Validate(obj, old, resource.NewErrors())
			def.Warn(obj, old)
			for _, sub := range def.Sub {
				if sub.Merge == nil {
					continue
				}
				obj := obj.DeepCopyObject().(resource.Object)
				sub.Merge(obj, old)
				if sub.Validate != nil {
					sub.Validate(obj, old, resource.NewErrors())
				}
			}
			if !equality.Semantic.DeepEqual(old, once) {
				t.Error("the stored object was changed")
			}
			for _, c := range def.Columns {
				c.Value(obj)
			}
			for _, f := range def.Fields {
				f(obj)
			}
		})
	}
}

// A field path in an error must be one that people know.
var oddPath = regexp.MustCompile(`\.\.|\.\[|^\.|\.$`)

func TestPathsOfErrorsAreWellFormed(t *testing.T) {
	for kind, def := range defs {
		obj := def.New()
		if err := json.Unmarshal(golden(t, "core.v1."+kind+".json"), obj); err != nil {
			t.Fatal(err)
		}
		errs := resource.NewErrors()
		def.Validate(obj, nil, errs)
		for _, e := range errs.List() {
			if oddPath.MatchString(e.Field) {
				t.Errorf("%s: field path %q of %q", kind, e.Field, e.Error())
			}
		}
	}
	if !scheme.Scheme.IsVersionRegistered(core.Pods.GVK().GroupVersion()) {
		t.Fatal("core/v1 is not what clients know")
	}
}
