package gatewayconformance_test

import (
	"testing"

	"sigs.k8s.io/gateway-api/conformance"
)

// TestConformance is the whole suite.
func TestConformance(t *testing.T) { conformance.RunConformance(t) }
