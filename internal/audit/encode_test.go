package audit

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// sample is an event with something in each field.
func sample() *auditv1.Event {
	at := metav1.NewMicroTime(time.Date(2026, 1, 2, 15, 4, 5, 678000, time.UTC))
	return &auditv1.Event{
		Level: auditv1.LevelRequestResponse, AuditID: "id-1", Stage: auditv1.StageResponseComplete, RequestURI: "/api/v1/namespaces/a/pods?x=<y>", Verb: "create",
		User:             authenticationv1.UserInfo{Username: "alice", UID: "u", Groups: []string{"dev", "ops"}, Extra: map[string]authenticationv1.ExtraValue{"k": {"v"}}},
		ImpersonatedUser: &authenticationv1.UserInfo{Username: "bob", Groups: []string{"dev"}},
		SourceIPs:        []string{"10.0.0.1", "10.0.0.2"}, UserAgent: "kubectl/1", RequestReceivedTimestamp: at, StageTimestamp: at,
		ObjectRef:      &auditv1.ObjectReference{Resource: "pods", Namespace: "a", Name: "p", UID: "1", APIVersion: "v1", ResourceVersion: "7", Subresource: "status", APIGroup: "g"},
		ResponseStatus: &metav1.Status{Code: 201},
		RequestObject:  &runtime.Unknown{Raw: []byte(`{"a": "<b>"}`), ContentType: runtime.ContentTypeJSON},
		ResponseObject: &runtime.Unknown{Raw: []byte(`{"c":1}`), ContentType: runtime.ContentTypeJSON},
		Annotations:    map[string]string{"k": "v"},
	}
}

func TestLineIsTheEventAsTheLibraryWritesIt(t *testing.T) {
	for _, e := range []*auditv1.Event{sample(), {}} {
		line, err := appendJSON([]byte("before"), e)
		if err != nil {
			t.Fatal(err)
		}
		whole := *e
		whole.Kind, whole.APIVersion = "Event", "audit.k8s.io/v1"
		want, err := json.Marshal(&whole)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(line); got != "before"+string(want)+"\n" {
			t.Errorf("got  %s\nwant before%s", got, want)
		}
	}
}

func TestListIsThatOfTheLibrary(t *testing.T) {
	list := auditv1.EventList{TypeMeta: metav1.TypeMeta{Kind: "EventList", APIVersion: "audit.k8s.io/v1"}, Items: []auditv1.Event{*sample(), {}}}
	got, err := encodeList([]*auditv1.Event{sample(), {}})
	if err != nil {
		t.Fatal(err)
	}
	if want, _ := json.Marshal(&list); string(got) != string(want)+"\n" {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestLegacyLineSaysLittle(t *testing.T) {
	want := `2026-01-02T15:04:05.000678Z AUDIT: id="id-1" stage="ResponseComplete" ip="10.0.0.1" method="create" user="alice" groups="\"dev\",\"ops\"" ` +
		`as="bob" asgroups="\"dev\"" user-agent="kubectl/1" namespace="a" uri="/api/v1/namespaces/a/pods?x=<y>" response="201"` + "\n"
	if got := string(appendLegacy(nil, sample())); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	got := string(appendLegacy(nil, &auditv1.Event{}))
	if want := `ip="<unknown>" method="" user="<none>" groups="<none>" as="<self>" asgroups="<lookup>" user-agent="" namespace="<none>" uri="" response="<deferred>"`; !strings.Contains(got, want) {
		t.Errorf("an empty event: got %s, want %s", got, want)
	}
}

func TestManagedFieldsAreTakenOutOfObjectsListsAndTables(t *testing.T) {
	for doc, want := range map[string]string{
		`{"kind":"Pod","metadata":{"name":"a","managedFields":[{"manager":"x"}]},"spec":{"n":1.50}}`: `{"kind":"Pod","metadata":{"name":"a"},"spec":{"n":1.50}}`,
		`{"items":[{"metadata":{"managedFields":[]}},{"metadata":{"name":"b"}}],"metadata":{}}`:      `{"items":[{"metadata":{}},{"metadata":{"name":"b"}}],"metadata":{}}`,
		`{"rows":[{"cells":[1],"object":{"metadata":{"managedFields":[1]}}},{"object":null}]}`:       `{"rows":[{"cells":[1],"object":{"metadata":{}}},{"object":null}]}`,
		`{"metadata":{"name":"c"}}`: "", `[{"op":"add"}]`: "", `null`: "", `{"items":5,"rows":{},"metadata":"x"}`: "",
	} {
		got, ok := withoutManagedFields([]byte(doc))
		if string(got) != want || ok != (want != "") {
			t.Errorf("%s: got %s %t, want %s", doc, got, ok, want)
		}
	}
}
