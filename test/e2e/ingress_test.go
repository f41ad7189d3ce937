package e2e

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

// anIngress has no class, as those of newcomers.
const anIngress = `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web}
spec: {rules: [{http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]}
`

// aGateway is of the class that is there by itself, and on port 80 of the nodes as Ingresses are.
const aGateway = `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web}
spec: {gatewayClassName: kemudi, listeners: [{name: http, port: 80, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web}
spec:
  parentRefs: [{name: web}]
  rules:
  - filters: [{type: ResponseHeaderModifier, responseHeaderModifier: {set: [{name: X-By, value: gateway}]}}]
    backendRefs: [{name: web, port: 80}]
`

// gatewayOnThePortOfIngresses has a Gateway take port 80 from an Ingress, which an event of the node tells, and give it
// back.
func (k kubectl) gatewayOnThePortOfIngresses(t *testing.T, url string) {
	t.Helper()
	by := func(want, reason string) {
		t.Helper()
		wait.Until(t, func() error {
			resp, err := httpClient(k.neighbour).Get(url)
			if err != nil {
				return err
			}
			resp.Body.Close()
			if got := resp.Header.Get("X-By"); got != want || resp.StatusCode != http.StatusOK {
				return fmt.Errorf("got %s by %q, want 200 by %q", resp.Status, got, want)
			}
			if events := k.do(t, "get", "events", "-A", "--field-selector", "involvedObject.kind=Node,reason="+reason); !strings.Contains(events, "Service default/web-kemudi") {
				return fmt.Errorf("got events %q, want one of the Gateway's Service", events)
			}
			return nil
		})
	}
	k.do(t, "wait", "gatewayclass/kemudi", "--for=create", patient)
	k.apply(t, aGateway)
	k.do(t, "wait", "gateway/web", "--for=condition=Programmed", patient)
	by("gateway", "IngressPortTaken")
	k.do(t, "delete", "gateway", "web")
	by("", "IngressPortServed")
}

// TestIngressesAreServed has an Ingress serve the example to clients outside: from the moment at which
// it is there, while the server restarts, and until it is deleted. Meanwhile a Gateway takes its port and gives it back.
func TestIngressesAreServed(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "--gateway-api")
	k := c.kubectl()
	url := "http://" + machineIP + "/"
	if _, err := get(c.neighbour, url); err == nil {
		t.Error("port 80 answers although there is no Ingress")
	}
	k.apply(t, string(must(os.ReadFile("../../examples/web.yaml"))(t)))
	k.rolledOut(t, "web")
	k.apply(t, anIngress)
	wait.Until(t, func() error { _, err := get(c.neighbour, url); return err })
	trace.Proves(t, "ING-001", "ING-005", "ING-018", "ING-032", "INGC-007")
	k.do(t, "wait", "ingress/web", "--for=jsonpath={.status.loadBalancer.ingress[0].ip}="+machineIP, patient)
	trace.Proves(t, "ING-025", "ING-029")
	if got := k.do(t, "get", "ingress", "web", "--no-headers"); strings.Join(strings.Fields(got)[:5], " ") != "web kemudi * "+machineIP+" 80" {
		t.Errorf("got %q, want the class and the address", got)
	}
	outside := startLoad(t, c.neighbour, url)
	c.kill(syscall.SIGTERM)
	if _, err := get(c.neighbour, url); err != nil {
		t.Errorf("while the server does not run: %v", err)
	}
	c.serve(t)
	c.connect(t)
	outside.end(t, "1")
	k.gatewayOnThePortOfIngresses(t, url)
	k.do(t, "delete", "ingress", "web")
	wait.Until(t, func() error {
		resp, err := httpClient(c.neighbour).Get(url)
		if err == nil {
			resp.Body.Close()
			return fmt.Errorf("port 80 still answers %s", http.StatusText(resp.StatusCode))
		}
		return nil
	})
}
