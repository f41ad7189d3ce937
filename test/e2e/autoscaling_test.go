package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

// testAutoscaling lets a container use all the processor time that it is given, and sees
// what is measured, and that pods are added for it.
func testAutoscaling(t *testing.T, c *cluster) {
	k := c.kubectl().in(c.namespace(t))
	k.apply(t, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: busy}
spec:
  selector: {matchLabels: {app: busy}}
  template:
    metadata: {labels: {app: busy}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: main, image: kemudi.local/busybox:1, command: [sh, -c, "while :; do :; done"], resources: {requests: {cpu: 10m}, limits: {cpu: 100m}}}]
`)
	k.rolledOut(t, "busy")
	wait.Until(t, func() error { // 100m, when the machine gives it that
		out := k.try(t, "", "top", "pod", "-l", "app=busy", "--no-headers")
		fields := strings.Fields(out.stdout)
		if len(fields) != 3 {
			return fmt.Errorf("top: got %q, %q", out.stdout, out.stderr)
		}
		cpu, err := strconv.Atoi(strings.TrimSuffix(fields[1], "m"))
		if err != nil || cpu < 12 || cpu > 150 || !strings.HasSuffix(fields[2], "Mi") {
			return fmt.Errorf("top: got %q, want processor time of about 100m, and memory", out.stdout)
		}
		return nil
	})
	k.wants(t, []string{"CPU(%)"}, "top", "node")
	k.do(t, "autoscale", "deployment", "busy", "--cpu=50%", "--max=2")
	wait.Until(t, func() error {
		trace.Proves(t, "DEP-064")
		if got := k.do(t, "get", "deployment", "busy", "-o", "jsonpath={.spec.replicas}"); got != "2" {
			return fmt.Errorf("got %s pods wanted, and of the autoscaler:\n%s", got, k.do(t, "describe", "hpa", "busy"))
		}
		return nil
	})
	k.do(t, "delete", "hpa/busy", "deployment/busy")
	c.wantNothing(t, k.namespace)
}
