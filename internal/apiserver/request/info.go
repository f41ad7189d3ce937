package request

import (
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/kemudi/kemudi/internal/auth"
	"github.com/kemudi/kemudi/internal/dialback"
	"github.com/kemudi/kemudi/internal/rawconn"
)

// SnapshotPath is where an administrator gets a snapshot of the store of the server that is asked.
const SnapshotPath = "/kemudi.io/v1/snapshot"

// Info is what a request's method and path say.
type Info struct {
	// Resource is whether the path names a resource: /api/v1/... or /apis/G/V/...
	// with something behind the version.
	Resource bool
	// Verb is get, list, watch, create, update, patch, delete or deletecollection
	// for resources, and the method in lower case otherwise.
	Verb string

	Group, Version, Namespace string
	Plural, Sub, Name         string
	Rest                      string // what follows the subresource (proxy paths), without a leading slash
	Path                      string

	old bool // the path has the old form of watches

	// Elsewhere is whether another server has the group-version. The path does not say so: who
	// knows writes it down.
	Elsewhere bool
	// Upgrades is whether the client of such a request asks for another protocol on its connection.
	Upgrades bool
}

// watchPrefix marks the old form of watches, /api/v1/watch/...
const watchPrefix = "watch"

// Parse takes a request's path and method apart as upstream does. It
// does not know which resources exist.
func Parse(r *http.Request) *Info {
	in := &Info{Verb: strings.ToLower(r.Method), Path: r.URL.Path}
	first, rest := cutSegment(r.URL.Path)
	switch first {
	case "api":
		in.Version, rest = cutSegment(rest)
	case "apis":
		in.Group, rest = cutSegment(rest)
		in.Version, rest = cutSegment(rest)
	default:
		return in
	}
	if rest = strings.Trim(rest, "/"); rest == "" {
		return in
	}
	in.Resource = true
	in.Verb = auth.Verb(r.Method)
	if head, tail := cutSegment(rest); head == watchPrefix && tail != "" {
		in.old, rest = true, tail
	}
	in.parseResource(rest)
	in.narrowVerb(r)
	return in
}

// cutSegment splits a path after its first segment.
func cutSegment(path string) (first, rest string) {
	path = strings.TrimLeft(path, "/")
	first, rest, _ = strings.Cut(path, "/")
	return first, rest
}

// Below is what follows the subresource in the path, with a slash before it, and
// the one at its end if there is one; empty if nothing follows, not even a slash.
func (in *Info) Below() string {
	below := in.Rest
	if below != "" && !strings.HasPrefix(below, "/") {
		below = "/" + below
	}
	if strings.HasSuffix(in.Path, "/") && !strings.HasSuffix(below, "/") {
		below += "/"
	}
	return below
}

// parseResource reads [namespaces/NAMESPACE/]PLURAL[/NAME[/SUB[/REST]]].
// A namespace's own subresources look like resources within it and are told
// apart by their names. These words are the grammar of paths, the same for all
// that is served: what a resource called so is, its declaration says.
func (in *Info) parseResource(path string) {
	first, rest := cutSegment(path)
	if first == "namespaces" {
		ns, below := cutSegment(rest)
		plural, _ := cutSegment(below)
		in.Namespace = ns
		if plural != "" && plural != "status" && plural != "finalize" {
			first, rest = cutSegment(below)
		}
	}
	in.Plural = first
	in.Name, rest = cutSegment(rest)
	in.Sub, in.Rest = cutSegment(rest)
}

// narrowVerb tells lists and watches from gets, and collections from objects.
func (in *Info) narrowVerb(r *http.Request) {
	if in.Name == "" {
		switch in.Verb {
		case "get":
			in.Verb = "list"
		case "delete":
			in.Verb = "deletecollection"
		}
	}
	if in.old && r.Method == http.MethodGet {
		in.Verb = "watch"
		return
	}
	if in.Verb != "list" || r.URL.RawQuery == "" {
		return
	}
	query := r.URL.Query()
	if IsTrue(query.Get("watch"), query.Has("watch")) {
		in.Verb = "watch"
	}
	if name := NameIn(query.Get("fieldSelector")); name != "" {
		in.Name = name
	}
}

// NameIn is the name of the one object that a field selector can find; empty if it names none.
func NameIn(fieldSelector string) string {
	const field = "metadata.name"
	name, simple := strings.CutPrefix(fieldSelector, field+"=")
	if !simple || strings.ContainsAny(name, `,=!\`) {
		if !strings.Contains(fieldSelector, field) {
			return ""
		}
		selector, err := fields.ParseSelector(fieldSelector)
		if err != nil {
			return ""
		}
		name, _ = selector.RequiresExactMatch(field)
	}
	if len(path.IsValidPathSegmentName(name)) > 0 {
		return ""
	}
	return name
}

// IsTrue reads a boolean parameter as upstream does: present is true, unless
// it says false or 0.
func IsTrue(value string, present bool) bool {
	return present && !strings.EqualFold(value, "false") && value != "0"
}

// LongRunning reports whether the request stays open for as long as it likes.
func (in *Info) LongRunning() bool {
	if in.Upgrades {
		return true
	}
	if !in.Resource {
		// A profile takes as long as its reader wants, and a store as long as it takes.
		return in.Tunnel() || strings.HasPrefix(in.Path, "/debug/pprof/") || in.Path == SnapshotPath
	}
	return in.Verb == "watch" || in.Sub == "log" || in.Tunnel()
}

// Selects reports whether the request is about objects that selectors in it find. In the old form of watches
// selectors do not count for who may do what.
func (in *Info) Selects() bool {
	return in.Resource && !in.old && (in.Verb == "list" || in.Verb == "watch" || in.Verb == "deletecollection")
}

// Passes reports whether what the client sends goes on to somebody else.
func (in *Info) Passes() bool { return in.Elsewhere || in.Tunnel() }

// Tunnel reports whether the request opens a connection to somewhere else, which
// also gets what the client sends.
func (in *Info) Tunnel() bool {
	if !in.Resource {
		return dialback.IsPath(in.Path) || strings.HasPrefix(in.Path, rawconn.PathPrefix)
	}
	switch in.Sub {
	case "exec", "attach", "portforward", "proxy":
		return true
	}
	return false
}
