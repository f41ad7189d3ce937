package apiserver

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ownedOnEtcd are the tests of this file, which are run on etcd, too.
func ownedOnEtcd() map[string]func(t *testing.T) {
	return map[string]func(t *testing.T){
		"TestAppliesMakeObjectsAtVersionsThatAreNotStored":  TestAppliesMakeObjectsAtVersionsThatAreNotStored,
		"TestOwnersOfFieldsAreTheSameHoweverTheyAreWritten": TestOwnersOfFieldsAreTheSameHoweverTheyAreWritten,
		"TestWhoWritesAStatusOwnsNoMetadata":                TestWhoWritesAStatusOwnsNoMetadata,
	}
}

// TestAppliesMakeObjectsAtVersionsThatAreNotStored: what is not there has no fields at any version.
func TestAppliesMakeObjectsAtVersionsThatAreNotStored(t *testing.T) {
	f := newFixture(t)
	for path, doc := range map[string]string{
		"/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers/one": `{"apiVersion":"autoscaling/v1","kind":"HorizontalPodAutoscaler","metadata":{"name":"one"},"spec":{"maxReplicas":3,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"}}}`,
		"/apis/events.k8s.io/v1/namespaces/default/events/one":                 `{"apiVersion":"events.k8s.io/v1","kind":"Event","metadata":{"name":"one"},"eventTime":"2017-08-09T15:04:05.000000Z","reportingController":"k8s.io/c","reportingInstance":"i","action":"A","reason":"R","type":"Normal","regarding":{"namespace":"default"}}`,
		"/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations/one":   `{"apiVersion":"storagemigration.k8s.io/v1beta1","kind":"StorageVersionMigration","metadata":{"name":"one"},"spec":{"resource":{"group":"g","resource":"r"}}}`,
	} {
		for _, code := range []int{201, 200} {
			got := decoded[metav1.PartialObjectMetadata](t, f.must(code, "PATCH", path+"?fieldManager=m", doc, applyPatch))
			if of := got.ManagedFields; len(of) != 1 || of[0].Manager != "m" || of[0].APIVersion != got.APIVersion {
				t.Errorf("%s: got owners %+v, want m alone, by fields of %s", path, of, got.APIVersion)
			}
		}
	}
}

// TestOwnersOfFieldsAreTheSameHoweverTheyAreWritten: a client that sends back what it has read changes nothing,
// also if its JSON has spaces; and what it makes up of managers is read, or it is as if it had not been sent.
func TestOwnersOfFieldsAreTheSameHoweverTheyAreWritten(t *testing.T) {
	f := newFixture(t)
	f.must(201, "PATCH", mapsPath+"/one?fieldManager=m", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"one"},"data":{"a":"b"}}`, applyPatch)
	read := f.must(200, "GET", mapsPath+"/one", "")
	is := decoded[metav1.PartialObjectMetadata](t, read)
	spaced := strings.NewReplacer(`":`, `": `, `,"`, `, "`).Replace(read)
	if got := decoded[metav1.PartialObjectMetadata](t, f.must(200, "PUT", mapsPath+"/one", spaced)); got.ResourceVersion != is.ResourceVersion {
		t.Errorf("sent back as it was: got %+v, want revision %s", got, is.ResourceVersion)
	}
	const fields = `{"f:data":{"f:a":{}}}`
	for name, c := range map[string]struct{ version, fields, want string }{
		"another manager":          {"v1", `{"f:data": {"f:a": {}}}`, `"fieldsV1":` + fields},
		"fields of another kind":   {"v1", `{"z:data":{}}`, `"data":{"a":"b"}}`},
		"a version that is not":    {"v1beta9", fields, `"data":{"a":"b"}}`},
		"a version that cannot be": {"a/b/c", fields, `"data":{"a":"b"}}`},
	} {
		sent := `{"metadata":{"name":"one","managedFields":[{"manager":"x","operation":"Update","apiVersion":"` + c.version + `","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":` + c.fields + `}]},"data":{"a":"b"}}`
		if got := f.must(200, "PUT", mapsPath+"/one?fieldManager=y", sent); !strings.Contains(got, c.want) || strings.Contains(got, "z:data") || strings.Contains(got, `"apiVersion":"v1beta9"`) || strings.Contains(got, "a/b/c") {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
		f.must(200, "DELETE", mapsPath+"/one", "")
		f.must(201, "PATCH", mapsPath+"/one?fieldManager=m", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"one"},"data":{"a":"b"}}`, applyPatch)
	}
}

// TestWhoWritesAStatusOwnsNoMetadata of kinds whose status leaves it alone, nor changes it.
func TestWhoWritesAStatusOwnsNoMetadata(t *testing.T) {
	f := newFixture(t)
	const template = `"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}`
	for path, c := range map[string]struct{ head, spec, status string }{
		"/apis/apps/v1/namespaces/default/deployments/": {
			`"apiVersion":"apps/v1","kind":"Deployment"`, `{"selector":{"matchLabels":{"a":"b"}},` + template + `}`, `{"replicas":1}`,
		},
		"/apis/apiregistration.k8s.io/v1/apiservices/": {
			`"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService"`,
			`{"group":"example.com","version":"v1","groupPriorityMinimum":100,"versionPriority":10,"service":{"namespace":"default","name":"s"},"insecureSkipTLSVerify":true}`,
			`{"conditions":[{"type":"Tried","status":"True"}]}`,
		},
		"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/": {
			`"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy"`,
			`{"matchConstraints":{"resourceRules":[{"apiGroups":["apps"],"apiVersions":["v1"],"operations":["CREATE"],"resources":["deployments"]}]},"validations":[{"expression":"true"}]}`,
			`{"observedGeneration":1}`,
		},
		"/apis/networking.k8s.io/v1/servicecidrs/": {
			`"apiVersion":"networking.k8s.io/v1","kind":"ServiceCIDR"`, `{"cidrs":["10.1.0.0/16"]}`,
			`{"conditions":[{"type":"Ready","status":"True","reason":"R","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}`,
		},
		"/apis/storage.k8s.io/v1/volumeattachments/": {
			`"apiVersion":"storage.k8s.io/v1","kind":"VolumeAttachment"`, `{"attacher":"example.com","nodeName":"n","source":{"persistentVolumeName":"v"}}`, `{"attached":true}`,
		},
		"/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/": {
			`"apiVersion":"flowcontrol.apiserver.k8s.io/v1","kind":"FlowSchema"`, `{"priorityLevelConfiguration":{"name":"global-default"}}`,
			`{"conditions":[{"type":"Dangling","status":"True"}]}`,
		},
	} {
		name := "one"
		if strings.Contains(path, "apiservices") {
			name = "v1.example.com"
		}
		path += name
		doc := func(labels, rest string) string {
			return `{` + c.head + `,"metadata":{"name":"` + name + `"` + labels + `},` + rest + `}`
		}
		made := f.must(201, "PATCH", path+"?fieldManager=maker", doc("", `"spec":`+c.spec+`,"status":`+c.status), applyPatch)
		if strings.Contains(made, c.status) {
			t.Errorf("%s: got %s, want no status of a new object", path, made)
		}
		labeled := doc(`,"labels":{"by":"status"}`, `"status":`+c.status)
		got := decoded[metav1.PartialObjectMetadata](t, f.must(200, "PATCH", path+"/status?fieldManager=teller", labeled, applyPatch))
		if len(got.Labels) != 0 {
			t.Errorf("%s: got labels %v by the status", path, got.Labels)
		}
		var told bool
		for _, of := range got.ManagedFields {
			fields := string(of.FieldsV1.GetRawBytes())
			told = told || of.Manager == "teller" && strings.Contains(fields, "f:status")
			if of.Manager == "teller" && (of.Subresource != "status" || strings.Contains(fields, "f:labels")) || of.Manager == "maker" && strings.Contains(fields, "f:status") {
				t.Errorf("%s: %s owns %s of %q", path, of.Manager, fields, of.Subresource)
			}
		}
		if !told {
			t.Errorf("%s: got owners %+v, want that of the status among them", path, got.ManagedFields)
		}
		if got := decoded[metav1.PartialObjectMetadata](t, f.must(200, "PATCH", path+"/status", `{"metadata":{"labels":{"by":"patch"}}}`, mergePatch)); len(got.Labels) != 0 {
			t.Errorf("%s: got labels %v by a patch of the status", path, got.Labels)
		}
	}
}
