package gateway

import (
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/networking"
	"github.com/kemudi/kemudi/internal/edge/route"
	"github.com/kemudi/kemudi/internal/ingress"
)

// Model keeps what an edge knows of Gateways in step with their tables and with endpoints. It belongs to one
// goroutine.
type Model struct {
	known ingress.Objects
	fail  func(table string, err error)

	tables map[string]*loaded            // by key of the Secret
	users  map[string]map[Upstream]bool  // upstreams by service
	sent   map[string]*route.Upstream    // upstreams by key
	certs  map[string]*route.Certificate // likewise
	doors  map[string]*route.Door
	dirty  bool            // tables are to be looked at
	ports  map[string]bool // services that are
}

// loaded is a table as its Secret had it.
type loaded struct {
	version string // of the Secret; empty: it is to be read
	table   *Table
}

// NewModel returns a model without tables, which asks known for Secrets, Services and endpoints, and tells fail of
// tables that cannot be read.
func NewModel(known ingress.Objects, fail func(table string, err error)) *Model {
	m := &Model{known: known, fail: fail, tables: map[string]*loaded{}}
	m.Forget()
	return m
}

// Forget has the next change be all that there is.
func (m *Model) Forget() {
	m.users, m.sent, m.certs, m.doors = map[string]map[Upstream]bool{}, map[string]*route.Upstream{}, map[string]*route.Certificate{}, map[string]*route.Door{}
	m.ports, m.dirty = map[string]bool{}, true
}

// Tables sets the Secrets that have tables, by key.
func (m *Model) Tables(keys []string) {
	for key := range m.tables {
		if !slices.Contains(keys, key) {
			delete(m.tables, key)
			m.dirty = true
		}
	}
	for _, key := range keys {
		if m.tables[key] == nil {
			m.tables[key] = &loaded{}
			m.dirty = true
		}
	}
}

// Secrets are the keys of those that have tables.
func (m *Model) Secrets() []string { return slices.Sorted(maps.Keys(m.tables)) }

// Secret says that a Secret has changed.
func (m *Model) Secret(key string) {
	if t := m.tables[key]; t != nil {
		t.version = ""
		m.dirty = true
	}
}

// Service says that a service or its endpoints have changed.
func (m *Model) Service(key string) {
	if m.users[key] != nil {
		m.ports[key] = true
	}
}

// Commit adds to a change what is different for an edge since the last one.
func (m *Model) Commit(c *route.Change) {
	if m.dirty {
		m.dirty = false
		m.read()
		m.spread(c)
	}
	for service := range m.ports {
		for u := range m.users[service] {
			m.look(u, c)
		}
	}
	clear(m.ports)
}

// read reads the tables of Secrets that have changed. One that cannot be read leaves the last one in force.
func (m *Model) read() {
	for key, t := range m.tables {
		namespace, name := ingress.Split(key)
		var s *corev1.Secret
		if s = m.known.Secret(namespace, name); s == nil || t.version != "" && t.version == s.ResourceVersion {
			continue
		}
		t.version = s.ResourceVersion
		table, err := Unpack(s.Data[networking.GatewayTableKey])
		if err != nil {
			m.fail(key, err)
			continue
		}
		t.table = table
	}
}

// spread compares all tables with what was sent.
func (m *Model) spread(c *route.Change) {
	doors, certs, upstreams := map[string]*route.Door{}, map[string]*route.Certificate{}, map[string]Upstream{}
	m.users = map[string]map[Upstream]bool{}
	for key, t := range m.tables {
		if t.table == nil {
			continue
		}
		for _, d := range t.table.Doors {
			name := key + ":" + strconv.Itoa(int(d.Public))
			if d.Datagrams() {
				name += "/udp"
			}
			doors[name] = d
		}
		maps.Copy(certs, t.table.Certificates)
		for _, u := range t.table.Upstreams {
			upstreams[u.Key()] = u
			service := u.Namespace + "/" + u.Service
			if m.users[service] == nil {
				m.users[service] = map[Upstream]bool{}
			}
			m.users[service][u] = true
		}
	}
	for _, u := range upstreams {
		m.look(u, c)
	}
	for key := range m.sent {
		if _, there := upstreams[key]; !there {
			delete(m.sent, key)
			put(&c.Upstreams, key, nil)
		}
	}
	differ(m.certs, certs, &c.Certificates)
	differ(m.doors, doors, &c.Doors)
	m.certs, m.doors = certs, doors
}

// look sends an upstream if its endpoints are others than were sent.
func (m *Model) look(u Upstream, c *route.Change) {
	now := &route.Upstream{Endpoints: ingress.Endpoints(u.port(), m.known)}
	key := u.Key()
	if was := m.sent[key]; was != nil && slices.Equal(was.Endpoints, now.Endpoints) {
		return
	}
	m.sent[key] = now
	put(&c.Upstreams, key, now)
}
