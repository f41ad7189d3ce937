package ingress

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/networking"
	"github.com/kemudi/kemudi/internal/edge/route"
)

const (
	// revokedKey is the key of a Secret with what its authorities have taken back.
	revokedKey = "ca.crl"
	// proofDepth is how many certificates may be between that of a client and an authority, unless something else is said.
	proofDepth = 1
)

func proofOf(o *route.Options) *route.Proof {
	if o.Proof == nil {
		o.Proof = &route.Proof{Depth: proofDepth}
	}
	return o.Proof
}

// proofModes are what auth-tls-verify-client may say.
var proofModes = map[string]route.ProofMode{"on": route.Required, "optional": route.Optional, "optional_no_ca": route.AnyAuthority, "off": route.NotAsked}

func proofMode(_ *compiler, o *route.Options, value string) error {
	mode, ok := proofModes[value]
	if !ok {
		return fmt.Errorf("%q is none of on, optional, optional_no_ca and off: it is taken for on", value)
	}
	proofOf(o).Mode = mode
	return nil
}

func proofPage(_ *compiler, o *route.Options, value string) error {
	if err := address(value); err != nil || strings.HasPrefix(value, "/") || strings.ContainsAny(value, "$ ") {
		return fmt.Errorf("%q is no address of HTTP", value)
	}
	proofOf(o).Page = value
	return nil
}

// proofSubject reads the expression for the names of clients. One that cannot be used would let in those whom it is to keep out.
func proofSubject(c *compiler, o *route.Options, value string) error {
	if _, err := regexp.Compile(value); err != nil || !strings.HasPrefix(value, "CN=") {
		c.unproved = true
		return fmt.Errorf("%q is no expression for a name that begins with CN=: nobody is let in", value)
	}
	proofOf(o).Subject = value
	return nil
}

// proof settles how clients are known by certificates. Where that cannot be had, nobody is let in at any of the hosts: another
// Ingress for one of them relies on it too.
func (c *compiler) proof(o *route.Options) {
	if _, named := c.i.Annotations[networking.AnnotationClientSecret]; !named {
		if o.Proof = nil; c.unproved {
			c.unknowable(o)
		}
		return
	}
	p := proofOf(o)
	if err := c.proved(p); err != nil {
		c.problem(ReasonAnnotation, "annotation %s is not obeyed: %v: nobody is let in", networking.AnnotationClientSecret, err)
		c.unproved = true
	}
	if c.unproved {
		c.unknowable(o)
	}
}

// unknowable has nobody let in, because nobody could be known.
func (c *compiler) unknowable(o *route.Options) {
	o.Proof = &route.Proof{}
	o.Deny, o.Login, o.Auth = everybody, nil, nil
}

// proved reads the Secret: ca.crt has the authorities, and ca.crl, if it is there, what they have taken back.
func (c *compiler) proved(p *route.Proof) error {
	name, s, err := c.secretOf(networking.AnnotationClientSecret)
	if err != nil {
		return err
	}
	if err := authoritiesOf(s, p); err != nil {
		return fmt.Errorf("secret %q: %w", name, err)
	}
	return nil
}

func authoritiesOf(s *corev1.Secret, p *route.Proof) error {
	data, there := s.Data[caKey]
	if there && data == nil {
		return nil // it was not read
	}
	if !x509.NewCertPool().AppendCertsFromPEM(data) {
		return fmt.Errorf("it has no certificate in its key %s", caKey)
	}
	p.Authorities, p.Revoked = data, s.Data[revokedKey]
	for rest := p.Revoked; len(rest) > 0; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return fmt.Errorf("its key %s has what is no list of certificates that were taken back", revokedKey)
		}
		if _, err := x509.ParseRevocationList(block.Bytes); err != nil {
			return fmt.Errorf("its key %s: %w", revokedKey, err)
		}
		if len(strings.TrimSpace(string(rest))) == 0 {
			break
		}
	}
	return nil
}
