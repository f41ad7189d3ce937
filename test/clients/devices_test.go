package clients

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

// aDeviceKind is a kind of devices with a sample, and how its spec and its status are
// changed, all in YAML. A spec that does not change is empty.
type aDeviceKind struct {
	kind, plural, sample string
	spec, status         string
	cluster              bool
	proves               string
}

var deviceKinds = []aDeviceKind{
	{kind: "DeviceClass", plural: "deviceclasses", cluster: true, proves: "C-338", sample: `spec: {}`, spec: `{selectors: [{cel: {expression: "device.driver == 'dra.example.com'"}}]}`},
	{kind: "DeviceTaintRule", plural: "devicetaintrules", cluster: true, proves: "C-339", sample: `spec: {deviceSelector: {driver: crud.example.com}, taint: {key: example.com/unhealthy, value: x, effect: NoSchedule}}`,
		spec: `{taint: {key: example.com/unhealthy, value: "y", effect: NoSchedule}}`, status: `{conditions: [{type: SomeCondition, status: "True", reason: CRUD, message: from a test, lastTransitionTime: "2026-01-02T03:04:05Z"}]}`},
	{kind: "ResourceClaim", plural: "resourceclaims", proves: "C-340", sample: `spec: {devices: {requests: [{name: req-0, exactly: {deviceClassName: some-class}}]}}`,
		status: `{allocation: {devices: {results: [{request: req-0, driver: dra.example.com, pool: some-pool, device: some-device}]}}}`},
	{kind: "ResourceClaimTemplate", plural: "resourceclaimtemplates", proves: "C-341", sample: `spec: {spec: {devices: {requests: [{name: req-0, exactly: {deviceClassName: some-class}}]}}}`},
}

// TestKindsOfDevicesAreCreatedReadUpdatedAndDeleted does what the newest suites do with a
// kind, in front of informers.
func TestKindsOfDevicesAreCreatedReadUpdatedAndDeleted(t *testing.T) {
	client, err := dynamic.NewForConfig(theServer.config)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range deviceKinds {
		t.Run(k.plural, func(t *testing.T) {
			t.Parallel()
			trace.Proves(t, k.proves)
			gvr := schema.GroupVersionResource{Group: "resource.k8s.io", Version: "v1", Resource: k.plural}
			c := &crud{T: t, k: k, label: "crud=" + k.plural, api: client.Resource(gvr)}
			if !k.cluster {
				c.namespace = "crud-" + k.plural
				theServer.namespace(t, c.namespace)
				c.api = client.Resource(gvr).Namespace(c.namespace)
			}
			c.discovered()
			c.inform(client, gvr, "")
			if !k.cluster {
				c.inform(client, gvr, c.namespace)
			}
			c.run()
		})
	}
}

type crud struct {
	*testing.T
	k                aDeviceKind
	label, namespace string
	api              dynamic.ResourceInterface
	seen             []*history
}

// history is what an informer tells of one object.
type history struct {
	mu struct {
		sync.Mutex
		events []string
		last   int // the revision
		errs   []string
	}
}

func (h *history) note(event string, obj any) {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	u := obj.(*unstructured.Unstructured)
	h.mu.Lock()
	defer h.mu.Unlock()
	var revision int
	if _, err := fmt.Sscan(u.GetResourceVersion(), &revision); err != nil || revision < h.mu.last {
		h.mu.errs = append(h.mu.errs, fmt.Sprintf("%s at revision %s after %d (%v)", event, u.GetResourceVersion(), h.mu.last, err))
	}
	h.mu.last = revision
	if event != "update" || len(h.mu.events) == 0 || h.mu.events[len(h.mu.events)-1] != "update" {
		h.mu.events = append(h.mu.events, event)
	}
}

// discovered looks for the kind among those that are served.
func (c *crud) discovered() {
	client, err := kubernetes.NewForConfig(theServer.config)
	if err != nil {
		c.Fatal(err)
	}
	list, err := client.Discovery().ServerResourcesForGroupVersion("resource.k8s.io/v1")
	if err != nil {
		c.Fatal(err)
	}
	if !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == c.k.plural && r.Kind == c.k.kind }) {
		c.Fatalf("resource.k8s.io/v1 has no %s", c.k.plural)
	}
}

// inform starts an informer of the test's objects.
func (c *crud) inform(client dynamic.Interface, gvr schema.GroupVersionResource, namespace string) {
	h := &history{}
	f := dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, 0, namespace, func(o *metav1.ListOptions) { o.LabelSelector = c.label })
	_, err := f.ForResource(gvr).Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { h.note("add", obj) },
		UpdateFunc: func(_, obj any) { h.note("update", obj) },
		DeleteFunc: func(obj any) { h.note("delete", obj) },
	})
	if err != nil {
		c.Fatal(err)
	}
	stop := make(chan struct{})
	f.Start(stop)
	c.Cleanup(func() { close(stop); f.Shutdown() })
	f.WaitForCacheSync(stop)
	c.seen = append(c.seen, h)
}

func (c *crud) parse(text string) (out map[string]any) {
	c.Helper()
	if err := yaml.Unmarshal([]byte(text), &out); err != nil {
		c.Fatal(err)
	}
	return out
}

func (c *crud) object() *unstructured.Unstructured {
	c.Helper()
	u := &unstructured.Unstructured{Object: c.parse(c.k.sample)}
	u.SetAPIVersion("resource.k8s.io/v1")
	u.SetKind(c.k.kind)
	u.SetName("crud-" + c.k.plural)
	u.SetNamespace(c.namespace)
	key, value, _ := strings.Cut(c.label, "=")
	u.SetLabels(map[string]string{key: value})
	return u
}

func (c *crud) must(what string, err error) {
	c.Helper()
	if err != nil {
		c.Fatalf("%s: %v", what, err)
	}
}

func (c *crud) run() {
	ctx := c.Context()
	name := c.object().GetName()
	created := c.create()
	got, err := c.api.Get(ctx, name, metav1.GetOptions{})
	c.must("get", err)
	if got.GetUID() != created.GetUID() {
		c.Errorf("get: another object than was created")
	}
	updated := c.change(func(u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		u.SetAnnotations(map[string]string{"updated": "yes"})
		return c.api.Update(ctx, u, metav1.UpdateOptions{FieldValidation: "Strict"})
	})
	if c.revision(updated) <= c.revision(created) || updated.GetAnnotations()["updated"] != "yes" {
		c.Errorf("update: got revision %s after %s, annotations %v", updated.GetResourceVersion(), created.GetResourceVersion(), updated.GetAnnotations())
	}
	if c.k.status != "" {
		c.change(func(u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
			u.Object["status"] = c.parse(c.k.status)
			return c.api.UpdateStatus(ctx, u, metav1.UpdateOptions{FieldValidation: "Strict"})
		})
		got, err = c.api.Get(ctx, name, metav1.GetOptions{}, "status")
		c.must("get status", err)
		c.holds(got, "status", c.k.status)
	}
	for _, kind := range []types.PatchType{types.StrategicMergePatchType, types.ApplyPatchType, types.MergePatchType, types.JSONPatchType} {
		c.delete()
		c.create()
		if c.k.spec != "" {
			c.holds(c.patch(kind, "spec", c.k.spec), "spec", c.k.spec)
		} else {
			c.patch(kind, "metadata", `{annotations: {patched: "yes"}}`)
		}
		if c.k.status != "" {
			c.holds(c.patch(kind, "status", c.k.status, "status"), "status", c.k.status)
		}
	}
	list, err := c.api.List(ctx, metav1.ListOptions{LabelSelector: c.label})
	c.must("list", err)
	if len(list.Items) != 1 {
		c.Errorf("list: got %d objects, want 1", len(list.Items))
	}
	c.must("delete all", c.api.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: c.label}))
	c.gone()
	c.told()
}

// told checks what the informers have told: of each object that it came, that it
// changed, and that it went.
func (c *crud) told() {
	want := slices.Repeat([]string{"add", "update", "delete"}, 5)
	for i, h := range c.seen {
		wait.Until(c.T, func() error {
			h.mu.Lock()
			defer h.mu.Unlock()
			if !slices.Equal(h.mu.events, want) || len(h.mu.errs) > 0 {
				return fmt.Errorf("informer %d: got %v, %v; want %v", i, h.mu.events, h.mu.errs, want)
			}
			return nil
		})
	}
}

// change updates the object as it is now, again if a controller was faster.
func (c *crud) change(update func(u *unstructured.Unstructured) (*unstructured.Unstructured, error)) (out *unstructured.Unstructured) {
	c.Helper()
	c.must("update", retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		u, err := c.api.Get(c.Context(), c.object().GetName(), metav1.GetOptions{})
		if err == nil {
			out, err = update(u)
		}
		return err
	}))
	return out
}

func (c *crud) create() *unstructured.Unstructured {
	c.Helper()
	u, err := c.api.Create(c.Context(), c.object(), metav1.CreateOptions{FieldValidation: "Strict"})
	c.must("create", err)
	return u
}

func (c *crud) delete() {
	c.Helper()
	c.must("delete", c.api.Delete(c.Context(), c.object().GetName(), metav1.DeleteOptions{}))
	c.gone()
}

func (c *crud) gone() {
	c.Helper()
	wait.Until(c.T, func() error {
		if _, err := c.api.Get(c.Context(), c.object().GetName(), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("get after delete: %v", err)
		}
		return nil
	})
}

// patch changes a field of the object by one kind of patch.
func (c *crud) patch(kind types.PatchType, field, value string, sub ...string) *unstructured.Unstructured {
	c.Helper()
	o := metav1.PatchOptions{FieldValidation: "Strict"}
	var body any = map[string]any{field: c.parse(value)}
	switch kind {
	case types.ApplyPatchType:
		o.FieldManager, o.Force = "crud", ptr.To(true)
		u := c.object()
		if field != "metadata" {
			u.Object[field] = c.parse(value)
		} else {
			u.SetAnnotations(map[string]string{"patched": "yes"})
		}
		if field == "status" {
			delete(u.Object, "spec")
		}
		body = u
	case types.JSONPatchType:
		ops := []map[string]any{}
		for name, v := range c.parse(value) {
			ops = append(ops, map[string]any{"op": "add", "path": "/" + field + "/" + name, "value": v})
		}
		if field == "status" { // which may not be there
			ops = []map[string]any{{"op": "add", "path": "/status", "value": c.parse(value)}}
		}
		body = ops
	}
	data, err := json.Marshal(body)
	c.must("patch", err)
	u, err := c.api.Patch(c.Context(), c.object().GetName(), kind, data, o, sub...)
	c.must(fmt.Sprintf("patch %s of %s", kind, field), err)
	return u
}

// holds checks that a field of an object has what was written, and perhaps more.
func (c *crud) holds(u *unstructured.Unstructured, field, value string) {
	c.Helper()
	got, _ := u.Object[field].(map[string]any)
	if why := lacks(got, c.parse(value)); why != "" {
		c.Errorf("%s: %s; got %v, want %s", field, why, got, value)
	}
}

// lacks says where got differs from what is wanted of it.
func lacks(got, want any) string {
	switch want := want.(type) {
	case map[string]any:
		m, _ := got.(map[string]any)
		for name, v := range want {
			if why := lacks(m[name], v); why != "" {
				return name + "." + why
			}
		}
	case []any:
		list, _ := got.([]any)
		for i := range want { // controllers may have added others
			if !slices.ContainsFunc(list, func(item any) bool { return lacks(item, want[i]) == "" }) {
				return fmt.Sprintf("%d is not there", i)
			}
		}
	default:
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Sprintf("got %v, want %v", got, want)
		}
	}
	return ""
}

func (c *crud) revision(u *unstructured.Unstructured) (n int) {
	c.Helper()
	acc, err := meta.Accessor(u)
	if err == nil {
		_, err = fmt.Sscan(acc.GetResourceVersion(), &n)
	}
	c.must("revision", err)
	return n
}
