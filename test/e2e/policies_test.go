package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

// testNetworkPolicies lets a pod be asked by some and not by others, while its probes go on, and
// has one begin that may not ask anybody.
func testNetworkPolicies(t *testing.T, c *cluster) {
	k := c.kubectl().in(c.namespace(t))
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: %s, labels: {role: %[1]s}}\nspec: {terminationGracePeriodSeconds: 0, containers: [{name: c, image: kemudi.local/agnhost:1, args: [netexec], " +
		"readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}}]}\n---\n"
	k.apply(t, fmt.Sprintf(pod, "server")+fmt.Sprintf(pod, "friend")+fmt.Sprintf(pod, "stranger")+`
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: default-deny}
spec: {podSelector: {matchLabels: {role: server}}}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: friends}
spec: {podSelector: {matchLabels: {role: server}}, ingress: [{from: [{podSelector: {matchLabels: {role: friend}}}], ports: [{port: 8080}]}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: nobody}
spec: {podSelector: {matchLabels: {role: early}}, policyTypes: [Egress]}
`)
	at := map[string]string{}
	for _, name := range []string{"server", "friend", "stranger"} {
		at[name] = c.await(t, k.namespace, name, isReady).Status.PodIP // so probes pass
	}
	const answer = `{"responses":["server"]}`
	ask := func(from string) (string, error) {
		return get(c.host, fmt.Sprintf("http://%s:8080/dial?request=hostname&protocol=http&host=%s&port=8080&tries=1", at[from], at["server"]))
	}
	wait.Until(t, func() error {
		if got, err := ask("friend"); err != nil || got != answer {
			return fmt.Errorf("a friend asks: got %q, %w", got, err)
		}
		return nil
	})
	trace.Proves(t, "NETPOL-001", "NETPOL-004", "NETPOL-016", "NETPOL-021")
	if got, err := ask("stranger"); err == nil && got == answer {
		t.Errorf("a stranger asks: got %q, want no answer", got)
	}
	k.apply(t, `
apiVersion: v1
kind: Pod
metadata: {name: early, labels: {role: early}}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  containers: [{name: c, image: kemudi.local/agnhost:1, args: [connect, --timeout=1s, "`+at["stranger"]+`:8080"]}]
`)
	c.await(t, k.namespace, "early", func(p *corev1.Pod) error {
		if p.Status.Phase == corev1.PodSucceeded {
			t.Error("a pod reached another one with the first packet, although it may not")
		}
		if p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded {
			return errors.New("it runs")
		}
		return nil
	})
	trace.Proves(t, "NETPOL-033")
	if got := k.do(t, "logs", "early"); strings.TrimSpace(got) != "TIMEOUT" {
		t.Errorf("a pod that may ask nobody says %q, want TIMEOUT", got)
	}
	k.do(t, "delete", "networkpolicy", "--all")
	trace.Proves(t, "NETPOL-003", "NETPOL-030")
	wait.Until(t, func() error {
		if got, err := ask("stranger"); err != nil || got != answer {
			return fmt.Errorf("without policies a stranger asks: got %q, %w", got, err)
		}
		return nil
	})
}
