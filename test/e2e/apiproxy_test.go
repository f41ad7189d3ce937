package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

// testIssuer checks pods' own tokens, within the pods, by what the issuer publishes.
func testIssuer(t *testing.T, c *cluster) {
	trace.Proves(t, "C-163")
	_, text := c.finish(t, c.namespace(t), `
metadata: {name: validator}
spec:
  restartPolicy: OnFailure
  containers: [{name: c, image: kemudi.local/agnhost:1, args: [test-service-account-issuer-discovery, --token-path=/var/run/secrets/tokens/sa-token, --audience=oidc-discovery-test], volumeMounts: [{name: tokens, mountPath: /var/run/secrets/tokens}]}]
  volumes: [{name: tokens, projected: {sources: [{serviceAccountToken: {path: sa-token, expirationSeconds: 7200, audience: oidc-discovery-test}}]}}]
`)
	if !strings.Contains(text, "completed: the token of system:serviceaccount:") {
		t.Errorf("got %q", text)
	}
}

// testProxy reaches pods and services through the API server, by every name
// that they have and with every method.
func testProxy(t *testing.T, c *cluster) {
	k := c.kubectl().in(c.namespace(t))
	k.apply(t, `
apiVersion: v1
kind: Pod
metadata: {name: porter, labels: {app: porter}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: c
    image: kemudi.local/agnhost:1
    args: [porter]
    env:
    - {name: SERVE_PORT_80, value: '<a href="/rewriteme">test</a>'}
    - {name: SERVE_PORT_1080, value: '<a href="/rewriteme">test</a>'}
    - {name: SERVE_PORT_160, value: foo}
    - {name: SERVE_PORT_162, value: bar}
    - {name: SERVE_TLS_PORT_443, value: '<a href="/tlsrewriteme">test</a>'}
    - {name: SERVE_TLS_PORT_460, value: tls baz}
    - {name: SERVE_TLS_PORT_462, value: tls qux}
    ports: [{name: dest1, containerPort: 160}, {name: dest2, containerPort: 162}, {name: tlsdest1, containerPort: 460}, {name: tlsdest2, containerPort: 462}]
    readinessProbe: {httpGet: {port: 80}, periodSeconds: 1, timeoutSeconds: 60}
---
apiVersion: v1
kind: Service
metadata: {name: porter}
spec:
  selector: {app: porter}
  ports: [{name: portname1, port: 80, targetPort: dest1}, {name: portname2, port: 81, targetPort: 162}, {name: tlsportname1, port: 443, targetPort: tlsdest1}, {name: tlsportname2, port: 444, targetPort: 462}]
---
apiVersion: v1
kind: Pod
metadata: {name: methods, labels: {app: methods}}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: c, image: kemudi.local/agnhost:1, args: [porter, --json-response], env: [{name: SERVE_PORT_80, value: foo}], ports: [{containerPort: 80}], readinessProbe: {httpGet: {port: 80}, periodSeconds: 1, timeoutSeconds: 60}}]
---
apiVersion: v1
kind: Service
metadata: {name: methods}
spec: {selector: {app: methods}, ports: [{port: 80}]}
`)
	c.await(t, k.namespace, "porter", isReady)
	c.await(t, k.namespace, "methods", isReady)
	client, err := rest.HTTPClientFor(c.config)
	if err != nil {
		t.Fatal(err)
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	p := &proxied{T: t, client: client, server: c.config.Host, base: "/api/v1/namespaces/" + k.namespace}
	p.names()
	p.methods()
	trace.Proves(t, "C-230")
	list, err := c.client.CoreV1().Services("").List(t.Context(), metav1.ListOptions{})
	if err != nil || !slices.ContainsFunc(list.Items, func(s corev1.Service) bool { return s.Name == "kubernetes" && s.Namespace == "default" }) {
		t.Errorf("services of all namespaces: got %v, %v; want kubernetes among them", list, err)
	}
}

// proxied asks pods and services through the API server.
type proxied struct {
	*testing.T
	client       *http.Client
	server, base string
}

// ask returns the status, a header and the body that a path answers with.
func (p *proxied) ask(method, path, header string) (code int, value, body string) {
	p.Helper()
	r, err := http.NewRequestWithContext(p.Context(), method, p.server+p.base+path, nil)
	if err != nil {
		p.Fatal(err)
	}
	res, err := p.client.Do(r)
	if err != nil {
		p.Fatalf("%s %s: %v", method, path, err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		p.Fatalf("%s %s: %v", method, path, err)
	}
	return res.StatusCode, res.Header.Get(header), string(data)
}

// names asks by every form of a name.
func (p *proxied) names() {
	trace.Proves(p.T, "C-217", "COMM-010/proxy", "COMM-018/pods", "COMM-018/services")
	p.answer(map[string]string{
		"/services/porter:portname1/proxy/":      "foo",
		"/services/http:porter:portname1/proxy/": "foo",
		"/services/porter:80/proxy/":             "foo",
		"/services/porter:portname2/proxy/":      "bar",
		"/services/http:porter:portname2/proxy/": "bar",
		"/pods/porter:160/proxy/":                "foo",
		"/pods/porter:162/proxy/":                "bar",
		"/pods/http:porter:160/proxy/":           "foo",
		"/pods/porter/proxy/":                    "foo",
		"/pods/porter:80/proxy/":                 `<a href="` + p.base + `/pods/porter:80/proxy/rewriteme">test</a>`,
		"/pods/http:porter:1080/proxy/":          `<a href="` + p.base + `/pods/http:porter:1080/proxy/rewriteme">test</a>`,
	})
	trace.Proves(p.T, "C-217", "COMM-019/pods", "COMM-019/services", "COMM-020/not-validated")
	p.answer(map[string]string{
		"/services/https:porter:tlsportname1/proxy/":  "tls baz",
		"/services/https:porter:443/proxy/":           "tls baz",
		"/services/https:porter:tlsportname2/proxy/":  "tls qux",
		"/services/https:porter:tlsportname2/proxy/x": "tls qux",
		"/pods/https:porter:460/proxy/":               "tls baz",
		"/pods/https:porter:462/proxy/":               "tls qux",
		"/pods/https:porter:443/proxy/":               `<a href="` + p.base + `/pods/https:porter:443/proxy/tlsrewriteme">test</a>`,
	})
	for path, want := range map[string]int{
		"/services/porter/proxy/": 503, "/services/porter:none/proxy/": 503, "/services/none/proxy/": 404, "/pods/none/proxy/": 404,
		"/pods/a:b:c:d/proxy/": 400, "/pods/porter:1/proxy/": 503,
	} {
		if code, _, got := p.ask("GET", path, ""); code != want || !strings.Contains(got, `"Status"`) {
			p.Errorf("%s: got %d %s, want %d", path, code, got, want)
		}
	}
}

// answer expects of each path that it is answered, and with what.
func (p *proxied) answer(wants map[string]string) {
	p.Helper()
	for path, want := range wants {
		wait.Until(p.T, func() error { // until the endpoints are known
			if code, _, got := p.ask("GET", path, ""); code != 200 || got != want {
				return fmt.Errorf("%s: got %d %q, want %q", path, code, got, want)
			}
			return nil
		})
	}
}

// methods asks with every method, without a path and with one.
func (p *proxied) methods() {
	for _, kind := range []string{"pods", "services"} {
		wait.Until(p.T, func() error { // until the endpoints are known
			if code, _, got := p.ask("GET", "/"+kind+"/methods/proxy/", ""); code != 200 {
				return fmt.Errorf("%s: got %d %q", kind, code, got)
			}
			return nil
		})
		for _, method := range []string{"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"} {
			bare, path := "/"+kind+"/methods/proxy?method="+method, "/"+kind+"/methods/proxy/some/path/with/"+method
			reads := method == "GET" || method == "HEAD"
			code, location, body := p.ask(method, bare, "Location")
			trace.Proves(p.T, "C-215")
			switch {
			case reads && (code != 301 || !strings.HasSuffix(location, p.base+"/"+kind+"/methods/proxy/?method="+method)):
				p.Errorf("%s %s: got %d to %q, want 301 with a slash", method, bare, code, location)
			case !reads && (code != 200 || methodSeen(body) != method):
				p.Errorf("%s %s: got %d %s", method, bare, code, body)
			}
			trace.Proves(p.T, "C-216")
			if code, _, body = p.ask(method, path, ""); code != 200 || method != "HEAD" && methodSeen(body) != method {
				p.Errorf("%s %s: got %d %s", method, path, code, body)
			}
		}
	}
}

// methodSeen is the method of the request that a porter answered.
func methodSeen(body string) string {
	var answer struct{ Method string }
	_ = json.Unmarshal([]byte(body), &answer)
	return answer.Method
}
