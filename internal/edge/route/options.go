package route

import (
	"net/netip"
	"reflect"
)

// Protocol is what is spoken with an upstream.
type Protocol string

// The protocols. The zero value is plain HTTP.
const (
	HTTP  Protocol = ""
	HTTPS Protocol = "https" // whose certificate is not verified
	GRPC  Protocol = "grpc"  // HTTP/2 without TLS
	GRPCS Protocol = "grpcs"
)

// Options say how a site wants its requests treated. All times are in milliseconds; zero
// is the default of the edge.
type Options struct {
	Protocol Protocol `json:"protocol,omitempty"`
	// Trust is how upstreams are known that speak TLS; nil: they are not, and are shown nothing.
	Trust *Trust `json:"trust,omitempty"`
	// Host is sent to the upstream in the place of the one that was asked for.
	Host string `json:"host,omitempty"`
	// Rewrite is the path that the upstream is asked for: $1 to $9 are the groups of the rule's
	// expression.
	Rewrite string `json:"rewrite,omitempty"`
	// Prefix is sent as X-Forwarded-Prefix.
	Prefix string `json:"prefix,omitempty"`

	// Redirect sends all requests elsewhere.
	Redirect *Redirect `json:"redirect,omitempty"`
	// Root is where requests for / are sent.
	Root string `json:"root,omitempty"`
	// PlainToo serves without TLS, though there is a certificate; Secure redirects to HTTPS though
	// there is none.
	PlainToo bool `json:"plainToo,omitempty"`
	Secure   bool `json:"secure,omitempty"`

	MaxBody int64 `json:"maxBody,omitempty"` // bytes; negative: any
	Connect int64 `json:"connect,omitempty"` // until there is a connection
	Read    int64 `json:"read,omitempty"`    // between two reads from the upstream
	Tries   int   `json:"tries,omitempty"`   // endpoints that are tried

	Allow []netip.Prefix `json:"allow,omitempty"` // none: everybody
	Deny  []netip.Prefix `json:"deny,omitempty"`

	Proof  *Proof  `json:"proof,omitempty"`
	Login  *Login  `json:"login,omitempty"`
	Auth   *Auth   `json:"auth,omitempty"`
	Limits *Limits `json:"limits,omitempty"`

	Affinity *Affinity `json:"affinity,omitempty"`
	Canary   *Canary   `json:"canary,omitempty"`
	CORS     *CORS     `json:"cors,omitempty"`
}

// Zero says that options say nothing.
func Zero(o *Options) bool { return reflect.ValueOf(*o).IsZero() }

// Redirect is an answer that names another address.
type Redirect struct {
	To   string `json:"to"`
	Code int    `json:"code"`
}

// Proof says how clients are known by their certificates. It holds for the hosts of the site, whichever site a request is
// for: that of the oldest that has one.
type Proof struct {
	Authorities []byte    `json:"authorities,omitempty"` // PEM; none: nobody is let in
	Revoked     []byte    `json:"revoked,omitempty"`     // PEM, lists of what they have taken back; none: nobody looks
	Depth       int       `json:"depth,omitempty"`       // how many certificates may stand between a client's and an authority's
	Mode        ProofMode `json:"mode,omitempty"`
	Subject     string    `json:"subject,omitempty"` // expression for the name of who may pass; empty: anybody known
	Pass        bool      `json:"pass,omitempty"`    // upstreams get the certificate too
	Page        string    `json:"page,omitempty"`    // where those are sent who are not known; empty: they are refused
}

// ProofMode says who needs a certificate.
type ProofMode string

// The modes. The zero value is that everybody does.
const (
	Required     ProofMode = ""
	Optional     ProofMode = "optional"     // who has none is let in too
	AnyAuthority ProofMode = "anyAuthority" // likewise, and whose authority is not known
	NotAsked     ProofMode = "notAsked"     // nobody
)

// Asks says that clients are asked for a certificate.
func (p *Proof) Asks() bool { return p != nil && p.Mode != NotAsked && len(p.Authorities) > 0 }

// Login asks clients for a name and a password.
type Login struct {
	Realm string            `json:"realm,omitempty"`
	Users map[string]string `json:"users,omitempty"` // hashes of passwords as package passwd has them, by name
}

// Auth has another service say whether a request may pass: it is asked for URL with the headers
// of the request, and says yes by a status of 2xx, no by 401 and 403.
type Auth struct {
	// URL, SignIn and Redirect may have variables; see [Expand].
	URL string `json:"url"`
	// Upstream is where URL leads, if it is a service of the cluster.
	Upstream string   `json:"upstream,omitempty"`
	Method   string   `json:"method,omitempty"`   // empty: GET
	Headers  []string `json:"headers,omitempty"`  // of the answer, which the request goes on with
	SignIn   string   `json:"signIn,omitempty"`   // where who is not known is sent
	Return   string   `json:"return,omitempty"`   // parameter of SignIn that names where to come back to; empty: rd
	Redirect string   `json:"redirect,omitempty"` // sent as X-Auth-Request-Redirect; empty: what was asked for
}

// Limits are how much one client, by its address, may ask of a site. Zero is any.
type Limits struct {
	Connections int `json:"connections,omitempty"` // requests at the same time
	PerSecond   int `json:"perSecond,omitempty"`
	PerMinute   int `json:"perMinute,omitempty"`
	// Burst is how many times more may come at once; 0: 5.
	Burst int            `json:"burst,omitempty"`
	Free  []netip.Prefix `json:"free,omitempty"` // clients without limits
}

// Affinity has a client come back to the same endpoint by a cookie.
type Affinity struct {
	Cookie   string `json:"cookie"`
	Path     string `json:"path,omitempty"`
	Domain   string `json:"domain,omitempty"`
	SameSite string `json:"sameSite,omitempty"`
	MaxAge   int    `json:"maxAge,omitempty"` // in seconds; 0: as long as the browser runs
	Secure   bool   `json:"secure,omitempty"`
}

// Canary says which requests a site takes from another one, in this order: by a header, by a
// cookie, by chance.
type Canary struct {
	Header  string `json:"header,omitempty"`
	Value   string `json:"value,omitempty"`   // of the header; empty: always and never
	Pattern string `json:"pattern,omitempty"` // likewise, an expression
	Cookie  string `json:"cookie,omitempty"`
	Weight  int    `json:"weight,omitempty"` // of Total
	Total   int    `json:"total,omitempty"`  // 0: 100
}

// CORS answers browsers that ask whether pages of other origins may use the site.
type CORS struct {
	Origins     []string `json:"origins,omitempty"`
	Methods     string   `json:"methods,omitempty"`
	Headers     string   `json:"headers,omitempty"`
	Expose      string   `json:"expose,omitempty"`
	Credentials bool     `json:"credentials,omitempty"`
	MaxAge      int      `json:"maxAge,omitempty"` // in seconds
	// Deep has a star in an origin stand for any number of labels, and has nothing be allowed by a star together with
	// credentials: browsers are told what they have asked for.
	Deep bool `json:"deep,omitempty"`
}
