package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/apiserver/write"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/trace"
)

const mapsPath = "/api/v1/namespaces/default/configmaps"

// decoded reads an answer.
func decoded[T any](t *testing.T, body string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return v
}

func TestDryRunChangesNothing(t *testing.T) {
	f := newFixture(t)
	created := f.must(201, "POST", mapsPath+"?dryRun=All", cm)
	if m := decoded[metav1.PartialObjectMetadata](t, created); m.UID == "" || m.ResourceVersion != "" {
		t.Errorf("create: got %+v", m)
	}
	if read := f.must(201, "POST", mapsPath+"?dryRun=All", `{"metadata":{"name":"one","uid":"x","resourceVersion":"5"}}`); !strings.Contains(read, `"resourceVersion":"5"`) {
		t.Errorf("create of what was read elsewhere: got %s, want the revision that was sent", read)
	}
	f.must(404, "GET", mapsPath+"/one", "")
	stored := f.must(201, "POST", mapsPath, cm)
	f.must(409, "POST", mapsPath+"?dryRun=All", cm)
	patched := f.must(200, "PATCH", mapsPath+"/one?dryRun=All", `{"data":{"x":"y"}}`, "Content-Type: application/merge-patch+json")
	if !strings.Contains(patched, `"x":"y"`) {
		t.Errorf("patch: got %s", patched)
	}
	f.must(200, "PATCH", mapsPath+"/one?dryRun=All&dryRun=All", `{"data":{"x":"y"}}`, "Content-Type: application/merge-patch+json")
	f.must(200, "PUT", mapsPath+"/one?dryRun=All&dryRun=All", cm)
	f.must(200, "DELETE", mapsPath+"/one", `{"dryRun":["All","All"]}`)
	f.must(200, "DELETE", mapsPath+"/one?dryRun=All", "")
	f.must(200, "DELETE", mapsPath+"?dryRun=All", "")
	if got := f.must(200, "GET", mapsPath+"/one", ""); got != stored {
		t.Errorf("got %s, want %s", got, stored)
	}
}

func TestWritesWithoutAChangeWriteNothing(t *testing.T) {
	f := newFixture(t)
	stored := f.must(201, "POST", mapsPath, cm)
	for _, got := range []string{
		f.must(200, "PUT", mapsPath+"/one", stored),
		f.must(200, "PUT", mapsPath+"/one", cm),
		f.must(200, "PATCH", mapsPath+"/one", `{"data":{"a":"b"}}`, "Content-Type: application/merge-patch+json"),
		f.must(200, "PATCH", mapsPath+"/one", `[]`, "Content-Type: application/json-patch+json"),
	} {
		if got != stored {
			t.Errorf("got %s, want %s", got, stored)
		}
	}
}

func TestGeneratedNamesHaveARandomEnd(t *testing.T) {
	f := newFixture(t)
	seen := map[string]bool{}
	for range 20 {
		m := decoded[metav1.PartialObjectMetadata](t, f.must(201, "POST", mapsPath, `{"metadata":{"generateName":"run-"}}`))
		if !strings.HasPrefix(m.Name, "run-") || len(m.Name) != len("run-")+5 || seen[m.Name] || m.GenerateName != "run-" {
			t.Errorf("got name %q", m.Name)
		}
		seen[m.Name] = true
	}
	m := decoded[metav1.PartialObjectMetadata](t, f.must(201, "POST", mapsPath, `{"metadata":{"generateName":"`+strings.Repeat("x", 100)+`"}}`))
	if len(m.Name) != 63 {
		t.Errorf("long prefix: got name %q", m.Name)
	}
}

func TestFinalizersKeepAnObjectUntilTheyAreGone(t *testing.T) {
	f := newFixture(t)
	f.must(201, "POST", mapsPath, `{"metadata":{"name":"one","finalizers":["example.com/wait"]}}`)
	marked := decoded[metav1.PartialObjectMetadata](t, f.must(200, "DELETE", mapsPath+"/one", ""))
	if marked.DeletionTimestamp == nil || *marked.DeletionGracePeriodSeconds != 0 {
		t.Errorf("delete: got %+v", marked)
	}
	again := decoded[metav1.PartialObjectMetadata](t, f.must(200, "DELETE", mapsPath+"/one", ""))
	if again.ResourceVersion != marked.ResourceVersion {
		t.Errorf("second delete wrote: %s, was %s", again.ResourceVersion, marked.ResourceVersion)
	}
	refused := f.must(422, "PATCH", mapsPath+"/one", `{"metadata":{"finalizers":["example.com/wait","example.com/more"]}}`, "Content-Type: application/merge-patch+json")
	if !strings.Contains(refused, "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted") {
		t.Errorf("new finalizer: got %s", refused)
	}
	f.must(200, "PATCH", mapsPath+"/one", `{"metadata":{"finalizers":null}}`, "Content-Type: application/merge-patch+json")
	f.must(404, "GET", mapsPath+"/one", "")
}

func TestPropagationPolicyBecomesAFinalizer(t *testing.T) {
	f := newFixture(t)
	for policy, want := range map[string]string{"Foreground": "foregroundDeletion", "Orphan": "orphan"} {
		f.must(201, "POST", mapsPath, cm)
		got := decoded[metav1.PartialObjectMetadata](t, f.must(200, "DELETE", mapsPath+"/one", `{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"`+policy+`"}`))
		if len(got.Finalizers) != 1 || got.Finalizers[0] != want || got.DeletionTimestamp == nil {
			t.Errorf("%s: got %+v", policy, got)
		}
		f.must(200, "PATCH", mapsPath+"/one", `{"metadata":{"finalizers":null}}`, "Content-Type: application/merge-patch+json")
	}
	f.must(201, "POST", mapsPath, cm)
	f.must(200, "DELETE", mapsPath+"/one?propagationPolicy=Background", "")
	f.must(404, "GET", mapsPath+"/one", "")
}

// TestEventsGoAtOnceWhateverThePolicy of a delete is: nobody has one as an owner.
func TestEventsGoAtOnceWhateverThePolicy(t *testing.T) {
	f := newFixture(t)
	const events = "/api/v1/namespaces/default/events"
	for _, policy := range []string{"Foreground", "Orphan"} {
		f.must(201, "POST", events, `{"metadata":{"name":"e"},"involvedObject":{"namespace":"default"}}`)
		f.must(200, "DELETE", events+"/e?propagationPolicy="+policy, "")
		f.must(404, "GET", events+"/e", "")
	}
}

// TestGenerationsAndMakingByUpdateAreUpstreams where they are easily taken for others.
func TestGenerationsAndMakingByUpdateAreUpstreams(t *testing.T) {
	f := newFixture(t)
	const budget = "/apis/policy/v1/namespaces/default/poddisruptionbudgets/b"
	f.must(404, "PUT", budget, `{"apiVersion":"policy/v1","kind":"PodDisruptionBudget","metadata":{"name":"b"},"spec":{"minAvailable":1}}`)
	made := f.must(201, "POST", "/apis/storage.k8s.io/v1/volumeattachments", `{"metadata":{"name":"a"},"spec":{"attacher":"example.com","nodeName":"n","source":{"persistentVolumeName":"v"}}}`)
	if got := decoded[metav1.PartialObjectMetadata](t, made); got.Generation != 0 {
		t.Errorf("an attachment is of generation %d, want none: its spec never changes", got.Generation)
	}
	const deployments, slices = "/apis/apps/v1/namespaces/default/deployments", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
	f.must(201, "POST", deployments, `{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`)
	f.must(201, "POST", slices, `{"metadata":{"name":"s"},"addressType":"IPv4","endpoints":[]}`)
	for _, c := range []struct {
		path, field string
		want        int64
	}{
		{deployments + "/d", "labels", 1},
		{deployments + "/d/status", "annotations", 1},
		{deployments + "/d", "annotations", 2},
		{slices + "/s", "annotations", 1},
		{slices + "/s", "labels", 2},
	} {
		patch := `{"metadata":{"` + c.field + `":{"of":"` + strings.ReplaceAll(c.path[len(c.path)-3:], "/", "") + `"}}}`
		if got := decoded[metav1.PartialObjectMetadata](t, f.must(200, "PATCH", c.path, patch, mergePatch)); got.Generation != c.want {
			t.Errorf("%s of %s change: got generation %d, want %d", c.field, c.path, got.Generation, c.want)
		}
	}
}

func TestCollectionsAreDeletedBySelector(t *testing.T) {
	f := newFixture(t)
	for i := range 4 {
		f.must(201, "POST", mapsPath, fmt.Sprintf(`{"metadata":{"name":"m%d","labels":{"odd":"%d"}}}`, i, i%2))
	}
	got := decoded[metav1.PartialObjectMetadataList](t, f.must(200, "DELETE", mapsPath+"?labelSelector=odd%3D1", ""))
	if got.Kind != "ConfigMapList" || len(got.Items) != 2 {
		t.Errorf("deletecollection: got %+v", got)
	}
	rest := decoded[metav1.PartialObjectMetadataList](t, f.must(200, "GET", mapsPath, ""))
	if len(rest.Items) != 2 || rest.Items[0].Name != "m0" {
		t.Errorf("left: %+v", rest.Items)
	}
	// Who deletes a part is told how to go on.
	got = decoded[metav1.PartialObjectMetadataList](t, f.must(200, "DELETE", mapsPath+"?limit=1", ""))
	if len(got.Items) != 1 || got.Items[0].Name != "m0" || got.Continue == "" || got.RemainingItemCount == nil || *got.RemainingItemCount != 1 {
		t.Errorf("the first one: got %+v", got)
	}
	got = decoded[metav1.PartialObjectMetadataList](t, f.must(200, "DELETE", mapsPath+"?limit=1&continue="+got.Continue, ""))
	if len(got.Items) != 1 || got.Items[0].Name != "m2" || got.Continue != "" {
		t.Errorf("the next one: got %+v", got)
	}
}

// slowDeletes is an admission that takes a second for each deletion, and does not
// like some names.
type slowDeletes struct{ write.NoAdmission }

func (slowDeletes) Validate(ctx context.Context, a *admission.Attributes) error {
	if a.Operation != "DELETE" {
		return nil
	}
	if err := task.Sleep(ctx, time.Second); err != nil {
		return err
	}
	switch a.Name {
	case "m20":
		return apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, a.Name, errors.New("not this one"))
	case "p20":
		panic("a bug of a plugin")
	}
	return nil
}

func TestCollectionsAreDeletedEightAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(o *Options) { o.Admission = slowDeletes{} })
		for _, c := range []struct {
			prefix, want      string
			code, least, most int
			longest           time.Duration
		}{
			{"a", `"kind":"ConfigMapList"`, 200, 40, 40, 5 * time.Second},
			// What is begun beside the one that fails, or just before, goes on.
			{"m", `configmaps \"m20\" is forbidden: not this one`, 403, 16, 30, 4 * time.Second},
			{"p", "delete default/p20: a bug of a plugin", 500, 16, 30, 4 * time.Second},
		} {
			for i := range 40 {
				f.must(201, "POST", mapsPath, fmt.Sprintf(`{"metadata":{"name":"%s%02d","labels":{"of":"%s"}}}`, c.prefix, i, c.prefix))
			}
			start := time.Now()
			got := f.must(c.code, "DELETE", mapsPath+"?labelSelector=of%3D"+c.prefix, "")
			took := time.Since(start)
			rest := decoded[metav1.PartialObjectMetadataList](t, f.must(200, "GET", mapsPath+"?labelSelector=of%3D"+c.prefix, ""))
			deleted := 40 - len(rest.Items)
			if !strings.Contains(got, c.want) || took > c.longest || deleted < c.least || deleted > c.most {
				t.Errorf("%s: got %d deleted in %s: %s; want %s, %d to %d in %s", c.prefix, deleted, took, got, c.want, c.least, c.most, c.longest)
			}
		}
	})
}

func TestTablesHaveTheDeclaredColumns(t *testing.T) {
	f := newFixture(t)
	f.must(201, "POST", mapsPath, cm)
	const accept = "Accept: application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
	table := decoded[metav1.Table](t, f.must(200, "GET", mapsPath, "", accept))
	if table.Kind != "Table" || table.APIVersion != "meta.k8s.io/v1" || len(table.Rows) != 1 || table.ResourceVersion == "" {
		t.Fatalf("got %+v", table)
	}
	var names []string
	for _, c := range table.ColumnDefinitions {
		names = append(names, c.Name)
	}
	if fmt.Sprint(names) != "[Name Data Age]" || !regexp.MustCompile(`^\[one 1 \d+s\]$`).MatchString(fmt.Sprint(table.Rows[0].Cells)) {
		t.Errorf("got columns %v, cells %v", names, table.Rows[0].Cells)
	}
	if row := string(table.Rows[0].Object.Raw); !strings.HasPrefix(row, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"one"`) {
		t.Errorf("row's object: %s", row)
	}
	for include, want := range map[string]string{"None": "null", "Object": `{"kind":"ConfigMap","apiVersion":"v1",`} {
		table := f.must(200, "GET", mapsPath+"?includeObject="+include, "", accept)
		if !strings.Contains(table, `"object":`+want) {
			t.Errorf("includeObject=%s: got %s", include, table)
		}
	}
	if got := f.ask("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
		`{"spec":{"resourceAttributes":{"verb":"get","resource":"pods"}}}`, "Accept: application/json;as=Table;v=v1;g=meta.k8s.io"); got.Code != http.StatusNotAcceptable {
		t.Errorf("table of a review: got %d %s", got.Code, got.Body)
	}
	trace.Proves(t, "C-149")
}

func TestTablesSayWhichPodsHaveEnded(t *testing.T) {
	f := newFixture(t)
	const path, accept = "/api/v1/namespaces/default/pods", "Accept: application/json;as=Table;v=v1;g=meta.k8s.io"
	for name, phase := range map[string]string{"a": "Succeeded", "b": "Failed", "c": "Running"} {
		f.must(201, "POST", path, `{"metadata":{"name":"`+name+`"},"spec":{"containers":[{"name":"c","image":"i"}]}}`)
		f.must(200, "PATCH", path+"/"+name+"/status", `{"status":{"phase":"`+phase+`"}}`, "Content-Type: application/merge-patch+json")
	}
	table := decoded[metav1.Table](t, f.must(200, "GET", path, "", accept))
	var got []string
	for _, row := range table.Rows {
		got = append(got, fmt.Sprint(row.Conditions))
	}
	want := []string{
		"[{Completed True Succeeded The pod has completed successfully.}]", "[{Completed True Failed The pod failed.}]", "[]",
	}
	if !slices.Equal(got, want) {
		t.Errorf("conditions of rows: got %q, want %q", got, want)
	}
}

func TestFlowSchemasAreShownInTheirOrder(t *testing.T) {
	f := newFixture(t)
	const path = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas"
	for name, precedence := range map[string]string{"a": "900", "b": "30", "c": "900", "d": "400"} {
		f.must(201, "POST", path, `{"metadata":{"name":"`+name+`"},"spec":{"matchingPrecedence":`+precedence+`,"priorityLevelConfiguration":{"name":"exempt"}}}`)
	}
	names := func(accept string) (names []string) {
		for _, m := range regexp.MustCompile(`"metadata":\{"name":"(.)"`).FindAllStringSubmatch(f.must(200, "GET", path, "", accept), -1) {
			names = append(names, m[1])
		}
		return names
	}
	if got, want := names("Accept: application/json;as=Table;v=v1;g=meta.k8s.io"), []string{"b", "d", "a", "c"}; !slices.Equal(got, want) {
		t.Errorf("rows of a table: got %q, want %q", got, want)
	}
	if got, want := names("Accept: application/json"), []string{"a", "b", "c", "d"}; !slices.Equal(got, want) {
		t.Errorf("a list: got %q, want %q", got, want)
	}
}

// TestWatchesOfTablesThatCannotBeAreRefused before they begin, as lists are.
func TestWatchesOfTablesThatCannotBeAreRefused(t *testing.T) {
	f := newFixture(t)
	const table = "Accept: application/json;as=Table;g=meta.k8s.io;v=v1"
	for _, query := range []string{"?includeObject=All", "?watch=1&timeoutSeconds=1&includeObject=All"} {
		if got := f.must(400, "GET", mapsPath+query, "", table); !strings.Contains(got, `includeObject: Invalid value: \"All\": must be 'Metadata', 'Object', 'None', or empty`) {
			t.Errorf("%s: got %s", query, got)
		}
	}
	f.must(200, "GET", mapsPath+"?watch=1&timeoutSeconds=1&includeObject=Object", "", table)
}

func TestYAMLAndPrettyAnswers(t *testing.T) {
	f := newFixture(t)
	f.must(201, "POST", mapsPath, "metadata: {name: one}\ndata: {a: b}\n", "Content-Type: application/yaml")
	if got := f.must(200, "GET", mapsPath+"/one", "", "Accept: application/yaml"); !strings.HasPrefix(got, "apiVersion: v1\ndata:\n  a: b\nkind: ConfigMap\n") {
		t.Errorf("YAML: got %s", got)
	}
	if got := f.must(200, "GET", mapsPath+"/one?pretty=true", ""); !strings.HasPrefix(got, "{\n  \"kind\": \"ConfigMap\",\n  \"apiVersion\": \"v1\",\n") {
		t.Errorf("pretty: got %s", got)
	}
	if got := f.must(200, "GET", mapsPath, "", "Accept: application/yaml"); !strings.Contains(got, "kind: ConfigMapList") {
		t.Errorf("YAML list: got %s", got)
	}
}

func TestListsAtARevision(t *testing.T) {
	f := newFixture(t)
	f.must(201, "POST", mapsPath, `{"metadata":{"name":"a"}}`)
	list := decoded[metav1.PartialObjectMetadataList](t, f.must(200, "GET", mapsPath, ""))
	f.must(201, "POST", mapsPath, `{"metadata":{"name":"b"}}`)
	exact := decoded[metav1.PartialObjectMetadataList](t, f.must(200, "GET", mapsPath+"?resourceVersionMatch=Exact&resourceVersion="+list.ResourceVersion, ""))
	if len(exact.Items) != 1 || exact.ResourceVersion != list.ResourceVersion {
		t.Errorf("Exact: got %+v", exact)
	}
	least := decoded[metav1.PartialObjectMetadataList](t, f.must(200, "GET", mapsPath+"?resourceVersionMatch=NotOlderThan&resourceVersion="+list.ResourceVersion, ""))
	if len(least.Items) < 1 {
		t.Errorf("NotOlderThan: got %+v", least)
	}
	newest := decoded[metav1.PartialObjectMetadataList](t, f.must(200, "GET", mapsPath, ""))
	rev, _ := strconv.Atoi(newest.ResourceVersion)
	if err := f.store.Compact(t.Context(), int64(rev)); err != nil {
		t.Fatal(err)
	}
	f.must(410, "GET", mapsPath+"?resourceVersionMatch=Exact&resourceVersion="+list.ResourceVersion, "")
}

func TestSelectorsNarrowLists(t *testing.T) {
	f := newFixture(t)
	for _, name := range []string{"a", "b", "c"} {
		f.must(201, "POST", mapsPath, `{"metadata":{"name":"`+name+`","labels":{"l":"`+name+`"}}}`)
	}
	for selector, want := range map[string]int{
		"fieldSelector=metadata.name%3Da": 1, "fieldSelector=metadata.name!%3Da": 2, "labelSelector=l+in+(a,b)": 2,
		"labelSelector=!l": 0, "fieldSelector=metadata.namespace%3Dother": 0, "labelSelector=l%3Da&fieldSelector=metadata.name%3Db": 0,
		"labelSelector=l+notin+(a)&limit=1": 1,
	} {
		list := decoded[metav1.PartialObjectMetadataList](t, f.must(200, "GET", mapsPath+"?"+selector, ""))
		if len(list.Items) != want || list.RemainingItemCount != nil {
			t.Errorf("%s: got %d items, remaining %v; want %d and none told", selector, len(list.Items), list.RemainingItemCount, want)
		}
	}
}

// only allows a user nothing but what allow says.
func only(name string, allow func(a authorizer.Attributes) bool) func(o *Options) {
	return func(o *Options) {
		o.Authenticator = authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
			return &authenticator.Response{User: &user.DefaultInfo{Name: name}}, true, nil
		})
		o.Authorizer = authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			if a.GetUser().GetName() == "admin" || allow(a) {
				return authorizer.DecisionAllow, "", nil
			}
			return authorizer.DecisionNoOpinion, "", nil
		})
	}
}

func TestForbiddenSaysWhatIsForbidden(t *testing.T) {
	f := newFixture(t, only("eve", func(a authorizer.Attributes) bool {
		return a.GetVerb() == "list" || a.GetVerb() == "update" || a.GetVerb() == "patch"
	}))
	for path, want := range map[string]string{
		mapsPath + "/one":                             `configmaps \"one\" is forbidden: User \"eve\" cannot get resource \"configmaps\" in API group \"\" in the namespace \"default\"`,
		"/api/v1/nodes/n/status":                      `nodes \"n\" is forbidden: User \"eve\" cannot get resource \"nodes/status\" in API group \"\" at the cluster scope`,
		"/apis/apps/v1/namespaces/x/deployments/none": `deployments.apps \"none\" is forbidden: User \"eve\" cannot get resource \"deployments\" in API group \"apps\" in the namespace \"x\"`,
		"/metrics": `forbidden: User \"eve\" cannot get path \"/metrics\"`,
	} {
		if got := f.must(403, "GET", path, ""); !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
	f.must(200, "GET", mapsPath, "")
	lease := "/apis/coordination.k8s.io/v1/namespaces/default/leases/l"
	if got := f.must(403, "PUT", lease, `{"metadata":{"name":"l"}}`); !strings.Contains(got, "cannot create resource") {
		t.Errorf("PUT of a new lease: got %s", got)
	}
	if got := f.must(403, "PATCH", mapsPath+"/one?fieldManager=x", cm, "Content-Type: application/apply-patch+yaml"); !strings.Contains(got, "cannot create resource") {
		t.Errorf("apply of a new object: got %s", got)
	}
	_, err := client.For(f.As(&user.DefaultInfo{Name: "eve"}, "eve"), core.ConfigMaps).Get(t.Context(), "default", "one")
	if err == nil || !strings.Contains(err.Error(), `configmaps "one" is forbidden: User "eve" cannot get resource "configmaps"`) {
		t.Errorf("in process: got %v", err)
	}
}

func TestImpersonationNeedsPermission(t *testing.T) {
	asked := ""
	f := newFixture(t, only("eve", func(a authorizer.Attributes) bool {
		if strings.HasPrefix(a.GetVerb(), "impersonate") {
			asked += strings.TrimPrefix(a.GetVerb(), "impersonate") + " " + a.GetResource() + "=" + a.GetName() + "\n"
			return a.GetVerb() == "impersonate" && a.GetResource() == "users" && a.GetName() == "bob"
		}
		return a.GetUser().GetName() == "bob"
	}))
	f.must(403, "GET", mapsPath, "")
	f.must(200, "GET", mapsPath, "", "Impersonate-User: bob")
	for alone, want := range map[string]string{
		"Impersonate-Group: g":        `UID:"", Groups:[]string{"g"}, Extra:map[string][]string(nil)}`,
		"Impersonate-Uid: u":          `UID:"u", Groups:[]string(nil), Extra:map[string][]string(nil)}`,
		"Impersonate-Extra-Scopes: s": `UID:"", Groups:[]string(nil), Extra:map[string][]string{"scopes":[]string{"s"}}}`,
		"Impersonate-Extra-%zz: s":    `UID:"", Groups:[]string(nil), Extra:map[string][]string{"%zz":[]string{"s"}}}`, // no escape, and so what it is
	} {
		want = strconv.Quote(`requested &user.DefaultInfo{Name:"", ` + want + ` without impersonating a user name`)
		if got := f.must(400, "GET", mapsPath, "", alone); !strings.Contains(got, strings.ReplaceAll(want, "&", `\u0026`)) {
			t.Errorf("%s: got %s, want %s", alone, got, want)
		}
	}
	asked = ""
	got := f.must(403, "GET", mapsPath, "", "Impersonate-User: bob", "Impersonate-Group: system:masters")
	if want := " users=bob\n groups=system:masters\n-on:user-info:list configmaps=\n"; !strings.Contains(got, `User \"eve\" cannot impersonate resource \"groups\"`) || asked != want {
		t.Errorf("got %s; asked\n%swant\n%s", got, asked, want)
	}
}

func TestImpersonationIsConstrained(t *testing.T) {
	allowed, asked := map[string]bool{}, ""
	f := newFixture(t, func(o *Options) {
		by := &user.DefaultInfo{Name: "system:serviceaccount:a:agent", Groups: []string{"g"}, Extra: map[string][]string{
			"authentication.kubernetes.io/node-name": {"n1"}, "authentication.kubernetes.io/node-uid": {"u"},
		}}
		o.Authenticator = always(by)
		o.Authorizer = authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			if !strings.HasPrefix(a.GetVerb(), "impersonate") {
				asked += strings.Join(append(a.GetUser().GetGroups(), a.GetUser().GetName()), ",")
				return authorizer.DecisionAllow, "", nil
			}
			key := a.GetVerb() + " " + a.GetAPIGroup() + "/" + a.GetResource()
			if a.GetSubresource() != "" {
				key += "/" + a.GetSubresource()
			}
			key += " " + a.GetName()
			if keys := a.GetUser().GetExtra()["authentication.kubernetes.io/associated-node-keys"]; keys != nil {
				key += " " + strings.Join(keys, ",")
			}
			asked += key + "\n"
			if allowed[key] {
				return authorizer.DecisionAllow, "", nil
			}
			return authorizer.DecisionNoOpinion, "", nil
		})
	})
	ask := func(code int, may, want string, headers ...string) string {
		t.Helper()
		allowed, asked = map[string]bool{}, ""
		for _, key := range strings.Split(may, "\n") {
			allowed[key] = true
		}
		got := f.must(code, "GET", mapsPath, "", headers...)
		if asked != want {
			t.Errorf("%v: asked\n%s\nwant\n%s", headers, asked, want)
		}
		return got
	}
	const keys = " authentication.kubernetes.io/node-name,authentication.kubernetes.io/node-uid"
	own := "impersonate-on:associated-node:list /configmaps " + keys + "\nimpersonate:associated-node authentication.k8s.io/nodes *" + keys
	ask(200, own, own+"\nsystem:nodes,system:authenticated,system:node:n1", "Impersonate-User: system:node:n1")
	other := "impersonate-on:arbitrary-node:list /configmaps \nimpersonate:arbitrary-node authentication.k8s.io/nodes n2"
	ask(200, other, other+"\nsystem:nodes,system:authenticated,system:node:n2", "Impersonate-User: system:node:n2")
	account := "impersonate-on:serviceaccount:list /configmaps \nimpersonate:serviceaccount authentication.k8s.io/serviceaccounts b"
	ask(200, account, account+"\nsystem:serviceaccounts,system:serviceaccounts:a,system:authenticated,system:serviceaccount:a:b", "Impersonate-User: system:serviceaccount:a:b")
	bob := "impersonate-on:user-info:list /configmaps \nimpersonate:user-info authentication.k8s.io/users bob\nimpersonate:user-info authentication.k8s.io/uids 7\n" +
		"impersonate:user-info authentication.k8s.io/groups dev\nimpersonate:user-info authentication.k8s.io/userextras/example.com/x y"
	ask(200, bob, bob+"\ndev,system:authenticated,bob", "Impersonate-User: bob", "Impersonate-Uid: 7", "Impersonate-Group: dev", "Impersonate-Extra-Example.com%2fx: y")
	four := "impersonate-on:user-info:list /configmaps \nimpersonate:user-info authentication.k8s.io/users bob\nimpersonate:user-info authentication.k8s.io/groups *"
	ask(200, four, four+"\na,b,c,d,system:authenticated,bob", "Impersonate-User: bob", "Impersonate-Group: a", "Impersonate-Group: b", "Impersonate-Group: c", "Impersonate-Group: d")

	refused := "impersonate-on:user-info:list /configmaps \nimpersonate:user-info authentication.k8s.io/users bob\n"
	got := ask(403, refused, refused+"impersonate /users bob\n", "Impersonate-User: bob", "Impersonate-Group: system:masters")
	if want := `groups.authentication.k8s.io \"system:masters\" is forbidden: User \"system:serviceaccount:a:agent\" cannot impersonate:user-info resource \"groups\" in API group \"authentication.k8s.io\" at the cluster scope: impersonating the system:masters group is not allowed`; !strings.Contains(got, want) {
		t.Errorf("got %s, want %s", got, want)
	}
	got = ask(403, refused, refused+"impersonate /users bob\n", "Impersonate-User: bob", "Impersonate-Extra-Example.com%2f%41b: x")
	if want := `impersonating a non-lowercase key in extra is not allowed: \"example.com/Ab\"`; !strings.Contains(got, want) {
		t.Errorf("got %s, want %s", got, want)
	}
	got = ask(403, "", "impersonate-on:user-info:list /configmaps \nimpersonate /users bob\n", "Impersonate-User: bob")
	if want := `configmaps is forbidden: User \"system:serviceaccount:a:agent\" cannot impersonate-on:user-info:list resource \"configmaps\" in API group \"\" in the namespace \"default\"`; !strings.Contains(got, want) {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestUnauthenticatedRequestsAreRefused(t *testing.T) {
	f := newFixture(t, func(o *Options) {
		o.Authenticator = authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) { return nil, false, nil })
	})
	if got := f.must(401, "GET", mapsPath, ""); !strings.Contains(got, `"message":"Unauthorized","reason":"Unauthorized"`) {
		t.Errorf("got %s", got)
	}
}

func TestWhoDeletesJobsWithoutAPolicyIsWarned(t *testing.T) {
	f := newFixture(t)
	const jobs = "/apis/batch/v1/namespaces/default/jobs"
	const warning = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning"
	for _, c := range []struct{ name, path, want string }{
		{"one", jobs + "/one", warning},
		{"all", jobs, warning},
		{"one, by a policy", jobs + "/one?propagationPolicy=Orphan", ""},
		{"all, by a policy", jobs + "?propagationPolicy=Background", ""},
		{"one, by the old form of it", jobs + "/one?orphanDependents=false", ""},
	} {
		f.must(201, "POST", jobs, `{"metadata":{"generateName":"x-"},"spec":{"suspend":true,"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}`)
		f.ask("POST", jobs, `{"metadata":{"name":"one"},"spec":{"suspend":true,"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}`)
		w := f.ask("DELETE", c.path, "")
		if got := strings.Join(warningsOf(t, w.Header()), "|"); w.Code/100 != 2 || got != c.want {
			t.Errorf("%s: got %d %q, want %q", c.name, w.Code, got, c.want)
		}
	}
	f.must(201, "POST", mapsPath, cm)
	if w := f.ask("DELETE", mapsPath+"/one", ""); w.Code != 200 || len(w.Header().Values("Warning")) != 0 {
		t.Errorf("a kind whose dependents go: got %d %q", w.Code, w.Header())
	}
}

func TestWatchOfALostRevisionIsToldSo(t *testing.T) {
	st := newStore(t)
	for i := range 3 {
		res, err := st.Txn(t.Context(), store.Txn{Ops: []store.Op{{Key: "/registry/other", Value: fmt.Append(nil, i)}}})
		if err == nil {
			err = st.Compact(t.Context(), res.Rev)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	f := newFixture(t, func(o *Options) { o.Store = st })
	got := f.must(200, "GET", mapsPath+"?watch=1&resourceVersion=1&timeoutSeconds=1", "")
	begin := regexp.MustCompile(`^{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version: 1 \((\d+)\)","reason":"Expired","code":410`).FindStringSubmatch(got)
	if begin == nil {
		t.Fatalf("got %s", got)
	}
	if got := f.must(200, "GET", mapsPath+"?watch=1&timeoutSeconds=1&resourceVersion="+begin[1], ""); strings.Contains(got, "ERROR") {
		t.Errorf("a watch from where the refusal says: got %s", got)
	}
}

func TestWatchEndsInTimeWithABookmark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		start := time.Now()
		got := f.must(200, "GET", mapsPath+"?watch=1&allowWatchBookmarks=true&timeoutSeconds=150", "")
		if n := strings.Count(got, `{"type":"BOOKMARK","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"`); n != 4 || strings.Count(got, "k8s.io/initial-events-end") != 1 || time.Since(start) != 150*time.Second {
			t.Errorf("got %d bookmarks in %s: %s; want one after what there was, one a minute and a last one", n, time.Since(start), got)
		}
	})
}

// TestApplyOfAScaleMindsOtherManagers: who applies to the subresource scale owns
// the replicas, and takes them from nobody unless told to.
func TestApplyOfAScaleMindsOtherManagers(t *testing.T) {
	f := newFixture(t)
	const deployment = "/apis/apps/v1/namespaces/default/deployments/d"
	const full = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"replicas":2,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`
	const scale = `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"d"},"spec":{"replicas":5}}`
	const apply = "Content-Type: application/apply-patch+yaml"
	f.must(201, "PATCH", deployment+"?fieldManager=one", full, apply)
	refused := f.must(409, "PATCH", deployment+"/scale?fieldManager=two", scale, apply)
	if want := `Apply failed with 1 conflict: conflict with \"one\": .spec.replicas`; !strings.Contains(refused, want) {
		t.Errorf("got %s, want %s", refused, want)
	}
	if got := f.must(200, "PATCH", deployment+"/scale?fieldManager=two&force=true", scale, apply); !strings.Contains(got, `"spec":{"replicas":5}`) {
		t.Errorf("by force: got %s", got)
	}
	var owners []string
	for _, m := range decoded[metav1.PartialObjectMetadata](t, f.must(200, "GET", deployment, "")).ManagedFields {
		if strings.Contains(string(m.FieldsV1.GetRawBytes()), "f:replicas") {
			owners = append(owners, fmt.Sprintf("%s %s %s %s", m.Manager, m.Operation, m.Subresource, m.APIVersion))
		}
	}
	if got := strings.Join(owners, ", "); got != "two Apply scale apps/v1" {
		t.Errorf("the replicas are owned by %q", got)
	}
	refused = f.must(409, "PATCH", deployment+"?fieldManager=one", full, apply)
	if want := `conflict with \"two\" with subresource \"scale\": .spec.replicas`; !strings.Contains(refused, want) {
		t.Errorf("got %s, want %s", refused, want)
	}
	f.must(200, "PATCH", deployment+"/scale?fieldManager=two", strings.Replace(scale, "5", "7", 1), apply)
	if got := f.must(200, "GET", deployment, ""); !strings.Contains(got, `"replicas":7`) || !strings.Contains(got, `"generation":3`) {
		t.Errorf("got %s, want 7 replicas in generation 3", got)
	}
	f.must(400, "PATCH", deployment+"/scale?fieldManager=two", full, apply)
}

// TestTellsOfRequestsInNativeHistograms asks as a scraper does that reads them: in protobuf, where a classic
// histogram stands beside.
func TestTellsOfRequestsInNativeHistograms(t *testing.T) {
	reg := prometheus.NewRegistry()
	f := newFixture(t, func(o *Options) { o.Registry = reg })
	f.must(201, "POST", mapsPath, cm)
	w := f.ask("GET", "/metrics", "", "Accept: application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited")
	if got := w.Header().Get("Content-Type"); w.Code != 200 || !strings.HasPrefix(got, "application/vnd.google.protobuf") {
		t.Fatalf("got %d, %s, want protobuf", w.Code, got)
	}
	families, err := reg.Gather() // what was sent
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "apiserver_request_duration_seconds" {
			continue
		}
		for _, m := range family.GetMetric() {
			if h := m.GetHistogram(); h.GetSchema() != 3 || len(h.GetPositiveSpan()) == 0 || len(h.GetBucket()) == 0 {
				t.Errorf("got schema %d with %d spans and %d classic buckets, want schema 3 and some of both", h.GetSchema(), len(h.GetPositiveSpan()), len(h.GetBucket()))
			}
			return
		}
	}
	t.Error("no request was measured")
}

// TestMetricsHaveTheNamesThatDashboardsKnow lists what the rules and dashboards
// that people have ask for.
func TestMetricsHaveTheNamesThatDashboardsKnow(t *testing.T) {
	f := newFixture(t)
	f.must(201, "POST", mapsPath, cm)
	f.must(200, "GET", "/api/v1/configmaps", "")
	f.must(200, "GET", "/apis/batch/v1beta1/cronjobs", "")
	f.must(200, "GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dn", "")
	f.must(200, "GET", "/api/v1/configmaps?labelSelector=a%3Db", "")
	got := f.must(200, "GET", "/metrics", "")
	for _, want := range []string{
		`apiserver_request_total{code="201",component="apiserver",dry_run="",group="",resource="configmaps",scope="namespace",subresource="",verb="POST",version="v1"} 1`,
		`apiserver_request_duration_seconds_count{component="apiserver",dry_run="",group="",resource="configmaps",scope="cluster",subresource="",verb="LIST",version="v1"} 2`,
		`apiserver_request_sli_duration_seconds_count{component="apiserver",group="",resource="configmaps",scope="cluster",subresource="",verb="LIST",version="v1"} 2`,
		`apiserver_request_sli_duration_seconds_bucket{component="apiserver",group="",resource="configmaps",scope="cluster",subresource="",verb="LIST",version="v1",le="60"} 2`,
		`apiserver_storage_objects{resource="configmaps"} 1`,
		`apiserver_storage_objects{resource="deployments.apps"} 0`,
		`apiserver_resource_objects{group="apps",resource="deployments"} 0`,
		`apiserver_storage_events_received_total{group="",resource="configmaps"} 1`,
		`apiserver_watch_cache_events_received_total{group="",resource="configmaps"} 1`,
		`apiserver_watch_cache_events_dispatched_total{group="",resource="configmaps"} 1`,
		`apiserver_watch_cache_initializations_total{group="apps",resource="deployments"} 1`,
		`apiserver_watch_cache_resource_version{group="",resource="configmaps"} `,
		`watch_cache_capacity{group="",resource="configmaps"} 4096`,
		`apiserver_storage_list_total{group="",index="",resource="configmaps",storage="watchcache"} 2`,
		`apiserver_storage_list_fetched_objects_total{group="",index="",resource="configmaps",storage="watchcache"} 2`,
		`apiserver_storage_list_evaluated_objects_total{group="",resource="configmaps",storage="watchcache"} 0`,
		`apiserver_storage_list_returned_objects_total{group="",resource="configmaps",storage="watchcache"} 1`,
		`apiserver_cache_list_total{group="",index="f:spec.nodeName",resource="pods"} 1`,
		`apiserver_cache_list_fetched_objects_total{group="",index="",resource="configmaps"} 2`,
		`apiserver_cache_list_returned_objects_total{group="",resource="configmaps"} 1`,
		`apiserver_current_inflight_requests{request_kind="readOnly"} `,
		`apiserver_requested_deprecated_apis{group="batch",removed_release="1.25",resource="cronjobs",subresource="",version="v1beta1"} 1`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("/metrics does not have %s", want)
		}
	}
}

func TestOwnersThatAreNamedTwiceAreKeptOnce(t *testing.T) {
	f := newFixture(t)
	const owner = `{"apiVersion":"v1","kind":"ConfigMap","name":"o","uid":"7"}`
	twice := func(name string) string {
		return `{"metadata":{"name":"` + name + `","ownerReferences":[` + owner + `,{"apiVersion":"v1","kind":"ConfigMap","name":"p","uid":"8"},` + owner + `]}}`
	}
	const said = "API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: 7"
	for _, c := range []struct{ method, path, name, header, want string }{
		{"POST", mapsPath, "a", "Content-Type: application/json", ".metadata.ownerReferences contains duplicate entries; " + said},
		{"PUT", mapsPath + "/a", "a", "Content-Type: application/json", ".metadata.ownerReferences contains duplicate entries; " + said},
		{"PATCH", mapsPath + "/a", "a", mergePatch, ".metadata.ownerReferences contains duplicate entries after mutating admission happens; " + said},
	} {
		w := f.ask(c.method, c.path, twice(c.name), c.header)
		if got := warningsOf(t, w.Header()); w.Code >= 300 || !slices.Equal(got, []string{c.want}) || strings.Count(w.Body.String(), `"uid":"7"`) != 1 {
			t.Errorf("%s: got %d %s, warnings %q, want %q", c.method, w.Code, w.Body, got, c.want)
		}
	}
}
