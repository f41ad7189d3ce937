package e2e

import (
	"fmt"
	"testing"

	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

// testEphemeralContainer adds a container to a pod that runs, and reads what it says.
func testEphemeralContainer(t *testing.T, c *cluster) {
	k := c.kubectl().in(c.namespace(t))
	k.apply(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: target}\nspec: {shareProcessNamespace: true, terminationGracePeriodSeconds: 0, containers: [{name: c, image: kemudi.local/agnhost:1, args: [pause]}]}\n")
	c.await(t, k.namespace, "target", isReady)
	k.do(t, "debug", "target", "--profile=general", "--image=kemudi.local/busybox:1", "--container=debugger", "--", "sh", "-c", "echo from within; sleep 1000")
	trace.Proves(t, "C-262/log")
	wait.Until(t, func() error {
		if got := k.try(t, "", "logs", "target", "-c", "debugger"); got.stdout != "from within\n" {
			return fmt.Errorf("log of the container: got %q", got.all())
		}
		return nil
	})
	trace.Proves(t, "EPH-017")
	k.wants(t, []string{
		"Ephemeral Containers:\n  debugger:\n", "    Image:         kemudi.local/busybox:1\n", "    Port:          <none>\n    Host Port:     <none>\n    Command:\n      sh\n",
		"    State:          Running\n      Started:", "    Ready:          False\n    Restart Count:  0\n    Environment:    <none>\n    Mounts:         <none>\n",
	}, "describe", "pod", "target")
	trace.Proves(t, "EPH-019")
	k.wants(t, []string{"pause\n", "/agnhost pause\n", " sleep 1000\n", " ps\n"}, "exec", "target", "-c", "debugger", "--", "sh", "-c", "cat /proc/1/comm; ps")
	k.do(t, "debug", "target", "--profile=general", "-it", "--attach=false", "--image=kemudi.local/busybox:1", "--container=shell", "--", "sh", "-c", `while read line; do echo "heard $line"; done`)
	wait.Until(t, func() error {
		if got := k.do(t, "get", "pod", "target", "-o", `jsonpath={.status.ephemeralContainerStatuses[?(@.name=="shell")].state.running.startedAt}`); got == "" {
			return fmt.Errorf("the shell does not run")
		}
		return nil
	})
	attach := k.begin(t, true, k.line("attach", "-it", "target", "-c", "shell")...)
	attach.types(t, "\nhello\n")
	trace.Proves(t, "EPH-018")
	attach.sees(t, "heard hello")
	attach.interrupt()
	attach.exits(t)
}
