package e2e

import (
	"fmt"
	"testing"

	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

// Addresses that [testBalancers] has of a pool, on the network of the machine.
const balancerPool, balancerIP = "192.168.77.100-192.168.77.101", "192.168.77.100"

// testBalancers reaches pods from another machine by services of type LoadBalancer: at the address of
// the node, and at one of a pool that the node answers for.
func testBalancers(t *testing.T, c *cluster) {
	k := c.kubectl().in(c.namespace(t))
	k.apply(t, `
apiVersion: v1
kind: Pod
metadata: {name: backend, labels: {app: backend}}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: c, image: kemudi.local/agnhost:1, args: [netexec]}]
---
apiVersion: v1
kind: Service
metadata: {name: on-nodes}
spec: {type: LoadBalancer, selector: {app: backend}, ports: [{port: 18080, targetPort: 8080}], allocateLoadBalancerNodePorts: false}
---
apiVersion: v1
kind: Service
metadata: {name: of-pool, annotations: {kemudi.io/load-balancer-pool: lan}}
spec: {type: LoadBalancer, selector: {app: backend}, ports: [{port: 80, targetPort: 8080}], externalTrafficPolicy: Local}
---
apiVersion: v1
kind: Service
metadata: {name: late}
spec: {type: LoadBalancer, selector: {app: backend}, ports: [{port: 18080}]}
`)
	c.await(t, k.namespace, "backend", isReady)
	for service, url := range map[string]string{"on-nodes": "http://" + machineIP + ":18080/hostname", "of-pool": "http://" + balancerIP + "/hostname"} {
		trace.Proves(t, "SVC-096/balancer", "SVC-109", "SVC-111")
		wait.Until(t, func() error {
			got, err := get(k.neighbour, url)
			if err == nil && got != "backend" {
				err = fmt.Errorf("%s: got %q", service, got)
			}
			return err
		})
	}
	k.wants(t, []string{machineIP}, "get", "service", "on-nodes", "--no-headers")
	k.wants(t, []string{balancerIP}, "get", "service", "of-pool", "--no-headers")
	trace.Proves(t, "SVC-151")
	if got, err := get(k.neighbour, "http://"+balancerIP+"/clientip"); err != nil || got[:len(neighbourIP)] != neighbourIP {
		t.Errorf("the client's address: got %q, %v, want %s", got, err, neighbourIP)
	}
	k.wants(t, []string{"<pending>"}, "get", "service", "late", "--no-headers")
	wait.Until(t, func() error {
		want := "port 18080/TCP of node"
		if got := k.do(t, "get", "service", "late", "-o", "jsonpath={.status.conditions[0].message}"); len(got) < len(want) || got[:len(want)] != want {
			return fmt.Errorf("the later one: got %q, want %q", got, want)
		}
		return nil
	})
	k.do(t, "delete", "service", "on-nodes", "of-pool")
	wait.Until(t, func() error {
		if got := k.do(t, "get", "service", "late", "-o", "jsonpath={.status.loadBalancer.ingress[0].ip}"); got != machineIP {
			return fmt.Errorf("the later one: got %q, want %s", got, machineIP)
		}
		return nil
	})
}
