package discovery

import (
	"regexp"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kemudi/kemudi/internal/resource"
)

// alpha and beta tell how stable a version is, by its name.
var (
	alpha = regexp.MustCompile(`^v[0-9]+alpha[0-9]+$`)
	beta  = regexp.MustCompile(`^v[0-9]+beta[0-9]+$`)
)

// Enabled reports whether a resource is served at a version. on holds switches, of which the
// most specific one counts: "group/version/resource", "group/version" ("v1" is
// the core group), "api/ga", "api/beta" or "api/alpha" for all versions that
// are so stable, and "api/all". Without any, all are served but alpha versions and
// what says so itself, a resource or a version of it: v is nil for the one that is stored.
func Enabled(on map[string]bool, n *resource.Names, gv schema.GroupVersion, v *resource.VersionDef) bool {
	level := "api/ga"
	switch {
	case alpha.MatchString(gv.Version):
		level = "api/alpha"
	case beta.MatchString(gv.Version):
		level = "api/beta"
	}
	for _, key := range []string{gv.String() + "/" + n.Plural, gv.String(), level, "api/all"} {
		if state, ok := on[key]; ok {
			return state
		}
	}
	return level != "api/alpha" && !n.OptIn && (v == nil || !v.OffByDefault)
}
