package e2e

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

// testLiveness restarts containers that are not well, and no others.
func testLiveness(t *testing.T, c *cluster) {
	ns := c.namespace(t)
	pod := func(name, container string) {
		c.create(t, ns, fmt.Sprintf("metadata: {name: %s}\nspec:\n  terminationGracePeriodSeconds: 0\n  containers:\n  - {name: c, %s}\n", name, container))
	}
	t.Run("failing command", func(t *testing.T) {
		t.Parallel()
		trace.Proves(t, "PLC-021", "PLC-022", "PLC-027", "PLC-028", "C-308")
		pod("exec", "image: kemudi.local/busybox:1, command: [sh, -c, 'touch /tmp/health; sleep 2; rm /tmp/health; sleep 1000'], livenessProbe: {exec: {command: [cat, /tmp/health]}, initialDelaySeconds: 1, periodSeconds: 1, timeoutSeconds: 60, failureThreshold: 1}")
		c.await(t, ns, "exec", hasRestarted(1))
		c.awaitEvent(t, ns, "exec", "Unhealthy", "Liveness probe failed: cat: can't open '/tmp/health': No such file or directory")
		c.awaitEvent(t, ns, "exec", "Killing", "Container c failed liveness probe, will be restarted")
	})
	t.Run("command that hangs", func(t *testing.T) {
		t.Parallel()
		trace.Proves(t, "PLC-022", "PLC-028", "PLC-077")
		pod("hangs", "image: kemudi.local/busybox:1, command: [sleep, '1000'], livenessProbe: {exec: {command: [sleep, '500']}, periodSeconds: 1, timeoutSeconds: 1, failureThreshold: 3}")
		c.awaitEvent(t, ns, "hangs", "Unhealthy", `Liveness probe failed: command timed out: "sleep 500" timed out after 1s`)
		c.await(t, ns, "hangs", hasRestarted(1))
	})
	t.Run("failing web server", func(t *testing.T) {
		t.Parallel()
		trace.Proves(t, "PLC-024", "PLC-074", "PLC-076", "C-306")
		pod("http", "image: kemudi.local/agnhost:1, args: [liveness], livenessProbe: {httpGet: {path: /healthz, port: 8080, httpHeaders: [{name: X-Custom-Header, value: Awesome}]}, initialDelaySeconds: 2, periodSeconds: 1, timeoutSeconds: 60, failureThreshold: 3}")
		c.awaitEvent(t, ns, "http", "Unhealthy", "Liveness probe failed: HTTP probe failed with statuscode: 500")
		c.await(t, ns, "http", hasRestarted(1))
	})
	t.Run("closed port", func(t *testing.T) {
		t.Parallel()
		trace.Proves(t, "PLC-023")
		pod("tcp", "image: kemudi.local/agnhost:1, args: [netexec], livenessProbe: {tcpSocket: {port: 8081}, initialDelaySeconds: 1, periodSeconds: 1, failureThreshold: 2}")
		c.await(t, ns, "tcp", hasRestarted(1))
	})
	t.Run("asked from the machine's network", func(t *testing.T) {
		t.Parallel()
		const api = "Probe: {httpGet: {host: 127.0.0.1, port: 6443, scheme: HTTPS, path: /livez}, periodSeconds: 1, timeoutSeconds: 60}"
		trace.Proves(t, "PLC-073") // the container listens nowhere
		pod("machine", "image: kemudi.local/agnhost:1, args: [pause], startup"+api+", liveness"+api)
		c.await(t, ns, "machine", isReady)
	})
	t.Run("gRPC service that stops serving", func(t *testing.T) {
		t.Parallel()
		pod("grpc", "image: kemudi.local/agnhost:1, args: [grpc-health-checking, --delay-unhealthy-sec=2], livenessProbe: {grpc: {port: 5000}, initialDelaySeconds: 1, periodSeconds: 1, timeoutSeconds: 60, failureThreshold: 5}")
		c.awaitEvent(t, ns, "grpc", "Unhealthy", "NOT_SERVING")
		c.await(t, ns, "grpc", hasRestarted(1))
	})
	t.Run("healthy", func(t *testing.T) {
		t.Parallel()
		trace.Proves(t, "C-302", "C-303", "C-304")
		// From when they answer on, they must never fail to.
		probed := func(name, container, handler string) {
			const probe = "Probe: {%s, periodSeconds: 1, timeoutSeconds: 60, failureThreshold: %d}"
			pod(name, container+", startup"+fmt.Sprintf(probe, handler, 1000)+", liveness"+fmt.Sprintf(probe, handler, 1))
		}
		probed("well", "image: kemudi.local/agnhost:1, args: [netexec]", "httpGet: {path: /healthz, port: 8080}")
		probed("grpc-well", "image: kemudi.local/agnhost:1, args: [grpc-health-checking]", "grpc: {port: 5000}")
		probed("exec-well", "image: kemudi.local/busybox:1, command: [sh, -c, 'touch /tmp/health; sleep 10000']", "exec: {command: [sh, -c, 'echo asked >> /tmp/asked; cat /tmp/health']}")
		for _, name := range []string{"well", "grpc-well", "exec-well"} {
			c.await(t, ns, name, isReady)
		}
		k := c.kubectl().in(ns)
		wait.Until(t, func() error {
			if asked := strings.Count(k.do(t, "exec", "exec-well", "--", "cat", "/tmp/asked"), "asked"); asked < 10 {
				return fmt.Errorf("a healthy container was asked %d times, want 10", asked)
			}
			return nil
		})
		for _, name := range []string{"well", "grpc-well", "exec-well"} {
			c.await(t, ns, name, isReady)
			if got := c.await(t, ns, name, isReady).Status.ContainerStatuses[0].RestartCount; got != 0 {
				t.Errorf("%s: got %d restarts, want 0", name, got)
			}
		}
	})
	t.Run("startup first", func(t *testing.T) {
		t.Parallel()
		// Alive only after 4 s, which the liveness probe alone would not wait for.
		pod("startup", "image: kemudi.local/busybox:1, command: [sh, -c, 'sleep 4; touch /tmp/up; sleep 10000'], startupProbe: {exec: {command: [cat, /tmp/up]}, periodSeconds: 1, timeoutSeconds: 60, failureThreshold: 1000}, livenessProbe: {exec: {command: [cat, /tmp/up]}, periodSeconds: 1, timeoutSeconds: 60, failureThreshold: 1}")
		got := c.await(t, ns, "startup", isReady).Status.ContainerStatuses[0]
		if got.RestartCount != 0 || got.Started == nil || !*got.Started {
			t.Errorf("got %+v, want a started container without a restart", got)
		}
	})
}

// testReadiness takes a pod in and out of service.
func testReadiness(t *testing.T, c *cluster) {
	k := c.kubectl().in(c.namespace(t))
	k.apply(t, `
apiVersion: v1
kind: Service
metadata: {name: ready}
spec: {selector: {app: ready}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Pod
metadata: {name: ready, labels: {app: ready}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {name: c, image: kemudi.local/agnhost:1, args: [netexec], readinessProbe: {exec: {command: [cat, /tmp/ready]}, periodSeconds: 1, timeoutSeconds: 60, failureThreshold: 1}, livenessProbe: {httpGet: {path: /healthz, port: 8080}, timeoutSeconds: 60}}
`)
	endpoints := func(want int) {
		t.Helper()
		wait.Until(t, func() error {
			e, err := c.client.CoreV1().Endpoints(k.namespace).Get(t.Context(), "ready", metav1.GetOptions{}) //nolint:staticcheck // old clients read it
			if err != nil {
				return err
			}
			got := 0
			for _, s := range e.Subsets {
				got += len(s.Addresses)
			}
			if got != want {
				return fmt.Errorf("endpoints: got %d addresses, want %d", got, want)
			}
			return nil
		})
	}
	ip := k.do(t, "get", "service", "ready", "-o", "jsonpath={.spec.clusterIP}")
	c.await(t, k.namespace, "ready", func(pod *corev1.Pod) error {
		if len(pod.Status.ContainerStatuses) == 0 || pod.Status.ContainerStatuses[0].State.Running == nil {
			return fmt.Errorf("it does not run")
		}
		return isNotReady(pod)
	})
	c.awaitEvent(t, k.namespace, "ready", "Unhealthy", "Readiness probe failed")
	endpoints(0)
	trace.Proves(t, "PLC-035")
	if got, err := get(c.host, "http://"+ip+"/hostname"); err == nil {
		t.Errorf("the service answers %q without a ready pod", got)
	}
	k.do(t, "exec", "ready", "--", "touch", "/tmp/ready")
	c.await(t, k.namespace, "ready", isReady)
	trace.Proves(t, "CONN-018", "PLC-017", "SVC-009", "WHAT-025")
	endpoints(1)
	trace.Proves(t, "PLC-035")
	wait.Until(t, func() error { _, err := get(c.host, "http://"+ip+"/hostname"); return err })
	k.do(t, "exec", "ready", "--", "rm", "/tmp/ready")
	c.await(t, k.namespace, "ready", isNotReady)
	trace.Proves(t, "PLC-030", "SVC-009")
	endpoints(0)
	trace.Proves(t, "PLC-037") // although its liveness probe asks elsewhere, and is answered
	if got := c.await(t, k.namespace, "ready", isNotReady).Status.ContainerStatuses[0].RestartCount; got != 0 {
		t.Errorf("got %d restarts, want 0", got)
	}
}

// testReadinessGate waits for a condition that somebody else sets.
func testReadinessGate(t *testing.T, c *cluster) {
	trace.Proves(t, "PLC-050", "PLC-052", "PLC-055", "PLC-056", "PLC-057")
	ns := c.namespace(t)
	c.create(t, ns, "metadata: {name: gate}\nspec:\n  terminationGracePeriodSeconds: 0\n  readinessGates: [{conditionType: www.example.com/feature-1}]\n  containers:\n  - {name: c, image: kemudi.local/agnhost:1}\n")
	pod := c.await(t, ns, "gate", func(pod *corev1.Pod) error { return hasCondition(pod, corev1.ContainersReady, corev1.ConditionTrue) })
	if isNotReady(pod) != nil {
		t.Errorf("nobody has opened the gate, but the pod is ready: %+v", pod.Status.Conditions)
	}
	set := func(status string) {
		t.Helper()
		patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"www.example.com/feature-1","status":%q}]}}`, status)
		c.kubectl().in(ns).do(t, "patch", "pod", "gate", "--subresource=status", "-p", patch)
	}
	set("True")
	trace.Proves(t, "PLC-051")
	c.await(t, ns, "gate", isReady)
	set("False")
	c.await(t, ns, "gate", isNotReady)
}
