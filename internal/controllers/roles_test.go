package controllers_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/auth/authn"
	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/cloud/loopback"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/controllers"
	"github.com/kemudi/kemudi/internal/controllers/cloud"
	"github.com/kemudi/kemudi/internal/controllers/clusterdns"
	"github.com/kemudi/kemudi/internal/controllers/endpointslice"
	"github.com/kemudi/kemudi/internal/controllers/endpointslicemirroring"
	"github.com/kemudi/kemudi/internal/controllers/nodeipam"
	"github.com/kemudi/kemudi/internal/controllers/nodelifecycle"
	"github.com/kemudi/kemudi/internal/texttest"
	"github.com/kemudi/kemudi/internal/trace"
)

// TestRolesAreWhatWasReviewed compares what every controller may do with the
// file: whoever widens it sees so in the change. Those over all resources are
// shown with three.
func TestRolesAreWhatWasReviewed(t *testing.T) {
	all := controllers.All(controllers.Options{
		Kinds:    controller.Fixed{core.ConfigMaps.Def, core.Pods.Def, core.Nodes.Def},
		PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}, Authority: &pki.Authority{}, Tokens: &authn.Issuer{}, PodGroups: true,
		DNS: clusterdns.Options{Address: netip.IPv4Unspecified()}, Cloud: cloud.Options{Provider: &loopback.Cloud{}},
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
	texttest.File(t, "testdata/roles.txt", strings.Join(roles, "\n"))
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

func TestOptionsOutOfRangeAreRefused(t *testing.T) {
	trace.Proves(t, "EPS-028")
	for _, c := range []struct {
		own  interface{ Check() error }
		want string
	}{
		{&controllers.Options{}, ""},
		{endpointslice.Options{MaxEndpointsPerSlice: 1000}, ""},
		{endpointslice.Options{MaxEndpointsPerSlice: 1001}, "--max-endpoints-per-slice 1001 is not between 1 and 1000"},
		{endpointslice.Options{MaxEndpointsPerSlice: -1}, "--max-endpoints-per-slice -1 is not between 1 and 1000"},
		{&controllers.Options{EndpointSlice: endpointslice.Options{MaxEndpointsPerSlice: -1}}, "--max-endpoints-per-slice -1 is not between 1 and 1000"},
		{endpointslicemirroring.Options{MaxEndpointsPerSubset: 2000}, "--mirroring-max-endpoints-per-subset 2000 is not between 1 and 1000"},
		{nodeipam.Options{Bits4: 32}, ""},
		{nodeipam.Options{Bits4: 33}, "--node-cidr-mask-size-ipv4 33 is not between 1 and 32"},
		{nodeipam.Options{Bits: 129}, "--node-cidr-mask-size 129 is not between 1 and 128"},
		{nodeipam.Options{Bits: 26}, ""},
		{nodeipam.Options{Bits: 26, Bits6: 64}, "--node-cidr-mask-size stands for --node-cidr-mask-size-ipv4 or --node-cidr-mask-size-ipv6, not beside them"},
		{nodelifecycle.Options{UnhealthyZoneThreshold: 55}, "--unhealthy-zone-threshold 55 is not between 0 and 1"},
	} {
		got := ""
		if err := c.own.Check(); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%+v: got %q, want %q", c.own, got, c.want)
		}
	}
}
