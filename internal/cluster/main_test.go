package cluster

import (
	"flag"
	"testing"
)

// TestMain lets more tests run side by side than there are processors: those that do wait for
// elections, leases and each other most of the time.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	flag.Parse()
	m.Run()
}
