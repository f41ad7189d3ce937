package route

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Table finds what becomes of requests. It is immutable; nil is an empty one.
type Table struct {
	sites     map[string]*Site
	upstreams map[string]*Upstream
	certs     map[string]*Certificate
	hosts     map[string]*host // by name; those below a star by what follows it, with the dot
	names     map[string]*name // that certificates are shown for, likewise
	deep      bool             // a star is for any number of labels
}

// host is what the sites say of one host.
type host struct {
	sites    []string             // their keys
	exact    map[string][]*Target // those with the most conditions first (R6)
	prefix   map[string][]*Target // likewise, by path without the slash at the end
	deepest  int                  // number of slashes of the longest prefix
	patterns []pattern            // the longest first
	rest     *Target              // nil: nobody takes what matches no rule
	proof    *Proof               // how clients are known; nil: they need not be
}

type pattern struct {
	*regexp.Regexp
	source string
	rank   int // length as which it counts
	target *Target
}

// name is a name of certificates.
type name struct {
	sites []string
	cert  string // key of the certificate that is shown
}

// Target is where requests go that a rule is for. It is read-only.
type Target struct {
	Site     *Site
	Upstream string
	Path     string         // of the rule
	Pattern  *regexp.Regexp // nil: the rule is none
	Secure   bool           // the site has TLS for the host
	Canaries []*Target      // that get a part of the requests
	Action   *Action        // nil: the upstream gets the request
	Proof    *Proof         // how clients are known; nil: they need not be
	When     *When          // nil: always
}

// With returns the table after a change.
func (t *Table) With(c Change) *Table {
	if t == nil || c.Whole {
		t = &Table{}
	}
	n := &Table{
		sites: merged(t.sites, c.Sites), upstreams: merged(t.upstreams, c.Upstreams), certs: merged(t.certs, c.Certificates),
		hosts: t.hosts, names: t.names, deep: t.deep,
	}
	if len(c.Sites) == 0 {
		return n
	}
	n.hosts, n.names = maps.Clone(t.hosts), maps.Clone(t.names)
	if n.hosts == nil {
		n.hosts, n.names = map[string]*host{}, map[string]*name{}
	}
	hosts, names := index{}, index{}
	for key := range c.Sites {
		if old := t.sites[key]; old != nil {
			hosts.leave(old.hosts(), key)
			for i := range old.TLS {
				names.leave(old.names(&old.TLS[i]), key)
			}
		}
		if now := c.Sites[key]; now != nil {
			hosts.join(now.hosts(), key)
			for i := range now.TLS {
				names.join(now.names(&now.TLS[i]), key)
			}
		}
	}
	for h, moves := range hosts {
		key := starless(h)
		var had []string
		if old := t.hosts[key]; old != nil {
			had = old.sites
		}
		if list := n.ordered(moves.apply(had)); len(list) > 0 {
			n.hosts[key] = n.build(h, list)
		} else {
			delete(n.hosts, key)
		}
	}
	for h, moves := range names {
		key := starless(h)
		var had []string
		if old := t.names[key]; old != nil {
			had = old.sites
		}
		if list := n.ordered(moves.apply(had)); len(list) > 0 {
			n.names[key] = n.shown(h, list)
		} else {
			delete(n.names, key)
		}
	}
	return n
}

func merged[T any](old map[string]*T, change map[string]*T) map[string]*T {
	if len(change) == 0 {
		return old
	}
	out := maps.Clone(old)
	if out == nil {
		out = make(map[string]*T, len(change))
	}
	for key, now := range change {
		if now == nil {
			delete(out, key)
		} else {
			out[key] = now
		}
	}
	return out
}

// index is which sites come to a host and which leave it.
type index map[string]moves

type moves map[string]bool // by key of the site: it comes

func (x index) leave(hosts []string, site string) { x.move(hosts, site, false) }
func (x index) join(hosts []string, site string)  { x.move(hosts, site, true) }

func (x index) move(hosts []string, site string, in bool) {
	for _, h := range hosts {
		if x[h] == nil {
			x[h] = moves{}
		}
		x[h][site] = in
	}
}

func (m moves) apply(had []string) (sites []string) {
	for _, key := range had {
		if _, moved := m[key]; !moved {
			sites = append(sites, key)
		}
	}
	for key, in := range m {
		if in {
			sites = append(sites, key)
		}
	}
	return sites
}

// starless is a host's key in the tables: "*.example.com" is ".example.com".
func starless(host string) string {
	if rest, ok := strings.CutPrefix(host, "*"); ok {
		return rest
	}
	return host
}

// ordered sorts sites, the oldest first (R1, R5).
func (t *Table) ordered(sites []string) []string {
	slices.SortFunc(sites, func(a, b string) int {
		return cmp.Or(cmp.Compare(t.sites[a].Created, t.sites[b].Created), cmp.Compare(a, b))
	})
	return sites
}

// build makes what the table has of a host.
func (t *Table) build(name string, sites []string) *host {
	h := &host{sites: sites, exact: map[string][]*Target{}, prefix: map[string][]*Target{}}
	for _, key := range sites {
		if s := t.sites[key]; s.Options != nil && s.Options.Proof != nil && s.Options.Canary == nil && h.proof == nil {
			h.proof = s.Options.Proof
		}
	}
	for _, key := range sites {
		if s := t.sites[key]; s.Options == nil || s.Options.Canary == nil {
			h.add(s, name)
		}
	}
	for _, key := range sites {
		if s := t.sites[key]; s.Options != nil && s.Options.Canary != nil {
			h.addCanary(s, name)
		}
	}
	slices.SortStableFunc(h.patterns, func(a, b pattern) int {
		return cmp.Or(cmp.Compare(b.rank, a.rank), narrower(a.target, b.target))
	})
	for _, lists := range []map[string][]*Target{h.exact, h.prefix} {
		for _, list := range lists {
			slices.SortStableFunc(list, narrower)
		}
	}
	return h
}

func (h *host) add(s *Site, name string) {
	secure := s.secure(name)
	for i := range s.Rules {
		r := &s.Rules[i]
		if r.Host != name {
			continue
		}
		target := &Target{Site: s, Upstream: r.Upstream, Path: r.Path, Secure: secure, When: r.When.compiled(), Proof: h.proof}
		if r.Do > 0 && r.Do <= len(s.Actions) {
			target.Action = &s.Actions[r.Do-1]
		}
		switch r.Type {
		case Exact:
			h.exact[r.Path] = join(h.exact[r.Path], target)
		case Regex, Whole:
			h.addPattern(r, target)
		default:
			h.addPrefix(strings.TrimSuffix(r.Path, "/"), target)
		}
	}
	if s.Default != "" && h.rest == nil {
		h.rest = &Target{Site: s, Upstream: s.Default, Secure: secure, Proof: h.proof}
	}
}

func (h *host) addPrefix(path string, target *Target) {
	h.prefix[path] = join(h.prefix[path], target)
	h.deepest = max(h.deepest, strings.Count(path, "/"))
}

// join adds a target, unless an older one without conditions has the same path (R1).
func join(list []*Target, target *Target) []*Target {
	if target.When == nil && always(list) != nil {
		return list
	}
	return append(list, target)
}

// always is the target without conditions; nil: there is none.
func always(list []*Target) *Target {
	for _, t := range list {
		if t.When == nil {
			return t
		}
	}
	return nil
}

// addPattern leaves out what is no expression: who made the site has said so.
func (h *host) addPattern(r *Rule, target *Target) {
	if target.When == nil && slices.ContainsFunc(h.patterns, func(p pattern) bool { return p.source == r.Path && p.target.When == nil }) {
		return
	}
	compile := Compile
	if r.Type == Whole {
		compile = CompileWhole
	}
	re, err := compile(r.Path)
	if err != nil {
		return
	}
	target.Pattern = re
	h.patterns = append(h.patterns, pattern{re, r.Path, cmp.Or(r.Rank, len(r.Path)), target})
}

// Compile makes the expression of a path of type [Regex].
func Compile(path string) (*regexp.Regexp, error) { return regexp.Compile("^(?i:" + path + ")") }

// CompileWhole makes that of one of type [Whole], and of the values of conditions.
func CompileWhole(text string) (*regexp.Regexp, error) { return regexp.Compile("^(?:" + text + ")$") }

// addCanary gives a site a part of what the rules of others get.
func (h *host) addCanary(s *Site, name string) {
	for i := range s.Rules {
		r := &s.Rules[i]
		if r.Host != name {
			continue
		}
		if main := h.at(r); main != nil {
			main.Canaries = append(main.Canaries, &Target{Site: s, Upstream: r.Upstream, Path: r.Path, Pattern: main.Pattern, Secure: main.Secure})
		}
	}
}

// at is the target of the rule that is like r.
func (h *host) at(r *Rule) *Target {
	switch r.Type {
	case Exact:
		return always(h.exact[r.Path])
	case Regex, Whole:
		for _, p := range h.patterns {
			if p.source == r.Path {
				return p.target
			}
		}
		return nil
	}
	return always(h.prefix[strings.TrimSuffix(r.Path, "/")])
}

// secure says that the site has TLS for a host.
func (s *Site) secure(host string) bool {
	for i := range s.TLS {
		for _, n := range s.names(&s.TLS[i]) {
			if n == host || strings.HasPrefix(n, "*") && under(host, n[1:]) {
				return true
			}
		}
	}
	return false
}

// under says that a host is one label and what follows a star.
func under(host, suffix string) bool {
	label, ok := strings.CutSuffix(host, suffix)
	return ok && label != "" && !strings.Contains(label, ".")
}

// shown chooses the certificate for a name: that of the oldest site whose certificate is there.
func (t *Table) shown(h string, sites []string) *name {
	n := &name{sites: sites}
	for _, key := range sites {
		s := t.sites[key]
		for i := range s.TLS {
			if c := &s.TLS[i]; n.cert == "" && slices.Contains(s.names(c), h) {
				n.cert = c.Certificate
			}
		}
	}
	return n
}

// Account is by which account an edge answers for a host when an ACME server asks; empty: by none.
func (t *Table) Account(host string) string {
	if t == nil {
		return ""
	}
	if n := t.names[host]; n != nil {
		for _, key := range n.sites {
			if account := t.sites[key].Account; account != "" {
				return account
			}
		}
	}
	return ""
}

// asked adds what is asked for a host, one after the other (R2).
func (t *Table) asked(list []*host, name string) []*host {
	if name != "" && name[0] != '.' { // which is how those below a star are kept
		if h := t.hosts[name]; h != nil {
			list = append(list, h)
		}
		for rest := name; ; {
			i := strings.IndexByte(rest[1:], '.')
			if i < 0 {
				break
			}
			rest = rest[i+1:]
			if h := t.hosts[rest]; h != nil {
				list = append(list, h)
			}
			if !t.deep {
				break
			}
		}
	}
	if h := t.hosts[""]; h != nil {
		list = append(list, h)
	}
	return list
}

// Proofs are those that a request for a host may need, the most likely first.
func (t *Table) Proofs(name string) (list []*Proof) {
	if t == nil {
		return nil
	}
	var tried [3]*host
	for _, h := range t.asked(tried[:0], name) {
		if h.proof != nil {
			list = append(list, h.proof)
		}
	}
	return list
}

// Find returns where a request for a host and a clean path goes, of which meets says what conditions it
// meets (nil: none); nil: nobody takes it.
func (t *Table) Find(name, path string, meets func(*When) bool) *Target {
	if t == nil {
		return nil
	}
	var tried [3]*host
	list := t.asked(tried[:0], name)
	for _, h := range list { // R2
		if target := h.find(path, meets); target != nil {
			return target
		}
	}
	for _, h := range list { // R4
		if h.rest != nil {
			return h.rest
		}
	}
	return nil
}

// find returns the target of the longest path (R3) whose conditions are met (R6).
func (h *host) find(path string, meets func(*When) bool) *Target {
	if target := first(h.exact[path], meets); target != nil {
		return target
	}
	target := h.below(path, meets)
	for i := range h.patterns {
		p := &h.patterns[i]
		if target != nil && p.rank < len(target.Path) {
			break
		}
		if p.MatchString(path) && met(p.target, meets) {
			return p.target
		}
	}
	return target
}

func first(list []*Target, meets func(*When) bool) *Target {
	for _, t := range list {
		if met(t, meets) {
			return t
		}
	}
	return nil
}

func met(t *Target, meets func(*When) bool) bool {
	return t.When == nil || meets != nil && meets(t.When)
}

// below returns the target of the longest prefix of a path.
func (h *host) below(path string, meets func(*When) bool) *Target {
	if len(h.prefix) == 0 {
		return nil
	}
	// What is longer than the longest prefix need not be looked for.
	end, slashes := len(path), 0
	for i := range len(path) {
		if path[i] != '/' {
			continue
		}
		if slashes++; slashes > h.deepest+1 {
			end = i
			break
		}
	}
	for p := strings.TrimSuffix(path[:end], "/"); ; {
		if target := first(h.prefix[p], meets); target != nil {
			return target
		}
		i := strings.LastIndexByte(p, '/')
		if i < 0 {
			return nil
		}
		p = p[:i]
	}
}

// Upstream returns an upstream by its key, or nil.
func (t *Table) Upstream(key string) *Upstream {
	if t == nil {
		return nil
	}
	return t.upstreams[key]
}

// Certificate returns the key of the certificate for a name; empty: there is none.
func (t *Table) Certificate(host string) string {
	if t == nil {
		return ""
	}
	if n := t.names[host]; n != nil && !strings.HasPrefix(host, ".") && n.cert != "" {
		return n.cert
	}
	if i := strings.IndexByte(host, '.'); i > 0 {
		if n := t.names[host[i:]]; n != nil && n.cert != "" {
			return n.cert
		}
	}
	if n := t.names[""]; n != nil {
		return n.cert
	}
	return ""
}

// Len is the number of sites.
func (t *Table) Len() int {
	if t == nil {
		return 0
	}
	return len(t.sites)
}
