package loadbalancer_test

import (
	"testing"

	"github.com/kemudi/kemudi/internal/sim"
)

func TestServicesHaveAddresses(t *testing.T) { sim.Test(t, "testdata/*.txt") }
