package apiserver

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/api/certificates"
	"github.com/kemudi/kemudi/internal/api/rbac"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/internal/watchcache"
	"github.com/kemudi/kemudi/internal/wire"
)

// holdCachesAgainstStore checks that each cached object is what its stored bytes
// say: a server that starts again, and one beside this one, must show the same.
// It returns how many objects it has looked at.
func (f *fixture) holdCachesAgainstStore() (seen int) {
	f.tb.Helper()
	ctx := context.WithoutCancel(f.tb.Context())
	for _, d := range f.o.Defs {
		if !d.Stored() {
			continue
		}
		for _, it := range f.o.Caches.Cache(d).List("", nil) {
			kv, _, err := f.store.Get(ctx, d.Key("", it.Key))
			if err != nil {
				f.tb.Fatal(err)
			}
			if kv.Rev != it.Rev {
				continue // it was changed after the caches stopped
			}
			seen++
			f.compareStored(d, kv, it.Object)
		}
	}
	return seen
}

func (f *fixture) compareStored(d *resource.Def, kv store.KV, cached resource.Object) {
	f.tb.Helper()
	stored, err := watchcache.Decode(d, kv.Value, kv.Rev)
	if err != nil {
		f.tb.Fatal(err)
	}
	got, err := wire.AppendJSON(nil, cached)
	if err != nil {
		f.tb.Fatal(err)
	}
	want, err := wire.AppendJSON(nil, stored)
	if err != nil {
		f.tb.Fatal(err)
	}
	if !bytes.Equal(got, want) || d.Dynamic == nil && !equality.Semantic.DeepEqual(cached, stored) {
		f.tb.Errorf("%s: the cache has\n%#v\n%s\nand the store\n%#v\n%s", kv.Key, cached, got, stored, want)
	}
}

// samples are an object of each kind, by group and kind: the bases of the cases
// of internal/api.
func samples(t *testing.T) map[schema.GroupKind]map[string]any {
	t.Helper()
	files, err := filepath.Glob("../api/testdata/cases/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	all := map[schema.GroupKind]map[string]any{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, doc := range strings.Split(string(text), "\n---\n") {
			var base struct {
				Object map[string]any `json:"object"`
			}
			if err := yaml.Unmarshal([]byte(doc), &base); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if base.Object != nil {
				gvk := schema.FromAPIVersionAndKind(fmt.Sprint(base.Object["apiVersion"]), fmt.Sprint(base.Object["kind"]))
				all[gvk.GroupKind()] = base.Object
			}
		}
	}
	binding := all[rbac.ClusterRoleBindings.Def.GVK().GroupKind()]
	delete(binding, "subjects") // one of them is there to be refused
	csr := certificates.CertificateSigningRequests.Def.GVK()
	all[csr.GroupKind()] = map[string]any{
		"apiVersion": csr.GroupVersion().String(), "kind": csr.Kind, "metadata": map[string]any{"name": "r"},
		"spec": map[string]any{"signerName": "example.com/own", "usages": []any{"client auth"}, "request": signingRequest(t)},
	}
	return all
}

// reported is the object with something in every field of its status, times to the
// nanosecond. What says something already is kept.
func reported(obj resource.Object) resource.Object {
	obj = obj.DeepCopyObject().(resource.Object)
	report(reflect.ValueOf(obj).Elem().FieldByName("Status"))
	return obj
}

func report(v reflect.Value) {
	switch p := v.Addr().Interface().(type) {
	case *metav1.Time:
		*p = metav1.NewTime(time.Now().Add(time.Nanosecond))
	case *metav1.MicroTime:
		*p = metav1.NewMicroTime(time.Now().Add(time.Nanosecond))
	case *quantity.Quantity:
		*p = quantity.MustParse("1000m")
	case *runtime.RawExtension: // JSON, as in whatever came over HTTP
		p.Raw = []byte(`{"a":"b"}`)
	case *corev1.ConditionStatus:
		*p = corev1.ConditionTrue
	case *metav1.ConditionStatus:
		*p = metav1.ConditionTrue
	default:
		reportKind(v)
	}
}

func reportKind(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			report(v.Field(i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		report(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		report(v.Index(0))
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		report(key)
		report(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.String:
		if v.Len() == 0 {
			v.SetString("a")
		}
	case reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Bool:
		v.SetBool(true)
	}
}

// TestWhatIsCachedIsWhatWasStored creates, replaces and reports on an object of
// every kind, in forms that the store does not keep. (The caches of every other
// fixture are looked at as well, when its test ends.)
func TestWhatIsCachedIsWhatWasStored(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.RuntimeConfig = map[string]bool{"api/all": true} })
	api, all := f.As(admin, "test"), samples(t)
	written, statuses := map[string]any{}, 0 // the UIDs of objects by their paths
	for _, d := range f.o.Defs {
		if !d.Stored() {
			continue
		}
		sample := all[d.GVK().GroupKind()]
		if sample == nil {
			t.Errorf("no sample of %s: add a base to the cases of internal/api", d)
			continue
		}
		meta := sample["metadata"].(map[string]any)
		meta["labels"], meta["finalizers"] = map[string]any{}, []any{}
		namespace, _ := meta["namespace"].(string)
		if d.Namespaced {
			namespace = cmp.Or(namespace, "default")
		}
		path := collectionPath(d, fmt.Sprint(sample["apiVersion"]), namespace)
		f.must(201, "POST", path, jsonText(t, sample))
		path += "/" + fmt.Sprint(meta["name"])
		sample = decoded[map[string]any](t, f.must(200, "GET", path, ""))
		sample["metadata"].(map[string]any)["annotations"] = map[string]any{"a": "b"}
		f.must(200, "PUT", path, jsonText(t, sample))
		written[path] = sample["metadata"].(map[string]any)["uid"]
		if d.Subresource("status") == nil {
			continue
		}
		r := client.Request{Verb: "get", Def: d, Namespace: namespace, Name: fmt.Sprint(meta["name"])}
		obj, err := api.Do(t.Context(), &r)
		if err != nil {
			t.Fatal(err)
		}
		r.Verb, r.Sub, r.Object = "update", "status", reported(obj.(resource.Object))
		if _, err := api.Do(t.Context(), &r); err == nil {
			statuses++
		} else {
			t.Logf("status of %s: %v", d, err)
		}
	}
	if statuses < 10 {
		t.Errorf("the server took %d full statuses, want at least 10", statuses)
	}
	if err := f.Fresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	trace.Proves(t, "DECL-006/storage")
	if n := f.holdCachesAgainstStore(); n < len(written) {
		t.Errorf("looked at %d objects, want the %d that were written", n, len(written))
	}
	trace.Proves(t, "CON-011")
	for path, uid := range written {
		meta := decoded[map[string]any](t, f.must(200, "GET", path, ""))["metadata"].(map[string]any)
		if a, _ := meta["annotations"].(map[string]any); meta["uid"] != uid || a["a"] != "b" {
			t.Errorf("%s: got %v, want the object %v with what was written last", path, meta, uid)
		}
	}
}

// collectionPath is where objects of a version are listed.
func collectionPath(d *resource.Def, version, namespace string) string {
	path := "/apis/" + version
	if d.Group == "" {
		path = "/api/v1"
	}
	if d.Namespaced {
		path += "/namespaces/" + namespace
	}
	return path + "/" + d.Plural
}

// TestTimesOfClientsAreKeptInWholeSeconds: the caches are looked at in the end.
func TestTimesOfClientsAreKeptInWholeSeconds(t *testing.T) {
	f := newFixture(t)
	f.must(201, "POST", "/api/v1/namespaces/default/events",
		`{"metadata":{"name":"a"},"involvedObject":{"namespace":"default"},"lastTimestamp":"2026-01-02T03:04:05.678Z"}`)
	f.must(201, "POST", "/apis/coordination.k8s.io/v1/namespaces/default/leases", `{"metadata":{"name":"a"},"spec":{"renewTime":"2026-01-02T03:04:05.678901Z"}}`)
	if got := f.must(200, "GET", "/apis/coordination.k8s.io/v1/namespaces/default/leases/a", ""); !strings.Contains(got, `"renewTime":"2026-01-02T03:04:05.678901Z"`) {
		t.Errorf("got %s, want the microseconds of the lease", got)
	}
}

func jsonText(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestListsThatAreEmptyAreShownAsTheyWillBeAfterAStart(t *testing.T) {
	f := newFixture(t)
	const path = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
	got := f.must(201, "POST", path, `{"metadata":{"name":"none"},"rules":[]}`)
	if again := f.must(200, "GET", path+"/none", ""); !strings.Contains(got, `"rules":null`) || got != again {
		t.Errorf("got %s, then %s; want rules that are null", got, again)
	}
}

// TestStatusOfAnApprovedRequestIsWritten: what a signer has read is not a change
// of it.
func TestStatusOfAnApprovedRequestIsWritten(t *testing.T) {
	f := newFixture(t)
	const path = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
	r := decoded[certificatesv1.CertificateSigningRequest](t, f.must(201, "POST", path,
		`{"metadata":{"name":"r"},"spec":{"signerName":"example.com/own","usages":["client auth"],"request":"`+signingRequest(t)+`"}}`))
	r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue}}
	f.must(200, "PUT", path+"/r/approval", jsonText(t, r))
	r = decoded[certificatesv1.CertificateSigningRequest](t, f.must(200, "GET", path+"/r", ""))
	r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue})
	f.must(200, "PUT", path+"/r/status", jsonText(t, r))
}
