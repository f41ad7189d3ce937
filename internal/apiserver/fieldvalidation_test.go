package apiserver

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

const applyPatch = "Content-Type: application/apply-patch+yaml"

// careless is a Deployment with fields that are unknown or given twice.
const careless = `apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME}
spec:
  unknownField: 1
  paused: true
  paused: false
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec:
      containers:
      - name: c
        image: i
        oddThing: 1
        imagePullPolicy: Never
        imagePullPolicy: Always
`

// warningsOf lists the texts of the Warning headers.
func warningsOf(t *testing.T, h http.Header) (texts []string) {
	t.Helper()
	parsed, errs := utilnet.ParseWarningHeaders(h.Values("Warning"))
	for _, err := range errs {
		t.Error(err)
	}
	for _, w := range parsed {
		texts = append(texts, w.Text)
	}
	return texts
}

func TestFieldValidationTellsOfWhatIsUnknownOrTwice(t *testing.T) {
	f := newFixture(t)
	const path = "/apis/apps/v1/namespaces/default/deployments"
	f.must(201, "POST", path, nginx)
	const one = path + "/nginx-deployment"
	const twice = `{"spec":{"unknown1":1,"paused":true,"paused":false,"template":{"spec":{"containers":[{"name":"nginx","image":"i","oddThing":1,"imagePullPolicy":"Never","imagePullPolicy":"Always"}]}}}}`
	inPatch := []string{
		`duplicate field "spec.paused"`, `duplicate field "spec.template.spec.containers[0].imagePullPolicy"`,
		`unknown field "spec.template.spec.containers[0].oddThing"`, `unknown field "spec.unknown1"`,
	}
	inYAML := []string{`line 7: key "paused" already set in map`, `line 17: key "imagePullPolicy" already set in map`}
	for _, c := range []struct {
		name, method, path, body, header string
		refused                          string // the end of what Strict answers
		warned                           []string
	}{
		{
			"create from YAML", "POST", path, careless, "Content-Type: application/yaml",
			"strict decoding error: yaml: unmarshal errors:\n  " + strings.Join(inYAML, "\n  ") + `, unknown field "spec.template.spec.containers[0].oddThing", unknown field "spec.unknownField"`,
			append(slices.Clone(inYAML), `unknown field "spec.template.spec.containers[0].oddThing"`, `unknown field "spec.unknownField"`),
		},
		{"merge patch", "PATCH", one, twice, merge, "strict decoding error: " + strings.Join(inPatch, ", "), inPatch},
		{"strategic merge patch", "PATCH", one, twice, strategic, "strict decoding error: " + strings.Join(inPatch, ", "), inPatch},
		{
			"JSON patch", "PATCH", one, `[{"op":"add","path":"/spec/unknown1","value":1,"foo":"bar"},{"op":"add","path":"/spec/paused","path":"/spec/paused","value":true}]`, "Content-Type: application/json-patch+json",
			`strict decoding error: json patch unknown field "[0].foo", json patch duplicate field "[1].path", unknown field "spec.unknown1"`,
			[]string{`json patch unknown field "[0].foo"`, `json patch duplicate field "[1].path"`, `unknown field "spec.unknown1"`},
		},
		{
			"apply", "PATCH", path + "/NAME?fieldManager=m", strings.NewReplacer("  unknownField: 1\n", "", "        oddThing: 1\n", "").Replace(careless), applyPatch,
			"error strict decoding patch: error converting YAML to JSON: yaml: unmarshal errors:\n  line 6: key \"paused\" already set in map\n  line 15: key \"imagePullPolicy\" already set in map",
			[]string{`line 6: key "paused" already set in map`, `line 15: key "imagePullPolicy" already set in map`},
		},
		{
			"apply of JSON", "PATCH", path + "/NAME?fieldManager=m", `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"NAME"},"spec":{"selector":{"matchLabels":{"a":"b"}},` + "\n" +
				`"paused":true,"paused":false,"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`, applyPatch,
			"error strict decoding patch: error converting YAML to JSON: yaml: unmarshal errors:\n  line 2: key \"paused\" already set in map",
			[]string{`line 2: key "paused" already set in map`},
		},
	} {
		for _, level := range []string{"Strict", "Warn", "", "Ignore"} {
			t.Run(c.name+"/"+level, func(t *testing.T) {
				name := strings.ToLower(strings.ReplaceAll(c.name+"-"+level+"-x", " ", "-"))
				uri := strings.Replace(c.path, "NAME", name, 1)
				uri += map[bool]string{true: "&", false: "?"}[strings.Contains(uri, "?")] + "fieldValidation=" + level
				w := f.ask(c.method, uri, strings.ReplaceAll(c.body, "NAME", name), c.header)
				warned := warningsOf(t, w.Header())
				if level == "Strict" {
					message := decoded[struct{ Message string }](t, w.Body.String()).Message
					if w.Code < 400 || w.Code >= 500 || !strings.HasSuffix(message, c.refused) || len(warned) > 0 {
						t.Errorf("got %d %q, warnings %q\nwant %q", w.Code, message, warned, c.refused)
					}
					return
				}
				want := c.warned
				if level == "Ignore" {
					want = nil
				}
				if w.Code >= 300 || !slices.Equal(warned, want) {
					t.Errorf("got %d, warnings %q\nwant %q\n%s", w.Code, warned, want, w.Body)
				}
			})
		}
	}
}

func TestApplyRefusesFieldsThatTheSchemaLacks(t *testing.T) {
	f := newFixture(t)
	const path = "/apis/apps/v1/namespaces/default/deployments/d?fieldManager=m&fieldValidation="
	doc := strings.NewReplacer("NAME}", "d, unknownMeta: x}", "  paused: false\n", "  anotherField: 2\n", "        imagePullPolicy: Never\n", "").Replace(careless)
	for _, level := range []string{"Strict", "Warn", "Ignore"} {
		got := decoded[metav1.Status](t, f.must(400, "PATCH", path+level, doc, applyPatch)).Message
		const want = "failed to create typed patch object (/d; apps/v1, Kind=Deployment): errors:\n" +
			"  .metadata.unknownMeta: field not declared in schema\n  .spec.anotherField: field not declared in schema\n" +
			"  .spec.template.spec.containers[name=\"c\"].oddThing: field not declared in schema\n  .spec.unknownField: field not declared in schema"
		if got != want {
			t.Errorf("%s: got %s\nwant %s", level, got, want)
		}
	}
}
