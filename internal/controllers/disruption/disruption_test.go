package disruption_test

import (
	"testing"

	"github.com/kemudi/kemudi/internal/sim"
)

func TestScripts(t *testing.T) { sim.Test(t, "testdata/*.txt") }
