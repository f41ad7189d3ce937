package apiserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"

	"github.com/kemudi/kemudi/internal/api"
	"github.com/kemudi/kemudi/internal/trace"
)

// lifecycle does everything with a resource that its verbs are for, and says so by failing.
type lifecycle struct {
	gvr       schema.GroupVersionResource
	kind      string
	namespace string
	spec      map[string]any
	status    map[string]any // written through the subresource
}

func (l lifecycle) object(name string, labels map[string]string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": l.gvr.GroupVersion().String(), "kind": l.kind, "spec": l.spec}}
	o.SetGenerateName(name)
	o.SetLabels(labels)
	return o.DeepCopy()
}

// discovered: its group, version and resources are where clients look for them.
func (l lifecycle) discovered(t *testing.T, f *fixture) {
	t.Helper()
	d, err := discovery.NewDiscoveryClientForConfig(f.config())
	if err != nil {
		t.Fatal(err)
	}
	groups, err := d.ServerGroups()
	if err != nil || !slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool {
		return g.Name == l.gvr.Group && slices.ContainsFunc(g.Versions, func(v metav1.GroupVersionForDiscovery) bool { return v.Version == l.gvr.Version })
	}) {
		t.Fatalf("%s is not in /apis: %v", l.gvr.GroupVersion(), err)
	}
	resources, err := d.ServerResourcesForGroupVersion(l.gvr.GroupVersion().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{l.gvr.Resource, l.gvr.Resource + "/status"} {
		if !slices.ContainsFunc(resources.APIResources, func(r metav1.APIResource) bool { return r.Name == name }) {
			t.Errorf("%s is not in the list of %s", name, l.gvr.GroupVersion())
		}
	}
}

func (l lifecycle) run(t *testing.T, f *fixture) {
	t.Helper()
	l.discovered(t, f)
	dyn, err := dynamic.NewForConfig(f.config())
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	c := dynamic.ResourceInterface(dyn.Resource(l.gvr))
	if l.namespace != "" {
		c = dyn.Resource(l.gvr).Namespace(l.namespace)
	}
	labels := map[string]string{"test": "lifecycle"}
	of := metav1.ListOptions{LabelSelector: "test=lifecycle"}
	var made []*unstructured.Unstructured
	for range 3 {
		o, err := c.Create(ctx, l.object("e2e-", labels), metav1.CreateOptions{})
		if err != nil {
			t.Fatalf("create: %v", err)
		}
		made = append(made, o)
	}
	name := made[0].GetName()
	one, err := c.Get(ctx, name, metav1.GetOptions{})
	if err != nil || one.GetUID() != made[0].GetUID() {
		t.Fatalf("get: %v", err)
	}
	all, err := dyn.Resource(l.gvr).List(ctx, of)
	if err != nil || len(all.Items) != 3 {
		t.Fatalf("list: %d, %v", len(all.Items), err)
	}
	w, err := c.Watch(ctx, metav1.ListOptions{LabelSelector: of.LabelSelector, ResourceVersion: all.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	event := func(kind watch.EventType, holds func(o *unstructured.Unstructured) bool) {
		t.Helper()
		e, ok := <-w.ResultChan()
		if !ok || e.Type != kind {
			t.Fatalf("watch: got %v of %v, want %s", e.Type, e.Object, kind)
		}
		if o := e.Object.(*unstructured.Unstructured); holds != nil && !holds(o) {
			t.Errorf("watch: got %v", o)
		}
	}
	annotated := func(with string) func(o *unstructured.Unstructured) bool {
		return func(o *unstructured.Unstructured) bool { return o.GetAnnotations()[with] == "true" }
	}
	for kind, patch := range map[types.PatchType]string{
		types.MergePatchType:          `{"metadata":{"annotations":{"by":"merge"}}}`,
		types.StrategicMergePatchType: `{"metadata":{"annotations":{"by":"strategic"}}}`,
		types.JSONPatchType:           `[{"op":"add","path":"/metadata/annotations","value":{"by":"json"}}]`,
		types.ApplyPatchType:          fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q,"annotations":{"by":"apply"}}}`, l.gvr.GroupVersion(), l.kind, name),
	} {
		o, err := c.Patch(ctx, name, kind, []byte(patch), metav1.PatchOptions{FieldManager: "test", Force: forced(kind)})
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		by := o.GetAnnotations()["by"]
		if by == "" || !strings.Contains(patch, by) {
			t.Errorf("%s: got %v", kind, o)
		}
		event(watch.Modified, func(o *unstructured.Unstructured) bool { return o.GetAnnotations()["by"] == by })
	}
	if one, err = c.Get(ctx, name, metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	one.SetAnnotations(map[string]string{"updated": "true"})
	if one, err = c.Update(ctx, one, metav1.UpdateOptions{}); err != nil || !annotated("updated")(one) {
		t.Fatalf("update: %v", err)
	}
	event(watch.Modified, annotated("updated"))
	l.writeStatus(t, c, one, made[1])
	event(watch.Modified, nil)
	event(watch.Modified, nil)
	if err := c.Delete(ctx, made[2].GetName(), metav1.DeleteOptions{}); err != nil {
		t.Fatalf("delete: %v", err)
	}
	event(watch.Deleted, nil)
	if all, err = c.List(ctx, of); err != nil || len(all.Items) != 2 {
		t.Fatalf("after one is deleted there are %d, %v", len(all.Items), err)
	}
	if err := c.DeleteCollection(ctx, metav1.DeleteOptions{}, of); err != nil {
		t.Fatalf("deletecollection: %v", err)
	}
	if all, err = c.List(ctx, of); err != nil || len(all.Items) != 0 {
		t.Fatalf("after all are deleted there are %d, %v", len(all.Items), err)
	}
}

// forced: an apply takes over what other patches have set.
func forced(kind types.PatchType) *bool {
	if kind != types.ApplyPatchType {
		return nil
	}
	return new(true)
}

// writeStatus updates the status of one object, and patches that of another.
func (l lifecycle) writeStatus(t *testing.T, c dynamic.ResourceInterface, one, other *unstructured.Unstructured) {
	t.Helper()
	holds := func(name string) *unstructured.Unstructured {
		t.Helper()
		read, err := c.Get(t.Context(), name, metav1.GetOptions{}, "status")
		if err != nil {
			t.Fatalf("get of the status: %v", err)
		}
		for key := range l.status {
			if _, ok := read.Object["status"].(map[string]any)[key]; !ok {
				t.Errorf("status.%s is not stored: %v", key, read.Object["status"])
			}
		}
		return read
	}
	one = one.DeepCopy()
	one.Object["status"] = l.status
	if _, err := c.UpdateStatus(t.Context(), one, metav1.UpdateOptions{}); err != nil {
		t.Fatalf("update of the status: %v", err)
	}
	holds(one.GetName())
	// Annotations are not the status's to change.
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{"sneaked": "in"}}, "status": l.status})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = c.Patch(t.Context(), other.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "test"}, "status"); err != nil {
		t.Fatalf("patch of the status: %v", err)
	}
	if holds(other.GetName()).GetAnnotations()["sneaked"] != "" {
		t.Error("the status subresource has written metadata")
	}
}

func TestFlowSchemasAndMigrationsLive(t *testing.T) {
	f := newFixture(t)
	condition := map[string]any{"type": "Dangling", "status": "False", "reason": "E2E", "message": "set by a test", "lastTransitionTime": "2026-01-01T00:00:00Z"}
	lifecycle{
		gvr:  schema.GroupVersionResource{Group: "flowcontrol.apiserver.k8s.io", Version: "v1", Resource: "flowschemas"},
		kind: "FlowSchema",
		spec: map[string]any{"matchingPrecedence": int64(9999), "priorityLevelConfiguration": map[string]any{"name": "global-default"}, "distinguisherMethod": map[string]any{"type": "ByUser"}, "rules": []any{map[string]any{
			"subjects":         []any{map[string]any{"kind": "User", "user": map[string]any{"name": "example-e2e-non-existent-user"}}},
			"nonResourceRules": []any{map[string]any{"verbs": []any{"*"}, "nonResourceURLs": []any{"*"}}},
		}}},
		status: map[string]any{"conditions": []any{condition}},
	}.run(t, f)
	trace.Proves(t, "C-061")
	lifecycle{
		gvr:    schema.GroupVersionResource{Group: "flowcontrol.apiserver.k8s.io", Version: "v1", Resource: "prioritylevelconfigurations"},
		kind:   "PriorityLevelConfiguration",
		spec:   map[string]any{"type": "Limited", "limited": map[string]any{"nominalConcurrencyShares": int64(2), "limitResponse": map[string]any{"type": "Reject"}}},
		status: map[string]any{"conditions": []any{map[string]any{"type": "ConcurrencyShared", "status": "True", "reason": "E2E", "message": "set by a test", "lastTransitionTime": "2026-01-01T00:00:00Z"}}},
	}.run(t, f)
	lifecycle{
		gvr:  schema.GroupVersionResource{Group: "storagemigration.k8s.io", Version: "v1", Resource: "storageversionmigrations"},
		kind: "StorageVersionMigration",
		spec: map[string]any{"resource": map[string]any{"group": "", "resource": "configmaps"}},
		status: map[string]any{"conditions": []any{map[string]any{
			"type": "Running", "status": "True", "reason": "E2E", "message": "set by a test", "lastTransitionTime": "2026-01-01T00:00:00Z",
		}}},
	}.run(t, f)
	trace.Proves(t, "C-150")
}

func TestPodCertificateRequestsLive(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	stub, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	from := time.Now().Truncate(time.Second).UTC()
	until := from.Add(24 * time.Hour)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: from, NotAfter: until}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	lifecycle{
		gvr:       schema.GroupVersionResource{Group: "certificates.k8s.io", Version: "v1", Resource: "podcertificaterequests"},
		kind:      "PodCertificateRequest",
		namespace: "default",
		spec: map[string]any{
			"signerName": "example.com/signer", "podName": "pod-1", "podUID": "pod-uid-1", "serviceAccountName": "sa-1", "serviceAccountUID": "sa-uid-1",
			"nodeName": "node-1", "nodeUID": "node-uid-1", "maxExpirationSeconds": int64(86400), "stubPKCS10Request": base64.StdEncoding.EncodeToString(stub),
		},
		status: map[string]any{
			"certificateChain": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
			"notBefore":        from.Format(time.RFC3339), "notAfter": until.Format(time.RFC3339), "beginRefreshAt": from.Add(12 * time.Hour).Format(time.RFC3339),
			"conditions": []any{map[string]any{"type": "Issued", "status": "True", "reason": "Issued", "message": "issued", "lastTransitionTime": from.Format(time.RFC3339)}},
		},
	}.run(t, newFixture(t))
	trace.Proves(t, "C-162")
}

// builtIn has for each group-version of a cluster a resource that it must have.
var builtIn = map[string]string{
	"v1": "namespaces", "admissionregistration.k8s.io/v1": "validatingwebhookconfigurations", "apiextensions.k8s.io/v1": "customresourcedefinitions",
	"apiregistration.k8s.io/v1": "apiservices", "apps/v1": "deployments", "authentication.k8s.io/v1": "tokenreviews", "authorization.k8s.io/v1": "selfsubjectaccessreviews",
	"autoscaling/v1": "horizontalpodautoscalers", "autoscaling/v2": "horizontalpodautoscalers", "batch/v1": "jobs", "certificates.k8s.io/v1": "certificatesigningrequests",
	"coordination.k8s.io/v1": "leases", "discovery.k8s.io/v1": "endpointslices", "events.k8s.io/v1": "events", "networking.k8s.io/v1": "ingresses", "node.k8s.io/v1": "runtimeclasses",
	"policy/v1": "poddisruptionbudgets", "scheduling.k8s.io/v1": "priorityclasses", "storage.k8s.io/v1": "csinodes",
}

func TestDiscoveryHasAllBuiltInGroups(t *testing.T) {
	f := newFixture(t)
	served := map[string]bool{}
	for _, d := range api.All() {
		served[d.Group] = true
	}
	whole := true // of the API of a cluster
	for _, group := range []string{"admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io"} {
		whole = whole && served[group]
	}
	d, err := discovery.NewDiscoveryClientForConfig(f.config())
	if err != nil {
		t.Fatal(err)
	}
	groups, byVersion, failed, err := d.GroupsAndMaybeResources()
	if err != nil || len(failed) > 0 || byVersion == nil {
		t.Fatalf("aggregated discovery: %v %v", failed, err)
	}
	for _, gv := range slices.Sorted(maps.Keys(builtIn)) {
		parsed, err := schema.ParseGroupVersion(gv)
		if err != nil {
			t.Fatal(err)
		}
		if !served[parsed.Group] && !whole {
			continue
		}
		has := func(r metav1.APIResource) bool { return r.Name == builtIn[gv] }
		if list := byVersion[parsed]; list == nil || !slices.ContainsFunc(list.APIResources, has) {
			t.Errorf("aggregated discovery has no %s of %s", builtIn[gv], gv)
		}
		list, err := d.ServerResourcesForGroupVersion(gv)
		if err != nil || list.GroupVersion != gv || !slices.ContainsFunc(list.APIResources, has) {
			t.Fatalf("%s: got %v, %v", gv, list, err)
		}
		trace.Proves(t, "API-017")
		for _, r := range list.APIResources { // what a scale is has a group of its own
			if r.Version != "" && !strings.Contains(r.Name, "/") {
				t.Errorf("%s: %s is of a version of its own, %s", gv, r.Name, r.Version)
			}
		}
	}
	for _, g := range groups.Groups {
		if g.Name == "" {
			continue
		}
		var own metav1.APIGroup
		if err := json.Unmarshal([]byte(f.must(200, "GET", "/apis/"+g.Name+"/", "")), &own); err != nil {
			t.Fatal(err)
		}
		if own.PreferredVersion.GroupVersion == "" || !slices.Contains(own.Versions, own.PreferredVersion) {
			t.Errorf("%s prefers %v of %v", g.Name, own.PreferredVersion, own.Versions)
		}
	}
	trace.Proves(t, "C-109")
	if whole {
		trace.Proves(t, "C-085", "C-108")
	}
}
