package api_test

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kemudi/kemudi/internal/api"
)

// TestEveryStableKindIsServed compares what is declared with the kinds that the module of the
// API types has lists of, in versions that are neither alpha nor beta.
func TestEveryStableKindIsServed(t *testing.T) {
	t.Parallel()
	served := map[schema.GroupVersionKind]bool{}
	groups := map[string]bool{}
	for _, d := range api.All() {
		groups[d.Group] = true
		served[d.GVK()] = true
		for _, v := range d.Versions {
			served[schema.GroupVersionKind{Group: v.Group, Version: v.Version, Kind: d.Kind}] = true
		}
	}
	known := scheme.Scheme.AllKnownTypes()
	var missing []string
	found := 0
	for gvk, kind := range known {
		list := gvk
		list.Kind += "List"
		if _, ok := known[list]; !ok || !strings.HasPrefix(kind.PkgPath(), "k8s.io/api/") || strings.Contains(gvk.Version, "alpha") || strings.Contains(gvk.Version, "beta") {
			continue
		}
		if gvk.Group == "admissionregistration.k8s.io" && !groups[gvk.Group] {
			continue // comes with webhooks and policies
		}
		found++
		if !served[gvk] {
			missing = append(missing, gvk.String())
		}
	}
	if slices.Sort(missing); len(missing) > 0 || found < 50 {
		t.Errorf("of %d stable kinds these are not served:\n%s", found, strings.Join(missing, "\n"))
	}
}
