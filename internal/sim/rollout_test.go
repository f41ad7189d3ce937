package sim

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"
)

// TestManyPodsRollOut makes a Deployment, rolls a second template out and
// deletes it all. It also is a macro benchmark: KEMUDI_SIM_PODS=1000 sets the
// size; that takes 2.6 s of wall time on two cores.
func TestManyPodsRollOut(t *testing.T) {
	t.Parallel()
	pods := 200
	if s := os.Getenv("KEMUDI_SIM_PODS"); s != "" {
		var err error
		if pods, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	Script(t, "rollout", fmt.Sprintf(`
node a cpu=1000 pods=%[2]d
node b cpu=1000 pods=%[2]d
node c cpu=1000 pods=%[2]d
apply web.yaml
wait deployment/web jsonpath={.status.readyReplicas}=%[1]d
patch deployment/web '{"spec":{"template":{"metadata":{"annotations":{"v":"2"}}}}}'
wait deployment/web jsonpath={.status.conditions[?(@.type=="Progressing")].reason}=ReplicaSetUpdated
wait deployment/web jsonpath={.status.conditions[?(@.type=="Progressing")].reason}=NewReplicaSetAvailable
delete deployment/web
wait-count pods 0
-- web.yaml --
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: %[1]d
  selector:
    matchLabels: {app: web}
  template:
    metadata:
      labels: {app: web}
    spec:
      containers:
      - name: web
        image: web:1
`, pods, pods))
	t.Logf("%d pods took %s", pods, time.Since(began))
}
