package ingress

import (
	"crypto/x509"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/networking"
	"github.com/kemudi/kemudi/internal/edge/route"
)

// caKey is the key of a Secret with the certificates of authorities.
const caKey = "ca.crt"

func trustOf(o *route.Options) *route.Trust {
	if o.Trust == nil {
		o.Trust = &route.Trust{}
	}
	return o.Trust
}

// onOff reads on or off.
func onOff(set func(c *compiler, o *route.Options, yes bool)) reader {
	return func(c *compiler, o *route.Options, value string) error {
		if value != "on" && value != "off" {
			return fmt.Errorf("%q is neither on nor off", value)
		}
		set(c, o, value == "on")
		return nil
	}
}

func proxyName(_ *compiler, o *route.Options, value string) error {
	name, ok := route.Canonical(value)
	if !ok || name == "" {
		return fmt.Errorf("%q is no host", value)
	}
	trustOf(o).Name = name
	return nil
}

// trust settles how backends are known that speak TLS, and what they are shown. Who wants them verified, in a way that cannot be had, has
// nothing sent to them.
func (c *compiler) trust(o *route.Options) {
	t := o.Trust
	if t == nil {
		return
	}
	if o.Protocol != route.HTTPS && o.Protocol != route.GRPCS {
		o.Trust = nil // nothing else has certificates
		return
	}
	t.Unknown = !c.verifies
	err := c.trusted(t)
	switch {
	case err != nil && c.verifies:
		err = shut(o, "%w", err)
	case err == nil && c.verifies && t.Name == "":
		err = shut(o, "proxy-ssl-name does not say whose certificate it must be")
	}
	if err != nil {
		c.problem(ReasonAnnotation, "annotation %s is not obeyed: %v", networking.AnnotationProxySecret, err)
	}
	if !c.verifies && !c.asks {
		t.Name = "" // it is not asked for either
	}
	if t.Unknown && t.Certificate == "" && t.Name == "" || slices.Equal(o.Deny, everybody) {
		o.Trust = nil // that is how all are treated
	}
}

// trusted reads the Secret: ca.crt has the authorities, and tls.crt and tls.key, if they are there, what backends are shown.
func (c *compiler) trusted(t *route.Trust) error {
	if _, named := c.i.Annotations[networking.AnnotationProxySecret]; !named {
		return nil // the machine's authorities
	}
	name, s, err := c.secretOf(networking.AnnotationProxySecret)
	if err != nil {
		return err
	}
	authorities, shown, err := Trusted(s)
	if err != nil {
		return fmt.Errorf("secret %q: %w", name, err)
	}
	if shown != nil {
		t.Certificate = c.i.Namespace + "/" + name
	}
	if c.verifies {
		t.Authorities = authorities
	}
	return nil
}

// Trusted is what a Secret has of servers that speak TLS: the authorities of their certificates, if it has any, and what they are shown, nil
// for nothing.
func Trusted(s *corev1.Secret) (authorities []byte, shown *route.Certificate, err error) {
	if len(s.Data[corev1.TLSCertKey]) > 0 {
		if shown, err = Certificate(s); err != nil {
			return nil, nil, err
		}
	}
	authorities = s.Data[caKey]
	if len(authorities) > 0 && !x509.NewCertPool().AppendCertsFromPEM(authorities) {
		return nil, nil, fmt.Errorf("it has no certificate in its key %s", caKey)
	}
	return authorities, shown, nil
}
