package leader_test

import (
	"testing"

	"github.com/kemudi/kemudi/internal/sim"
)

func TestControlPlanesTakeOver(t *testing.T) { sim.Test(t, "testdata/*.txt") }
