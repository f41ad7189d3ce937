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
	k.apply(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: target}\nspec: {terminationGracePeriodSeconds: 0, containers: [{name: c, image: kemudi.local/agnhost:1, args: [pause]}]}\n")
	c.await(t, k.namespace, "target", isReady)
	k.do(t, "debug", "target", "--profile=general", "--image=kemudi.local/busybox:1", "--container=debugger", "--", "sh", "-c", "echo from within; sleep 1000")
	trace.Proves(t, "C-262/log")
	wait.Until(t, func() error {
		if got := k.try(t, "", "logs", "target", "-c", "debugger"); got.stdout != "from within\n" {
			return fmt.Errorf("log of the container: got %q", got.all())
		}
		return nil
	})
}
