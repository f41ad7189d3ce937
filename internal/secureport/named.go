package secureport

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kemudi/kemudi/internal/client/https"
)

// Named is a certificate for those who ask for some names.
type Named struct {
	CertFile, KeyFile string
	Names             []string // *.example.com stands for all with one label more; none: those in the certificate
}

// String is the flag's form of it.
func (n Named) String() string {
	files := n.CertFile + "," + n.KeyFile
	if len(n.Names) == 0 {
		return files
	}
	return files + ":" + strings.Join(n.Names, ",")
}

// parseNamed reads crt,key:name,name.
func parseNamed(text string) (Named, error) {
	files, names, some := strings.Cut(text, ":")
	var n Named
	if some {
		if names = strings.TrimSpace(names); names == "" {
			return n, errors.New("empty names list is not allowed")
		}
		for name := range strings.SplitSeq(names, ",") {
			n.Names = append(n.Names, strings.TrimSpace(name))
		}
	}
	cert, key, both := strings.Cut(files, ",")
	if n.CertFile, n.KeyFile = strings.TrimSpace(cert), strings.TrimSpace(key); !both || strings.Contains(key, ",") {
		return n, errors.New("expected comma separated certificate and key file paths")
	}
	if n.CertFile == "" || n.KeyFile == "" {
		return n, errors.New("expected comma separated certificate and key file paths, got an empty one")
	}
	return n, nil
}

// show chooses the certificate of a connection. Files are read again when they change.
type show struct {
	named []candidate
	other func(*tls.ClientHelloInfo) (*tls.Certificate, error)
}

// candidate is a certificate with the names that were given for it.
type candidate struct {
	read  func() (*tls.Certificate, error)
	names []string
}

func newShow(all []Named) (*show, error) {
	s := &show{}
	for _, n := range all {
		read := https.CertificateFiles(n.CertFile, n.KeyFile)
		if _, err := read(); err != nil {
			return nil, fmt.Errorf("--tls-sni-cert-key %s: %w", n, err)
		}
		c := candidate{read: read}
		for _, name := range n.Names {
			c.names = append(c.names, strings.ToLower(name))
		}
		s.named = append(s.named, c)
	}
	return s, nil
}

// certificate is the one for the name that a client asks for. Who asks for none may have come to an
// address that a certificate was given for.
func (s *show) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	host := strings.TrimSuffix(strings.ToLower(hello.ServerName), ".")
	if host == "" {
		host = reached(hello.Conn)
	}
	for pattern := host; pattern != ""; pattern = wider(pattern) {
		if cert := s.find(pattern); cert != nil {
			return cert, nil
		}
		if hello.ServerName == "" {
			break
		}
	}
	return s.other(hello)
}

// find is the first certificate that a name was given for, or else that has it.
func (s *show) find(name string) *tls.Certificate {
	for _, c := range s.named {
		if slices.Contains(c.names, name) {
			cert, _ := c.read() // what could be read once is kept
			return cert
		}
	}
	for _, c := range s.named {
		if len(c.names) > 0 {
			continue
		}
		if cert, _ := c.read(); cert != nil && slices.Contains(namesOf(cert.Leaf), name) {
			return cert
		}
	}
	return nil
}

// wider is the name with one label more, from the front, replaced by a star; empty: there is none left.
func wider(name string) string {
	labels := strings.Split(name, ".")
	i := slices.IndexFunc(labels, func(l string) bool { return l != "*" })
	if i < 0 {
		return ""
	}
	labels[i] = "*"
	return strings.Join(labels, ".")
}

// namesOf are the names in a certificate. Addresses are not among them: who comes to one asks for no name, and
// gets the certificate for all unless the address was given.
func namesOf(leaf *x509.Certificate) []string {
	names := make([]string, 0, len(leaf.DNSNames)+1)
	_, notAddress := netip.ParseAddr(leaf.Subject.CommonName)
	if cn := strings.ToLower(leaf.Subject.CommonName); notAddress != nil && (cn == "*" || len(validation.IsDNS1123Subdomain(strings.TrimPrefix(cn, "*."))) == 0) {
		names = append(names, cn)
	}
	for _, name := range leaf.DNSNames {
		names = append(names, strings.ToLower(name))
	}
	return names
}

// reached is the address of this machine that a client has come to.
func reached(conn net.Conn) string {
	if conn == nil {
		return ""
	}
	at, err := netip.ParseAddrPort(conn.LocalAddr().String())
	if err != nil {
		return ""
	}
	return at.Addr().Unmap().WithZone("").String()
}
