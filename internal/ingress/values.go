package ingress

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/kemudi/kemudi/internal/edge/route"
)

type prefixList = []netip.Prefix

// flag reads true or false.
func flag(set func(c *compiler, o *route.Options, yes bool)) reader {
	return func(c *compiler, o *route.Options, value string) error {
		yes, err := strconv.ParseBool(value)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", value)
		}
		set(c, o, yes)
		return nil
	}
}

// text reads a word that is put into a header.
func text(set func(o *route.Options, value string)) reader {
	return func(_ *compiler, o *route.Options, value string) error {
		if !httpguts.ValidHeaderFieldValue(value) || strings.ContainsAny(value, ";,\"") {
			return fmt.Errorf("%q cannot stand in a header", value)
		}
		set(o, value)
		return nil
	}
}

// list reads words with commas between them.
func list(set func(o *route.Options, values []string)) reader {
	return func(_ *compiler, o *route.Options, value string) error {
		var values []string
		for v := range strings.SplitSeq(value, ",") {
			v = strings.TrimSpace(v)
			if v != "*" && !httpguts.ValidHeaderFieldName(v) {
				return fmt.Errorf("%q is no name of a header or method", v)
			}
			values = append(values, v)
		}
		set(o, values)
		return nil
	}
}

// number reads a whole number that is not negative.
func number(set func(o *route.Options, n int)) reader {
	return func(_ *compiler, o *route.Options, value string) error {
		n, err := strconv.Atoi(value)
		if err != nil || n < 0 {
			return fmt.Errorf("%q is no number from 0 on", value)
		}
		set(o, n)
		return nil
	}
}

// seconds reads a time.
func seconds(field func(o *route.Options) *int64) reader {
	return func(_ *compiler, o *route.Options, value string) error {
		n, err := strconv.ParseInt(strings.TrimSuffix(value, "s"), 10, 32)
		if err != nil || n < 1 {
			return fmt.Errorf("%q is no number of seconds", value)
		}
		*field(o) = n * 1000
		return nil
	}
}

// oneOf takes the values that change nothing, because the edge does so anyway.
func oneOf(values ...string) reader {
	return func(_ *compiler, _ *route.Options, value string) error {
		if !slices.Contains(values, value) {
			return fmt.Errorf("only %s is what the edge does", strings.Join(values, " or "))
		}
		return nil
	}
}

// prefixes reads addresses and networks. Where one cannot be read nobody is let in, rather than
// everybody; a deny-list has no such list, and refuses all.
func prefixes(field func(o *route.Options) *prefixList) reader {
	return func(_ *compiler, o *route.Options, value string) error {
		var out prefixList
		for v := range strings.SplitSeq(value, ",") {
			p, err := parsePrefix(strings.TrimSpace(v))
			if err != nil {
				o.Deny = everybody
				return fmt.Errorf("%w: nobody is let in", err)
			}
			out = append(out, p)
		}
		to := field(o)
		*to = slices.Concat(*to, out)
		return nil
	}
}

func parsePrefix(text string) (netip.Prefix, error) {
	if !strings.Contains(text, "/") {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return netip.Prefix{}, fmt.Errorf("%q is no address", text)
		}
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is no network", text)
	}
	return p.Masked(), nil
}

func backendProtocol(_ *compiler, o *route.Options, value string) error {
	switch strings.ToUpper(value) {
	case "", "HTTP", "AUTO_HTTP":
		o.Protocol = route.HTTP
	case "HTTPS":
		o.Protocol = route.HTTPS
	case "GRPC":
		o.Protocol = route.GRPC
	case "GRPCS":
		o.Protocol = route.GRPCS
	default:
		return fmt.Errorf("%q is none of HTTP, HTTPS, GRPC and GRPCS", value)
	}
	return nil
}

// bodySize reads 8m as nginx does; 0 is no limit.
func bodySize(_ *compiler, o *route.Options, value string) error {
	factor := int64(1)
	switch {
	case value == "":
		return errors.New("it is empty")
	case strings.ContainsAny(value[len(value)-1:], "kK"):
		factor = 1 << 10
	case strings.ContainsAny(value[len(value)-1:], "mM"):
		factor = 1 << 20
	case strings.ContainsAny(value[len(value)-1:], "gG"):
		factor = 1 << 30
	}
	n, err := strconv.ParseInt(strings.TrimRight(value, "kKmMgG"), 10, 32)
	if err != nil || n < 0 {
		return fmt.Errorf("%q is no size", value)
	}
	o.MaxBody = n * factor
	return nil
}

func host(_ *compiler, o *route.Options, value string) error {
	if name, ok := route.Canonical(value); !ok || name == "" {
		return fmt.Errorf("%q is no host", value)
	}
	o.Host = value
	return nil
}

func rewriteTarget(_ *compiler, o *route.Options, value string) error {
	if strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r == 0x7f }) || strings.Contains(value, "://") {
		return fmt.Errorf("%q is no path", value)
	}
	o.Rewrite = value
	return nil
}

// address refuses what is no address to send somebody to.
func address(value string) error {
	u, err := url.Parse(value)
	if err != nil || u.Scheme != "" && u.Scheme != "http" && u.Scheme != "https" || u.Scheme == "" && !strings.HasPrefix(value, "/") || !httpguts.ValidHeaderFieldValue(value) {
		return fmt.Errorf("%q is neither an address of HTTP nor a path", value)
	}
	return nil
}

func appRoot(_ *compiler, o *route.Options, value string) error {
	if err := address(value); err != nil {
		return err
	}
	o.Root = value
	return nil
}

// redirect reads where all requests are sent. The one that is for now goes before the one for good.
func redirect(code int) reader {
	return func(_ *compiler, o *route.Options, value string) error {
		if err := address(value); err != nil {
			return err
		}
		to := o.Redirect
		if to == nil {
			to = &route.Redirect{}
			o.Redirect = to
		}
		to.To = value
		if to.Code == 0 || code == 302 {
			to.Code = code
		}
		return nil
	}
}

func redirectCode(_ *compiler, o *route.Options, value string) error {
	n, err := strconv.Atoi(value)
	if err != nil || n < 300 || n > 308 {
		return fmt.Errorf("%q is no code of a redirect", value)
	}
	if o.Redirect != nil { // in the order of names it comes after the address
		o.Redirect.Code = n
	}
	return nil
}

// closed is for what would keep people out, and is not obeyed: nobody is let in, rather than
// everybody.
func closed(_ *compiler, o *route.Options, _ string) error {
	o.Deny = everybody
	return errors.New("nobody is asked for that: nobody is let in")
}

var everybody = prefixList{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}

func affinityOf(o *route.Options) *route.Affinity {
	if o.Affinity == nil {
		o.Affinity = &route.Affinity{Cookie: "INGRESSCOOKIE"}
	}
	return o.Affinity
}

func affinity(c *compiler, o *route.Options, value string) error {
	if value != "cookie" {
		return fmt.Errorf("%q is not cookie", value)
	}
	c.sticky = true
	affinityOf(o)
	return nil
}

func cookieName(_ *compiler, o *route.Options, value string) error {
	if !httpguts.ValidHeaderFieldName(value) {
		return fmt.Errorf("%q is no name of a cookie", value)
	}
	affinityOf(o).Cookie = value
	return nil
}

func sameSite(_ *compiler, o *route.Options, value string) error {
	if !slices.Contains([]string{"None", "Lax", "Strict"}, value) {
		return fmt.Errorf("%q is none of None, Lax and Strict", value)
	}
	affinityOf(o).SameSite = value
	return nil
}

func canaryOf(o *route.Options) *route.Canary {
	if o.Canary == nil {
		o.Canary = &route.Canary{}
	}
	return o.Canary
}

func canaryPattern(_ *compiler, o *route.Options, value string) error {
	if _, err := regexp.Compile(value); err != nil {
		return fmt.Errorf("%q is no expression that can be used", value)
	}
	canaryOf(o).Pattern = value
	return nil
}

// corsOf is what ingress-nginx answers where nothing else is said.
func corsOf(o *route.Options) *route.CORS {
	if o.CORS == nil {
		o.CORS = &route.CORS{
			Origins: []string{"*"}, Methods: "GET, PUT, POST, DELETE, PATCH, OPTIONS", Credentials: true, MaxAge: 1728000,
			Headers: "DNT,Keep-Alive,User-Agent,X-Requested-With,If-Modified-Since,Cache-Control,Content-Type,Range,Authorization",
		}
	}
	return o.CORS
}

func corsOrigins(_ *compiler, o *route.Options, value string) error {
	var origins []string
	for v := range strings.SplitSeq(value, ",") {
		v = strings.TrimSpace(v)
		u, err := url.Parse(v)
		if v != "*" && (err != nil || u.Scheme == "" || u.Host == "" || u.Path != "" || !httpguts.ValidHeaderFieldValue(v)) {
			return fmt.Errorf("%q is no origin", v)
		}
		origins = append(origins, v)
	}
	corsOf(o).Origins = origins
	return nil
}
