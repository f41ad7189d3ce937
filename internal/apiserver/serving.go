package apiserver

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kemudi/kemudi/internal/apiserver/discovery"
)

// Serving is how HTTP is spoken with clients, each field by its flag. The zero value: HTTP/2, to programs that are no
// pages of other sites.
type Serving struct {
	Streams   int      // --http2-max-streams-per-connection; 0: a thousand
	NoHTTP2   bool     // --disable-http2-serving
	GoAway    float64  // --goaway-chance: that a client is asked to connect anew, of each request over HTTP/2
	Origins   []string // --cors-allowed-origins: expressions for the sites whose pages may ask
	Transport []string // --strict-transport-security-directives
	// Emulation leaves out what is newer than the release that the server acts as (--emulated-version and others).
	Emulation discovery.Emulation
	Delay     time.Duration // --shutdown-delay-duration: a server that is told to stop goes on for so long
}

// mostGoAway is the largest chance: one request in fifty.
const mostGoAway = 0.02

// Check says what is wrong with it.
func (o *Serving) Check() error {
	switch {
	case o.Streams < 0:
		return errors.New("--http2-max-streams-per-connection can not be negative value")
	case !(o.GoAway >= 0 && o.GoAway <= mostGoAway):
		return errors.New("--goaway-chance can not be less than 0 or greater than 0.02")
	case o.Delay < 0:
		return errors.New("--shutdown-delay-duration can not be negative value")
	}
	for _, text := range o.Origins {
		if text == "" {
			return errors.New("empty value in --cors-allowed-origins")
		}
		if _, err := regexp.Compile(text); err != nil {
			return fmt.Errorf("--cors-allowed-origins has an invalid regular expression: %w", err)
		}
		// Otherwise sites whose names contain an allowed one were allowed, too.
		if begins, ends := strings.Contains(text, "^") || strings.Contains(text, "//"), strings.ContainsAny(text, "$:"); !begins || !ends {
			return fmt.Errorf("--cors-allowed-origins has an invalid regular expression: %q: regular expression does not pin to start/end of host in the origin header", text)
		}
	}
	for _, d := range o.Transport {
		if strings.TrimSpace(d) == "" {
			return errors.New("empty value in --strict-transport-security-directives")
		}
		age, text, _ := strings.Cut(d, "=")
		if d != "includeSubDomains" && d != "preload" && (age != "max-age" || text == "" || strings.Contains(text, "=")) {
			return fmt.Errorf("--strict-transport-security-directives invalid: %q: allowed values: max-age=expireTime, includeSubDomains, preload", d)
		}
	}
	return nil
}

// filters are what is done about requests for it; none where there is nothing to do.
func (o *Serving) filters() (list []func(http.Handler) http.Handler) {
	if len(o.Transport) > 0 {
		list = append(list, o.withTransport)
	}
	if o.GoAway > 0 {
		list = append(list, o.withGoAway)
	}
	if len(o.Origins) > 0 {
		list = append(list, o.withOrigins)
	}
	return list
}

// withTransport tells browsers to come by TLS alone.
func (o *Serving) withTransport(next http.Handler) http.Handler {
	directives := strings.Join(o.Transport, "; ")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Strict-Transport-Security", directives)
		next.ServeHTTP(w, r)
	})
}

// withGoAway asks clients at random to connect anew, so that a balancer may give them another server. What they have
// under way goes on.
func (o *Serving) withGoAway(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 && rand.Float64() < o.GoAway {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// What pages of other sites may send and read.
const (
	corsMethods = "POST, GET, OPTIONS, PUT, DELETE, PATCH"
	corsHeaders = "Content-Type, Content-Length, Accept-Encoding, X-CSRF-Token, Authorization, X-Requested-With, If-Modified-Since"
	corsExposed = "Date"
)

// withOrigins lets pages of some sites ask. What a browser asks ahead is answered here, of anybody.
func (o *Serving) withOrigins(next http.Handler) http.Handler {
	all := make([]*regexp.Regexp, len(o.Origins))
	for i, text := range o.Origins {
		all[i] = regexp.MustCompile(text) // Check has compiled it
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		origin := r.Header.Get("Origin")
		if origin == "" || !slices.ContainsFunc(all, func(re *regexp.Regexp) bool { return re.MatchString(origin) }) {
			next.ServeHTTP(w, r)
			return
		}
		h := w.Header()
		h.Set("Access-Control-Allow-Origin", origin)
		h.Set("Access-Control-Allow-Methods", corsMethods)
		h.Set("Access-Control-Allow-Headers", corsHeaders)
		h.Set("Access-Control-Expose-Headers", corsExposed)
		h.Set("Access-Control-Allow-Credentials", "true")
		if r.Method == http.MethodOptions {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		next.ServeHTTP(w, r)
	})
}
