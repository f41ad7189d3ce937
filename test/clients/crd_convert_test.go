package clients

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/dynamicinformer"

	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

// converter is a webhook that knows v1, with hostPort, and v2, with host and port.
type converter struct {
	*httptest.Server
	asked atomic.Int64 // objects that were to be converted
}

func startConverter(t *testing.T) *converter {
	c := &converter{}
	c.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review apiextensionsv1.ConversionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer := &apiextensionsv1.ConversionResponse{UID: review.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
		for _, raw := range review.Request.Objects {
			c.asked.Add(1)
			var u unstructured.Unstructured
			err := u.UnmarshalJSON(raw.Raw)
			if err == nil && u.GetAPIVersion() == review.Request.DesiredAPIVersion {
				err = fmt.Errorf("%s is at %s", u.GetName(), u.GetAPIVersion())
			}
			if err != nil {
				answer.Result = metav1.Status{Status: metav1.StatusFailure, Message: err.Error()}
				break
			}
			u.SetAPIVersion(review.Request.DesiredAPIVersion)
			if both, there := u.Object["hostPort"].(string); there {
				u.Object["host"], u.Object["port"], _ = strings.Cut(both, ":")
				delete(u.Object, "hostPort")
			} else if host, there := u.Object["host"].(string); there {
				u.Object["hostPort"] = fmt.Sprintf("%s:%v", host, u.Object["port"])
				delete(u.Object, "host")
				delete(u.Object, "port")
			}
			doc, _ := u.MarshalJSON()
			answer.ConvertedObjects = append(answer.ConvertedObjects, runtime.RawExtension{Raw: doc})
		}
		review.Request, review.Response = nil, answer
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(c.Close)
	return c
}

// twoVersions defines things with two versions, of which one is stored, that the webhook converts.
func (c *converter) twoVersions(t *testing.T, group, stored string) *aDefinition {
	t.Helper()
	version := func(name, fields, selectable string) string {
		return fmt.Sprintf(`{name: %s, served: true, storage: %t, selectableFields: [%s], schema: {openAPIV3Schema: {type: object, properties: {%s}}}}`, name, name == stored, selectable, fields)
	}
	bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate().Raw})
	return define(t, group, "["+version("v1", "hostPort: {type: string}", "{jsonPath: .hostPort}")+", "+
		version("v2", "host: {type: string}, port: {type: string}", "{jsonPath: .host}, {jsonPath: .port}")+"]\n"+
		fmt.Sprintf(", conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1, v1beta1], clientConfig: {url: %q, caBundle: %s}}}",
			c.URL+"/crdconvert", base64.StdEncoding.EncodeToString(bundle)))
}

func TestObjectsAreConvertedByAWebhook(t *testing.T) {
	t.Parallel()
	c := startConverter(t)
	d := c.twoVersions(t, "converted.example.com", "v1")
	first := d.create("v1", "metadata: {name: first}\nhostPort: 'a:80'")
	trace.Proves(t, "C-091")
	got, err := d.at("v2").Get(t.Context(), "first", metav1.GetOptions{})
	if err != nil || got.Object["host"] != "a" || got.Object["port"] != "80" || got.GetUID() != first.GetUID() {
		t.Fatalf("got %v, %v, want it as v2", got, err)
	}
	d.patch(types.JSONPatchType, `[{"op":"replace","path":"/spec/versions/0/storage","value":false},{"op":"replace","path":"/spec/versions/1/storage","value":true}]`)
	d.create("v2", "metadata: {name: second}\nhost: b\nport: '81'")
	trace.Proves(t, "C-090")
	list, err := d.at("v2").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 2 {
		t.Fatalf("got %v, %v, want both", list, err)
	}
	for i, want := range []string{"a 80", "b 81"} {
		if u := list.Items[i]; fmt.Sprint(u.Object["host"], " ", u.Object["port"]) != want || u.GetAPIVersion() != "converted.example.com/v2" {
			t.Errorf("got %v, want %s as v2", u.Object, want)
		}
	}
	// What has been converted is kept. Others may have some converted, too, until all have heard of the new storage version.
	wait.Until(t, func() error {
		before := c.asked.Load()
		if _, err := d.at("v2").List(t.Context(), metav1.ListOptions{}); err != nil {
			return err
		}
		if asked := c.asked.Load() - before; asked > 0 {
			return fmt.Errorf("%d objects were converted for the same list again, want none", asked)
		}
		return nil
	})
	crd, err := d.all.Resource(crds).Get(t.Context(), "things.converted.example.com", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if stored, _, _ := unstructured.NestedStringSlice(crd.Object, "status", "storedVersions"); !slices.Equal(stored, []string{"v1", "v2"}) {
		t.Errorf("got stored versions %v, want both", stored)
	}
}

func TestFieldSelectorsOfConvertedObjects(t *testing.T) {
	t.Parallel()
	c := startConverter(t)
	d := c.twoVersions(t, "selected.example.com", "v1")
	type stream struct {
		version string
		o       metav1.ListOptions
		told    func(want string)
	}
	var streams []stream
	for _, name := range []string{"v2 host=host1", "v2 host=host1,port=80", "v1 hostPort=host1:80"} {
		version, selector, _ := strings.Cut(name, " ")
		o := metav1.ListOptions{FieldSelector: selector}
		w, err := d.at(version).Watch(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Stop)
		streams = append(streams, stream{version, o, func(want string) { t.Helper(); told(t, w, want) }})
	}
	// An informer, which lists and watches, keeps what is selected.
	ctx, stop := context.WithCancel(t.Context())
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(d.all, 0, "", func(o *metav1.ListOptions) { o.FieldSelector = "host=host1" })
	kept := factory.ForResource(schema.GroupVersionResource{Group: d.group, Version: "v2", Resource: "things"}).Informer()
	factory.Start(ctx.Done())
	t.Cleanup(func() { stop(); factory.Shutdown() })
	keeps := func(want string) {
		t.Helper()
		wait.Until(t, func() error {
			keys := kept.GetStore().ListKeys()
			slices.Sort(keys)
			if got := strings.Join(keys, " "); !kept.HasSynced() || got != want {
				return fmt.Errorf("the informer keeps %q, want %q", got, want)
			}
			return nil
		})
	}
	d.create("v1", "metadata: {name: a}\nhostPort: 'host1:80'")
	d.create("v1", "metadata: {name: b}\nhostPort: 'host1:8080'")
	d.create("v1", "metadata: {name: c}\nhostPort: 'host2:80'")
	trace.Proves(t, "C-098")
	for i, want := range []string{"a b", "a", "a"} {
		list, err := d.at(streams[i].version).List(t.Context(), streams[i].o)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, u := range list.Items {
			got = append(got, u.GetName())
		}
		if got := strings.Join(got, " "); got != want {
			t.Errorf("%s: got %s, want %s", streams[i].o.FieldSelector, got, want)
		}
	}
	keeps("a b")
	if _, err := d.at("v1").Patch(t.Context(), "a", types.MergePatchType, []byte(`{"hostPort":"host3:80"}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	keeps("b")
	streams[0].told("ADDED a, ADDED b, DELETED a")
	streams[1].told("ADDED a, DELETED a")
	streams[2].told("ADDED a, DELETED a")
	if err := d.at("v2").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "host=host1"}); err != nil {
		t.Fatal(err)
	}
	streams[0].told("DELETED b")
	keeps("")
	list, err := d.at("v1").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 2 {
		t.Errorf("got %v, %v, want those of other hosts", list, err)
	}
}
