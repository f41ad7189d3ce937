package config

import (
	"fmt"
	"slices"

	configv1 "k8s.io/kube-scheduler/config/v1"

	"github.com/kemudi/kemudi/internal/scheduler/plugins"
)

// pointSet is what a profile says about one point.
type pointSet struct {
	field string
	at    plugins.Point
	set   configv1.PluginSet
}

func pointSets(p *configv1.Plugins) []pointSet {
	return []pointSet{
		{"preEnqueue", plugins.PreEnqueue, p.PreEnqueue},
		{"queueSort", plugins.QueueSort, p.QueueSort},
		{"preFilter", plugins.PreFilter, p.PreFilter},
		{"filter", plugins.Filter, p.Filter},
		{"postFilter", plugins.PostFilter, p.PostFilter},
		{"preScore", plugins.PreScore, p.PreScore},
		{"score", plugins.Score, p.Score},
		{"reserve", plugins.Reserve, p.Reserve},
		{"permit", plugins.Permit, p.Permit},
		{"preBind", plugins.PreBind, p.PreBind},
		{"bind", plugins.Bind, p.Bind},
		{"postBind", plugins.PostBind, p.PostBind},
	}
}

// choose sets what plugins a profile has at each point. What is said about a
// point goes before what is said about multiPoint, that before the defaults.
func choose(c *plugins.Choice, profile *configv1.KubeSchedulerProfile) error {
	p := profile.Plugins
	if p == nil {
		p = &configv1.Plugins{}
	}
	everywhere := merged(p.MultiPoint)
	for _, x := range everywhere {
		if !plugins.Known(x.Name) {
			return fmt.Errorf("plugins.multiPoint: plugin %q does not exist", x.Name)
		}
	}
	for _, s := range pointSets(p) {
		chosen, err := chosenAt(s, everywhere)
		if err != nil {
			return fmt.Errorf("plugins.%s: %w", s.field, err)
		}
		c.At[s.at] = chosen
	}
	if n := len(c.At[plugins.QueueSort]); n != 1 {
		return fmt.Errorf("plugins.queueSort: only one queue sort plugin required for profile with scheduler name %q, but got %d", *profile.SchedulerName, n)
	}
	if len(c.At[plugins.Bind]) == 0 {
		return fmt.Errorf("plugins.bind: at least one bind plugin is needed for profile with scheduler name %q", *profile.SchedulerName)
	}
	return nil
}

func weightOf(p configv1.Plugin) int64 {
	if p.Weight == nil || *p.Weight == 0 {
		return 1
	}
	return int64(*p.Weight)
}

func named(list []configv1.Plugin, name string) bool {
	return slices.ContainsFunc(list, func(p configv1.Plugin) bool { return p.Name == name })
}

// merged is the plugins of all points: the defaults that are not turned off,
// each as the profile has it if it names it too, then the profile's further ones.
func merged(multi configv1.PluginSet) (out []plugins.Chosen) {
	rest := slices.Clone(multi.Enabled)
	for _, d := range plugins.Defaults() {
		if named(multi.Disabled, "*") || named(multi.Disabled, d.Name) {
			continue
		}
		if i := slices.IndexFunc(rest, func(p configv1.Plugin) bool { return p.Name == d.Name }); i >= 0 {
			d.Weight = weightOf(rest[i])
			rest = slices.Delete(rest, i, i+1)
		}
		out = append(out, d)
	}
	for _, p := range rest {
		out = append(out, plugins.Chosen{Name: p.Name, Weight: weightOf(p)})
	}
	return out
}

// chosenAt is the plugins of one point: those of all points that it names itself, in its own order,
// then the other ones of all points, then those that are of this point only.
func chosenAt(s pointSet, everywhere []plugins.Chosen) ([]plugins.Chosen, error) {
	var own, only []plugins.Chosen
	for _, p := range s.set.Enabled {
		x := plugins.Chosen{Name: p.Name, Weight: weightOf(p)}
		is := func(y plugins.Chosen) bool { return y.Name == x.Name }
		switch {
		case !plugins.Known(x.Name):
			return nil, fmt.Errorf("%s %q does not exist", s.at, x.Name)
		case !plugins.Has(x.Name, s.at):
			return nil, fmt.Errorf("plugin %q does not extend %s plugin", x.Name, s.at)
		case slices.ContainsFunc(own, is) || slices.ContainsFunc(only, is):
			return nil, fmt.Errorf("plugin %q already registered as %q", x.Name, s.at)
		case slices.ContainsFunc(everywhere, is) && !named(s.set.Disabled, x.Name) && !named(s.set.Disabled, "*"):
			own = append(own, x)
		default:
			only = append(only, x)
		}
	}
	if named(s.set.Disabled, "*") {
		return only, nil
	}
	var others []plugins.Chosen
	for _, x := range everywhere {
		if !plugins.Has(x.Name, s.at) || named(s.set.Disabled, x.Name) || named(s.set.Enabled, x.Name) {
			continue
		}
		if slices.ContainsFunc(others, func(y plugins.Chosen) bool { return y.Name == x.Name }) {
			return nil, fmt.Errorf("plugin %q already registered as %q", x.Name, s.at)
		}
		others = append(others, x)
	}
	return slices.Concat(own, others, only), nil
}
