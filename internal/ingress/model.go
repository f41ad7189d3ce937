package ingress

import (
	"maps"
	"reflect"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/kemudi/kemudi/internal/api/networking"
	"github.com/kemudi/kemudi/internal/edge/route"
)

// Model keeps the tables of edges in step with the objects, by what changes. It belongs to
// one goroutine.
type Model struct {
	known Objects

	all       map[string]*networkingv1.Ingress
	compiled  map[string]*Compiled // of those that are obeyed
	services  users                // of a service: keys of Ingresses
	secrets   users
	upstreams map[string]*used // by key
	sent      map[string]bool  // keys of the certificates that were sent

	ingresses, ports, certs map[string]bool // what is to be looked at: Ingresses, services, Secrets
	whole                   bool
}

// users are who uses a thing, both by key.
type users map[string]map[string]bool

func (u users) add(what, who string) {
	if u[what] == nil {
		u[what] = map[string]bool{}
	}
	u[what][who] = true
}

func (u users) remove(what, who string) {
	delete(u[what], who)
	if len(u[what]) == 0 {
		delete(u, what)
	}
}

// used is an upstream that Ingresses use.
type used struct {
	Upstream
	by        map[string]bool // keys of Ingresses
	endpoints []string        // as they were sent
	sent      bool
}

// NewModel returns a model without Ingresses, which asks known for all else.
func NewModel(known Objects) *Model {
	m := &Model{known: known, all: map[string]*networkingv1.Ingress{}}
	m.Forget()
	return m
}

// Forget has the next change be the whole table, for an edge that knows nothing.
func (m *Model) Forget() {
	m.compiled, m.services, m.secrets = map[string]*Compiled{}, users{}, users{}
	m.upstreams, m.sent = map[string]*used{}, map[string]bool{}
	m.ingresses, m.ports, m.certs = map[string]bool{}, map[string]bool{}, map[string]bool{}
	m.whole = true
	m.Classes()
}

// Set takes in an Ingress as it is now; nil: it is gone.
func (m *Model) Set(key string, i *networkingv1.Ingress) {
	if i == nil {
		delete(m.all, key)
	} else {
		m.all[key] = i
	}
	m.ingresses[key] = true
}

// Classes says that an IngressClass has changed.
func (m *Model) Classes() {
	for key := range m.all {
		m.ingresses[key] = true
	}
}

// Service says that a service or its endpoints have changed.
func (m *Model) Service(key string) {
	if m.services[key] != nil {
		m.ports[key] = true
	}
}

// Secret says that a Secret has changed.
func (m *Model) Secret(key string) {
	for i := range m.secrets[key] {
		m.ingresses[i] = true
		m.certs[key] = true
	}
}

// Secrets are the keys of those that the Ingresses name which are obeyed.
func (m *Model) Secrets() []string { return slices.Sorted(maps.Keys(m.secrets)) }

// Commit returns what is different for an edge since the last one.
func (m *Model) Commit() (c route.Change) {
	c.Whole, m.whole = m.whole, false
	for key := range m.ingresses {
		m.compile(key, &c)
	}
	for key := range m.ports {
		m.lookAt(key, &c)
	}
	for key := range m.certs {
		m.show(key, &c)
	}
	clear(m.ingresses)
	clear(m.ports)
	clear(m.certs)
	return c
}

func (m *Model) compile(key string, c *route.Change) {
	old := m.compiled[key]
	i := m.all[key]
	var now *Compiled
	if i != nil && networking.Obeyed(i, m.known) {
		now = Compile(i, m.known)
	}
	if old == nil && now == nil {
		return
	}
	m.leave(key, old)
	m.enter(key, now)
	if old != nil {
		m.drop(old, c)
	}
	if now == nil {
		delete(m.compiled, key)
		put(&c.Sites, key, nil)
		return
	}
	m.compiled[key] = now
	if old == nil || !reflect.DeepEqual(old.Site, now.Site) {
		put(&c.Sites, key, now.Site)
	}
	for _, u := range now.Upstreams {
		m.look(m.upstreams[u.Key()], c)
	}
	for _, s := range now.Secrets {
		if !m.sent[s] {
			m.show(s, c)
		}
	}
}

func (m *Model) leave(key string, old *Compiled) {
	if old == nil {
		return
	}
	for _, u := range old.Upstreams {
		delete(m.upstreams[u.Key()].by, key)
		m.services.remove(u.Namespace+"/"+u.Service, key)
	}
	for _, s := range old.Secrets {
		m.secrets.remove(s, key)
	}
}

func (m *Model) enter(key string, now *Compiled) {
	if now == nil {
		return
	}
	for _, u := range now.Upstreams {
		k := u.Key()
		if m.upstreams[k] == nil {
			m.upstreams[k] = &used{Upstream: u, by: map[string]bool{}}
		}
		m.upstreams[k].by[key] = true
		m.services.add(u.Namespace+"/"+u.Service, key)
	}
	for _, s := range now.Secrets {
		m.secrets.add(s, key)
	}
}

// drop takes back what nobody uses any more.
func (m *Model) drop(old *Compiled, c *route.Change) {
	for _, u := range old.Upstreams {
		k := u.Key()
		if one := m.upstreams[k]; one != nil && len(one.by) == 0 {
			delete(m.upstreams, k)
			if one.sent {
				put(&c.Upstreams, k, nil)
			}
		}
	}
	for _, s := range old.Secrets {
		if m.secrets[s] == nil && m.sent[s] {
			delete(m.sent, s)
			put(&c.Certificates, s, nil)
		}
	}
}

// lookAt looks at the upstreams that are ports of a service.
func (m *Model) lookAt(service string, c *route.Change) {
	for key := range m.services[service] {
		for _, u := range m.compiled[key].Upstreams {
			if u.Namespace+"/"+u.Service == service {
				m.look(m.upstreams[u.Key()], c)
			}
		}
	}
}

// look sends an upstream if its endpoints are others than were sent.
func (m *Model) look(u *used, c *route.Change) {
	now := Endpoints(u.Upstream, m.known)
	if u.sent && slices.Equal(now, u.endpoints) {
		return
	}
	u.sent, u.endpoints = true, now
	put(&c.Upstreams, u.Key(), &route.Upstream{Endpoints: now})
}

// show sends the certificate of a Secret, or that it has none.
func (m *Model) show(key string, c *route.Change) {
	namespace, name := Split(key)
	var cert *route.Certificate
	if s := m.known.Secret(namespace, name); s != nil && m.secrets[key] != nil {
		cert, _ = Certificate(s) // what is wrong with it is a problem of the Ingresses
	}
	if cert == nil && !m.sent[key] {
		return
	}
	m.sent[key] = cert != nil
	put(&c.Certificates, key, cert)
}

func put[T any](to *map[string]*T, key string, value *T) {
	if *to == nil {
		*to = map[string]*T{}
	}
	(*to)[key] = value
}
