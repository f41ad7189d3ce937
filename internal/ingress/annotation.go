package ingress

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/networking"
	"github.com/kemudi/kemudi/internal/edge/route"
)

// annotations reads what the annotations of an Ingress say. What is only right together with
// another one is put right at the end.
func (c *compiler) annotations() {
	o := &route.Options{}
	for _, key := range slices.Sorted(maps.Keys(c.i.Annotations)) {
		name, ok := strings.CutPrefix(key, networking.AnnotationPrefix)
		if !ok {
			continue
		}
		read := readers[name]
		if read == nil {
			c.problem(ReasonAnnotation, "annotation %s is not obeyed here", key)
			continue
		}
		if err := read(c, o, strings.TrimSpace(c.i.Annotations[key])); err != nil {
			c.problem(ReasonAnnotation, "annotation %s is not obeyed: %v", key, err)
		}
	}
	if o.Canary != nil && !c.canary {
		o.Canary = nil
	}
	if c.canary && o.Canary == nil {
		o.Canary = &route.Canary{} // which gets nothing
	}
	if o.CORS != nil && !c.cors {
		o.CORS = nil
	}
	if l := o.Limits; l != nil && l.Connections == 0 && l.PerSecond == 0 && l.PerMinute == 0 {
		o.Limits = nil
	}
	if o.Affinity != nil && !c.sticky {
		o.Affinity = nil
	}
	c.trust(o)
	c.proof(o)
	c.login(o)
	c.auth(o)
	// A path with groups is meant as an expression wherever the path is rewritten.
	c.regex = c.regex || o.Rewrite != "" && strings.Contains(o.Rewrite, "$")
	if !route.Zero(o) {
		c.out.Site.Options = o
	}
}

// reader takes the value of an annotation into the options.
type reader func(c *compiler, o *route.Options, value string) error

// readers are the annotations that are obeyed, without their prefix.
var readers = map[string]reader{
	"affinity":                              affinity,
	"affinity-mode":                         oneOf("balanced", "persistent"),
	"app-root":                              appRoot,
	"auth-always-set-cookie":                oneOf("false"),
	"auth-method":                           authMethod,
	"auth-realm":                            authRealm,
	"auth-request-redirect":                 template(func(o *route.Options, v string) { authOf(o).Redirect = v }),
	"auth-response-headers":                 list(func(o *route.Options, v []string) { authOf(o).Headers = v }),
	"auth-secret":                           text(func(o *route.Options, _ string) { loginOf(o) }),
	"auth-secret-type":                      oneOf("auth-file", "auth-map"),
	"auth-signin":                           template(func(o *route.Options, v string) { authOf(o).SignIn = v }),
	"auth-signin-redirect-param":            text(func(o *route.Options, v string) { authOf(o).Return = v }),
	"auth-snippet":                          closed,
	"auth-tls-error-page":                   proofPage,
	"auth-tls-match-cn":                     proofSubject,
	"auth-tls-pass-certificate-to-upstream": flag(func(_ *compiler, o *route.Options, yes bool) { proofOf(o).Pass = yes }),
	"auth-tls-secret":                       text(func(o *route.Options, _ string) { proofOf(o) }),
	"auth-tls-verify-client":                proofMode,
	"auth-tls-verify-depth":                 number(func(o *route.Options, n int) { proofOf(o).Depth = n }),
	"auth-type":                             authType,
	"auth-url":                              authURL,
	"backend-protocol":                      backendProtocol,
	"canary":                                flag(func(c *compiler, _ *route.Options, yes bool) { c.canary = yes }),
	"canary-by-cookie":                      text(func(o *route.Options, v string) { canaryOf(o).Cookie = v }),
	"canary-by-header":                      text(func(o *route.Options, v string) { canaryOf(o).Header = v }),
	"canary-by-header-pattern":              canaryPattern,
	"canary-by-header-value":                text(func(o *route.Options, v string) { canaryOf(o).Value = v }),
	"canary-weight":                         number(func(o *route.Options, n int) { canaryOf(o).Weight = n }),
	"canary-weight-total":                   number(func(o *route.Options, n int) { canaryOf(o).Total = n }),
	"cors-allow-credentials":                flag(func(_ *compiler, o *route.Options, yes bool) { corsOf(o).Credentials = yes }),
	"cors-allow-headers":                    list(func(o *route.Options, v []string) { corsOf(o).Headers = strings.Join(v, ",") }),
	"cors-allow-methods":                    list(func(o *route.Options, v []string) { corsOf(o).Methods = strings.Join(v, ", ") }),
	"cors-allow-origin":                     corsOrigins,
	"cors-expose-headers":                   list(func(o *route.Options, v []string) { corsOf(o).Expose = strings.Join(v, ",") }),
	"cors-max-age":                          number(func(o *route.Options, n int) { corsOf(o).MaxAge = n }),
	"denylist-source-range":                 prefixes(func(o *route.Options) *prefixList { return &o.Deny }),
	"enable-cors":                           flag(func(c *compiler, o *route.Options, yes bool) { c.cors = yes; corsOf(o) }),
	"limit-allowlist":                       freeOfLimits,
	"limit-burst-multiplier":                number(func(o *route.Options, n int) { limitsOf(o).Burst = n }),
	"limit-connections":                     number(func(o *route.Options, n int) { limitsOf(o).Connections = n }),
	"limit-rpm":                             number(func(o *route.Options, n int) { limitsOf(o).PerMinute = n }),
	"limit-rps":                             number(func(o *route.Options, n int) { limitsOf(o).PerSecond = n }),
	"limit-whitelist":                       freeOfLimits,
	"force-ssl-redirect":                    flag(func(_ *compiler, o *route.Options, yes bool) { o.Secure = yes }),
	"permanent-redirect":                    redirect(301),
	"permanent-redirect-code":               redirectCode,
	"proxy-body-size":                       bodySize,
	"proxy-buffering":                       oneOf("off"), // nothing is held back
	"proxy-connect-timeout":                 seconds(func(o *route.Options) *int64 { return &o.Connect }),
	"proxy-next-upstream-tries":             number(func(o *route.Options, n int) { o.Tries = n }),
	"proxy-read-timeout":                    seconds(func(o *route.Options) *int64 { return &o.Read }),
	"proxy-request-buffering":               oneOf("off"),
	"proxy-ssl-name":                        proxyName,
	"proxy-ssl-secret":                      text(func(o *route.Options, _ string) { trustOf(o) }),
	"proxy-ssl-server-name":                 onOff(func(c *compiler, _ *route.Options, yes bool) { c.asks = yes }),
	"proxy-ssl-verify":                      onOff(func(c *compiler, o *route.Options, yes bool) { trustOf(o); c.verifies = yes }),
	"proxy-ssl-verify-depth":                number(func(*route.Options, int) {}), // chains may have any length
	"rewrite-target":                        rewriteTarget,
	"session-cookie-change-on-failure":      oneOf("true"), // it is given another endpoint
	"session-cookie-domain":                 text(func(o *route.Options, v string) { affinityOf(o).Domain = v }),
	"session-cookie-expires":                oneOf(""),
	"session-cookie-max-age":                number(func(o *route.Options, n int) { affinityOf(o).MaxAge = n }),
	"session-cookie-name":                   cookieName,
	"session-cookie-path":                   text(func(o *route.Options, v string) { affinityOf(o).Path = v }),
	"session-cookie-samesite":               sameSite,
	"session-cookie-secure":                 flag(func(_ *compiler, o *route.Options, yes bool) { affinityOf(o).Secure = yes }),
	"ssl-redirect":                          flag(func(_ *compiler, o *route.Options, yes bool) { o.PlainToo = !yes }),
	"temporal-redirect":                     redirect(302),
	"upstream-vhost":                        host,
	"use-regex":                             flag(func(c *compiler, _ *route.Options, yes bool) { c.regex = yes }),
	"whitelist-source-range":                prefixes(func(o *route.Options) *prefixList { return &o.Allow }),
	"allowlist-source-range":                prefixes(func(o *route.Options) *prefixList { return &o.Allow }),
	"x-forwarded-prefix":                    text(func(o *route.Options, v string) { o.Prefix = v }),
}

// secretOf finds the Secret that an annotation names.
func (c *compiler) secretOf(annotation string) (name string, _ *corev1.Secret, _ error) {
	name, ok := networking.SecretOf(c.i, annotation)
	if !ok {
		return "", nil, errors.New("it names no secret of the Ingress's own namespace")
	}
	s := c.known.Secret(c.i.Namespace, name)
	if s == nil {
		return name, nil, fmt.Errorf("secret %q does not exist", name)
	}
	return name, s, nil
}
