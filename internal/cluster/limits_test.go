package cluster

import (
	"strings"
	"testing"
)

// TestHostNamesThatNoNodeCanHaveAreRefused at once: a node that cannot register
// would try for ever.
func TestHostNamesThatNoNodeCanHaveAreRefused(t *testing.T) {
	for name, ok := range map[string]bool{
		"m": true, "my.big.host": true, strings.Repeat("a", 63): true,
		"my_host": false, "host-": false, strings.Repeat("a", 64): false, "(none)": false,
	} {
		_, err := Options{NodeName: name}.withDefaults()
		if ok && err != nil || !ok && (err == nil || !strings.Contains(err.Error(), "--node-name")) {
			t.Errorf("%q: got %v, want it to be allowed: %t", name, err, ok)
		}
	}
}
