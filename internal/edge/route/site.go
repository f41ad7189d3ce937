package route

import "strings"

// PathType is how a rule's path is compared with that of a request.
type PathType string

// The types of paths.
const (
	Exact  PathType = "exact"
	Prefix PathType = "prefix" // by elements: /a has /a, /a/ and /a/b below it, not /ab
	Regex  PathType = "regex"  // the beginning of a path, of whichever case
	Whole  PathType = "whole"  // an expression for all of a path
)

// Site is what one Ingress says, or one route of a Gateway for a listener. It is read-only once it is in a table.
type Site struct {
	Key     string   `json:"key"`               // namespace and name
	Created int64    `json:"created,omitempty"` // when, in seconds of Unix
	Rules   []Rule   `json:"rules,omitempty"`
	Default string   `json:"default,omitempty"` // upstream of what matches no rule; empty: it says nothing of that
	TLS     []TLS    `json:"tls,omitempty"`
	Options *Options `json:"options,omitempty"`
	Actions []Action `json:"actions,omitempty"` // what rules have done
	// Account is the thumbprint of the account by which an edge answers for the hosts of TLS when an ACME server asks;
	// empty: it does not.
	Account string `json:"account,omitempty"`
}

// Rule sends what is for a host and a path to an upstream.
type Rule struct {
	Host     string   `json:"host,omitempty"` // in small letters; empty: any; *.example.com: one more label
	Path     string   `json:"path,omitempty"` // empty: all
	Type     PathType `json:"type"`
	Upstream string   `json:"upstream,omitempty"` // empty: there is none, which is answered by 503
	When     *When    `json:"when,omitempty"`     // nil: always
	Do       int      `json:"do,omitempty"`       // number of the site's action, from 1 on; 0: the upstream
	Rank     int      `json:"rank,omitempty"`     // of an expression: as many bytes long it counts; 0: as it is
}

// TLS has a certificate shown for hosts; without any, for all hosts of the site's rules.
type TLS struct {
	Hosts       []string `json:"hosts,omitempty"`
	Certificate string   `json:"certificate,omitempty"` // its key; empty: that of the edge
}

// Upstream is a port of a service.
type Upstream struct {
	// Endpoints are addresses with ports, in order. None: nobody serves.
	Endpoints []string `json:"endpoints,omitempty"`
}

// Certificate is a certificate chain with its key, both in PEM.
type Certificate struct {
	Chain []byte `json:"chain"`
	Key   []byte `json:"key"`
}

// Change is what is different in the next table, by key. A nil value says that it is gone.
type Change struct {
	// Whole says that nothing else is left of the table before.
	Whole        bool                    `json:"whole,omitempty"`
	Sites        map[string]*Site        `json:"sites,omitempty"`
	Upstreams    map[string]*Upstream    `json:"upstreams,omitempty"`
	Certificates map[string]*Certificate `json:"certificates,omitempty"`
	Doors        map[string]*Door        `json:"doors,omitempty"`
}

// Empty says that a change changes nothing.
func (c *Change) Empty() bool {
	return !c.Whole && len(c.Sites) == 0 && len(c.Upstreams) == 0 && len(c.Certificates) == 0 && len(c.Doors) == 0
}

// hosts are those that the site has rules or a default for, without repetition.
func (s *Site) hosts() (list []string) {
	seen := map[string]bool{}
	for i := range s.Rules {
		if h := s.Rules[i].Host; !seen[h] {
			seen[h] = true
			list = append(list, h)
		}
	}
	if len(s.Rules) == 0 && s.Default != "" {
		list = append(list, "")
	}
	return list
}

// names are those under which a certificate of the site is shown.
func (s *Site) names(t *TLS) []string {
	if len(t.Hosts) > 0 {
		return t.Hosts
	}
	return s.hosts()
}

// Canonical is a host as it is looked for: without a port, in small letters, without a dot
// at the end. ok is false for what is no host.
func Canonical(host string) (_ string, ok bool) {
	if strings.HasPrefix(host, "[") {
		end := strings.IndexByte(host, ']')
		if end < 0 || end+1 < len(host) && host[end+1] != ':' {
			return "", false
		}
		return strings.ToLower(host[1:end]), true
	}
	if i := strings.IndexByte(host, ':'); i >= 0 {
		if !digits(host[i+1:]) {
			return "", false
		}
		host = host[:i]
	}
	host = strings.TrimSuffix(host, ".")
	for i := range len(host) {
		if c := host[i]; !letter(c) && !digit(c) && c != '-' && c != '.' && c != '_' {
			return "", false
		}
	}
	return strings.ToLower(host), true
}

func digits(s string) bool {
	for i := range len(s) {
		if !digit(s[i]) {
			return false
		}
	}
	return true
}

func digit(c byte) bool  { return '0' <= c && c <= '9' }
func letter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
