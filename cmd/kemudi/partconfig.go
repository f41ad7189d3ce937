package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// configKind is the configuration file of a part, as upstream has it: what its fields are
// said by is the part's flags. A field that is neither of these is refused by its path, unless it
// says nothing: upstream's tools write every field that there is.
type configKind struct {
	apiVersion, kind string
	dropIns          bool // there may be a directory of further files

	flags map[string]configField // by the path of the field
	only  map[string][]string    // the values that a field may have, as there is nothing else
	idle  map[string]string      // why nothing follows from a field, or from all below it

	settle func(f *pflag.FlagSet, tree map[string]any) // fills in fields that others tell of; nil: there are none
}

// configField is how a field is said by a flag.
type configField struct {
	flag string
	zero bool // 0 and false mean something
	text func(value any) (any, error)
}

// idleField is a field that is good and has no effect.
type idleField struct{ field, why string }

// apply gives the flags that are not on the command line what the files have for them: of several
// that say something of a field, the last one.
func (k *configKind) apply(f *pflag.FlagSet, files ...[]byte) (idle []idleField, _ error) {
	tree := map[string]any{}
	for _, data := range files {
		one := map[string]any{}
		if err := yaml.UnmarshalStrict(data, &one); err != nil {
			return nil, err
		}
		if one["kind"] != k.kind || one["apiVersion"] != k.apiVersion {
			return nil, fmt.Errorf("want apiVersion: %s and kind: %s", k.apiVersion, k.kind)
		}
		delete(one, "kind")
		delete(one, "apiVersion")
		overlay(tree, one)
	}
	if k.settle != nil {
		k.settle(f, tree)
	}
	var errs []error
	k.walk("", tree, func(path string, value any) {
		field, ok := k.flags[path]
		said := !saysNothing(value)
		switch {
		case ok && (said || field.zero && value != nil):
			if err := field.set(f, value); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", path, err))
			}
		case ok || !said:
		case k.only[path] != nil:
			if !slices.Contains(k.only[path], fmt.Sprint(value)) {
				errs = append(errs, fmt.Errorf("%s: %v: want %s, as there is nothing else here", path, value, strings.Join(k.only[path], " or ")))
			}
		default:
			why := k.why(path)
			if why == "" {
				errs = append(errs, fmt.Errorf("%s: there is no such field here", path))
				return
			}
			idle = append(idle, idleField{path, why})
		}
	})
	return idle, errors.Join(errs...)
}

// overlay puts fields over those of a tree: maps are merged, what is none takes the place of what was there.
func overlay(tree, with map[string]any) {
	for key, value := range with {
		below, ok := value.(map[string]any)
		under, also := tree[key].(map[string]any)
		if ok && also {
			overlay(under, below)
			continue
		}
		tree[key] = value
	}
}

// walk visits the fields that hold values, in the order of their paths. One that is a flag is a
// value as a whole.
func (k *configKind) walk(above string, tree map[string]any, visit func(path string, value any)) {
	for _, key := range slices.Sorted(maps.Keys(tree)) {
		path := strings.TrimPrefix(above+"."+key, ".")
		_, flag := k.flags[path]
		if below, ok := tree[key].(map[string]any); ok && !flag {
			k.walk(path, below, visit)
			continue
		}
		visit(path, tree[key])
	}
}

// why is why nothing follows from a field; empty: there is none.
func (k *configKind) why(path string) string {
	for path != "" {
		if why, ok := k.idle[path]; ok {
			return why
		}
		path = path[:max(strings.LastIndexByte(path, '.'), 0)]
	}
	return ""
}

// saysNothing reports values that mean the default.
func saysNothing(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case string:
		return v == "" || v == "0s" || v == "0"
	case bool:
		return !v
	case float64:
		return v == 0
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}

func (c configField) set(f *pflag.FlagSet, value any) (err error) {
	flag := f.Lookup(c.flag)
	if flag.Changed {
		return nil
	}
	if c.text != nil {
		if value, err = c.text(value); err != nil {
			return err
		}
	}
	return setFlag(f, flag, value)
}

// thresholds are those of evictions, as the flag takes them.
func thresholds(value any) (any, error) {
	signals, ok := value.(map[string]any)
	if !ok {
		return nil, errors.New("want a map of signals to values")
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(signals)) {
		v, err := scalar(signals[name])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		parts = append(parts, name+"<"+v)
	}
	return strings.Join(parts, ","), nil
}

// mergeThresholds has the node watch what it does by default, too, where the file says so of those that it names.
func mergeThresholds(f *pflag.FlagSet, tree map[string]any) {
	hard, ok := tree["evictionHard"].(map[string]any)
	if !ok || len(hard) == 0 || tree["mergeDefaultEvictionSettings"] != true {
		return
	}
	for part := range strings.SplitSeq(f.Lookup("eviction-hard").DefValue, ",") {
		signal, value, _ := strings.Cut(part, "<")
		if _, said := hard[signal]; !said {
			hard[signal] = value
		}
	}
}

// shutdownGroups are groups of pods and their times, as the flag takes them.
func shutdownGroups(value any) (any, error) {
	var parts []string
	err := entries(value, "groups", []string{"priority", "shutdownGracePeriodSeconds"}, func(of []string) {
		parts = append(parts, cmp.Or(of[0], "0")+"="+cmp.Or(of[1], "0")+"s")
	})
	return strings.Join(parts, ","), err
}

// memoryTexts are what is reserved of NUMA nodes, as the flag takes it.
func memoryTexts(value any) (any, error) {
	list, ok := value.([]any)
	if !ok {
		return nil, errors.New("want a list of NUMA nodes")
	}
	var nodes []string
	for i, one := range list {
		entry, _ := one.(map[string]any)
		limits, ok := entry["limits"].(map[string]any)
		if !ok {
			return nil, fmt.Errorf("[%d]: want a map of numaNode and limits", i)
		}
		node, err := scalar(entry["numaNode"])
		if err != nil {
			return nil, fmt.Errorf("[%d].numaNode: %w", i, err)
		}
		var parts []string
		for _, kind := range slices.Sorted(maps.Keys(limits)) {
			v, err := scalar(limits[kind])
			if err != nil {
				return nil, fmt.Errorf("[%d].limits.%s: %w", i, kind, err)
			}
			parts = append(parts, kind+"="+v)
		}
		nodes = append(nodes, cmp.Or(node, "0")+":"+strings.Join(parts, ","))
	}
	return strings.Join(nodes, ","), nil
}

// headerTexts are headers, as their flag has them.
func headerTexts(value any) (any, error) {
	all, ok := value.(map[string]any)
	if !ok {
		return nil, errors.New("want a list of values for each name")
	}
	var texts []any
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list, ok := all[name].([]any)
		if !ok {
			return nil, errors.New("want a list of values for each name")
		}
		for _, one := range list {
			v, err := scalar(one)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			texts = append(texts, name+":"+v)
		}
	}
	return texts, nil
}

// taintTexts are taints as the flag takes them.
func taintTexts(value any) (any, error) {
	var texts []any
	err := entries(value, "taints", []string{"key", "value", "effect"}, func(of []string) {
		text := ""
		for i, before := range []string{"", "=", ":"} {
			if of[i] != "" {
				text += before + of[i]
			}
		}
		texts = append(texts, text)
	})
	return texts, err
}

// entries reads a list of maps, and calls each with the values that one has for the keys, empty ones for those that are not
// there.
func entries(value any, what string, keys []string, each func(of []string)) error {
	list, ok := value.([]any)
	if !ok {
		return errors.New("want a list of " + what)
	}
	for i, one := range list {
		entry, ok := one.(map[string]any)
		if !ok {
			last := len(keys) - 1
			return fmt.Errorf("[%d]: want a map of %s and %s", i, strings.Join(keys[:last], ", "), keys[last])
		}
		of := make([]string, len(keys))
		for n, key := range keys {
			var err error
			if of[n], err = scalar(entry[key]); err != nil {
				return fmt.Errorf("[%d].%s: %w", i, key, err)
			}
		}
		each(of)
	}
	return nil
}

// loggedElsewhere is why upstream's settings of logs are idle.
const loggedElsewhere = "--log-level and --log-format say how it is logged"
