package route

import "net/netip"

// Door is a port of the machine at which an edge takes what is sent to a port of a Gateway.
type Door struct {
	Port      uint16     `json:"port"`   // of the machine
	Public    uint16     `json:"public"` // that clients use
	Listeners []Listener `json:"listeners,omitempty"`
	Relay     *Relay     `json:"relay,omitempty"` // of the balancer of a Service; nil: the door is one of a Gateway
	Vouch     *Vouch     `json:"vouch,omitempty"` // nil: ACME servers are not answered
}

// Vouch says for which hosts an edge answers when an ACME server asks, and by the thumbprint of which account.
type Vouch struct {
	Account string   `json:"account"`
	Hosts   []string `json:"hosts"` // in small letters
}

// Relay says how what comes to the balancer of a Service is passed on. Its door has one listener. All times are in
// milliseconds.
type Relay struct {
	Service   string       `json:"service"`             // namespace and name
	Addresses []netip.Addr `json:"addresses,omitempty"` // that clients connect to; what comes by others is not taken. None: any
	Header    int          `json:"header,omitempty"`    // version of the PROXY protocol in which endpoints are told of the client; 0: they are not
	Idle      int64        `json:"idle,omitempty"`      // for how long both ends may be silent; 0: as long as they like
	Drain     int64        `json:"drain,omitempty"`     // for how long connections to an endpoint that has gone last; 0: likewise
	Sticky    bool         `json:"sticky,omitempty"`    // a client has the same endpoint, as long as it is there
	Log       bool         `json:"log,omitempty"`       // each connection or request
}

// Datagrams says that the port is one of UDP.
func (d *Door) Datagrams() bool { return len(d.Listeners) > 0 && d.Listeners[0].Mode == Datagrams }

// Mode is what a listener does with connections.
type Mode string

// The modes.
const (
	Plain     Mode = ""          // HTTP without TLS
	Secure    Mode = "https"     // HTTP after TLS
	Pass      Mode = "pass"      // TLS, which is not ended here
	Terminate Mode = "terminate" // any bytes after TLS
	Bytes     Mode = "bytes"     // any bytes without TLS
	Datagrams Mode = "datagrams" // of UDP; a door of them has no other listener
)

// TLS says that a name is asked for before anything else.
func (m Mode) TLS() bool { return m == Secure || m == Pass || m == Terminate }

// Listener takes what is for a host.
type Listener struct {
	Host         string   `json:"host,omitempty"` // empty: any; *.example.com: all below
	Mode         Mode     `json:"mode,omitempty"`
	Certificates []string `json:"certificates,omitempty"` // their keys; the first is for names that none has
	Clients      *Clients `json:"clients,omitempty"`      // nil: they are asked for no certificates
	Sites        []*Site  `json:"sites,omitempty"`
}

// Clients says which certificates clients must have.
type Clients struct {
	Authorities []byte `json:"authorities,omitempty"` // PEM
	Any         bool   `json:"any,omitempty"`         // those without a good one are let in too
}

// Reaches says how well a listener's host, or one of a rule, fits a name: the more the narrower; 0: not at all.
func Reaches(pattern, name string) int {
	const exactly = 1 << 20
	switch {
	case pattern == "":
		return 1
	case pattern == name:
		return exactly
	case len(pattern) > 1 && pattern[0] == '*' && len(name) > len(pattern)-1 && name[len(name)-len(pattern)+1:] == pattern[1:]:
		return len(pattern)
	}
	return 0
}

// Table is that of the listener's sites.
func (l *Listener) Table() *Table {
	c := Change{Sites: map[string]*Site{}}
	for _, s := range l.Sites {
		c.Sites[s.Key] = s
	}
	return (&Table{deep: true}).With(c)
}

// Action is what is done with requests. Without a redirect and a backend they are answered by 500.
type Action struct {
	Backends []Backend     `json:"backends,omitempty"`
	Redirect *RedirectTo   `json:"redirect,omitempty"`
	Rewrite  *Rewrite      `json:"rewrite,omitempty"`
	Request  *HeaderChange `json:"request,omitempty"`
	Response *HeaderChange `json:"response,omitempty"`
	Mirrors  []Mirror      `json:"mirrors,omitempty"`
	CORS     *CORS         `json:"cors,omitempty"`
	Limit    int64         `json:"limit,omitempty"`   // for all of a request, in milliseconds; 0: none
	Attempt  int64         `json:"attempt,omitempty"` // for each time it is sent, likewise
	Retry    *Retry        `json:"retry,omitempty"`   // nil: what could not be sent is sent to another endpoint, as of Ingresses
}

// Retry has requests sent again: what could not be sent, what harmless ones got no answer to in time, and all that is answered
// by one of some statuses.
type Retry struct {
	Codes    []int `json:"codes,omitempty"`
	Attempts int   `json:"attempts,omitempty"` // how often at most, beside the first time
	Backoff  int64 `json:"backoff,omitempty"`  // how long before the first of these, in milliseconds, and twice as long before each further one; 0: a moment
}

// Backend gets a part of the requests.
type Backend struct {
	Upstream string        `json:"upstream,omitempty"` // empty: it cannot be used, which is answered by 500
	Weight   int           `json:"weight"`
	Protocol Protocol      `json:"protocol,omitempty"`
	Trust    *Trust        `json:"trust,omitempty"` // nil: without TLS
	Request  *HeaderChange `json:"request,omitempty"`
	Response *HeaderChange `json:"response,omitempty"`
	Rewrite  *Rewrite      `json:"rewrite,omitempty"`
}

// Trust is how a backend is known that speaks TLS.
type Trust struct {
	Name        string   `json:"name"`                  // that is asked for, and that its certificate must have unless there are others
	Authorities []byte   `json:"authorities,omitempty"` // PEM; none: those of the machine
	Hosts       []string `json:"hosts,omitempty"`       // of which its certificate must have one, or of URIs
	URIs        []string `json:"uris,omitempty"`
	Certificate string   `json:"certificate,omitempty"` // key of the one that is shown to it
	Unknown     bool     `json:"unknown,omitempty"`     // it is not: its certificate may be any
}

// RedirectTo sends requests elsewhere; what is empty stays as it is.
type RedirectTo struct {
	Scheme string      `json:"scheme,omitempty"`
	Host   string      `json:"host,omitempty"`
	Port   uint16      `json:"port,omitempty"`
	Path   *PathChange `json:"path,omitempty"`
	Code   int         `json:"code"`
}

// Rewrite is what a backend is asked for in the place of what was.
type Rewrite struct {
	Host string      `json:"host,omitempty"`
	Path *PathChange `json:"path,omitempty"`
}

// PathChange is another path.
type PathChange struct {
	To     string `json:"to"`
	Prefix bool   `json:"prefix,omitempty"` // it takes the place of the rule's prefix alone
}

// Of is the path that a clean path becomes which a rule has found.
func (c *PathChange) Of(path string, t *Target) string {
	to := c.To
	if c.Prefix {
		prefix := t.Path
		if n := len(prefix); n > 0 && prefix[n-1] == '/' {
			prefix = prefix[:n-1]
		}
		rest := ""
		if len(path) > len(prefix) {
			rest = path[len(prefix):]
		}
		if n := len(to); n > 0 && to[n-1] == '/' && rest != "" {
			to = to[:n-1]
		}
		to += rest
	}
	if to == "" || to[0] != '/' {
		to = "/" + to
	}
	return to
}

// HeaderChange changes headers: first some are set, then added, then removed.
type HeaderChange struct {
	Set    []Header `json:"set,omitempty"`
	Add    []Header `json:"add,omitempty"`
	Remove []string `json:"remove,omitempty"`
}

// Header is one header.
type Header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Mirror gets a copy of requests: Part of Of.
type Mirror struct {
	Upstream string   `json:"upstream"`
	Protocol Protocol `json:"protocol,omitempty"`
	Trust    *Trust   `json:"trust,omitempty"` // nil: without TLS, or it is not verified
	Part     int      `json:"part"`
	Of       int      `json:"of"`
}
