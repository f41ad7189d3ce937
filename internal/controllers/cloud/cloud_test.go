package cloud_test

import (
	"testing"

	"github.com/kemudi/kemudi/internal/sim"
)

func TestClusterAndCloudAgree(t *testing.T) { sim.Test(t, "testdata/*.txt") }
