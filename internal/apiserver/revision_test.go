package apiserver

import (
	"strings"
	"testing"
)

// TestUpdatesOfSomeKindsNeedARevision: of most kinds who does not name one overwrites whatever there is.
func TestUpdatesOfSomeKindsNeedARevision(t *testing.T) {
	f := newFixture(t)
	const hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
	const capacities = "/apis/storage.k8s.io/v1/namespaces/default/csistoragecapacities"
	const classes, revisions = "/apis/node.k8s.io/v1/runtimeclasses", "/apis/apps/v1/namespaces/default/controllerrevisions"
	for _, c := range []struct{ path, resource, rest string }{
		{hooks, "validatingwebhookconfigurations.admissionregistration.k8s.io", ""},
		{strings.Replace(hooks, "validating", "mutating", 1), "mutatingwebhookconfigurations.admissionregistration.k8s.io", ""},
		{capacities, "csistoragecapacities.storage.k8s.io", `,"storageClassName":"c"`},
		{classes, "runtimeclasses.node.k8s.io", `,"handler":"h"`},
		{revisions, "", `,"revision":1,"data":{}`},
		{mapsPath, "", ""},
	} {
		body := `{"metadata":{"name":"one"}` + c.rest + `}`
		made := f.must(201, "POST", c.path, body)
		f.must(200, "PUT", c.path+"/one", made)
		if c.resource == "" {
			f.must(200, "PUT", c.path+"/one", body)
			continue
		}
		want := c.resource + ` \"one\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update`
		if got := f.must(422, "PUT", c.path+"/one", body); !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %s", c.path, got, want)
		}
	}
	f.must(201, "PUT", classes+"/two", `{"metadata":{"name":"two"},"handler":"h"}`)
}
