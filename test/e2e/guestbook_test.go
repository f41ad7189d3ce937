package e2e

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

// aPart is a Deployment of the guestbook with its Service.
const aPart = `---
apiVersion: v1
kind: Service
metadata: {name: %[1]s, labels: {app: guestbook}}
spec: {selector: {part: %[1]s}, ports: [{port: %[2]d}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  replicas: %[3]d
  selector: {matchLabels: {part: %[1]s}}
  template:
    metadata: {labels: {app: guestbook, part: %[1]s}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - {name: c, image: "kemudi.local/agnhost:1", args: [guestbook, %[4]s], ports: [{containerPort: %[2]d}], readinessProbe: {tcpSocket: {port: %[2]d}, periodSeconds: 1}}
`

// testGuestbook runs the example of three parts that know each other by the names of
// their services, and writes and reads through the one that people see.
func testGuestbook(t *testing.T, c *cluster) {
	k := c.kubectl().in(c.namespace(t))
	k.apply(t, fmt.Sprintf(aPart, "agnhost-primary", 6379, 1, "--http-port=6379")+
		fmt.Sprintf(aPart, "agnhost-replica", 6379, 2, "--replicaof=agnhost-primary, --http-port=6379")+
		fmt.Sprintf(aPart, "frontend", 80, 3, "--backend-port=6379"))
	for _, part := range []string{"agnhost-primary", "agnhost-replica", "frontend"} {
		k.do(t, "rollout", "status", "deployment/"+part, patient)
	}
	client, err := rest.HTTPClientFor(c.config)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxied{T: t, client: client, server: c.config.Host, base: "/api/v1/namespaces/" + k.namespace}
	says := func(want string, query url.Values) {
		t.Helper()
		wait.Until(t, func() error { // the proxy hears of endpoints a moment after they are ready
			if code, _, body := p.ask(http.MethodGet, "/services/frontend/proxy/guestbook?"+query.Encode(), ""); code != http.StatusOK || body != want {
				return fmt.Errorf("%v: got %d %q, want %q", query, code, body, want)
			}
			return nil
		})
	}
	says(`{"data":""}`, url.Values{"cmd": {"get"}, "key": {"messages"}})
	says(`{"data":"Updated"}`, url.Values{"cmd": {"set"}, "key": {"messages"}, "value": {"TestEntry"}})
	trace.Proves(t, "C-172")
	says(`{"data":"TestEntry"}`, url.Values{"cmd": {"get"}, "key": {"messages"}})
	k.do(t, "delete", "deployments,services", "--all")
	c.wantNothing(t, k.namespace)
}
