package edge

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/kemudi/kemudi/internal/edge/route"
)

// preflight answers a browser that asks whether it may send a request, where the site has the
// edge do that.
func (x *exchange) preflight(a *answer, r *http.Request) bool {
	c := x.o.CORS
	if c == nil || r.Method != http.MethodOptions || r.Header.Get("Origin") == "" || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h := a.Header()
	allow(h, c, r.Header.Get("Origin"))
	h.Set("Access-Control-Allow-Methods", c.Methods)
	h.Set("Access-Control-Allow-Headers", c.Headers)
	h.Set("Access-Control-Max-Age", strconv.Itoa(c.MaxAge))
	h.Set("Content-Length", "0")
	a.WriteHeader(http.StatusNoContent)
	return true
}

// allow says in an answer that pages of an origin may read it, if they may.
func allow(h http.Header, c *route.CORS, origin string) {
	for _, one := range c.Origins {
		switch {
		case one == "*" && !(c.Deep && c.Credentials):
			h.Set("Access-Control-Allow-Origin", "*")
		case one == "*", c.Deep && deepOrigin(one, origin), !c.Deep && sameOrigin(one, origin):
			h.Set("Access-Control-Allow-Origin", origin)
			h.Add("Vary", "Origin")
		default:
			continue
		}
		if c.Credentials {
			h.Set("Access-Control-Allow-Credentials", "true")
		}
		if c.Expose != "" && !(c.Deep && c.Credentials && c.Expose == "*") { // to a browser it is then a name like others
			h.Set("Access-Control-Expose-Headers", c.Expose)
		}
		return
	}
	h.Del("Access-Control-Allow-Origin")
}

// deepOrigin compares an origin with one that may have a star in its host in the place of any number of labels.
// A port that is the scheme's own need not be said.
func deepOrigin(wanted, origin string) bool {
	wanted, origin = withoutPort(strings.ToLower(wanted)), withoutPort(strings.ToLower(origin))
	before, after, star := strings.Cut(wanted, "*")
	if !star {
		return wanted == origin
	}
	rest, ok := strings.CutPrefix(origin, before)
	labels, below := strings.CutSuffix(rest, after)
	return ok && below && labels != "" && !strings.ContainsAny(labels, "/:@?#\\")
}

// withoutPort leaves out the port of an origin that its scheme implies.
func withoutPort(origin string) string {
	for scheme, port := range map[string]string{"http://": ":80", "https://": ":443"} {
		if strings.HasPrefix(origin, scheme) {
			return strings.TrimSuffix(origin, port)
		}
	}
	return origin
}

// sameOrigin compares an origin with one that may have a star in the place of a label.
func sameOrigin(wanted, origin string) bool {
	before, after, star := strings.Cut(wanted, "*")
	if !star {
		return strings.EqualFold(wanted, origin)
	}
	rest, ok := strings.CutPrefix(strings.ToLower(origin), strings.ToLower(before))
	label, below := strings.CutSuffix(rest, strings.ToLower(after))
	return ok && below && label != "" && !strings.ContainsAny(label, "./:")
}
