package main

import (
	"crypto/tls"
	"fmt"
	"slices"
	"strings"
)

// tlsVersionFlag is a version of TLS by the name that Go has for it. Those before 1.2 are not spoken.
type tlsVersionFlag uint16

var tlsVersions = map[string]uint16{"VersionTLS12": tls.VersionTLS12, "VersionTLS13": tls.VersionTLS13}

func (v *tlsVersionFlag) Type() string { return "version" }
func (v *tlsVersionFlag) String() string {
	for name, n := range tlsVersions {
		if n == uint16(*v) {
			return name
		}
	}
	return ""
}

func (v *tlsVersionFlag) Set(s string) error {
	n, ok := tlsVersions[s]
	if !ok {
		return fmt.Errorf("unknown tls version %q: want VersionTLS12 or VersionTLS13", s)
	}
	*v = tlsVersionFlag(n)
	return nil
}

// ciphersFlag is cipher suites by their names, one after the other.
type ciphersFlag []uint16

func (c *ciphersFlag) Type() string { return "names" }
func (c *ciphersFlag) String() string {
	var names []string
	for _, id := range *c {
		names = append(names, tls.CipherSuiteName(id))
	}
	return strings.Join(names, ",")
}

func (c *ciphersFlag) Set(s string) error {
	*c = nil
	for name := range strings.SplitSeq(s, ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		known := slices.Concat(tls.CipherSuites(), tls.InsecureCipherSuites())
		i := slices.IndexFunc(known, func(k *tls.CipherSuite) bool { return k.Name == name })
		if i < 0 {
			return fmt.Errorf("cipher suite %s not supported or doesn't exist", name)
		}
		*c = append(*c, known[i].ID)
	}
	return nil
}
