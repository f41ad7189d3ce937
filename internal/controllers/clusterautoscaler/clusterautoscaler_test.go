package clusterautoscaler_test

import (
	"testing"

	"github.com/kemudi/kemudi/internal/sim"
)

func TestMachinesComeAndGoAsPodsNeedThem(t *testing.T) { sim.Test(t, "testdata/*.txt") }
