package endpointslice

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"
)

// group is the endpoints of one address family that share their ports: they
// can be in one slice.
type group struct {
	family    discoveryv1.AddressType
	ports     []discoveryv1.EndpointPort
	endpoints []discoveryv1.Endpoint
}

// key tells groups apart: family and ports.
func (g *group) key() string { return portsKey(g.family, g.ports) }

func portsKey(family discoveryv1.AddressType, ports []discoveryv1.EndpointPort) string {
	parts := make([]string, 0, len(ports))
	for _, p := range ports {
		parts = append(parts, fmt.Sprintf("%s/%v/%v/%s", ptr.Deref(p.Name, ""), ptr.Deref(p.Protocol, ""), ptr.Deref(p.Port, -1), ptr.Deref(p.AppProtocol, "")))
	}
	slices.Sort(parts)
	return string(family) + " " + strings.Join(parts, " ")
}

// planner plans the slices of one service.
type planner struct {
	limit int                                     // endpoints a slice, at the most
	blank func(*group) *discoveryv1.EndpointSlice // makes an empty slice with the right metadata
	meta  func(*discoveryv1.EndpointSlice) bool   // puts the metadata of a slice right and says whether it had to

	changes
}

// changes is what has to be written.
type changes struct {
	create, update, delete []*discoveryv1.EndpointSlice
}

// plan changes the existing slices of the service as little as possible so that
// they hold the groups.
func (p *planner) plan(groups []*group, existing []*discoveryv1.EndpointSlice) changes {
	byKey := map[string][]*discoveryv1.EndpointSlice{}
	for _, s := range existing {
		key := portsKey(s.AddressType, s.Ports)
		byKey[key] = append(byKey[key], s)
	}
	for _, g := range groups {
		p.fill(g, byKey[g.key()])
		delete(byKey, g.key())
	}
	for _, s := range existing {
		if _, unused := byKey[portsKey(s.AddressType, s.Ports)]; unused {
			p.delete = append(p.delete, s)
		}
	}
	return p.changes
}

// draft is an existing slice and what becomes of it.
type draft struct {
	was     *discoveryv1.EndpointSlice
	now     []discoveryv1.Endpoint
	changed bool
}

// fill makes the slices with the ports of a group hold its endpoints.
func (p *planner) fill(g *group, existing []*discoveryv1.EndpointSlice) {
	wanted := map[string]discoveryv1.Endpoint{}
	for _, e := range g.endpoints {
		wanted[identity(&e)] = e
	}
	drafts := keep(existing, wanted)
	var rest []discoveryv1.Endpoint // in a stable order
	for _, e := range g.endpoints {
		if _, ok := wanted[identity(&e)]; ok {
			rest = append(rest, e)
		}
	}
	rest = pour(drafts, rest, p.limit)
	// A group without endpoints has one empty slice, so that there is something to see.
	empty := len(g.endpoints) == 0
	for _, d := range drafts {
		if len(d.now) == 0 && !empty {
			p.delete = append(p.delete, d.was)
			continue
		}
		empty = false
		s := d.was.DeepCopy()
		s.Endpoints = d.now
		if p.meta(s) || d.changed {
			p.update = append(p.update, s)
		}
	}
	for len(rest) > 0 || empty {
		n := min(p.limit, len(rest))
		s := p.blank(g)
		s.Endpoints = rest[:n:n]
		rest, empty = rest[n:], false
		p.create = append(p.create, s)
	}
}

// keep takes over, slice by slice, the endpoints that are still wanted, as they
// are wanted now, and removes them from wanted.
func keep(existing []*discoveryv1.EndpointSlice, wanted map[string]discoveryv1.Endpoint) []*draft {
	var drafts []*draft
	for _, s := range existing {
		d := &draft{was: s}
		for i := range s.Endpoints {
			id := identity(&s.Endpoints[i])
			e, ok := wanted[id]
			if !ok {
				d.changed = true
				continue
			}
			if !equality.Semantic.DeepEqual(e, s.Endpoints[i]) {
				d.changed = true
			}
			d.now = append(d.now, e)
			delete(wanted, id)
		}
		drafts = append(drafts, d)
	}
	return drafts
}

// pour puts new endpoints into slices that have to be written anyway, and then
// into the fullest slice that takes all the rest. It returns what found no room.
func pour(drafts []*draft, rest []discoveryv1.Endpoint, limit int) []discoveryv1.Endpoint {
	into := func(d *draft) {
		n := min(limit-len(d.now), len(rest))
		if n <= 0 {
			return
		}
		d.now, rest, d.changed = append(d.now, rest[:n]...), rest[n:], true
	}
	for _, d := range drafts {
		if d.changed {
			into(d)
		}
	}
	fullest := slices.Clone(drafts)
	slices.SortStableFunc(fullest, func(a, b *draft) int { return cmp.Compare(len(b.now), len(a.now)) })
	for _, d := range fullest {
		if len(rest) > 0 && len(rest) < limit && len(d.now)+len(rest) <= limit {
			into(d)
		}
	}
	return rest
}

// identity is what makes an endpoint the same one over time: its pod and address.
func identity(e *discoveryv1.Endpoint) string {
	id := strings.Join(e.Addresses, ",")
	if e.TargetRef != nil {
		id += " " + string(e.TargetRef.UID)
	}
	return id
}
