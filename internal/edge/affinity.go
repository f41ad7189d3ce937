package edge

import "net/http"

// recall finds the endpoint that the client's cookie names.
func (x *exchange) recall(r *http.Request) {
	if x.o.Affinity == nil {
		return
	}
	if c, err := r.Cookie(x.o.Affinity.Cookie); err == nil {
		x.wanted = c.Value
	}
}

// remember gives the client a cookie that names the endpoint which has answered, unless it has one.
func (x *exchange) remember(h http.Header) {
	f := x.o.Affinity
	if f == nil || x.took == nil || x.took.token == x.wanted {
		return
	}
	c := http.Cookie{Name: f.Cookie, Value: x.took.token, Path: f.Path, Domain: f.Domain, MaxAge: f.MaxAge, Secure: f.Secure, HttpOnly: true}
	if c.Path == "" {
		c.Path = "/"
	}
	switch f.SameSite {
	case "None":
		c.SameSite = http.SameSiteNoneMode
	case "Lax":
		c.SameSite = http.SameSiteLaxMode
	case "Strict":
		c.SameSite = http.SameSiteStrictMode
	}
	h.Add("Set-Cookie", c.String())
}
