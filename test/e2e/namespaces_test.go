package e2e

import (
	"fmt"
	"testing"

	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

// testSameInEveryNamespace has one configuration run in two namespaces: by the short name of a Service each client
// gets to what is beside it.
func testSameInEveryNamespace(t *testing.T, c *cluster) {
	base := c.namespace(t)
	stages := []kubectl{c.kubectl().in(base), c.kubectl().in(base + "-production")}
	stages[0].do(t, "create", "namespace", stages[1].namespace)
	t.Cleanup(func() { stages[0].do(t, "delete", "namespace", stages[1].namespace, "--wait=false") })
	for _, k := range stages {
		k.apply(t, `
apiVersion: v1
kind: Service
metadata: {name: backend}
spec: {selector: {app: backend}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Pod
metadata: {name: backend, labels: {app: backend}}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: c, image: kemudi.local/agnhost:1, args: [netexec, --http-port=8080, --udp-port=-1], env: [{name: STAGE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}], readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}}]
---
apiVersion: v1
kind: Pod
metadata: {name: client}
spec: {terminationGracePeriodSeconds: 0, containers: [{name: c, image: kemudi.local/agnhost:1, args: [pause]}]}
`)
	}
	trace.Proves(t, "NS-019")
	for _, k := range stages {
		c.await(t, k.namespace, "backend", isReady)
		c.await(t, k.namespace, "client", isReady)
		wait.Until(t, func() error { // its namespace is all in which a backend differs from the other
			got := k.try(t, "", "exec", "client", "--", "curl", "-sS", "http://backend/shell?cmd=echo+%24STAGE")
			if want := fmt.Sprintf(`{"output":"%s\n"}`, k.namespace); got.stdout != want {
				return fmt.Errorf("in %s: got %q, want %s", k.namespace, got.all(), want)
			}
			return nil
		})
	}
}
