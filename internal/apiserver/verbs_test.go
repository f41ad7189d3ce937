package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/resource"
)

// twice makes a request from within and over HTTP, and returns the Status of each
// answer; its code is 200 of one that succeeds.
func (f *fixture) twice(r *client.Request, path string, over ...string) (within, http metav1.Status) {
	f.tb.Helper()
	method, body := methodOf(r), ""
	headers := []string{"User-Agent: test"}
	if len(over) > 0 {
		body, headers = over[0], append(headers, over[1:]...)
	}
	w := f.ask(method, path, body, headers...)
	http.Code = int32(w.Code)
	if w.Code >= 400 {
		if err := json.Unmarshal(w.Body.Bytes(), &http); err != nil {
			f.tb.Fatalf("%s %s: got %s", method, path, w.Body)
		}
	}
	within.Code = 200
	if _, err := f.do(r); err != nil {
		var status apierrors.APIStatus
		if !errors.As(err, &status) {
			f.tb.Fatalf("%s of %s: got %T %v", r.Verb, r.Def, err, err)
		}
		within = status.Status()
	}
	return within, http
}

func (f *fixture) do(r *client.Request) (any, error) {
	t := f.As(admin, "test")
	if r.Verb == "list" {
		return t.List(f.tb.Context(), r)
	}
	return t.Do(f.tb.Context(), r)
}

func methodOf(r *client.Request) string {
	switch r.Verb {
	case "get", "list":
		return http.MethodGet
	case "update":
		return http.MethodPut
	case "patch":
		return http.MethodPatch
	case "delete", "deletecollection":
		return http.MethodDelete
	}
	return http.MethodPost
}

// pathOf is where a request goes over HTTP.
func pathOf(r *client.Request) string {
	path := "/api/" + r.Def.Version
	if r.Def.Group != "" {
		path = "/apis/" + r.Def.Group + "/" + r.Def.Version
	}
	if r.Namespace != "" {
		path += "/namespaces/" + r.Namespace
	}
	path += "/" + r.Def.Plural
	if r.Name != "" && (r.Verb != "create" || r.Sub != "") {
		path += "/" + r.Name
	}
	if r.Sub != "" {
		path += "/" + r.Sub
	}
	return path
}

// TestCallersWithinHaveTheVerbsThatHTTPHas asks for each verb of each resource and
// subresource (A4): what the one way does not allow, the other does not.
func TestCallersWithinHaveTheVerbsThatHTTPHas(t *testing.T) {
	t.Parallel()
	f := newFixture(t, everyVersion)
	refused := 0
	for _, d := range api.All() {
		subs := []string{""}
		for _, s := range d.Sub {
			if f.handlers.tunnels[s.Handler] == nil {
				subs = append(subs, s.Name)
			}
		}
		for _, sub := range subs {
			for _, verb := range []string{"create", "delete", "deletecollection", "get", "list", "patch", "update"} {
				if sub != "" && (verb == "deletecollection" || verb == "list") {
					continue
				}
				for _, namespace := range []string{"", "nowhere"} {
					if namespace != "" && !d.Namespaced {
						continue
					}
					r := &client.Request{
						Verb: verb, Def: d, Sub: sub, Namespace: namespace, Object: d.New(),
						Patch: []byte("{}"), PatchType: types.MergePatchType, DryRun: true,
						Delete: metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}},
					}
					if verb != "deletecollection" && verb != "list" && (verb != "create" || sub != "") {
						r.Name = "none"
					}
					within, over := f.twice(r, pathOf(r)+"?dryRun=All", "", "Content-Type: application/merge-patch+json")
					if (within.Code == 405) != (over.Code == 405) {
						t.Errorf("%s of %s %q in %q: within got %d %s, HTTP %d %s", verb, d, sub, namespace, within.Code, within.Message, over.Code, over.Message)
					}
					if over.Code == 405 {
						refused++
					}
				}
			}
		}
	}
	if refused == 0 {
		t.Error("nothing was refused")
	}
}

func TestOptionsAreCheckedAlikeWithinAndOverHTTP(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.must(201, "POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"a"}}`)
	long := strings.Repeat("m", 129)
	object := func() *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}
	}
	const merge, apply = "Content-Type: application/merge-patch+json", "Content-Type: application/apply-patch+yaml"
	document := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`
	for name, c := range map[string]struct {
		r     client.Request
		query string
		over  []string // body and headers over HTTP
		want  int32
	}{
		"create by a manager whose name is long": {client.Request{Verb: "create", Object: object(), FieldManager: long}, "fieldManager=" + long, []string{`{"metadata":{"name":"a"}}`}, 422},
		"update by one that cannot be printed":   {client.Request{Verb: "update", Object: object(), FieldManager: "a\n"}, "fieldManager=a%0A", []string{`{"metadata":{"name":"a"}}`}, 422},
		"patch by a manager whose name is long":  {client.Request{Verb: "patch", PatchType: types.MergePatchType, Patch: []byte(`{}`), FieldManager: long}, "fieldManager=" + long, []string{`{}`, merge}, 422},
		"apply by nobody":                        {client.Request{Verb: "patch", PatchType: types.ApplyYAMLPatchType, Patch: []byte(document)}, "", []string{document, apply}, 422},
		"patch of an unknown kind":               {client.Request{Verb: "patch", PatchType: "text/plain", Patch: []byte(`{}`)}, "", []string{`{}`, "Content-Type: text/plain"}, 415},
		"delete by two policies": {
			client.Request{Verb: "delete", Delete: metav1.DeleteOptions{OrphanDependents: ptr.To(true), PropagationPolicy: ptr.To(metav1.DeletePropagationOrphan)}},
			"orphanDependents=true&propagationPolicy=Orphan", nil, 422,
		},
		"delete by a policy that is not there": {client.Request{Verb: "delete", Delete: metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletionPropagation("No"))}}, "propagationPolicy=No", nil, 422},
		"dry run of another kind":              {client.Request{Verb: "delete", Delete: metav1.DeleteOptions{DryRun: []string{"Some"}}}, "dryRun=Some", nil, 422},
		"list at a match without a revision":   {client.Request{Verb: "list", List: metav1.ListOptions{ResourceVersionMatch: "Exact"}}, "resourceVersionMatch=Exact", nil, 422},
		"deletecollection of such a list":      {client.Request{Verb: "deletecollection", List: metav1.ListOptions{ResourceVersionMatch: "Exact"}}, "resourceVersionMatch=Exact", nil, 422},
		"list by a selector that is none":      {client.Request{Verb: "list", List: metav1.ListOptions{LabelSelector: "a in"}}, "labelSelector=a+in", nil, 400},
	} {
		t.Run(name, func(t *testing.T) {
			r := c.r
			r.Def, r.Namespace = core.ConfigMaps.Def, "default"
			if r.Verb != "list" && r.Verb != "deletecollection" {
				r.Name = "a"
			}
			within, over := f.twice(&r, pathOf(&r)+"?"+c.query, c.over...)
			if within.Code != c.want || over.Code != c.want || within.Message != over.Message || within.Reason != over.Reason {
				t.Errorf("got within %d %s %s, over HTTP %d %s %s; want both %d", within.Code, within.Reason, within.Message, over.Code, over.Reason, over.Message, c.want)
			}
		})
	}
	f.must(200, "GET", "/api/v1/namespaces/default/configmaps/a", "")
}

// TestAuthorizersAreAskedTheSameWithinAndOverHTTP: a role allows the same to a
// caller wherever it is.
func TestAuthorizersAreAskedTheSameWithinAndOverHTTP(t *testing.T) {
	t.Parallel()
	asked := &questions{}
	f := newFixture(t, func(o *Options) { o.Authorizer = authorizer.AuthorizerFunc(asked.deny) })
	for name, c := range map[string]struct {
		r     client.Request
		query url.Values
	}{
		"create":                    {client.Request{Verb: "create", Def: core.ConfigMaps.Def, Namespace: "default", Name: "a", Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}, nil},
		"update":                    {client.Request{Verb: "update", Def: core.ConfigMaps.Def, Namespace: "default", Name: "a", Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}, nil},
		"create a subresource":      {client.Request{Verb: "create", Def: core.Pods.Def, Sub: "binding", Namespace: "default", Name: "a", Object: &corev1.Binding{}}, nil},
		"get a namespace":           {client.Request{Verb: "get", Def: core.Namespaces.Def, Name: "default"}, nil},
		"finalize a namespace":      {client.Request{Verb: "update", Def: core.Namespaces.Def, Name: "default", Sub: "finalize", Object: &corev1.Namespace{}}, nil},
		"list":                      {client.Request{Verb: "list", Def: core.ConfigMaps.Def}, nil},
		"list the pods of a node":   {client.Request{Verb: "list", Def: core.Pods.Def, List: metav1.ListOptions{FieldSelector: "spec.nodeName=n1"}}, url.Values{"fieldSelector": {"spec.nodeName=n1"}}},
		"list by a label":           {client.Request{Verb: "list", Def: core.Pods.Def, List: metav1.ListOptions{LabelSelector: "a=b"}}, url.Values{"labelSelector": {"a=b"}}},
		"list what has a name":      {client.Request{Verb: "list", Def: core.Pods.Def, Namespace: "default", List: metav1.ListOptions{FieldSelector: "metadata.name=p"}}, url.Values{"fieldSelector": {"metadata.name=p"}}},
		"delete what has a name":    {client.Request{Verb: "deletecollection", Def: core.Pods.Def, Namespace: "default", List: metav1.ListOptions{FieldSelector: "metadata.name=p"}}, url.Values{"fieldSelector": {"metadata.name=p"}}},
		"a subresource that is not": {client.Request{Verb: "get", Def: core.Pods.Def, Sub: "strange", Namespace: "default", Name: "a"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			asked.take()
			f.twice(&c.r, pathOf(&c.r)+"?"+c.query.Encode(), "{}")
			if got := asked.take(); len(got) < 2 || got[0] != got[len(got)-1] {
				t.Errorf("got %s, want the same twice", strings.Join(got, "\n"))
			}
		})
	}
}

// questions are what an authorizer has been asked.
type questions struct {
	mu    sync.Mutex
	asked []string
}

// deny notes what it is asked.
func (q *questions) deny(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	fields, _ := a.GetFieldSelector()
	labels, _ := a.GetLabelSelector()
	q.asked = append(q.asked, fmt.Sprintf("%s %s/%s %s %s in %q called %q, %v %v", a.GetVerb(), a.GetAPIGroup(), a.GetAPIVersion(),
		a.GetResource(), a.GetSubresource(), a.GetNamespace(), a.GetName(), fields, labels))
	return authorizer.DecisionDeny, "", nil
}

func (q *questions) take() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	asked := q.asked
	q.asked = nil
	return asked
}

func TestCallsFromWithinAreCounted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	maps := client.For(f.As(admin, "test"), core.ConfigMaps)
	made, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := maps.Get(t.Context(), "default", "none"); !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	if _, err := maps.List(t.Context(), "", metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.do(&client.Request{Verb: "delete", Def: core.ConfigMaps.Def, Namespace: "default", Name: made.Name, DryRun: true}); err != nil {
		t.Fatal(err)
	}
	document := []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`)
	if _, err := maps.Patch(t.Context(), "default", "a", "", client.Patch{Type: types.ApplyYAMLPatchType, Data: document, FieldManager: "m"}); err != nil {
		t.Fatal(err)
	}
	shown := f.must(200, "GET", "/metrics", "")
	for _, want := range []string{
		`apiserver_request_total{code="201",component="apiserver",dry_run="",group="",resource="configmaps",scope="namespace",subresource="",verb="POST",version="v1"} 1`,
		`apiserver_request_total{code="404",component="apiserver",dry_run="",group="",resource="configmaps",scope="resource",subresource="",verb="GET",version="v1"} 1`,
		`apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="configmaps",scope="cluster",subresource="",verb="LIST",version="v1"} 1`,
		`apiserver_request_total{code="200",component="apiserver",dry_run="All",group="",resource="configmaps",scope="resource",subresource="",verb="DELETE",version="v1"} 1`,
		`apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="configmaps",scope="resource",subresource="",verb="APPLY",version="v1"} 1`,
		`apiserver_request_duration_seconds_count{component="apiserver",dry_run="",group="",resource="configmaps",scope="namespace",subresource="",verb="POST",version="v1"} 1`,
	} {
		if !strings.Contains(shown, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
}

func TestBodiesThatAreNoObjectsAreRefusedFromWithin(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var none resource.Object
	for _, verb := range []string{"create", "update"} {
		if _, err := f.do(&client.Request{Verb: verb, Def: core.ConfigMaps.Def, Namespace: "default", Name: "a", Object: none}); err == nil {
			t.Errorf("%s of nothing: got no error", verb)
		}
	}
}
