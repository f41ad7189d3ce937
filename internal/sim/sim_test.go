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
