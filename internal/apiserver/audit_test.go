package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/apiserver/write"
	"github.com/kemudi/kemudi/internal/audit"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/texttest"
	"github.com/kemudi/kemudi/test/wait"
)

// trail is a file with audit events.
type trail struct {
	tb   testing.TB
	path string
}

// audited has a server audit by a policy, in YAML without its head, and returns where that is told.
func audited(tb testing.TB, policy string, change ...func(o *audit.Options)) (option func(o *Options), told *trail) {
	tb.Helper()
	dir := tb.TempDir()
	told = &trail{tb, filepath.Join(dir, "audit.log")}
	a := audit.Defaults()
	a.PolicyFile, a.File.Path = filepath.Join(dir, "policy.yaml"), told.path
	if err := os.WriteFile(a.PolicyFile, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\n"+policy), 0o600); err != nil {
		tb.Fatal(err)
	}
	for _, f := range change {
		f(&a)
	}
	l, err := audit.New(a)
	if err != nil {
		tb.Fatal(err)
	}
	return func(o *Options) { o.Audit = l }, told
}

// lines are what is told, a line each.
func (tr *trail) lines() []string {
	data, err := os.ReadFile(tr.path)
	if err != nil {
		tr.tb.Fatal(err)
	}
	return strings.SplitAfter(strings.TrimSuffix(string(data), "\n"), "\n")
}

// await waits for an event of the stage with all that is said, and returns it with those before
// it of the same request.
func (tr *trail) await(stage string, says ...string) (list []auditv1.Event) {
	tr.tb.Helper()
	wait.Until(tr.tb, func() error {
		lines := tr.lines()
		for _, line := range lines {
			var last auditv1.Event
			if json.Unmarshal([]byte(line), &last) != nil || string(last.Stage) != stage || !containsAll(line, says) {
				continue
			}
			list = nil
			for _, line := range lines {
				var e auditv1.Event
				if json.Unmarshal([]byte(line), &e) == nil && e.AuditID == last.AuditID {
					list = append(list, e)
				}
			}
			return nil
		}
		return fmt.Errorf("no event of %s with %q in\n%s", stage, says, strings.Join(lines, ""))
	})
	return list
}

func containsAll(text string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}

// stagesOf are the stages of events.
func stagesOf(events []auditv1.Event) (list string) {
	for i := range events {
		list += string(events[i].Stage) + " "
	}
	return strings.TrimSpace(list)
}

// auditMasks put words in the place of what differs from run to run.
var auditMasks = []struct {
	re   *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "<uid>"},
	{regexp.MustCompile(`20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z`), "<micros>"},
	{regexp.MustCompile(`20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ`), "<time>"},
	{regexp.MustCompile(`"resourceVersion":"\d+"`), `"resourceVersion":"<rev>"`},
	{regexp.MustCompile(`"sourceIPs":\["[\d.]+"\]`), `"sourceIPs":["<ip>"]`},
	{regexp.MustCompile(`gen-[a-z0-9]{5}`), "gen-<id>"},
	{regexp.MustCompile(`"apiserver\.latency\.k8s\.io/[a-z-]+":"[^"]*",`), ""}, // on a machine that is slow; others follow
	{regexp.MustCompile(`"(\d+[smh])+"\]`), `"<age>"]`},
}

// TestAuditEvents shows the last event of each request: by HTTP, with what is sent, and
// from within. Later managers of fields have later names: what is of another second has another place.
func TestAuditEvents(t *testing.T) {
	option, told := audited(t, `
omitStages: [RequestReceived]
rules:
- {level: Metadata, resources: [{resources: [secrets]}]}
- {level: Request, verbs: [update]}
- {level: RequestResponse, verbs: [list, watch], omitManagedFields: true}
- {level: RequestResponse}
`)
	f := newFixture(t, option, everyVersion, func(o *Options) {
		o.Authorizer = authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			if a.GetVerb() == "deletecollection" {
				return authorizer.DecisionNoOpinion, "too much at a time", nil
			}
			return authorizer.DecisionAllow, "by rule", nil
		})
	})
	var b strings.Builder
	show := func(said, id string) {
		e := told.await("ResponseComplete", id)
		line, err := json.Marshal(e[len(e)-1])
		if err != nil {
			t.Fatal(err)
		}
		text := string(line)
		for _, m := range auditMasks {
			text = m.re.ReplaceAllString(text, m.with)
		}
		fmt.Fprintf(&b, "%s\n%s\n\n", said, text)
	}
	maps := "/api/v1/namespaces/default/configmaps"
	const asJSON, asMerge, asApply = "Content-Type: application/json", "Content-Type: application/merge-patch+json", "Content-Type: application/apply-patch+yaml"
	for i, q := range []struct{ method, path, body, header string }{
		{"POST", maps, cm, asJSON},
		{"POST", maps, `{"metadata":{"generateName":"gen-"},"unknown":1}`, asJSON},
		{"POST", maps, `{"metadata":`, asJSON},
		{"POST", maps, "metadata: {name: two}\n", "Content-Type: application/yaml"},
		{"PUT", maps + "/one", `{"metadata":{"name":"one","uid":"1"}}`, asJSON},
		{"PATCH", maps + "/one?fieldManager=they", `{"data":{"c":"<d>"}}`, asMerge},
		{"PATCH", maps + "/one?fieldManager=they", `[{"op":"remove","path":"/none"}]`, "Content-Type: application/json-patch+json"},
		{"PATCH", maps + "/one?fieldManager=you&force=true", "apiVersion: v1\nkind: ConfigMap\ndata: {c: e}\n", asApply},
		{"GET", maps + "/one", "", "Accept: application/vnd.kubernetes.protobuf"},
		{"GET", maps, "", "Accept: application/vnd.kubernetes.protobuf"},
		{"GET", maps + "?fieldSelector=metadata.name%3Done&includeObject=None", "", "Accept: application/json;as=Table;g=meta.k8s.io;v=v1"},
		{"GET", maps, "", "Accept: application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"},
		{"GET", maps + "/none", "", "Accept: application/json"},
		{"POST", "/api/v1/namespaces/default/secrets", `{"metadata":{"name":"s"},"stringData":{"password":"hidden"}}`, asJSON},
		{"DELETE", maps + "/two", `{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Background"}`, asJSON},
		{"DELETE", maps, "", "Accept: application/json"},
		{"POST", "/apis/policy/v1beta1/namespaces/default/poddisruptionbudgets", `{"metadata":{"name":"p"},"spec":{"minAvailable":1}}`, asJSON},
		{"POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", `{"spec":{"nonResourceAttributes":{"path":"/x","verb":"get"}}}`, asJSON},
		{"GET", maps + "/one", "", "Impersonate-User: bob"},
		{"GET", "/nowhere?q=1", "", "Accept: application/json"},
		{"GET", "/apis/example.com/v1/namespaces/default/things/x", "", "Accept: application/json"},
	} {
		id := fmt.Sprintf("request-%d", i)
		f.ask(q.method, q.path, q.body, q.header, "Audit-Id: "+id, "User-Agent: suite/1.0")
		show(strings.TrimSpace(q.method+" "+q.path+" "+q.body), `"auditID":"`+id+`"`)
	}
	for i, q := range []client.Request{
		{Verb: "create", Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "three"}, Data: map[string]string{"a": "b"}}},
		{Verb: "patch", Name: "three", PatchType: types.MergePatchType, Patch: []byte(`{"data":{"a":"c"}}`), FieldManager: "parts", DryRun: true},
		{Verb: "get", Name: "three"},
		{Verb: "list", List: metav1.ListOptions{FieldSelector: "metadata.name=three", Limit: 5}},
		{Verb: "delete", Name: "three", Delete: metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationOrphan)}},
		{Verb: "get", Name: "none"},
		{Verb: "deletecollection"},
	} {
		agent := fmt.Sprintf("part-%d", i)
		q.Def, q.Namespace = core.ConfigMaps.Def, "default"
		api := f.As(admin, agent)
		if q.Verb == "list" {
			_, _ = api.List(t.Context(), &q) // what is answered is told
		} else {
			_, _ = api.Do(t.Context(), &q) // what is answered is told
		}
		show("within: "+strings.TrimSpace(q.Verb+" "+q.Name), `"userAgent":"`+agent+`"`)
	}
	texttest.File(t, "testdata/audit.txt", b.String())
}

func TestAuditIDIsTheClientsOrANewOne(t *testing.T) {
	option, told := audited(t, "rules: [{level: Metadata}]")
	f := newFixture(t, option)
	for _, given := range []string{"", "mine"} {
		w := f.ask("GET", "/version", "", "Audit-Id: "+given, "User-Agent: suite/1.0")
		id := w.Header().Get("Audit-Id")
		if given != "" && id != given || id == "" {
			t.Errorf("given %q: got %q", given, id)
		}
		if got := stagesOf(told.await("ResponseComplete", `"auditID":"`+id+`"`)); got != "RequestReceived ResponseComplete" {
			t.Errorf("got stages %s", got)
		}
	}
}

func TestAuditKnowsWhereRequestsComeFrom(t *testing.T) {
	option, told := audited(t, "rules: [{level: Metadata}]")
	f := newFixture(t, option)
	for i, c := range []struct{ headers, want []string }{
		{[]string{"X-Forwarded-For: 10.1.1.1, unknown, 10.1.1.2", "X-Real-Ip: 10.1.1.1"}, []string{"10.1.1.1", "10.1.1.2"}},
		{[]string{"X-Real-Ip: 10.1.1.3"}, []string{"10.1.1.3"}},
		{nil, nil},
	} {
		id := fmt.Sprintf("from-%d", i)
		f.ask("GET", "/version", "", append(c.headers, "Audit-Id: "+id, "User-Agent: "+strings.Repeat("x", 2000))...)
		e := told.await("ResponseComplete", `"auditID":"`+id+`"`)[0]
		if len(e.SourceIPs) != len(c.want)+1 || strings.Join(e.SourceIPs[:len(c.want)], " ") != strings.Join(c.want, " ") {
			t.Errorf("%v: got %v, want %v and the client's own", c.headers, e.SourceIPs, c.want)
		}
		if want := strings.Repeat("x", 1024) + "...TRUNCATED"; e.UserAgent != want {
			t.Errorf("got an agent of %d bytes, want %d", len(e.UserAgent), len(want))
		}
	}
}

func TestBeginningOfAWatchIsAudited(t *testing.T) {
	option, told := audited(t, "rules: [{level: RequestResponse, verbs: [watch]}]")
	f := newFixture(t, option)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url()+mapsPath+"?watch=1", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := f.http.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if got := stagesOf(told.await("ResponseStarted", `"code":200`)); got != "RequestReceived ResponseStarted" {
		t.Errorf("while it lasts: got stages %s", got)
	}
	cancel()
	events := told.await("ResponseComplete", `"verb":"watch"`)
	if got := stagesOf(events); got != "RequestReceived ResponseStarted ResponseComplete" || events[2].ResponseObject != nil || events[2].ResponseStatus.Code != 200 {
		t.Errorf("got %+v", events)
	}
}

func TestWhoShowsNothingIsAuditedAsNobody(t *testing.T) {
	option, told := audited(t, "rules: [{level: Metadata}]")
	f := newFixture(t, option, func(o *Options) {
		o.Authenticator = authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) { return nil, false, nil })
	})
	f.must(401, "GET", mapsPath, "")
	f.must(400, "GET", mapsPath+"?timeout=soon", "")
	for code, message := range map[int32]string{401: "Unauthorized", 400: "invalid timeout specified in the request URL"} {
		events := told.await("ResponseStarted", fmt.Sprintf(`"code":%d`, code))
		e := events[0]
		if len(events) != 1 || e.User.Username != "" || e.ObjectRef == nil || e.ObjectRef.Resource != "configmaps" || !strings.Contains(e.ResponseStatus.Message, message) {
			t.Errorf("%d: got %+v", code, events)
		}
	}
}

// breaking is admission that panics.
type breaking struct{ write.NoAdmission }

func (breaking) Validate(context.Context, *admission.Attributes) error { panic("out of order") }

func TestPanicIsAudited(t *testing.T) {
	option, told := audited(t, "omitStages: [RequestReceived]\nrules: [{level: Metadata}]")
	f := newFixture(t, option, func(o *Options) { o.Admission = breaking{} })
	f.must(500, "POST", mapsPath, cm, "User-Agent: over-http")
	func() {
		defer func() {
			if p := recover(); p != "out of order" {
				t.Errorf("within: got %v, want the panic", p)
			}
		}()
		_, _ = client.For(f.As(admin, "within"), core.ConfigMaps).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x"}})
	}()
	for _, agent := range []string{"over-http", "within"} {
		events := told.await("Panic", `"userAgent":"`+agent+`"`)
		if s := events[0].ResponseStatus; len(events) != 1 || s.Code != 500 || s.Message != "APIServer panic'd: out of order" {
			t.Errorf("%s: got %+v", agent, events)
		}
	}
}

func TestStrictAuditRefusesWhatItCannotTellOf(t *testing.T) {
	for mode, code := range map[string]int{audit.BlockingStrict: 500, audit.Blocking: 201, audit.Batch: 201} {
		reg := prometheus.NewRegistry()
		option, _ := audited(t, "rules: [{level: Metadata}]", func(o *audit.Options) {
			o.File.Path, o.File.Mode, o.Registry = "/dev/full", mode, reg
		})
		f := newFixture(t, option)
		got := f.must(code, "POST", mapsPath, cm)
		_, err := client.For(f.As(admin, "part"), core.ConfigMaps).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x"}})
		rejected := 0.0
		if mode == audit.BlockingStrict {
			rejected = 2
			if !strings.Contains(got, "failed to store audit event") || !apierrors.IsInternalError(err) {
				t.Errorf("got %s and %v, want refusals", got, err)
			}
		} else if err != nil {
			t.Errorf("%s: got %v", mode, err)
		}
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			got, want := family.GetMetric()[0].GetCounter().GetValue(), 2.0
			switch family.GetName() {
			case "apiserver_audit_requests_rejected_total":
				want = rejected
			case "apiserver_audit_error_total", "apiserver_audit_event_total": // each stage counts
				continue
			case "apiserver_audit_level_total":
				got = 0
				for _, m := range family.GetMetric() {
					got += m.GetCounter().GetValue()
				}
			}
			if got != want {
				t.Errorf("%s: got %s %v, want %v", mode, family.GetName(), got, want)
			}
		}
	}
}

// noting is admission that notes something of each write, and then something else.
type noting struct{ write.NoAdmission }

func (noting) Mutate(_ context.Context, a *admission.Attributes) error {
	a.Audit.Annotate("example.com/note", "first")
	return nil
}

func (noting) Validate(ctx context.Context, a *admission.Attributes) error {
	a.Audit.Annotate("example.com/note", "second")
	audit.Annotate(ctx, "example.com/other", "by the context")
	return nil
}

func TestAdmissionAddsAnnotationsToEvents(t *testing.T) {
	option, told := audited(t, "rules: [{level: Metadata, resources: [{resources: [configmaps]}]}]")
	f := newFixture(t, option, func(o *Options) { o.Admission = noting{} })
	f.must(201, "POST", mapsPath, cm, "User-Agent: over-http")
	maps := client.For(f.As(admin, "within"), core.ConfigMaps)
	if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x"}}); err != nil {
		t.Fatal(err)
	}
	for _, agent := range []string{"over-http", "within"} {
		events := told.await("ResponseComplete", `"userAgent":"`+agent+`"`)
		if len(events) != 2 || len(events[0].Annotations) != 0 || events[1].Annotations["example.com/note"] != "first" || events[1].Annotations["example.com/other"] != "by the context" {
			t.Errorf("%s: got %+v", agent, events)
		}
	}
	// What the policy does not want told is not, and admission need not know.
	f.must(201, "POST", "/api/v1/namespaces/default/secrets", `{"metadata":{"name":"s"}}`, "User-Agent: quiet")
	if got := strings.Join(told.lines(), ""); strings.Contains(got, "quiet") {
		t.Errorf("got %s", got)
	}
}

func TestEventsOfSlowRequestsTellWhatTookLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		option, told := audited(t, "rules: [{level: Metadata, resources: [{resources: [configmaps]}]}]")
		f := newFixture(t, option, func(o *Options) {
			o.Authenticator = authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
				time.Sleep(200 * time.Millisecond)
				return &authenticator.Response{User: admin}, true, nil
			})
			o.Authorizer = authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
				if a.GetVerb() == "create" {
					time.Sleep(400 * time.Millisecond)
				}
				return authorizer.DecisionAllow, "", nil
			})
			o.Admission = slowHook{}
		})
		f.must(201, "POST", mapsPath, cm, "User-Agent: slow")
		f.must(200, "GET", mapsPath, "", "User-Agent: fast")
		const of = "apiserver.latency.k8s.io/"
		for agent, want := range map[string]map[string]string{
			"slow": {of + "total": "900ms", of + "authentication": "200ms", of + "authorization": "400ms", of + "mutating-webhook": "300ms"},
			"fast": {},
		} {
			events := told.await("ResponseComplete", `"userAgent":"`+agent+`"`)
			got := map[string]string{}
			for key, value := range events[len(events)-1].Annotations {
				if strings.HasPrefix(key, of) {
					got[key] = value
				}
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s: got %v, want %v", agent, got, want)
			}
		}
	})
}

// slowHook is admission that says how long a webhook took.
type slowHook struct{ write.NoAdmission }

func (slowHook) Mutate(_ context.Context, a *admission.Attributes) error {
	time.Sleep(300 * time.Millisecond)
	a.Audit.Spent(audit.MutatingWebhooks, 300*time.Millisecond)
	return nil
}

// BenchmarkAudit is what it costs a write to etcd, which does not wait for the disk, that it is audited.
func BenchmarkAudit(b *testing.B) {
	for _, level := range []string{"off", "None", "Metadata", "Request", "RequestResponse"} {
		b.Run(level, func(b *testing.B) {
			options := []func(o *Options){func(o *Options) { o.Store = newEtcd(b, b.TempDir()) }}
			if level != "off" {
				option, _ := audited(b, "rules: [{level: "+level+"}]", func(o *audit.Options) { o.File.MaxBackups = 1 })
				options = append(options, option)
			}
			f := newFixture(b, options...)
			pod := realPod(0)
			pod.Name = "NAME"
			body, err := json.Marshal(pod)
			if err != nil {
				b.Fatal(err)
			}
			n := 0
			b.ReportAllocs()
			defer cpu(b)()
			for b.Loop() {
				n++
				content := bytes.Replace(body, []byte("NAME"), fmt.Append(nil, "pod-", n), 1)
				r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, "/api/v1/namespaces/ns-0/pods", bytes.NewReader(content))
				if err != nil {
					b.Fatal(err)
				}
				r.Header.Set("Content-Type", "application/json")
				f.serve(b, r, http.StatusCreated)
			}
		})
	}
}
