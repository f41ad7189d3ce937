package serverrole_test

import (
	"testing"

	"github.com/kemudi/kemudi/internal/sim"
)

func TestNodesOfServersAreLabelled(t *testing.T) { sim.Test(t, "testdata/*.txt") }
