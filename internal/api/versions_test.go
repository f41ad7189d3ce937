package api_test

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	appsv1beta1 "k8s.io/api/apps/v1beta1"
	appsv1beta2 "k8s.io/api/apps/v1beta2"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	discoveryv1beta1 "k8s.io/api/discovery/v1beta1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	flowcontrolv1beta3 "k8s.io/api/flowcontrol/v1beta3"
	networkingv1 "k8s.io/api/networking/v1"
	networkingv1beta1 "k8s.io/api/networking/v1beta1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/equality"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/randfill"

	"github.com/kemudi/kemudi/internal/api"
	"github.com/kemudi/kemudi/internal/api/apiextensions"
	"github.com/kemudi/kemudi/internal/api/apiregistration"
	"github.com/kemudi/kemudi/internal/api/metrics"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/texttest"
	"github.com/kemudi/kemudi/internal/trace"
)

// eachVersion runs a test for every further version of every resource.
func eachVersion(t *testing.T, run func(t *testing.T, def *resource.Def, v *resource.VersionDef)) {
	t.Helper()
	ran := 0
	for _, def := range api.All() {
		for i := range def.Versions {
			v := &def.Versions[i]
			t.Run(fmt.Sprintf("%s/%s/%s", v.Group, v.Version, def.Kind), func(t *testing.T) { run(t, def, v) })
			ran++
		}
	}
	if ran < 25 {
		t.Errorf("there are %d further versions, want at least 25", ran)
	}
}

// goldenDirs are the folders of serialized objects in the module of the API
// types, the newest first.
func goldenDirs(t *testing.T) []string {
	t.Helper()
	pattern := filepath.Join(texttest.ModuleDir(t, "k8s.io/api"), "testdata", "*")
	dirs, err := filepath.Glob(pattern)
	if err != nil || len(dirs) == 0 {
		t.Fatalf("there is no %s: %v", pattern, err)
	}
	return dirs
}

func TestLegacyGoldenFilesSurviveConversion(t *testing.T) {
	dirs := goldenDirs(t)
	eachVersion(t, func(t *testing.T, def *resource.Def, v *resource.VersionDef) {
		switch def.Group {
		case metrics.Pods.Def.Group, apiextensions.CustomResourceDefinitions.Def.Group, apiregistration.APIServices.Def.Group:
			return // of other modules, which have none
		}
		found := 0
		for _, dir := range dirs {
			group := v.Group
			if group == "" {
				group = "core"
			}
			name := filepath.Join(dir, fmt.Sprintf("%s.%s.%s", group, v.Version, def.Kind))
			text, err := os.ReadFile(name + ".json")
			if err != nil {
				continue // not every version is in every release
			}
			found++
			fromJSON := v.New()
			if err := json.Unmarshal(text, fromJSON); err != nil {
				t.Fatalf("%s.json: %v", name, err)
			}
			if _, ok := fromJSON.(resource.Wire); !ok { // a type of our own, for one that the libraries have dropped
				roundTrip(t, v, fromJSON)
				continue
			}
			fromProto := readProto(t, name+".pb", v.New())
			if toJSON(fromJSON) != toJSON(fromProto) {
				t.Errorf("%s: JSON and protobuf differ", name)
			}
			roundTrip(t, v, fromJSON)
			roundTrip(t, v, fromProto)
		}
		if found == 0 {
			t.Errorf("no golden file for %s/%s %s", v.Group, v.Version, def.Kind)
		}
	})
}

func readProto(t *testing.T, name string, into resource.Object) resource.Object {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var unknown runtime.Unknown
	if err := unknown.Unmarshal(data[len("k8s\x00"):]); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if err := into.(resource.Wire).Unmarshal(unknown.Raw); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	into.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(unknown.APIVersion, unknown.Kind))
	return into
}

// roundTrip converts an object of a further version to storage and back.
func roundTrip(t *testing.T, v *resource.VersionDef, obj resource.Object) {
	t.Helper()
	want := obj.DeepCopyObject().(resource.Object)
	normalize(want)
	stored, err := v.To(obj)
	if err != nil {
		t.Fatalf("To: %v", err)
	}
	before := stored.DeepCopyObject()
	got, err := v.From(stored)
	if err != nil {
		t.Fatalf("From: %v", err)
	}
	if !reflect.DeepEqual(stored, before) {
		t.Errorf("From changed the stored object")
	}
	want.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	got.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	if !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("after a round trip:\ngot:  %s\nwant: %s", toJSON(got), toJSON(want))
	}
}

func toJSON(obj any) string {
	data, err := json.Marshal(obj)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// normalize takes away what a version is known not to keep, each with its reason.
func normalize(obj resource.Object) {
	switch o := obj.(type) {
	case *appsv1beta1.Deployment:
		delete(o.Annotations, appsv1.DeprecatedRollbackTo) // a client has the field for it
	case *extensionsv1beta1.Deployment:
		delete(o.Annotations, appsv1.DeprecatedRollbackTo)
	case *extensionsv1beta1.DaemonSet:
		delete(o.Annotations, appsv1.DeprecatedTemplateGeneration)
	case *appsv1beta1.StatefulSet:
		if o.Status.ObservedGeneration == nil { // v1 has no "not observed yet" besides 0
			o.Status.ObservedGeneration = new(int64)
		}
		typed(o.Spec.VolumeClaimTemplates)
	case *appsv1beta2.StatefulSet:
		typed(o.Spec.VolumeClaimTemplates)
	case *resourcev1beta1.ResourceSlice:
		for i := range o.Spec.Devices {
			if o.Spec.Devices[i].Basic == nil { // not valid
				o.Spec.Devices[i].Basic = &resourcev1beta1.BasicDevice{}
			}
		}
	case *networkingv1beta1.Ingress:
		if o.Spec.Backend != nil {
			namedPort(&o.Spec.Backend.ServicePort)
		}
		for _, r := range o.Spec.Rules {
			for i := range ptr.Deref(r.HTTP, networkingv1beta1.HTTPIngressRuleValue{}).Paths {
				namedPort(&r.HTTP.Paths[i].Backend.ServicePort)
			}
		}
	case *extensionsv1beta1.Ingress:
		if o.Spec.Backend != nil {
			namedPort(&o.Spec.Backend.ServicePort)
		}
		for _, r := range o.Spec.Rules {
			for i := range ptr.Deref(r.HTTP, extensionsv1beta1.HTTPIngressRuleValue{}).Paths {
				namedPort(&r.HTTP.Paths[i].Backend.ServicePort)
			}
		}
	case *certificatesv1beta1.CertificateSigningRequest: // the default gives every one a signer
		if o.Spec.SignerName == nil {
			o.Spec.SignerName = new("")
		}
	case *flowcontrolv1beta3.PriorityLevelConfiguration: // a zero that is meant is marked, and nothing else
		delete(o.Annotations, flowcontrolv1beta3.PriorityLevelPreserveZeroConcurrencySharesKey)
		if o.Spec.Limited != nil && o.Spec.Limited.NominalConcurrencyShares == 0 {
			metav1.SetMetaDataAnnotation(&o.ObjectMeta, flowcontrolv1beta3.PriorityLevelPreserveZeroConcurrencySharesKey, "")
		}
	case *discoveryv1beta1.EndpointSlice:
		for i := range o.Endpoints {
			e := &o.Endpoints[i]
			if e.NodeName != nil && e.Topology["kubernetes.io/hostname"] == "" {
				if e.Topology == nil {
					e.Topology = map[string]string{}
				}
				e.Topology["kubernetes.io/hostname"] = *e.NodeName // shown in both places
			}
		}
	}
}

// namedPort: a port of an empty name is none, and so is that of the number zero.
func namedPort(p *intstr.IntOrString) {
	if p.Type == intstr.String && p.StrVal == "" {
		*p = intstr.IntOrString{}
	}
}

// typed: what claim templates are is always shown.
func typed(claims []corev1.PersistentVolumeClaim) {
	for i := range claims {
		claims[i].APIVersion, claims[i].Kind = "v1", "PersistentVolumeClaim"
	}
}

// filler fills objects with random values that the wire can carry.
func filler(seed int64) *randfill.Filler {
	codecs := serializer.NewCodecFactory(scheme.Scheme)
	funcs := fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, func(serializer.CodecFactory) []any {
		return []any{
			func(r *runtime.RawExtension, c randfill.Continue) { r.Raw = []byte(`{"a":"b"}`) },
			func(p *apiextensionsv1.JSONSchemaProps, c randfill.Continue) { p.Type = c.String(0) }, // they lie within each other
			func(o *metav1.ObjectMeta, c randfill.Continue) {
				c.FillNoCustom(o)
				o.CreationTimestamp, o.ManagedFields, o.DeletionTimestamp = metav1.Unix(1700000000, 0), nil, nil
			},
		}
	})
	return fuzzer.FuzzerFor(funcs, rand.NewSource(seed), codecs).NilChance(0.3).NumElements(0, 2)
}

// oneOrAll says that what a legacy version has for all versions of a kind together is the same as having
// it for each: that has tests of its own.
func oneOrAll(def *resource.Def) bool { return def == apiextensions.CustomResourceDefinitions.Def }

func TestRandomLegacyObjectsSurviveConversion(t *testing.T) {
	trace.Proves(t, "API-016")
	eachVersion(t, func(t *testing.T, def *resource.Def, v *resource.VersionDef) {
		if oneOrAll(def) {
			return
		}
		for seed := range int64(40) {
			obj := v.New()
			filler(seed).Fill(obj)
			roundTrip(t, v, throughWire(t, obj))
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}
	})
}

func TestRandomStoredObjectsSurviveConversion(t *testing.T) {
	eachVersion(t, func(t *testing.T, def *resource.Def, v *resource.VersionDef) {
		if oneOrAll(def) {
			return
		}
		for seed := range int64(40) {
			obj := def.New()
			filler(seed).Fill(obj)
			obj = throughWire(t, obj)
			keepable(obj)
			want := obj.DeepCopyObject()
			out, err := v.From(obj)
			if err != nil {
				t.Fatalf("From: %v", err)
			}
			if !reflect.DeepEqual(obj, want) {
				t.Fatalf("seed %d: From changed its argument", seed)
			}
			got, err := v.To(out)
			if err != nil {
				t.Fatalf("To: %v", err)
			}
			if !equality.Semantic.DeepEqual(got, want) {
				t.Fatalf("seed %d: after a round trip:\ngot:  %s\nwant: %s", seed, toJSON(got), toJSON(want))
			}
		}
	})
}

// keepable makes a random stored object one that could be stored.
func keepable(obj resource.Object) {
	switch o := obj.(type) {
	case *appsv1.DaemonSet: // the server always sets it
		o.Annotations = map[string]string{appsv1.DeprecatedTemplateGeneration: "3"}
	case *discoveryv1.EndpointSlice:
		for i := range o.Endpoints {
			delete(o.Endpoints[i].DeprecatedTopology, "kubernetes.io/hostname")
			delete(o.Endpoints[i].DeprecatedTopology, "topology.kubernetes.io/zone")
		}
	case *flowcontrolv1.PriorityLevelConfiguration: // the server always sets them
		if o.Spec.Limited != nil && o.Spec.Limited.NominalConcurrencyShares == nil {
			o.Spec.Limited.NominalConcurrencyShares = new(int32(30))
		}
	case *networkingv1.Ingress:
		if o.Spec.DefaultBackend != nil {
			keepableBackend(o.Spec.DefaultBackend)
		}
		for _, r := range o.Spec.Rules {
			for i := range ptr.Deref(r.HTTP, networkingv1.HTTPIngressRuleValue{}).Paths {
				keepableBackend(&r.HTTP.Paths[i].Backend)
			}
		}
	case *resourcev1.ResourceClaim:
		keepableRequests(o.Spec.Devices.Requests)
	case *resourcev1.ResourceClaimTemplate:
		keepableRequests(o.Spec.Spec.Devices.Requests)
	case *resourcev1.ResourceSlice: // v1beta1 has no such values, and v1 refuses them
		if ptr.Deref(o.Spec.NodeName, "") == "" {
			o.Spec.NodeName = nil
		}
		if !ptr.Deref(o.Spec.AllNodes, false) {
			o.Spec.AllNodes = nil
		}
	case *autoscalingv2.HorizontalPodAutoscaler:
		for i := range o.Spec.Metrics {
			keepableTargets(&o.Spec.Metrics[i])
		}
		for i := range o.Status.CurrentMetrics {
			keepableValues(&o.Status.CurrentMetrics[i])
		}
	}
}

// keepableBackend gives a service a name, and a port either a name or a number.
func keepableBackend(b *networkingv1.IngressBackend) {
	if b.Service == nil {
		return
	}
	b.Service.Name = "web"
	if b.Service.Port.Name != "" {
		b.Service.Port.Number = 0
	}
}

// keepableRequests asks for something where a request has no alternatives.
func keepableRequests(requests []resourcev1.DeviceRequest) {
	for i := range requests {
		if e := requests[i].Exactly; e != nil {
			e.DeviceClassName = "gpu.example.com"
		}
	}
}

// keepableTargets gives the sources of a metric targets that are valid.
func keepableTargets(m *autoscalingv2.MetricSpec) {
	q := ptr.To(quantity.MustParse("3"))
	average := autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: q}
	if m.Object != nil {
		m.Object.Target = autoscalingv2.MetricTarget{Type: autoscalingv2.ValueMetricType, Value: q}
	}
	if m.Pods != nil {
		m.Pods.Target = average
	}
	if m.Resource != nil {
		m.Resource.Target = autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: ptr.To[int32](40)}
	}
	if m.ContainerResource != nil {
		m.ContainerResource.Target = average
	}
	if m.External != nil {
		m.External.Target = average
	}
}

// keepableValues gives the sources of a metric the values that a controller writes.
func keepableValues(m *autoscalingv2.MetricStatus) {
	q := ptr.To(quantity.MustParse("3"))
	if m.Object != nil {
		m.Object.Current = autoscalingv2.MetricValueStatus{Value: q}
	}
	if m.Pods != nil {
		m.Pods.Current = autoscalingv2.MetricValueStatus{AverageValue: q}
	}
	if m.Resource != nil {
		m.Resource.Current = autoscalingv2.MetricValueStatus{AverageValue: q, AverageUtilization: ptr.To[int32](40)}
	}
	if m.ContainerResource != nil {
		m.ContainerResource.Current = autoscalingv2.MetricValueStatus{AverageValue: q}
	}
	if m.External != nil {
		m.External.Current = autoscalingv2.MetricValueStatus{Value: q, AverageValue: q}
	}
}

// throughWire drops what cannot be sent: empty lists that are not nil, type
// information, parts of a second.
func throughWire(t *testing.T, obj resource.Object) resource.Object {
	t.Helper()
	if _, ok := obj.(resource.Wire); !ok {
		out := reflect.New(reflect.TypeOf(obj).Elem()).Interface().(resource.Object)
		if err := json.Unmarshal([]byte(toJSON(obj)), out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	data, err := obj.(resource.Wire).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	out := reflect.New(reflect.TypeOf(obj).Elem()).Interface().(resource.Wire)
	if err := out.Unmarshal(data); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestDeprecationTextsAreWhatTheLibrarySays(t *testing.T) {
	type lifecycle interface {
		APILifecycleDeprecated() (major, minor int)
		APILifecycleRemoved() (major, minor int)
	}
	eachVersion(t, func(t *testing.T, def *resource.Def, v *resource.VersionDef) {
		l, ok := v.New().(lifecycle)
		if !ok {
			if gv := (schema.GroupVersion{Group: v.Group, Version: v.Version}); v.Deprecated != "" && scheme.Scheme.IsVersionRegistered(gv) {
				t.Errorf("deprecated: %q, but the library knows nothing of it", v.Deprecated)
			}
			return
		}
		major, minor := l.APILifecycleDeprecated()
		goneMajor, goneMinor := l.APILifecycleRemoved()
		want := fmt.Sprintf("%s/%s %s is deprecated in v%d.%d+, unavailable in v%d.%d+", v.Group, v.Version, def.Kind, major, minor, goneMajor, goneMinor)
		if r, ok := v.New().(interface {
			APILifecycleReplacement() schema.GroupVersionKind
		}); ok {
			gvk := r.APILifecycleReplacement()
			want += fmt.Sprintf("; use %s %s", gvk.GroupVersion(), gvk.Kind)
		}
		if v.Deprecated != want {
			t.Errorf("got  %q\nwant %q", v.Deprecated, want)
		}
	})
}

func TestStoragePrefixesAreUnique(t *testing.T) {
	seen := map[string]string{}
	for _, def := range api.All() {
		if !def.Stored() {
			continue
		}
		key := def.Key("", "")
		if other, ok := seen[key]; ok {
			t.Errorf("%s and %s are both stored under %s", def, other, key)
		}
		seen[key] = def.String()
		if !strings.HasPrefix(key, "/registry/") {
			t.Errorf("%s is stored under %s", def, key)
		}
	}
}

func TestRandomObjectsCanBeDefaultedCheckedAndPrinted(t *testing.T) {
	for _, def := range api.All() {
		t.Run(def.String(), func(t *testing.T) {
			for seed := range int64(25) {
				obj, old := def.New(), def.New()
				filler(seed).Fill(obj)
				filler(seed + 1000).Fill(old)
				before := old.DeepCopyObject()
				def.Default(obj)
				again := obj.DeepCopyObject().(resource.Object)
				def.Default(again)
				if !equality.Semantic.DeepEqual(obj, again) {
					t.Errorf("seed %d: Default is not stable", seed)
				}
				def.Validate(obj, nil, resource.NewErrors())
				def.Validate(obj, old, resource.NewErrors())
				_ = def.Warn(obj, old)
				for _, c := range def.Columns {
					_ = c.Value(obj)
				}
				for _, f := range def.Fields {
					_ = f(obj)
				}
				for i := range def.Sub {
					s := &def.Sub[i]
					if s.Get != nil {
						_ = s.Get(obj)
					}
					if s.Merge != nil {
						merged := obj.DeepCopyObject().(resource.Object)
						s.Merge(merged, old)
						if s.Validate != nil {
							s.Validate(merged, old, resource.NewErrors())
						}
					}
				}
				if !equality.Semantic.DeepEqual(old, before) {
					t.Errorf("seed %d: the old object was changed", seed)
				}
			}
		})
	}
}
