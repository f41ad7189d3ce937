package discovery

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

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
// the core group), "api/legacy" for all that are deprecated, "api/ga", "api/beta" or "api/alpha" for all
// versions that are so stable, and "api/all". Without any, all are served but alpha versions and
// what says so itself, a resource or a version of it: v is nil for the one that is stored.
func Enabled(on map[string]bool, n *resource.Names, gv schema.GroupVersion, v *resource.VersionDef) bool {
	level := "api/ga"
	switch {
	case alpha.MatchString(gv.Version):
		level = "api/alpha"
	case beta.MatchString(gv.Version):
		level = "api/beta"
	}
	legacy := v != nil && v.Deprecated != ""
	for _, key := range []string{gv.String() + "/" + n.Plural, gv.String(), "api/legacy", level, "api/all"} {
		if state, ok := on[key]; ok && (key != "api/legacy" || legacy) {
			return state
		}
	}
	return level != "api/alpha" && !n.OptIn && (v == nil || !v.OffByDefault)
}

// levels are the switches of many versions.
var levels = []string{"api/all", "api/alpha", "api/beta", "api/ga", "api/legacy"}

// CheckSwitches refuses switches that nothing can be meant by: of groups that are not among defs.
func CheckSwitches(on map[string]bool, defs []*resource.Def) error {
	known := map[string]bool{}
	for _, d := range defs {
		known[d.Group] = true
		for _, v := range d.Versions {
			known[v.Group] = true
		}
	}
	var unknown []string
	for key := range on {
		group, _, named := strings.Cut(key, "/")
		switch {
		case group == "api" && named:
			if !slices.Contains(levels, key) {
				return fmt.Errorf("%s: there are %s", key, strings.Join(levels, ", "))
			}
		case !named && key != "v1":
			return fmt.Errorf("%s: want group/version or group/version/resource, v1 of the core group, or one of %s", key, strings.Join(levels, ", "))
		case named && group != "v1" && !known[group]:
			unknown = append(unknown, group)
		}
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		return fmt.Errorf("unknown api groups %s", strings.Join(slices.Compact(unknown), ","))
	}
	return nil
}
