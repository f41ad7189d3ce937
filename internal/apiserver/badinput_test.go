package apiserver

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/kemudi/kemudi/internal/trace"
)

// bad is a request that is refused: with which code, and a part of the answer.
type bad struct {
	name, method, path, body, header string
	code                             int
	want                             string
}

func refuses(t *testing.T, f *fixture, cases []bad) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var headers []string
			if c.header != "" {
				headers = []string{c.header}
			}
			w := f.ask(c.method, c.path, c.body, headers...)
			if got := w.Body.String(); w.Code != c.code || !strings.Contains(got, c.want) {
				t.Errorf("got %d %s\nwant %d %s", w.Code, got, c.code, c.want)
			}
		})
	}
}

// TestBadInputIsRefusedInUpstreamsWords lists what clients may get wrong: the
// request, and the code and a part of the answer.
func TestBadInputIsRefusedInUpstreamsWords(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.MaxBody = 10 << 10 })
	const maps = "/api/v1/namespaces/default/configmaps"
	f.must(201, "POST", maps, cm)
	stored := f.must(200, "GET", maps+"/one", "")
	const going = `{"metadata":{"name":"going","finalizers":["example.com/stay"]}}`
	f.must(201, "POST", maps, going)
	f.must(200, "DELETE", maps+"/going", "")
	deploy := "/apis/apps/v1/namespaces/default/deployments"
	long := strings.Repeat("n", 254)
	refuses(t, f, []bad{
		{"malformed JSON", "POST", maps, `{"kind":`, "", 400, `the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: unexpected end of JSON input ({\"kind\":)`},
		{"malformed YAML", "POST", maps, "a: b: c", "Content-Type: application/yaml", 400, "the object provided is unrecognized (must be of type ConfigMap): "},
		{"malformed protobuf", "POST", maps, "k8s\x00\xff\xff", "Content-Type: application/vnd.kubernetes.protobuf", 400, "the object provided is unrecognized"},
		{"no protobuf at all", "POST", maps, "{}", "Content-Type: application/vnd.kubernetes.protobuf", 400, "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"},
		{"empty body", "POST", maps, "", "", 400, `(\u003cempty\u003e)`},
		{"wrong type of a field", "POST", maps, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x"},"data":{"a":1}}`, "", 400, `ConfigMap in version \"v1\" cannot be handled as a ConfigMap: json: cannot unmarshal number into Go struct field ConfigMap.data of type string`},
		{"another kind", "POST", maps, `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"x"}}`, "", 400, `Secret in version \"v1\" cannot be handled as a ConfigMap`},
		{"another version", "POST", maps, `{"kind":"ConfigMap","apiVersion":"v2","metadata":{"name":"x"}}`, "", 400, `ConfigMap in version \"v2\" cannot be handled as a ConfigMap: no kind \"ConfigMap\" is registered for version \"v2\" in scheme \"pkg/api/legacyscheme/scheme.go:30\"`},
		{"unknown media type", "POST", maps, `<xml/>`, "Content-Type: application/xml", 415, `the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf`},
		{"answer in an unknown media type", "GET", maps + "/one", "", "Accept: application/xml", 406, `"message": "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf",`},
		{"oversized body", "POST", maps, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x"},"data":{"a":"` + strings.Repeat("x", 11<<10) + `"}}`, "", 413, "Request entity too large: limit is 10240"},
		{"no name", "POST", maps, `{"kind":"ConfigMap","apiVersion":"v1"}`, "", 422, `metadata.name: Required value: name or generateName is required`},
		{"over-long name", "POST", maps, `{"metadata":{"name":"` + long + `"}}`, "", 422, `metadata.name: Invalid value: \"` + long + `\": must be no more than 253`},
		{"bad name", "POST", maps, `{"metadata":{"name":"UPPER"}}`, "", 422, `ConfigMap \"UPPER\" is invalid: metadata.name: Invalid value: \"UPPER\": a lowercase RFC 1123 subdomain must consist of`},
		{"finalizer without a domain", "POST", maps, `{"metadata":{"name":"x","finalizers":["mine"]}}`, "", 422, `ConfigMap \"x\" is invalid: metadata.finalizers[0]: Invalid value: \"mine\": name is neither a standard finalizer name nor is it fully qualified`},
		{"bad label in a PUT", "PUT", maps + "/one", `{"metadata":{"name":"one","labels":{"a b":"c"}}}`, "", 422, `"causes":[{"reason":"FieldValueInvalid","message":"Invalid value: \"a b\": name part must consist of alphanumeric characters`},
		{"bad label", "POST", maps, `{"metadata":{"name":"x","labels":{"a b":"c"}}}`, "", 422, `metadata.labels: Invalid value: \"a b\"`},
		{"name taken", "POST", maps, cm, "", 409, `configmaps \"one\" already exists`},
		{"name taken in a dry run", "POST", maps + "?dryRun=All", cm, "", 409, `configmaps \"one\" already exists`},
		{"name taken by what is bad itself", "POST", maps, `{"metadata":{"name":"one","labels":{"a b":"c"}}}`, "", 422, `metadata.labels: Invalid value: \"a b\"`},
		{"resourceVersion on create", "POST", maps, `{"metadata":{"name":"x","resourceVersion":"5"}}`, "", 400, `resourceVersion should not be set on objects to be created`},
		{"name taken in a dry run of what was read", "POST", maps + "?dryRun=All", stored, "", 409, `configmaps \"one\" already exists`},
		{"another namespace", "POST", maps, `{"metadata":{"name":"x","namespace":"other"}}`, "", 400, `the namespace of the provided object does not match the namespace sent on the request`},
		{"another name in a PUT", "PUT", maps + "/one", strings.Replace(stored, `"name":"one"`, `"name":"two"`, 1), "", 400, `the name of the object (two) does not match the name on the URL (one)`},
		{"another namespace in a PUT", "PUT", maps + "/one", strings.Replace(stored, `"namespace":"default"`, `"namespace":"other"`, 1), "", 400, `the namespace of the provided object does not match the namespace sent on the request`},
		{"watch in an unknown media type", "GET", maps + "?watch=1", "", "Accept: application/yaml", 406, "message: 'only the following media types are accepted: application/json;stream=watch,\n  application/vnd.kubernetes.protobuf;stream=watch'"},
		{"stale resourceVersion", "PUT", maps + "/one", `{"metadata":{"name":"one","resourceVersion":"999"}}`, "", 409, `Operation cannot be fulfilled on configmaps \"one\": the object has been modified; please apply your changes to the latest version and try again`},
		{"another UID", "PUT", maps + "/one", `{"metadata":{"name":"one","uid":"x"}}`, "", 409, `Operation cannot be fulfilled on configmaps \"one\": StorageError: invalid object, Code: 4, Key: /registry/configmaps/default/one, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: x, UID in object meta: `},
		{"UID of what is not there any more", "PUT", maps + "/none", `{"metadata":{"name":"none","uid":"x"}}`, "", 409, `AdditionalErrorMsg: Precondition failed: UID in precondition: x, UID in object meta: "`},
		{"UID of what is not there any more, status", "PUT", deploy + "/none/status", `{"metadata":{"name":"none","uid":"x"}}`, "", 409, `UID in precondition: x, UID in object meta: "`},
		{"UID of what is not there any more, scale", "PUT", deploy + "/none/scale", `{"metadata":{"name":"none","uid":"x"},"spec":{"replicas":2}}`, "", 409, `UID in precondition: x, UID in object meta: "`},
		{"name of what goes", "POST", maps, going, "", 409, `"object is being deleted: configmaps \"going\" already exists"`},
		{"PUT of what is not there", "PUT", maps + "/none", `{"metadata":{"name":"none"}}`, "", 404, `configmaps \"none\" not found`},
		{"PATCH of what is not there", "PATCH", maps + "/none", `{}`, "Content-Type: application/merge-patch+json", 404, `configmaps \"none\" not found`},
		{"DELETE of what is not there", "DELETE", maps + "/none", "", "", 404, `configmaps \"none\" not found`},
		{"DELETE of another UID", "DELETE", maps + "/one", `{"preconditions":{"uid":"x"}}`, "", 409, `Operation cannot be fulfilled on ConfigMap \"one\": the UID in the precondition (x) does not match the UID in record (`},
		{"DELETE with a Pod for its options", "DELETE", maps + "/one", `{"kind":"Pod","apiVersion":"v1"}`, "", 400, `no kind \"Pod\" is registered for version \"v1\" in scheme`},
		{"DELETE with other options", "DELETE", maps + "/one", `{"kind":"ListOptions","apiVersion":"meta.k8s.io/v1"}`, "", 400, `converting (v1.ListOptions) to (v1.DeleteOptions): unknown conversion`},
		{"DELETE with half the options", "DELETE", maps + "/one", `{"kind":`, "", 400, `couldn't get version/kind; json parse error: unexpected end of JSON input`},
		{"DELETE with options that are none", "DELETE", maps + "/one", `{"gracePeriodSeconds":"x"}`, "", 400, `cannot unmarshal string into Go struct field DeleteOptions.gracePeriodSeconds of type int64`},
		{"DELETE of all with a Pod for its options", "DELETE", maps, "kind: Pod\napiVersion: v1\n", "Content-Type: application/yaml", 400, `no kind \"Pod\" is registered for version \"v1\" in scheme`},
		{"DELETE with a Pod for its options in protobuf", "DELETE", maps + "/one", "k8s\x00\x0a\x09\x0a\x02v1\x12\x03Pod\x12\x00", "Content-Type: application/vnd.kubernetes.protobuf", 400, `no kind \"Pod\" is registered for version \"v1\" in scheme`},
		{"an unknown kind", "POST", maps, `{"apiVersion":"v1","kind":"Thing","metadata":{"name":"x"}}`, "", 400, `Thing in version \"v1\" cannot be handled as a ConfigMap: no kind \"Thing\" is registered for version \"v1\" in scheme \"pkg/api/legacyscheme/scheme.go:30\"`},
		{"DELETE of another resourceVersion", "DELETE", maps + "/one", `{"preconditions":{"resourceVersion":"1"}}`, "", 409, `the ResourceVersion in the precondition (1) does not match the ResourceVersion in record (`},
		{"unknown propagation policy", "DELETE", maps + "/one?propagationPolicy=Sideways", "", "", 422, `propagationPolicy: Unsupported value`},
		{"unknown dryRun", "POST", maps + "?dryRun=Some", cm, "", 422, `invalid: dryRun: Unsupported value: [\"Some\"]: supported values: \"All\"`},
		{"unknown fieldValidation", "POST", maps + "?fieldValidation=Loose", cm, "", 422, `fieldValidation: Unsupported value`},
		{"unknown and duplicate fields, strict", "POST", deploy + "?fieldValidation=Strict", `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"unknownField":1,"replicas":1,"replicas":2}}`, "", 400,
			`strict decoding error: unknown field \"spec.unknownField\", duplicate field \"spec.replicas\"`},
		{"unknown metadata, strict", "POST", deploy + "?fieldValidation=Strict", `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d","unknownMeta":"x"}}`, "", 400, `strict decoding error: unknown field \"metadata.unknownMeta\"`},
		{"duplicate YAML keys, strict", "POST", maps + "?fieldValidation=Strict", "metadata: {name: x}\ndata: {a: b}\ndata: {c: d}\n", "Content-Type: application/yaml", 400, `line 3: key \"data\" already set in map`},
		{"bad label selector", "GET", maps + "?labelSelector=a%20b", "", "", 400, `unable to parse requirement: `},
		{"unknown field selector", "GET", maps + "?fieldSelector=spec.x%3D1", "", "", 400, `\"spec.x\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"`},
		{"unknown field selector of pods", "GET", "/api/v1/pods?fieldSelector=spec.x%3D1", "", "", 400, `field label not supported: spec.x`},
		{"bad limit", "GET", maps + "?limit=many", "", "", 400, `strconv.ParseInt: parsing \"many\": invalid syntax`},
		{"bad continue token", "GET", maps + "?continue=xx&limit=1", "", "", 400, `continue key is not valid`},
		{"bad resourceVersion", "GET", maps + "?resourceVersion=abc", "", "", 400, `"invalid resource version: resourceVersion: Invalid value: \"abc\"`},
		{"resourceVersionMatch alone", "GET", maps + "?resourceVersionMatch=Exact", "", "", 422, `resourceVersionMatch is forbidden unless resourceVersion is provided`},
		{"a list of one name that is narrowed to another", "GET", "/api/v1/watch/namespaces/default/configmaps/one?fieldSelector=metadata.namespace%3Dx", "", "", 400, `fieldSelector metadata.name doesn't match requested name`},
		{"a table with something else", "GET", maps + "?includeObject=All", "", "Accept: application/json;as=Table;v=v1;g=meta.k8s.io", 400, `Unable to convert to Table as requested: includeObject: Invalid value: \"All\": must be 'Metadata', 'Object', 'None', or empty`},
		{"export", "GET", maps + "/one?export=true", "", "", 400, `the export parameter, deprecated since v1.14, is no longer supported`},
		{"bad timeout", "GET", maps + "?timeout=soon", "", "", 400, `invalid timeout specified in the request URL`},
		{"unknown resource", "GET", "/api/v1/namespaces/default/things", "", "", 404, `the server could not find the requested resource`},
		{"unknown subresource", "GET", maps + "/one/log", "", "", 404, `the server could not find the requested resource`},
		{"unknown group", "GET", "/apis/none.example.com/v1/things", "", "", 404, "404 page not found"},
		{"namespace of a cluster-wide resource", "GET", "/api/v1/namespaces/default/nodes/n", "", "", 404, `the server could not find the requested resource`},
		{"create without a namespace", "POST", "/api/v1/configmaps", cm, "", 405, `the server does not allow this method on the requested resource`},
		{"POST to an object", "POST", maps + "/one", cm, "", 405, `the server does not allow this method on the requested resource`},
		{"DELETE of all namespaces", "DELETE", "/api/v1/namespaces?labelSelector=a%3Db", "", "", 405, `the server does not allow this method on the requested resource`},
		{"PUT to a collection", "PUT", maps, cm, "", 405, `the server does not allow this method on the requested resource`},
		{"HEAD", "HEAD", maps + "/one", "", "", 405, ``},
	})
	if got := f.must(200, "GET", maps+"/one", ""); got != stored {
		t.Errorf("the object has changed by requests that were refused: %s, was %s", got, stored)
	}
	if !t.Failed() {
		trace.Proves(t, "C-114", "C-116")
	}
}

// TestFormsNamesAndPathsThatAreNotThereAreRefusedInUpstreamsWords lists what was found by comparing
// answers with those of upstream's library.
func TestFormsNamesAndPathsThatAreNotThereAreRefusedInUpstreamsWords(t *testing.T) {
	f := newFixture(t)
	const maps, deploy = "/api/v1/namespaces/default/configmaps", "/apis/apps/v1/namespaces/default/deployments"
	f.must(201, "POST", maps, cm)
	refuses(t, f, []bad{
		{"protobuf of nothing", "POST", maps, "k8s\x00", "Content-Type: application/vnd.kubernetes.protobuf", 400, `: empty body (6b387300)`},
		{"empty protobuf", "POST", maps, "", "Content-Type: application/vnd.kubernetes.protobuf", 400, `: empty data (`},
		{"another version that there is", "POST", "/apis/apps/v1beta2/namespaces/default/deployments", `{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"x"}}`, "", 400, `the API version in the data (apps/v1) does not match the expected API version (apps/v1beta2)`},
		{"a version that is none", "POST", maps, `{"kind":"ConfigMap","apiVersion":"a/b/c","metadata":{"name":"x"}}`, "", 400, `the object provided is unrecognized (must be of type ConfigMap): unexpected GroupVersion string: a/b/c (`},
		{"no object", "POST", maps, `[]`, "", 400, `json: cannot unmarshal array into Go value of type struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string`},
		{"a list of the kind", "POST", maps, `{"kind":"ConfigMapList","apiVersion":"v1","items":[]}`, "", 400, `converting (v1.ConfigMapList) to (core.ConfigMap): unknown conversion`},
		{"a Status", "POST", maps, `{"kind":"Status","apiVersion":"v1"}`, "", 400, `converting (v1.Status) to (core.ConfigMap): unknown conversion`},
		{"options", "POST", deploy, `{"kind":"DeleteOptions","apiVersion":"apps/v1"}`, "", 400, `converting (v1.DeleteOptions) to (apps.Deployment): unknown conversion`},
		{"media type that is none", "POST", maps, cm, "Content-Type: ;;", 415, `the body of the request was in an unknown format`},
		{"list in an unknown media type", "GET", maps, "", "Accept: application/xml", 406, `representations: application/json, application/yaml, application/vnd.kubernetes.protobuf, application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch",`},
		{"answer in an unknown form", "GET", maps, "", "Accept: application/json;as=Chart;v=v1;g=meta.k8s.io", 406, `"message": "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf",`},
		{"answer of a group without a kind", "GET", maps, "", "Accept: application/json;v=v1;g=meta.k8s.io", 406, `only the following media types are accepted`},
		{"answer as another stream", "GET", maps, "", "Accept: application/json;stream=tail", 406, `only the following media types are accepted`},
		{"one's metadata of a list", "GET", maps, "", "Accept: application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", 406, `you requested PartialObjectMetadata, but the requested object is a list (*core.ConfigMapList)`},
		{"a list's metadata of one", "GET", maps + "/one", "", "Accept: application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", 406, `you requested PartialObjectMetadataList, but the requested object is not a list (*core.ConfigMap)`},
		{"version in an unknown media type", "GET", "/version", "", "Accept: application/yaml", 406, "Available representations: application/json"},
		{"group in an unknown media type", "GET", "/apis/apps", "", "Accept: text/html", 406, "406: Not Acceptable"},
		{"what is not there in YAML", "GET", maps + "/none", "", "Accept: application/yaml", 404, "message: configmaps \"none\" not found\n"},
		{"what is not there as a table alone", "GET", maps + "/none", "", "Accept: application/json;as=Table;v=v1;g=meta.k8s.io", 404, `"message": "configmaps \"none\" not found",`},
		{"PUT without a name", "PUT", maps + "/one", `{}`, "", 400, `the name of the object (one based on URL) was undeterminable: name must be provided`},
		{"PUT of a Scale without a name", "PUT", deploy + "/one/scale", `{"spec":{"replicas":2}}`, "", 400, `the name of the object (one based on URL) was undeterminable: name must be provided`},
		{"PATCH that takes the name", "PATCH", maps + "/one", `{"metadata":{"name":null}}`, "Content-Type: application/merge-patch+json", 400, `the name of the object (one based on URL) was undeterminable: name must be provided`},
		{"apply of what is new without a name", "PATCH", maps + "/new?fieldManager=m", `{"kind":"ConfigMap","apiVersion":"v1"}`, "Content-Type: application/apply-patch+yaml", 400, `the name of the object (new based on URL) was undeterminable: name must be provided`},
		{"apply of nothing", "PATCH", maps + "/one?fieldManager=m", ``, "Content-Type: application/apply-patch+yaml", 400, `invalid object type: /, Kind=`},
		{"apply of a list", "PATCH", maps + "/one?fieldManager=m", `[]`, "Content-Type: application/apply-patch+yaml", 400, `error decoding patch: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array into Go value of type map[string]interface {}`},
		{"eviction in another namespace", "POST", "/api/v1/namespaces/default/pods/p/eviction", `{"metadata":{"name":"p","namespace":"other"}}`, "", 400, `the namespace of the provided object does not match the namespace sent on the request`},
		{"token of another namespace", "POST", "/api/v1/namespaces/default/serviceaccounts/a/token", `{"metadata":{"name":"a","namespace":"other"}}`, "", 400, `the namespace of the provided object does not match the namespace sent on the request`},
		{"a name that is none", "GET", maps + "/a%25b", "", "", 400, `Name parameter invalid: \"a%b\": may not contain '%'`},
		{"DELETE of a name that is none", "DELETE", maps + "/a%25b", "", "", 400, `Name parameter invalid: \"a%b\": may not contain '%'`},
		{"two bad options", "POST", maps + "?dryRun=Some&fieldManager=" + strings.Repeat("m", 129), cm, "", 422, `invalid: [fieldManager: Too long: may not be more than 128 bytes, dryRun: Unsupported value: [\"Some\"]`},
		{"watch that goes on", "GET", maps + "?watch=1&continue=x", "", "", 422, `resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided`},
		{"unknown version", "GET", "/apis/apps/v9/things", "", "", 404, `the server could not find the requested resource`},
		{"unknown version without a resource", "GET", "/apis/apps/v9", "", "", 404, `the server could not find the requested resource`},
		{"unknown version of the first group", "GET", "/api/v2/pods", "", "", 404, `the server could not find the requested resource`},
		{"POST to an unknown version", "POST", "/apis/apps/v9", "{}", "", 404, `the server could not find the requested resource`},
		{"POST to an unknown group", "POST", "/apis/none.example.com", "{}", "", 404, "404 page not found"},
		{"POST to the version", "POST", "/version", "{}", "", 405, `the server does not allow this method on the requested resource`},
	})
}

func TestBadPatchesAreRefusedInUpstreamsWords(t *testing.T) {
	f := newFixture(t)
	const maps, deploy = "/api/v1/namespaces/default/configmaps", "/apis/apps/v1/namespaces/default/deployments"
	f.must(201, "POST", maps, cm)
	stored := f.must(200, "GET", maps+"/one", "")
	f.must(201, "POST", deploy, `{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`)
	doubling := `[{"op":"test","path":"/kind","value":"ConfigMap"}`
	for i := range 15 {
		doubling += fmt.Sprintf(`,{"op":"copy","from":"/metadata","path":"/metadata/%d"}`, i)
	}
	doubling += `]`
	refuses(t, f, []bad{
		{"a patch of nothing that is no JSON", "PATCH", maps + "/none", `{"data":`, "Content-Type: application/merge-patch+json", 400, `"message":"invalid JSON patch","reason":"BadRequest"`},
		{"an apply of nothing that is no YAML", "PATCH", maps + "/none?fieldManager=m", "a: b: c", "Content-Type: application/apply-patch+yaml", 400, `error encoding patch: `},
		{"unknown patch type", "PATCH", maps + "/one", `{}`, "Content-Type: application/json", 415, `"message":"415: Unsupported Media Type","reason":"UnsupportedMediaType","details":{}`},
		{"another kind in a merge patch", "PATCH", maps + "/one", `{"kind":"Secret"}`, "Content-Type: application/merge-patch+json", 422, `converting (v1.Secret) to (core.ConfigMap): unknown conversion`},
		{"another kind in a JSON patch", "PATCH", maps + "/one", `[{"op":"replace","path":"/kind","value":"Pod"}]`, "Content-Type: application/json-patch+json", 422, `converting (v1.Pod) to (core.ConfigMap): unknown conversion`},
		{"an unknown version in a merge patch", "PATCH", maps + "/one", `{"apiVersion":"v2"}`, "Content-Type: application/merge-patch+json", 422, `no kind \"ConfigMap\" is registered for version \"v2\" in scheme \"pkg/api/legacyscheme/scheme.go:30\"`},
		{"another kind of a Scale", "PATCH", deploy + "/d/scale", `{"kind":"Deployment"}`, "Content-Type: application/merge-patch+json", 422, `no kind \"Deployment\" is registered for version \"autoscaling/v1\" in scheme`},
		{"JSON patch that grows without end", "PATCH", maps + "/one", doubling, "Content-Type: application/json-patch+json", 422, `the server rejected our request due to an error in our request`},
		{"malformed merge patch", "PATCH", maps + "/one", `[`, "Content-Type: application/merge-patch+json", 400, `invalid JSON patch`},
		{"malformed JSON patch", "PATCH", maps + "/one", `{}`, "Content-Type: application/json-patch+json", 400, `error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp`},
		{"malformed JSON patch, read leniently", "PATCH", maps + "/one?fieldValidation=Ignore", `{}`, "Content-Type: application/json-patch+json", 400, `json: cannot unmarshal object into Go value of type jsonpatch.Patch`},
		{"merge patch of another type", "PATCH", maps + "/one", `{"data":{"a":1}}`, "Content-Type: application/merge-patch+json", 422, `patch: Invalid value: \"{\\\"apiVersion\\\":\\\"v1\\\",\\\"data\\\":{\\\"a\\\":1},\\\"kind\\\":\\\"ConfigMap\\\",`},
		{"merge patch of an unknown field, strict", "PATCH", maps + "/one?fieldValidation=Strict", `{"dota":1}`, "Content-Type: application/merge-patch+json", 422, `patch: Invalid value: \"{\\\"apiVersion\\\":\\\"v1\\\",\\\"data\\\":{\\\"a\\\":\\\"b\\\"},\\\"dota\\\":1,`},
		{"strategic merge patch of an unknown field, strict", "PATCH", maps + "/one?fieldValidation=Strict", `{"dota":1}`, "Content-Type: application/strategic-merge-patch+json", 422, `patch: Invalid value: \"map[dota:1]\": strict decoding error: unknown field \"dota\"`},
		{"JSON patch of a missing path", "PATCH", maps + "/one", `[{"op":"remove","path":"/data/none"}]`, "Content-Type: application/json-patch+json", 422, `the server rejected our request due to an error in our request`},
		{"apply without a manager", "PATCH", maps + "/one", cm, "Content-Type: application/apply-patch+yaml", 422, `fieldManager: Required value: is required for apply patch`},
		{"force without apply", "PATCH", maps + "/one?force=true", `{}`, "Content-Type: application/merge-patch+json", 422, `force: Forbidden: may not be specified for non-apply patch`},
		{"exec by DELETE", "DELETE", "/api/v1/namespaces/default/pods/p/exec", "", "", 405, `the server does not allow this method on the requested resource`},
		{"exec by OPTIONS", "OPTIONS", "/api/v1/namespaces/default/pods/p/exec", "", "", 405, `the server does not allow this method on the requested resource`},
		{"PATCH to a collection", "PATCH", maps, `{}`, "Content-Type: application/merge-patch+json", 405, `the server does not allow this method on the requested resource`},
		{"scale of another UID", "PUT", deploy + "/d/scale", `{"metadata":{"name":"d","uid":"x"},"spec":{"replicas":2}}`, "", 409, `Operation cannot be fulfilled on deployments.apps \"d\": StorageError: invalid object, Code: 4, Key: /registry/deployments/default/d, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: x, UID in object meta: `},
		{"patch of the UID", "PATCH", maps + "/one", `{"metadata":{"uid":"x"}}`, "Content-Type: application/merge-patch+json", 422, `ConfigMap \"one\" is invalid: metadata.uid: Invalid value: \"x\": field is immutable`},
		{"apply of the UID", "PATCH", maps + "/one?fieldManager=a", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"uid":"x"}}`, "Content-Type: application/apply-patch+yaml", 422, `ConfigMap \"one\" is invalid: metadata.uid: Invalid value: \"x\": field is immutable`},
		{"apply of a UID that nobody has", "PATCH", maps + "/none?fieldManager=a", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"uid":"x"}}`, "Content-Type: application/apply-patch+yaml", 409, `Operation cannot be fulfilled on configmaps \"none\": uid mismatch: the provided object specified uid x, and no existing object was found`},
	})
	if got := f.must(200, "GET", maps+"/one", ""); got != stored {
		t.Errorf("the object has changed by patches that were refused: %s, was %s", got, stored)
	}
}

func TestRefusedMethodsNameThoseThatThereAre(t *testing.T) {
	f := newFixture(t)
	const maps = "/api/v1/namespaces/default/configmaps"
	for path, want := range map[string]string{
		maps + "/one": "GET, PUT, PATCH, DELETE",
		maps:          "GET, POST, DELETE",
		"/api/v1/namespaces/default/pods/p/status":               "GET, PUT, PATCH",
		"/api/v1/namespaces/default/pods/p/binding":              "POST",
		"/api/v1/configmaps":                                     "GET",
		"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews": "POST",
		"/api/v1/namespaces":                                     "GET, POST",
		"/apis":                                                  "GET",
	} {
		if w := f.ask("OPTIONS", path, ""); w.Code != 405 || w.Header().Get("Allow") != want {
			t.Errorf("OPTIONS %s: got %d, Allow: %s; want 405, %s", path, w.Code, w.Header().Get("Allow"), want)
		}
	}
}

func TestUnknownFieldsAreWarnedOf(t *testing.T) {
	f := newFixture(t)
	w := f.ask("POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"x"},"dota":{},"data":{"a":"b"},"data":{"c":"d"}}`)
	warnings := w.Header().Values("Warning")
	if w.Code != 201 || len(warnings) != 2 || warnings[0] != `299 - "unknown field \"dota\""` || warnings[1] != `299 - "duplicate field \"data\""` {
		t.Errorf("got %d %q", w.Code, warnings)
	}
	w = f.ask("POST", "/api/v1/namespaces/default/configmaps?fieldValidation=Ignore", `{"metadata":{"name":"y"},"dota":{}}`)
	if w.Code != 201 || len(w.Header().Values("Warning")) != 0 {
		t.Errorf("with Ignore: got %d %q", w.Code, w.Header())
	}
}

func TestLegacyVersionsAnswerWithAWarning(t *testing.T) {
	f := newFixture(t)
	body := `{"apiVersion":"extensions/v1beta1","kind":"Deployment","metadata":{"name":"old"},"spec":{"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`
	w := f.ask("POST", "/apis/extensions/v1beta1/namespaces/default/deployments", body)
	if w.Code != 201 || !strings.Contains(w.Header().Get("Warning"), "extensions/v1beta1 Deployment is deprecated") ||
		!strings.HasPrefix(w.Body.String(), `{"kind":"Deployment","apiVersion":"extensions/v1beta1"`) {
		t.Fatalf("got %d %q %s", w.Code, w.Header(), w.Body)
	}
	for _, version := range []string{"extensions/v1beta1", "apps/v1beta1", "apps/v1beta2", "apps/v1"} {
		got := f.must(http.StatusOK, "GET", "/apis/"+version+"/namespaces/default/deployments/old", "")
		if !strings.HasPrefix(got, `{"kind":"Deployment","apiVersion":"`+version+`"`) || !strings.Contains(got, `"matchLabels":{"a":"b"}`) {
			t.Errorf("at %s: got %s", version, got)
		}
	}
	trace.Proves(t, "API-016", "API-028")
}

func TestRuntimeConfigTurnsVersionsAndResourcesOff(t *testing.T) {
	f := newFixture(t, func(o *Options) {
		o.RuntimeConfig = map[string]bool{"batch/v1": false, "extensions/v1beta1/deployments": false}
	})
	if got := f.ask("GET", "/apis/batch/v1/namespaces/default/jobs", ""); got.Code != 404 {
		t.Errorf("jobs: got %d", got.Code)
	}
	if got := f.must(200, "GET", "/apis", ""); strings.Contains(got, `"batch/v1"`) {
		t.Errorf("discovery still has batch/v1: %s", got)
	}
	if got := f.ask("GET", "/apis/extensions/v1beta1/namespaces/default/deployments", ""); got.Code != 404 {
		t.Errorf("deployments: got %d", got.Code)
	}
	f.must(200, "GET", "/apis/extensions/v1beta1/namespaces/default/replicasets", "")
	if got := f.must(200, "GET", "/apis/extensions/v1beta1", ""); strings.Contains(got, `"deployments"`) || !strings.Contains(got, `"replicasets"`) {
		t.Errorf("discovery of extensions/v1beta1: %s", got)
	}
	trace.Proves(t, "API-030", "API-032", "API-036", "API-037")
}

func TestAlphaVersionsAreServedOnlyWhenAskedFor(t *testing.T) {
	trace.Proves(t, "API-020")
	const path, legacy = "/apis/node.k8s.io/v1alpha1/runtimeclasses", "/apis/extensions/v1beta1/namespaces/default/deployments"
	for _, c := range []struct {
		on           string // separated by spaces
		alpha, older int
	}{
		{"", 404, 200},
		{"node.k8s.io/v1alpha1", 200, 200},
		{"node.k8s.io/v1alpha1/runtimeclasses", 200, 200},
		{"api/alpha", 200, 200},
		{"api/all", 200, 200},
		{"api/all !api/alpha", 404, 200},
		{"!api/legacy", 404, 404},
		{"!api/legacy extensions/v1beta1 node.k8s.io/v1alpha1", 200, 200},
		{"!api/beta node.k8s.io/v1alpha1", 200, 404},
		{"!api/all api/ga extensions/v1beta1", 404, 200},
	} {
		t.Run(c.on, func(t *testing.T) {
			f := newFixture(t, func(o *Options) {
				o.RuntimeConfig = map[string]bool{}
				for key := range strings.FieldsSeq(c.on) {
					name, off := strings.CutPrefix(key, "!")
					o.RuntimeConfig[name] = !off
				}
			})
			f.must(200, "GET", "/apis/node.k8s.io/v1/runtimeclasses", "")
			f.must(c.alpha, "GET", path, "")
			f.must(c.older, "GET", legacy, "")
			got := f.must(200, "GET", "/apis", "")
			if strings.Contains(got, `"node.k8s.io/v1alpha1"`) != (c.alpha == 200) {
				t.Errorf("discovery: got %s", got)
			}
		})
	}
}

func TestWhatNeedsAnotherResourceIsDroppedWithoutIt(t *testing.T) {
	const pods, groups = "/api/v1/namespaces/default/pods", "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
	const pod = `{"metadata":{"name":"p"},"spec":{"schedulingGroup":{"podGroupName":"%s"},"containers":[{"name":"c","image":"i"}]}}`
	const set = `{"metadata":{"name":"s"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"schedulingGroup":{"podGroupName":"g"},"containers":[{"name":"c","image":"i"}]}}}}`
	for _, c := range []struct {
		on     string
		served bool
	}{
		{"", false},
		{"scheduling.k8s.io/v1beta1", true},
		{"scheduling.k8s.io/v1beta1/podgroups", true},
		{"api/beta", true},
		{"scheduling.k8s.io/v1alpha3", false},
	} {
		t.Run(c.on, func(t *testing.T) {
			f := newFixture(t, func(o *Options) { o.RuntimeConfig = map[string]bool{c.on: true} })
			want := 404
			if c.served {
				want = 200
			}
			f.must(want, "GET", groups, "")
			f.must(200, "GET", "/apis/scheduling.k8s.io/v1beta1/priorityclasses", "")
			f.must(201, "POST", pods, fmt.Sprintf(pod, "g"))
			f.must(201, "POST", "/apis/apps/v1/namespaces/default/replicasets", set)
			for _, path := range []string{pods + "/p", "/apis/apps/v1/namespaces/default/replicasets/s"} {
				if got := f.must(200, "GET", path, ""); strings.Contains(got, `"podGroupName":"g"`) != c.served {
					t.Errorf("%s: got %s, want the group in it: %t", path, got, c.served)
				}
			}
			if got := f.ask("PUT", pods+"/p", fmt.Sprintf(pod, "other")); (got.Code == 422) != c.served {
				t.Errorf("the pod's group changes: got %d %s, want it refused: %t", got.Code, got.Body, c.served)
			}
		})
	}
	const lease = `{"metadata":{"name":"l"},"spec":{"strategy":"OldestEmulationVersion","preferredHolder":"h"}}`
	for _, on := range []bool{false, true} {
		f := newFixture(t, func(o *Options) { o.RuntimeConfig = map[string]bool{"coordination.k8s.io/v1beta1": on} })
		if got := f.must(201, "POST", "/apis/coordination.k8s.io/v1/namespaces/default/leases", lease); strings.Contains(got, "OldestEmulationVersion") != on || strings.Contains(got, "preferredHolder") != on {
			t.Errorf("got %s, want how it is given to candidates: %t", got, on)
		}
	}
}
