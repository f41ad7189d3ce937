package edge

import (
	"math/rand/v2"
	"net/http"
	"regexp"

	"github.com/kemudi/kemudi/internal/edge/route"
)

// divert returns the upstream of a request: that of a canary, if one wants it. Passwords, lists of addresses and all else
// stay those of the site itself, so that nobody gets round them by asking for a canary.
func divert(t *route.Target, r *http.Request) string {
	for _, c := range t.Canaries {
		if takes(c.Site.Options.Canary, r) {
			return c.Upstream
		}
	}
	return t.Upstream
}

// What a header or a cookie says to whom it is for.
const (
	always = "always"
	never  = "never"
)

// takes says whether a canary wants a request: what the client says goes before chance.
func takes(c *route.Canary, r *http.Request) bool {
	if c.Header != "" {
		said := r.Header.Get(c.Header)
		switch {
		case c.Value != "":
			if said == c.Value {
				return true
			}
		case c.Pattern != "":
			if matches(c.Pattern, said) {
				return true
			}
		case said == always:
			return true
		case said == never:
			return false
		}
	}
	if c.Cookie != "" {
		if said, err := r.Cookie(c.Cookie); err == nil {
			switch said.Value {
			case always:
				return true
			case never:
				return false
			}
		}
	}
	total := c.Total
	if total == 0 {
		total = 100
	}
	return c.Weight > 0 && rand.IntN(total) < c.Weight
}

// matches leaves out what is no expression: who made the site has said so.
func matches(pattern, text string) bool {
	re, err := regexp.Compile(pattern)
	return err == nil && text != "" && re.MatchString(text)
}
