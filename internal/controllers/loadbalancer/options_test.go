package loadbalancer

import (
	"fmt"
	"strings"
	"testing"
)

func TestSourcesOfAddressesAreRead(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]string{
		"":                            "",
		"none":                        "",
		"nodes":                       "nodes",
		"nodes,nodes":                 "nodes",
		"192.0.2.0/30":                "default 192.0.2.0-192.0.2.3",
		"192.0.2.7,fd00::10-fd00::1f": "default 192.0.2.7-192.0.2.7 fd00::10-fd00::1f",
		"nodes,lan=192.0.2.1-192.0.2.2,v6=fd00::/127,lan=198.51.100.7": "nodes; lan 192.0.2.1-192.0.2.2 198.51.100.7-198.51.100.7; v6 fd00::-fd00::1",
	} {
		all, err := Options{From: strings.Split(flag, ",")}.sources()
		if err != nil {
			t.Errorf("%s: %v", flag, err)
		}
		var got []string
		for _, s := range all {
			text := s.name
			for _, r := range s.pool {
				text += fmt.Sprintf(" %s-%s", r.First, r.Last)
			}
			got = append(got, text)
		}
		if strings.Join(got, "; ") != want {
			t.Errorf("%s: got %q, want %q", flag, got, want)
		}
	}
}

func TestSourcesThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]string{
		"none,nodes":               "--load-balancer: none goes with nothing else",
		"everywhere":               "--load-balancer everywhere: want nodes, none, or addresses",
		"192.0.2.9-192.0.2.1":      "192.0.2.9 does not come before 192.0.2.1",
		"Lan=192.0.2.1":            `"Lan" cannot be the name of a pool`,
		"nodes=192.0.2.1":          `"nodes" cannot be the name of a pool`,
		"127.0.0.0/8":              "others reach nothing at 127.0.0.0",
		"ff02::1":                  "others reach nothing at ff02::1",
		"192.0.2.0/28,b=192.0.2.4": "--load-balancer b=192.0.2.4: pool default has some of these addresses",
		"fd00::/64,fd00::ffff":     "pool default has some of these addresses",
		"nodes,":                   "want nodes, none, or addresses",
	} {
		err := Options{From: strings.Split(flag, ",")}.Check()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", flag, err, want)
		}
	}
}
