package sim

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

func TestControllerScripts(t *testing.T) { Test(t, "../controllers/*/testdata/*.txt") }

func TestSchedulerScripts(t *testing.T) { Test(t, "../scheduler/testdata/stories/*.txt") }

func TestMetricsScripts(t *testing.T) { Test(t, "../metricsserver/testdata/*.txt") }

// TestNodesLiveForAnHour also is the macro benchmark: KEMUDI_SIM_NODES=1000
// makes it the size of the charter's bar (60 s of wall time).
func TestNodesLiveForAnHour(t *testing.T) {
	nodes := 50
	if s := os.Getenv("KEMUDI_SIM_NODES"); s != "" {
		var err error
		if nodes, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	synctest.Test(t, func(t *testing.T) {
		c, err := Start(t.Context(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range nodes {
			if err := c.AddNode(NodeOptions{Name: fmt.Sprintf("n%d", i)}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Hour)
		r := &run{c: c}
		if _, err := r.line(t.Context(), "get nodes"); err != nil {
			t.Error(err)
		}
		if _, err := r.line(t.Context(), `! stdout NotReady`); err != nil {
			t.Error(err)
		}
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	t.Logf("%d nodes for an hour took %s", nodes, time.Since(began))
}

// The container does not begin anew when it is ready, and it is still known when it has ended.
func TestContainersTellWhenTheyStarted(t *testing.T) {
	Script(t, "started", `nodes 1
apply pod.yaml
advance 60s
get pod/p -o 'jsonpath={.status.startTime} {.status.containerStatuses[0].state.terminated.startedAt} {.status.containerStatuses[0].state.terminated.finishedAt}'
stdout '^2000-01-01T00:00:05Z 2000-01-01T00:00:05Z 2000-01-01T00:00:35Z\n$'
-- pod.yaml --
apiVersion: v1
kind: Pod
metadata: {name: p, annotations: {sim.kemudi.io/start-after: 5s, sim.kemudi.io/ready-after: 10s, sim.kemudi.io/exit-after: 30s}}
spec: {restartPolicy: Never, containers: [{name: c, image: none}]}
`)
}

func TestContainersOfSimulatedPodsAreResized(t *testing.T) {
	Script(t, "resized", `nodes 1
apply pod.yaml
wait pod/p condition=Ready
patch pod/p '{"spec":{"containers":[{"name":"c","image":"none","resources":{"requests":{"cpu":"2"}}}]}}' sub=resize
wait pod/p jsonpath={.status.containerStatuses[0].resources.requests.cpu}=2
get pod/p -o 'jsonpath={.status.containerStatuses[0].allocatedResources.cpu} {.status.containerStatuses[0].ready}'
stdout '^2 true\n$'
advance 30s
get pod/p -o 'jsonpath={.status.phase}'
stdout ^Succeeded\n$
-- pod.yaml --
apiVersion: v1
kind: Pod
metadata: {name: p, annotations: {sim.kemudi.io/exit-after: 30s}}
spec: {restartPolicy: Never, containers: [{name: c, image: none, resources: {requests: {cpu: "1"}}}]}
`)
}
