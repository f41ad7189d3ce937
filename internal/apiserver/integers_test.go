package apiserver

import (
	"strings"
	"testing"
)

// TestIntegersSurviveEveryKindOfWrite uses integers that have no float64.
func TestIntegersSurviveEveryKindOfWrite(t *testing.T) {
	const path, first, second = "/apis/apps/v1/namespaces/default/deployments", "9007199254740993", "9007199254740995"
	const at = `"terminationGracePeriodSeconds":`
	deployment := func(grace string) string {
		return `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},` +
			`"template":{"metadata":{"labels":{"a":"b"}},"spec":{` + at + grace + `,"containers":[{"name":"c","image":"i"}]}}}}`
	}
	const grace = "/spec/template/spec/terminationGracePeriodSeconds"
	for name, w := range map[string]struct{ method, header, beside, itself string }{
		"update":      {"PUT", "Content-Type: application/json", deployment(first), deployment(second)},
		"apply":       {"PATCH", "Content-Type: application/apply-patch+yaml", deployment(first), deployment(second)},
		"merge patch": {"PATCH", merge, `{"spec":{"replicas":2}}`, `{"spec":{"template":{"spec":{` + at + second + `}}}}`},
		"strategic merge patch": {"PATCH", strategic, `{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"j"}]}}}}`,
			`{"spec":{"template":{"spec":{` + at + second + `}}}}`},
		"JSON patch": {"PATCH", "Content-Type: application/json-patch+json", `[{"op":"test","path":"` + grace + `","value":` + first + `},{"op":"replace","path":"/spec/replicas","value":2}]`,
			`[{"op":"replace","path":"` + grace + `","value":` + second + `}]`},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.must(201, "POST", path, deployment(first))
			for _, step := range []struct{ what, body, want string }{{"a write beside it", w.beside, first}, {"a write of it", w.itself, second}} {
				query := "?fieldManager=t"
				if name == "apply" {
					query += "&force=true"
				}
				got := f.must(200, w.method, path+"/d"+query, step.body, w.header)
				if !strings.Contains(got, at+step.want+",") {
					t.Errorf("%s: got %s, want %s", step.what, got, step.want)
				}
			}
		})
	}
}
