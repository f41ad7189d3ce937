package edge

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/kemudi/kemudi/internal/edge/route"
)

// door is a port of Gateways, with its tables. It is read-only.
type door struct {
	*route.Door
	tables  []*route.Table   // by listener
	clients []*x509.CertPool // likewise; nil: none is asked for
	options *route.Options   // of all requests
	tls     bool             // connections begin with TLS
	streams bool             // some of them are not HTTP
}

// doorsAfter gives a state its doors.
func (e *Edge) doorsAfter(now, old *state, c *route.Change) {
	now.doors, now.ports, now.udp, now.trusts = old.doors, old.ports, old.udp, old.trusts
	if len(c.Doors) == 0 && !c.Whole {
		return
	}
	now.doors = map[string]*door{}
	if !c.Whole {
		maps.Copy(now.doors, old.doors)
	}
	for key, d := range c.Doors {
		delete(now.doors, key)
		if d != nil {
			now.doors[key] = newDoor(d)
		}
	}
	now.ports, now.udp = map[uint16]*door{}, map[uint16]*door{}
	used := map[string]bool{}
	for _, d := range now.doors {
		if d.Datagrams() {
			now.udp[d.Port] = d
			continue
		}
		now.ports[d.Port] = d
		for i := range d.Listeners {
			for _, s := range d.Listeners[i].Sites {
				for a := range s.Actions {
					for _, one := range s.Actions[a].Backends {
						use(used, one.Protocol, one.Trust)
					}
					for _, one := range s.Actions[a].Mirrors {
						use(used, one.Protocol, one.Trust)
					}
				}
			}
		}
	}
	now.trusts = used
}

// trustsAfter gives a state the ways in which the upstreams of its sites are known, and has those forgotten that nobody uses any more.
func (e *Edge) trustsAfter(now, old *state, c *route.Change) {
	now.siteTrusts = old.siteTrusts
	if c.Whole {
		now.siteTrusts = nil
	}
	changed := map[string]string{}
	for key, s := range c.Sites {
		switch {
		case s != nil && s.Options != nil && s.Options.Trust != nil:
			changed[key] = trustKey(s.Options.Protocol, s.Options.Trust)
		case now.siteTrusts[key] != "":
			changed[key] = ""
		}
	}
	if len(changed) > 0 {
		now.siteTrusts = maps.Clone(now.siteTrusts)
		if now.siteTrusts == nil {
			now.siteTrusts = map[string]string{}
		}
		maps.Copy(now.siteTrusts, changed)
		maps.DeleteFunc(now.siteTrusts, func(_, trust string) bool { return trust == "" })
	}
	if len(changed) == 0 && len(c.Doors) == 0 && !c.Whole {
		return
	}
	used := map[string]bool{}
	maps.Copy(used, now.trusts)
	for _, trust := range now.siteTrusts {
		used[trust] = true
	}
	e.forward.trusted.keep(used)
}

func use(used map[string]bool, p route.Protocol, trust *route.Trust) {
	if trust != nil {
		used[trustKey(p, trust)] = true
	}
}

func newDoor(d *route.Door) *door {
	out := &door{Door: d, options: &noOptions}
	if d.Relay != nil && d.Relay.Idle > 0 {
		out.options = &route.Options{Read: d.Relay.Idle}
	}
	for i := range d.Listeners {
		l := &d.Listeners[i]
		out.tables = append(out.tables, l.Table())
		var pool *x509.CertPool
		if l.Clients != nil {
			pool = x509.NewCertPool()
			pool.AppendCertsFromPEM(l.Clients.Authorities)
		}
		out.clients = append(out.clients, pool)
		out.tls = out.tls || l.Mode.TLS()
		out.streams = out.streams || l.Mode != route.Secure && l.Mode != route.Plain
	}
	return out
}

// listener is the number of the one with the narrowest host that has a name; -1: none has.
func (d *door) listener(name string) int {
	best, found := 0, -1
	for i := range d.Listeners {
		if n := route.Reaches(d.Listeners[i].Host, name); n > best {
			best, found = n, i
		}
	}
	return found
}

// doorway serves the port of a door, whatever the door is at the time.
type doorway struct {
	p    *ports
	port uint16
}

func (w *doorway) now() *door { return w.p.e.state.Load().ports[w.port] }

func (w *doorway) server() *http.Server {
	s := w.p.server()
	s.Handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { w.p.e.serve(rw, r, w.port) })
	return s
}

func (w *doorway) plain(ctx context.Context, l net.Listener) error {
	return w.sorted(ctx, w.server(), l)
}

func (w *doorway) secure(ctx context.Context, l net.Listener) error {
	s := w.server()
	s.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: w.config, NextProtos: httpProtocols}
	return w.sorted(ctx, s, l)
}

var httpProtocols = []string{"h2", "http/1.1"}

// errNoListener ends a handshake for a name that nobody listens for.
var errNoListener = errors.New("no listener is for the name")

func serverName(hello *tls.ClientHelloInfo) string {
	return strings.ToLower(strings.TrimSuffix(hello.ServerName, "."))
}

// config is how TLS is spoken with a client, by the listener for the name that it asks for.
func (w *doorway) config(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	d := w.now()
	if d == nil {
		return nil, errNoListener
	}
	i := d.listener(serverName(hello))
	if i < 0 || !d.Listeners[i].Mode.TLS() {
		return nil, errNoListener
	}
	l := &d.Listeners[i]
	c := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: httpProtocols, DynamicRecordSizingDisabled: true, GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		return w.p.e.shown(l, hello)
	}}
	if l.Mode == route.Terminate {
		c.NextProtos = nil
	}
	switch {
	case l.Clients == nil:
	case l.Clients.Any:
		c.ClientAuth = tls.RequestClientCert
	default:
		c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, d.clients[i]
	}
	if l.Clients != nil {
		// A ticket of another listener, or of before the change, must not stand for a certificate.
		c.SessionTicketsDisabled = true
	}
	return c, nil
}

// shown is the first of a listener's certificates that is for the name that a client asks for, or else
// the first.
func (e *Edge) shown(l *route.Listener, hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	s := e.state.Load()
	var first *tls.Certificate
	for _, key := range l.Certificates {
		cert := s.certs[key]
		if cert == nil {
			continue
		}
		if hello.ServerName != "" && hello.SupportsCertificate(cert) == nil {
			return cert, nil
		}
		if first == nil {
			first = cert
		}
	}
	if first == nil {
		return nil, fmt.Errorf("the listener for %q has no certificate", hello.ServerName)
	}
	return first, nil
}

// enterDoor finds what becomes of a request that came through a door, and does it.
func (x *exchange) enterDoor(a *answer, r *http.Request, port uint16) {
	x.door = x.s.ports[port]
	if x.door == nil {
		x.e.answer(a, http.StatusNotFound, "no route is for this")
		return
	}
	defer x.logged(a, r)
	if v := x.door.Vouch; v != nil && r.TLS == nil && slices.Contains(v.Hosts, x.host) && x.e.vouches(a, x.path, v.Account) {
		return
	}
	at := x.door.listener(x.host)
	if r.TLS != nil && x.door.listener(strings.ToLower(strings.TrimSuffix(r.TLS.ServerName, "."))) != at {
		x.e.refuse(a, "misdirected", http.StatusMisdirectedRequest)
		return
	}
	if at >= 0 {
		var query map[string][]string
		x.target = x.door.tables[at].Find(x.host, x.path, func(w *route.When) bool {
			if len(w.Query) > 0 && query == nil {
				query = r.URL.Query()
			}
			return w.Met(r.Method, r.Header, query)
		})
	}
	if x.target == nil || x.target.Action == nil {
		x.e.answer(a, http.StatusNotFound, "no route is for this")
		return
	}
	x.o = x.door.options
	x.wanted = x.door.sticky(x.s.pools, x.target.Action, x.client)
	defer x.drains(r)()
	x.act(a, r)
}
