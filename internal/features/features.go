package features

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Gates are what somebody says of features, by their names.
type Gates map[string]bool

// ofAll are gates of many features.
var ofAll = []string{"AllAlpha", "AllBeta"}

// find returns the group of a feature; nil: there is none of that name.
func find(name string) *group {
	for i := range groups {
		if slices.Contains(strings.Fields(groups[i].names), name) {
			return &groups[i]
		}
	}
	return nil
}

// Say adds what a text says: name=true,name=false,...
func (g Gates) Say(text string) error {
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		name, value, ok := strings.Cut(part, "=")
		name = strings.TrimSpace(name)
		if !ok {
			return fmt.Errorf("missing bool value for %s", name)
		}
		on, err := strconv.ParseBool(strings.TrimSpace(value))
		if err != nil {
			return fmt.Errorf("invalid value of %s=%s, err: %w", name, value, err)
		}
		known := find(name)
		switch {
		case known == nil && !slices.Contains(ofAll, name):
			return fmt.Errorf("unrecognized feature gate: %s", name)
		case known != nil && known.locked && on != known.on:
			return fmt.Errorf("cannot set feature gate %v to %v, feature is locked to %v", name, on, known.on)
		}
		g[name] = on
	}
	return nil
}

// String is what Say would read.
func (g Gates) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(g)) {
		parts = append(parts, name+"="+strconv.FormatBool(g[name]))
	}
	return strings.Join(parts, ",")
}

// CoordinatedLeaderElection is the gate by which API servers give leases away.
const CoordinatedLeaderElection = "CoordinatedLeaderElection"

// heeded are the features that are there or not as their gates say.
var heeded = []string{CoordinatedLeaderElection}

// On says whether a feature is on.
func (g Gates) On(name string) bool {
	known := find(name)
	if on, said := g[name]; said || known == nil {
		return on
	}
	all := map[stage]string{alpha: "AllAlpha", beta: "AllBeta"}[known.stage]
	if on, said := g[all]; said && !known.locked {
		return on
	}
	return known.on
}

// Idle are the gates that say other than what is so anyway, and from which nothing follows.
func (g Gates) Idle() (names []string) {
	for _, name := range slices.Sorted(maps.Keys(g)) {
		switch known := find(name); {
		case slices.Contains(heeded, name), name == "AllBeta" && g[name]: // which turns one of those on
		case known == nil || g[name] != known.on:
			names = append(names, name)
		}
	}
	return names
}
