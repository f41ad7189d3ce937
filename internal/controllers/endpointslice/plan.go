package endpointslice

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
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

// planner plans the slices of one service. What it costs is of the number of
// endpoints, of which mostly one has changed: the others are compared, not copied.
type planner struct {
	limit  int                                     // endpoints a slice, at the most
	blank  func(*group) *discoveryv1.EndpointSlice // makes an empty slice with the right metadata
	labels map[string]string                       // what slices have

	changes
}

// changes is what has to be written.
type changes struct {
	create, update, delete []*discoveryv1.EndpointSlice

	added, removed int // endpoints
}

// plan changes the existing slices of the service as little as possible so that
// they hold the groups.
func (p *planner) plan(groups []*group, existing []*discoveryv1.EndpointSlice) changes {
	byKey := map[string][]*discoveryv1.EndpointSlice{}
	keys := make([]string, len(existing))
	for i, s := range existing {
		keys[i] = portsKey(s.AddressType, s.Ports)
		byKey[keys[i]] = append(byKey[keys[i]], s)
	}
	for _, g := range groups {
		p.fill(g, byKey[g.key()])
		delete(byKey, g.key())
	}
	for i, s := range existing {
		if _, unused := byKey[keys[i]]; unused {
			p.delete = append(p.delete, s)
			p.removed += len(s.Endpoints)
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
	drafts, rest := keep(existing, g.endpoints)
	p.added += len(rest)
	for _, d := range drafts {
		p.removed += len(d.was.Endpoints) - len(d.now)
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
		if d.changed || !maps.Equal(d.was.Labels, p.labels) {
			s := d.was.DeepCopy()
			s.Endpoints, s.Labels = d.now, maps.Clone(p.labels)
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
// are wanted now. The rest of what is wanted is in none, and stays in its order.
func keep(existing []*discoveryv1.EndpointSlice, wanted []discoveryv1.Endpoint) (drafts []*draft, rest []discoveryv1.Endpoint) {
	if len(existing) == 0 {
		return nil, wanted
	}
	at := make(map[identity]int, len(wanted))
	for i := range wanted {
		at[identityOf(&wanted[i])] = i
	}
	kept := make([]bool, len(wanted))
	for _, s := range existing {
		d := &draft{was: s, now: make([]discoveryv1.Endpoint, 0, len(s.Endpoints))}
		for i := range s.Endpoints {
			has := &s.Endpoints[i]
			w, ok := at[identityOf(has)]
			if !ok || kept[w] {
				d.changed = true
				continue
			}
			kept[w] = true
			if !same(has, &wanted[w]) {
				d.changed = true
			}
			d.now = append(d.now, wanted[w])
		}
		drafts = append(drafts, d)
	}
	for i := range wanted {
		if !kept[i] {
			rest = append(rest, wanted[i])
		}
	}
	return drafts, rest
}

// same says whether two endpoints are alike. It is asked of all endpoints whenever one
// changes, and so looks at what is there in nearly all of them by itself.
func same(a, b *discoveryv1.Endpoint) bool {
	return slices.Equal(a.Addresses, b.Addresses) &&
		ptr.Equal(a.Conditions.Ready, b.Conditions.Ready) && ptr.Equal(a.Conditions.Serving, b.Conditions.Serving) &&
		ptr.Equal(a.Conditions.Terminating, b.Conditions.Terminating) &&
		ptr.Equal(a.Hostname, b.Hostname) && ptr.Equal(a.NodeName, b.NodeName) && ptr.Equal(a.Zone, b.Zone) &&
		ptr.Equal(a.TargetRef, b.TargetRef) && maps.Equal(a.DeprecatedTopology, b.DeprecatedTopology) &&
		(a.Hints == nil && b.Hints == nil || equality.Semantic.DeepEqual(a.Hints, b.Hints))
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
type identity struct {
	address string
	pod     types.UID
}

func identityOf(e *discoveryv1.Endpoint) identity {
	var id identity
	switch len(e.Addresses) {
	case 0:
	case 1:
		id.address = e.Addresses[0]
	default: // of somebody else's making
		id.address = strings.Join(e.Addresses, ",")
	}
	if e.TargetRef != nil {
		id.pod = e.TargetRef.UID
	}
	return id
}

func (id identity) compare(other identity) int {
	return cmp.Or(strings.Compare(id.address, other.address), strings.Compare(string(id.pod), string(other.pod)))
}
