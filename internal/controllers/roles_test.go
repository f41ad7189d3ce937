package controllers_test

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/auth/authn"
	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/controllers"
	"github.com/kemudi/kemudi/internal/resource"
)

var update = flag.Bool("update", false, "write what the roles are to testdata/roles.txt")

// TestRolesAreWhatWasReviewed compares what every controller may do with the
// file: whoever widens it sees so in the change. Those over all resources are
// shown with three.
func TestRolesAreWhatWasReviewed(t *testing.T) {
	all := controllers.All(controllers.Options{
		Defs:     []*resource.Def{core.ConfigMaps.Def, core.Pods.Def, core.Nodes.Def},
		PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}, Authority: &pki.Authority{}, Tokens: &authn.Issuer{},
	})
	var roles []string
	for _, c := range all {
		role := c.Role()
		var b strings.Builder
		fmt.Fprintln(&b, role.Name)
		for _, rule := range role.Rules {
			for _, group := range rule.APIGroups {
				for _, r := range rule.Resources {
					if group != "" {
						r += "." + group
					}
					fmt.Fprintf(&b, "  %s: %s\n", r, strings.Join(rule.Verbs, " "))
				}
			}
		}
		roles = append(roles, b.String())
	}
	slices.Sort(roles)
	got := strings.Join(roles, "\n")
	const file = "testdata/roles.txt"
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got roles:\n%s\nwant (%s; run with -update if the change is meant):\n%s", got, file, want)
	}
}

func TestControllersHaveNamesOfTheirOwn(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range controllers.All(controllers.Options{}) {
		if seen[c.Name] || !strings.Contains(c.Name, "-") {
			t.Errorf("got name %q, want that of upstream's service account, once", c.Name)
		}
		seen[c.Name] = true
	}
}
