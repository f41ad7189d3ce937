package devices

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// Allocate says which devices of a node serve a plan: a result for each claim. It finds what
// Try found, and fails as Try does. newShare names a part of a device.
func (v *Inventory) Allocate(p *Plan, n *corev1.Node, newShare func() types.UID) ([]resourcev1.AllocationResult, error) {
	s := &v.search
	defer s.end()
	if err := s.run(p, n, MaxSteps); err != nil {
		return nil, err
	}
	results := make([]resourcev1.AllocationResult, len(p.claims))
	for i := range s.chosen {
		x := &s.chosen[i]
		list := &results[x.claim].Devices.Results
		*list = append(*list, x.result(newShare))
	}
	alts := s.alts
	for i := range p.claims {
		c := &p.claims[i]
		var served []*request
		for j := range c.requests {
			r := &c.requests[j]
			if r.alternatives != nil {
				r, alts = &r.alternatives[alts[0]], alts[1:]
			}
			served = append(served, r)
		}
		results[i].Devices.Config = c.config(served)
		selector, err := s.nodesOf(i)
		if err != nil {
			return nil, fmt.Errorf("create NodeSelector for claim %s: %w", c.obj.Name, err)
		}
		results[i].NodeSelector = selector
	}
	return results, nil
}

// result is what the claim's status says about a chosen device.
func (x *choice) result(newShare func() types.UID) resourcev1.DeviceRequestAllocationResult {
	d := x.device
	r := resourcev1.DeviceRequestAllocationResult{
		Request: x.request.name, Driver: d.id.Driver, Pool: d.id.Pool, Device: d.id.Device,
		Tolerations: x.request.tolerations, BindingConditions: d.BindingConditions, BindingFailureConditions: d.BindingFailureConditions,
		SkipNodeOperations: d.slice.obj.Spec.SkipNodeOperations,
	}
	if x.request.admin {
		r.AdminAccess = ptr.To(true)
	}
	if !d.multiple {
		return r
	}
	r.ShareID = ptr.To(newShare())
	if x.request.admin {
		return r
	}
	for name := range d.Capacity {
		full := qualified(d.id.Driver, string(name))
		for _, p := range x.portions {
			if p.name == full {
				if r.ConsumedCapacity == nil {
					r.ConsumedCapacity = map[resourcev1.QualifiedName]apiresource.Quantity{}
				}
				r.ConsumedCapacity[name] = p.amount.DeepCopy()
			}
		}
	}
	return r
}

// config is how the devices are to be set up: as the classes of what was served say, then
// as the claim does.
func (c *claim) config(served []*request) (list []resourcev1.DeviceAllocationConfiguration) {
	type span struct{ from, to int }
	byClass := map[string]span{}
	for _, r := range served {
		at, ok := byClass[r.class.Name]
		if !ok {
			at.from = len(list)
			for i := range r.class.Spec.Config {
				list = append(list, resourcev1.DeviceAllocationConfiguration{
					Source: resourcev1.AllocationConfigSourceClass, DeviceConfiguration: r.class.Spec.Config[i].DeviceConfiguration,
				})
			}
			at.to = len(list)
			byClass[r.class.Name] = at
		}
		for i := at.from; i < at.to; i++ {
			list[i].Requests = append(list[i].Requests, r.name)
		}
	}
	for i := range c.obj.Spec.Devices.Config {
		if x := &c.obj.Spec.Devices.Config[i]; c.concerns(x.Requests, served) {
			list = append(list, resourcev1.DeviceAllocationConfiguration{
				Source: resourcev1.AllocationConfigSourceClaim, Requests: x.Requests, DeviceConfiguration: x.DeviceConfiguration,
			})
		}
	}
	for i := range list {
		if len(list[i].Requests) == len(c.requests) { // none stands for all
			list[i].Requests = nil
		}
	}
	return list
}

// concerns reports whether one of these requests, none standing for all, was served.
func (c *claim) concerns(names []string, served []*request) bool {
	for i, r := range served {
		if slices.Contains(names, c.obj.Spec.Devices.Requests[i].Name) || slices.Contains(names, r.name) {
			return true
		}
	}
	return len(names) == 0
}

// nodesOf is the nodes that can use all devices of a claim; nil: every node.
func (s *search) nodesOf(claim int) (*corev1.NodeSelector, error) {
	var term corev1.NodeSelectorTerm
	for i := range s.chosen {
		d := s.chosen[i].device
		if s.chosen[i].claim != claim {
			continue
		}
		spec := &d.slice.obj.Spec
		node, selector := spec.NodeName, spec.NodeSelector
		if d.reach != nil {
			node, selector = d.NodeName, d.NodeSelector
		}
		switch {
		case node != nil && *node != "", d.BindsToNode != nil && *d.BindsToNode:
			return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{
				Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{s.node.Name},
			}}}}}, nil
		case selector == nil || len(selector.NodeSelectorTerms) == 0:
		case len(selector.NodeSelectorTerms) > 1:
			return nil, fmt.Errorf("unsupported ResourceSlice.NodeSelector with %d terms", len(selector.NodeSelectorTerms))
		default:
			term.MatchFields = merge(term.MatchFields, selector.NodeSelectorTerms[0].MatchFields)
			term.MatchExpressions = merge(term.MatchExpressions, selector.NodeSelectorTerms[0].MatchExpressions)
		}
	}
	if len(term.MatchFields) == 0 && len(term.MatchExpressions) == 0 {
		return nil, nil
	}
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}}, nil
}

// merge adds requirements that are not there yet.
func merge(to, from []corev1.NodeSelectorRequirement) []corev1.NodeSelectorRequirement {
	for _, r := range from {
		if !slices.ContainsFunc(to, func(x corev1.NodeSelectorRequirement) bool {
			return x.Key == r.Key && x.Operator == r.Operator && slices.Equal(slices.Sorted(slices.Values(x.Values)), slices.Sorted(slices.Values(r.Values)))
		}) {
			to = append(to, r)
		}
	}
	return to
}
