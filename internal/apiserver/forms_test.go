package apiserver

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAnswersTakeTheFormThatIsAskedFor(t *testing.T) {
	f := newFixture(t)
	f.must(201, "POST", mapsPath, cm)
	const one = mapsPath + "/one"
	const plain, indented, yaml = `{"kind":"ConfigMap"`, "{\n  \"kind\": \"ConfigMap\"", "apiVersion: v1\n"
	for _, c := range []struct{ path, accept, agent, want string }{
		{one, "application/json;q=0", "", plain}, // the least wanted, but all there is
		{one, "application/json;q=0.1,application/yaml", "", yaml},
		{one, "application/xml,application/json", "", plain},
		{one, "application/json;stream=watch", "", plain},
		{one, "application/json;pretty=1", "", indented},
		{one, "application/json;pretty=0", "", plain},
		{one + "?pretty=T", "", "", indented},
		{one + "?pretty=yes", "", "curl/8", plain},
		{one + "?pretty=", "", "curl/8", indented},
		{one + "?pretty=", "", "", plain},
		{one, "", "Mozilla/5.0 (X11)", indented},
		{one + "?pretty=false", "", "Mozilla/5.0 (X11)", plain},
	} {
		headers := []string{"User-Agent: " + c.agent}
		if c.accept != "" {
			headers = append(headers, "Accept: "+c.accept)
		}
		if got := f.must(200, "GET", c.path, "", headers...); !strings.HasPrefix(got, c.want) {
			t.Errorf("%+v: got %.40q", c, got)
		}
	}
	const deployments = "/apis/apps/v1/namespaces/default/deployments"
	f.must(201, "POST", deployments, nginx)
	scale := f.must(200, "GET", deployments+"/nginx-deployment/scale", "", "Accept: application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io")
	if !strings.HasPrefix(scale, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"nginx-deployment"`) || strings.Contains(scale, "replicas\":") {
		t.Errorf("metadata of a Scale: got %s", scale)
	}
}

func TestDocumentsAsOldAsTheirClientsHaveNoVersion(t *testing.T) {
	f := newFixture(t)
	for path, want := range map[string]string{
		"/api":                     `{"kind":"APIVersions","versions":["v1"]`,
		"/api/v1":                  `{"kind":"APIResourceList","groupVersion":"v1"`,
		"/apis":                    `{"kind":"APIGroupList","apiVersion":"v1"`,
		"/apis/apps":               `{"kind":"APIGroup","apiVersion":"v1"`,
		"/apis/apps/v1":            `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"apps/v1"`,
		"/apis/extensions/v1beta1": `{"kind":"APIResourceList","groupVersion":"extensions/v1beta1"`,
	} {
		if got := f.must(200, "GET", path, ""); !strings.HasPrefix(got, want) {
			t.Errorf("%s: got %.100s, want %s", path, got, want)
		}
	}
}

func TestPathsOfHealthTakeAnyMethod(t *testing.T) {
	f := newFixture(t)
	for _, path := range []string{"/healthz/ping", "/livez/ping", "/readyz/ping", "/metrics", "/"} {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "OPTIONS"} {
			f.must(200, method, path, "")
		}
	}
	if got := f.ask("GET", "/metrics", "").Header().Get("Process-Start-Time-Unix"); got == "" {
		t.Error("/metrics does not say when the process began")
	}
}

func TestListsOfWhatIsDeletedSayFromWhen(t *testing.T) {
	f := newFixture(t)
	f.must(201, "POST", mapsPath, cm)
	listed := decoded[metav1.PartialObjectMetadataList](t, f.must(200, "GET", mapsPath, ""))
	gone := decoded[metav1.PartialObjectMetadataList](t, f.must(200, "DELETE", mapsPath, ""))
	if len(gone.Items) != 1 || gone.ResourceVersion != listed.ResourceVersion {
		t.Errorf("got %+v, want one item and the revision %s", gone, listed.ResourceVersion)
	}
	if none := f.must(200, "GET", mapsPath+"?fieldSelector=metadata.name%3Dtwo,metadata.name%3Done", ""); !strings.Contains(none, `"items":[]`) {
		t.Errorf("by two names: got %s", none)
	}
	f.must(200, "GET", mapsPath+"?watch=1&timeoutSeconds=-1", "") // which is over
}

func TestWhatIsTheSystemsHasNoManager(t *testing.T) {
	f := newFixture(t)
	got := f.must(201, "POST", mapsPath, `{"metadata":{"name":"one","uid":"x","selfLink":"/x","creationTimestamp":"2020-01-01T00:00:00Z","deletionTimestamp":"2020-01-01T00:00:00Z","deletionGracePeriodSeconds":5}}`)
	if m := decoded[metav1.PartialObjectMetadata](t, got); len(m.ManagedFields) != 0 || m.DeletionTimestamp != nil {
		t.Errorf("got %s", got)
	}
}
