package main

import (
	"maps"
	"testing"

	"github.com/kemudi/kemudi/internal/trace"
)

// TestRuntimeConfigIsAListOfKeysAndValues reads the flag as the documents write it.
func TestRuntimeConfigIsAListOfKeysAndValues(t *testing.T) {
	trace.Proves(t, "API-031", "API-033")
	var m runtimeConfigFlag
	for _, s := range []string{"batch/v1=false,batch/v2alpha1", "api/all=true", "extensions/v1beta1/deployments=0"} {
		if err := m.Set(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	want := map[string]bool{"batch/v1": false, "batch/v2alpha1": true, "api/all": true, "extensions/v1beta1/deployments": false}
	if !maps.Equal(m, want) {
		t.Errorf("got %v, want %v", m, want)
	}
	if err := m.Set("batch/v1=maybe"); err == nil {
		t.Error("batch/v1=maybe was taken")
	}
}
