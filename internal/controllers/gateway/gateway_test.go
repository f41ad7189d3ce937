package gateway_test

import (
	"testing"

	"github.com/kemudi/kemudi/internal/sim"
)

func TestGatewaysAreReachedAndTold(t *testing.T) { sim.Test(t, "testdata/*.txt") }
