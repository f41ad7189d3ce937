package deployment_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/kemudi/kemudi/internal/sim"
	"github.com/kemudi/kemudi/internal/trace"
)

const chaotic = `
-- web.yaml --
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: 3
  progressDeadlineSeconds: 30
  selector:
    matchLabels: {app: web}
  template:
    metadata:
      labels: {app: web}
    spec:
      containers:
      - name: web
        image: web:1
`

// TestWhateverHappensADeploymentEndsAsItIsDescribed changes a Deployment, its
// sets, pods and nodes at random and kills the control plane on the way; when
// that is over, what the last description says is there, and nothing else.
// KEMUDI_SEED plays one seed again.
func TestWhateverHappensADeploymentEndsAsItIsDescribed(t *testing.T) {
	trace.Proves(t, "DEP-001", "DEP-040", "CTL-001", "CTL-016", "RS-046")
	sim.Seeds(t, 12, func(t *testing.T, rng *rand.Rand) { sim.Script(t, t.Name(), randomLife(rng)) })
}

func randomLife(rng *rand.Rand) string {
	replicas, template, strategy := 3, 0, "RollingUpdate"
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	patch := func(format string, args ...any) {
		say("patch deployment/web '"+format+"'", args...)
	}
	change := func(ready string) {
		template = rng.IntN(5) // so that some come back
		patch(`{"spec":{"template":{"metadata":{"annotations":{"v":"%d","sim.kemudi.io/start-after":"%ds","sim.kemudi.io/stop-after":"%ds","sim.kemudi.io/ready-after":"%s"}}}}}`,
			template, rng.IntN(20), rng.IntN(20), ready)
	}
	say("nodes 3\napply web.yaml")
	stopped := false
	for range 10 + rng.IntN(20) {
		switch rng.IntN(12) {
		case 0, 1:
			change([]string{"0s", "5s", "never"}[rng.IntN(3)])
		case 2, 3:
			replicas = rng.IntN(12)
			say("scale deployment/web %d", replicas)
		case 4:
			patch(`{"spec":{"paused":true}}`)
		case 5:
			patch(`{"spec":{"paused":false}}`)
		case 6:
			say("delete-collection pods -l app=web")
		case 7:
			say("delete-collection rs -l app=web")
		case 8:
			say("restart")
		case 9:
			if stopped = !stopped; stopped {
				say("stop-node n1")
			} else {
				say("start-node n1")
			}
		case 10:
			if strategy == "RollingUpdate" {
				strategy = "Recreate"
				patch(`{"spec":{"strategy":{"type":"Recreate","rollingUpdate":null}}}`)
			} else {
				strategy = "RollingUpdate"
				patch(`{"spec":{"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":%d,"maxUnavailable":%d}}}}`, rng.IntN(3), 1+rng.IntN(3))
			}
		case 11:
			patch(`{"spec":{"revisionHistoryLimit":%d,"minReadySeconds":%d}}`, rng.IntN(4), rng.IntN(10))
		}
		say("advance %dms", rng.IntN(30000)*rng.IntN(2))
	}
	replicas = 1 + rng.IntN(9)
	if stopped {
		say("start-node n1")
	}
	patch(`{"spec":{"paused":false,"revisionHistoryLimit":2,"replicas":%d}}`, replicas)
	change("1s")
	const is = `{.status.replicas}/{.status.updatedReplicas}/{.status.availableReplicas}/{.status.terminatingReplicas}`
	say("wait deployment/web 'jsonpath=%s=%d/%d/%d/0' timeout=20m", is, replicas, replicas, replicas)
	say("advance 3m") // and of what is not its own any more nothing is left
	say("get deployment/web -o 'jsonpath=%s {.status.conditions[?(@.type==\"Progressing\")].reason}'", is)
	say("stdout ^%d/%d/%d/0.NewReplicaSetAvailable\\n$", replicas, replicas, replicas)
	say("wait-count pods %d timeout=1s", replicas)
	say("get pods -o jsonpath={.metadata.annotations.v}/{.metadata.ownerReferences[0].kind}")
	say("stdout ^(%d/ReplicaSet\\n){%d}$", template, replicas)
	say("get rs -o jsonpath={.spec.replicas}")
	say("stdout ^(0\\n){0,2}%d\\n(0\\n){0,2}$", replicas)
	b.WriteString(chaotic)
	return b.String()
}
