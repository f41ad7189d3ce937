package plugins

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
)

// New returns the chain of the plugins that o has on.
func New(o admission.Options) (*admission.Chain, error) {
	if o.Caches == nil {
		return nil, errors.New("admission options: no caches")
	}
	if o.Fresh == nil {
		o.Fresh = func(context.Context) error { return nil }
	}
	on, off := Defaults()
	known := slices.Sorted(slices.Values(slices.Concat(on, off)))
	for _, name := range slices.Concat(o.Enable, o.Disable, slices.Sorted(maps.Keys(o.Config))) {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("admission plugin %q is unknown; there are %s", name, strings.Join(known, ", "))
		}
	}
	var list []admission.Plugin
	for _, e := range entries(&o) {
		on := (!e.off || slices.Contains(o.Enable, e.Name)) && !slices.Contains(o.Disable, e.Name)
		if !on {
			continue
		}
		if e.err != nil {
			return nil, e.err
		}
		list = append(list, e.Plugin)
	}
	chain := admission.NewChain(list...)
	if o.Registry != nil {
		chain = chain.Measured(o.Registry)
	}
	return chain, nil
}

// Defaults are the names of the plugins that are on, and off, by default.
func Defaults() (on, off []string) {
	nothing := &admission.Options{Caches: func(*resource.Def) *cache.Cache { return nil }}
	for _, e := range entries(nothing) {
		if e.off {
			off = append(off, e.Name)
		} else {
			on = append(on, e.Name)
		}
	}
	return on, off
}

// ask asks the authorizer; why is its reason and error as messages have them.
func ask(ctx context.Context, o *admission.Options, attrs authorizer.AttributesRecord) (ok bool, why string) {
	if o.Authorizer == nil {
		return true, ""
	}
	attrs.ResourceRequest = true
	decision, reason, err := o.Authorizer.Authorize(ctx, &attrs)
	return err == nil && decision == authorizer.DecisionAllow, fmt.Sprintf("%v, %v", reason, err)
}
