package ingress

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/kemudi/kemudi/internal/api/networking"
	"github.com/kemudi/kemudi/internal/edge/passwd"
	"github.com/kemudi/kemudi/internal/edge/route"
)

// Who keeps people out by an annotation that cannot be obeyed has nobody let in: shut is what all
// of them come to.
func shut(o *route.Options, format string, args ...any) error {
	o.Deny, o.Login, o.Auth = everybody, nil, nil
	return fmt.Errorf(format+": nobody is let in", args...)
}

func loginOf(o *route.Options) *route.Login {
	if o.Login == nil {
		o.Login = &route.Login{}
	}
	return o.Login
}

func authOf(o *route.Options) *route.Auth {
	if o.Auth == nil {
		o.Auth = &route.Auth{}
	}
	return o.Auth
}

func limitsOf(o *route.Options) *route.Limits {
	if o.Limits == nil {
		o.Limits = &route.Limits{}
	}
	return o.Limits
}

func authType(c *compiler, o *route.Options, value string) error {
	if value != "basic" {
		return shut(o, "%q is not basic", value)
	}
	c.basic = true
	loginOf(o)
	return nil
}

func authRealm(_ *compiler, o *route.Options, value string) error {
	if !httpguts.ValidHeaderFieldValue(value) || strings.ContainsAny(value, `"\`) {
		return fmt.Errorf("%q cannot stand in a header", value)
	}
	loginOf(o).Realm = value
	return nil
}

func authMethod(_ *compiler, o *route.Options, value string) error {
	if !slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions}, value) {
		return fmt.Errorf("%q is no method", value)
	}
	authOf(o).Method = value
	return nil
}

// freeOfLimits reads who has no limits. Where one cannot be read, all have them.
func freeOfLimits(_ *compiler, o *route.Options, value string) error {
	var free prefixList
	for v := range strings.SplitSeq(value, ",") {
		p, err := parsePrefix(strings.TrimSpace(v))
		if err != nil {
			return err
		}
		free = append(free, p)
	}
	limitsOf(o).Free = free
	return nil
}

// trial puts something in the place of each variable.
func trial(text string) (string, error) {
	return route.Expand(text, func(name string) (string, bool) { return "x", slices.Contains(route.Variables, name) })
}

// template reads an address that may have variables.
func template(set func(o *route.Options, value string)) reader {
	return func(_ *compiler, o *route.Options, value string) error {
		text, err := trial(value)
		if err == nil {
			err = address(text)
		}
		if err != nil {
			return err
		}
		set(o, value)
		return nil
	}
}

// authURL reads who is asked whether a request may pass.
func authURL(_ *compiler, o *route.Options, value string) error {
	text, err := trial(value)
	if err != nil {
		return shut(o, "%w", err)
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil {
		return shut(o, "%q is no address of HTTP", value)
	}
	authOf(o).URL = value
	return nil
}

// login has those log in who are in a Secret, if that is asked for.
func (c *compiler) login(o *route.Options) {
	_, named := c.i.Annotations[networking.AnnotationAuthSecret]
	switch {
	case !c.basic && !named:
		o.Login = nil // a realm alone asks nobody
		return
	case slices.Equal(o.Deny, everybody):
		o.Login = nil
		return
	case !c.basic:
		c.problem(ReasonAnnotation, "annotation %s is not obeyed: %v", networking.AnnotationAuthSecret, shut(o, "auth-type does not say what it is for"))
		return
	}
	l := loginOf(o)
	l.Realm = cmp.Or(l.Realm, "Authentication Required")
	if err := c.users(l); err != nil {
		c.problem(ReasonAnnotation, "annotation %s is not obeyed: %v", networking.AnnotationAuthSecret, shut(o, "%w", err))
	}
}

// users reads a Secret: a file of htpasswd in its key auth, or a user a key.
func (c *compiler) users(l *route.Login) error {
	name, s, err := c.secretOf(networking.AnnotationAuthSecret)
	if err != nil {
		return err
	}
	var problems []string
	if c.i.Annotations[networking.AnnotationPrefix+"auth-secret-type"] == "auth-map" {
		l.Users = map[string]string{}
		for user, hash := range s.Data {
			if h := strings.TrimSpace(string(hash)); passwd.Known(h) {
				l.Users[user] = h
			} else {
				problems = append(problems, fmt.Sprintf("the hash of %q is of no kind that is read here", user))
			}
		}
		slices.Sort(problems)
	} else {
		data, ok := s.Data["auth"]
		if !ok {
			return fmt.Errorf("secret %q has no key auth", name)
		}
		l.Users, problems = passwd.Parse(data)
	}
	for _, p := range problems {
		c.problem(ReasonAnnotation, "secret %q: %s: that user is not let in", name, p)
	}
	return nil
}

// auth finds the service that is asked, if it is one of the cluster.
func (c *compiler) auth(o *route.Options) {
	switch {
	case o.Auth == nil:
		return
	case o.Auth.URL == "" || slices.Equal(o.Deny, everybody): // what else is said is for nothing, or for nobody
		o.Auth = nil
		return
	}
	text, err := trial(o.Auth.URL)
	if err != nil {
		return // it was read before
	}
	u, err := url.Parse(text)
	if err != nil {
		return
	}
	name, rest, _ := strings.Cut(u.Hostname(), ".")
	namespace, domain, _ := strings.Cut(rest, ".")
	if domain != "svc" && !strings.HasPrefix(domain, "svc.") {
		return
	}
	port, err := strconv.ParseUint(cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme]), 10, 16)
	if err != nil {
		return
	}
	up := Upstream{Namespace: namespace, Service: name, Port: networkingv1.ServiceBackendPort{Number: int32(port)}}
	if !slices.Contains(c.out.Upstreams, up) {
		c.out.Upstreams = append(c.out.Upstreams, up)
	}
	o.Auth.Upstream = up.Key()
	if svc := c.known.Service(namespace, name); svc == nil || up.port(svc) == nil {
		c.problem(ReasonBackend, "service %q of namespace %q, which says who may pass, does not exist or has no port %d: nobody is let in", name, namespace, port)
	}
}
