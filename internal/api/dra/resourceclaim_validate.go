package dra

import (
	"fmt"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/resource"
)

// requestNames are the names of a claim's requests, and of their alternatives.
type requestNames map[string][]string

func namesOf(c *resourcev1.DeviceClaim) requestNames {
	names := requestNames{}
	for i := range c.Requests {
		r := &c.Requests[i]
		names[r.Name] = nil
		for j := range r.FirstAvailable {
			names[r.Name] = append(names[r.Name], r.FirstAvailable[j].Name)
		}
	}
	return names
}

// check accepts the name of a request, or that of a request and one of its
// alternatives with a slash between.
func (n requestNames) check(errs *resource.Errors, path, ref string) {
	const detail = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
	parts := strings.Split(ref, "/")
	if len(parts) > 2 {
		errs.Invalid(path, ref, detail)
		return
	}
	for _, part := range parts {
		check.DNSLabel(errs, path, part)
	}
	alternatives, ok := n[parts[0]]
	if !ok || len(parts) == 2 && !slices.Contains(alternatives, parts[1]) {
		errs.Invalid(path, ref, detail)
	}
}

func (n requestNames) checkAll(errs *resource.Errors, refs []string) {
	if !atMost(errs, "requests", len(refs), resourcev1.DeviceRequestsMaxSize) {
		return
	}
	for i, ref := range refs {
		n.check(errs, fmt.Sprintf("requests[%d]", i), ref)
	}
	unique(errs, "requests", refs, itself)
}

func validateClaimSpec(errs *resource.Errors, c *resourcev1.DeviceClaim) {
	names := namesOf(c)
	if atMost(errs, "requests", len(c.Requests), resourcev1.DeviceRequestsMaxSize) {
		for i := range c.Requests {
			validateRequest(errs.At("requests[%d]", i), &c.Requests[i])
		}
		unique(errs, "requests", c.Requests, func(r *resourcev1.DeviceRequest) string { return r.Name })
	}
	if atMost(errs, "constraints", len(c.Constraints), resourcev1.DeviceConstraintsMaxSize) {
		for i := range c.Constraints {
			validateConstraint(errs.At("constraints[%d]", i), &c.Constraints[i], names)
		}
	}
	if atMost(errs, "config", len(c.Config), resourcev1.DeviceConfigMaxSize) {
		for i := range c.Config {
			at := errs.At("config[%d]", i)
			names.checkAll(at, c.Config[i].Requests)
			checkConfiguration(at, &c.Config[i].DeviceConfiguration, false)
		}
	}
}

func validateRequest(errs *resource.Errors, r *resourcev1.DeviceRequest) {
	check.DNSLabel(errs, "name", r.Name)
	switch {
	case r.Exactly == nil && len(r.FirstAvailable) == 0:
		errs.Required("", "exactly one of `exactly` or `firstAvailable` is required")
	case r.Exactly != nil && len(r.FirstAvailable) > 0:
		errs.Invalid("", nil, "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set")
	case r.Exactly != nil:
		e := r.Exactly
		validateAsked(errs.At("exactly"), e.DeviceClassName, e.Selectors, asked{e.AllocationMode, e.Count, e.Tolerations})
	case atMost(errs, "firstAvailable", len(r.FirstAvailable), resourcev1.FirstAvailableDeviceRequestMaxSize):
		for i := range r.FirstAvailable {
			s, at := &r.FirstAvailable[i], errs.At("firstAvailable[%d]", i)
			check.DNSLabel(at, "name", s.Name)
			validateAsked(at, s.DeviceClassName, s.Selectors, asked{s.AllocationMode, s.Count, s.Tolerations})
		}
		unique(errs, "firstAvailable", r.FirstAvailable, func(s *resourcev1.DeviceSubRequest) string { return s.Name })
	}
}

// asked is how many devices are asked for, and which taints they may have.
type asked struct {
	mode        resourcev1.DeviceAllocationMode
	count       int64
	tolerations []resourcev1.DeviceToleration
}

func validateAsked(errs *resource.Errors, class string, selectors []resourcev1.DeviceSelector, a asked) {
	if class == "" {
		errs.Required("deviceClassName", "")
	} else {
		check.DNSSubdomain(errs, "deviceClassName", class)
	}
	checkSelectors(errs, selectors, false)
	switch a.mode {
	case resourcev1.DeviceAllocationModeAll:
		if a.count != 0 {
			errs.Invalid("count", a.count, "must not be specified when allocationMode is 'All'")
		}
	case resourcev1.DeviceAllocationModeExactCount:
		if a.count <= 0 {
			errs.Invalid("count", a.count, "must be greater than zero")
		}
	default:
		resource.NotSupported(errs, "allocationMode", a.mode, resourcev1.DeviceAllocationModeAll, resourcev1.DeviceAllocationModeExactCount)
	}
	checkTolerations(errs, a.tolerations)
}

func validateConstraint(errs *resource.Errors, c *resourcev1.DeviceConstraint, names requestNames) {
	names.checkAll(errs, c.Requests)
	switch {
	case c.MatchAttribute != nil:
		checkFullName(errs, "matchAttribute", *c.MatchAttribute)
	case c.DistinctAttribute != nil:
		checkFullName(errs, "distinctAttribute", *c.DistinctAttribute)
	default:
		errs.Required("", `exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set`)
	}
}
