package cluster

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/client/https"
	"github.com/kemudi/kemudi/internal/reach"
	"github.com/kemudi/kemudi/internal/version"
)

// Kubelets says how the API server reaches node agents, each field by its flag. The zero
// value has the defaults.
type Kubelets struct {
	CAFile       string        // --kubelet-certificate-authority; default the cluster's own authority, for nodes of ours
	Unverified   bool          // --kubelet-certificate-authority "", said: nobody is asked to prove himself
	CertFile     string        // --kubelet-client-certificate; default a certificate of the cluster's
	KeyFile      string        // --kubelet-client-key
	AddressTypes []string      // --kubelet-preferred-address-types
	Timeout      time.Duration // --kubelet-timeout

	certificate func() (*tls.Certificate, error) // of the files; nil: they are not given
}

// addressTypes are all types of a node's addresses, in the order in which they are tried.
// Names come last: they need somebody who knows them.
var addressTypes = []string{
	string(corev1.NodeInternalIP), string(corev1.NodeExternalIP), string(corev1.NodeInternalDNS), string(corev1.NodeExternalDNS), string(corev1.NodeHostName),
}

func defaultKubelets() Kubelets {
	return Kubelets{AddressTypes: slices.Clone(addressTypes), Timeout: 10 * time.Second}
}

// complete fills in what is not set, and checks the rest.
func (k *Kubelets) complete() error {
	d := defaultKubelets()
	k.Timeout = cmp.Or(k.Timeout, d.Timeout)
	if len(k.AddressTypes) == 0 {
		k.AddressTypes = d.AddressTypes
	}
	for _, kind := range k.AddressTypes {
		if !slices.Contains(addressTypes, kind) {
			return fmt.Errorf("--kubelet-preferred-address-types: there is no type %q; there are %s", kind, strings.Join(addressTypes, ", "))
		}
	}
	if k.Timeout < 0 {
		return errors.New("--kubelet-timeout must not be negative")
	}
	if k.CAFile != "" {
		if _, err := k.authority(); err != nil {
			return err
		}
	}
	if (k.CertFile == "") != (k.KeyFile == "") {
		return errors.New("--kubelet-client-certificate and --kubelet-client-key go together")
	}
	if k.CertFile == "" {
		return nil
	}
	k.certificate = https.CertificateFiles(k.CertFile, k.KeyFile)
	if _, err := k.certificate(); err != nil {
		return fmt.Errorf("--kubelet-client-certificate and --kubelet-client-key: %w", err)
	}
	return nil
}

// authority reads who signs the certificates of node agents. It is read for each
// connection: these are few, and whoever changes the file has not to restart anything.
func (k *Kubelets) authority() (*x509.CertPool, error) {
	bundle, err := os.ReadFile(k.CAFile)
	if err != nil {
		return nil, fmt.Errorf("--kubelet-certificate-authority: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(bundle) {
		return nil, fmt.Errorf("--kubelet-certificate-authority %s: there is no certificate in it", k.CAFile)
	}
	return pool, nil
}

// address is where a node says that its agent is served; empty: it does not.
func (k *Kubelets) address(node *corev1.Node) string {
	port := node.Status.DaemonEndpoints.KubeletEndpoint.Port
	for _, kind := range k.AddressTypes {
		i := slices.IndexFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool { return string(a.Type) == kind })
		if i >= 0 && port != 0 {
			return net.JoinHostPort(node.Status.Addresses[i].Address, strconv.Itoa(int(port)))
		}
	}
	return ""
}

// secure is how connections to the agent of a node are secured: both ends show
// certificates. The agent's is made out to its node; one of an authority of others may be
// to the address at which the agent is served, as upstream has it. Agents of others are believed unless their authority is
// named, as upstream does: most have signed their certificates themselves. Whose it is the Node says, not who answers.
func (d nodes) secure(to reach.Target, node *corev1.Node) (*tls.Config, error) {
	k, says := &d.s.o.Kubelets, node.Status.NodeInfo.KubeletVersion
	c := &tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: d.s.pki.CA.Pool(), ServerName: to.Node, GetClientCertificate: d.s.pki.KubeletClientCertificate,
	}
	if k.certificate != nil {
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return k.certificate() }
	}
	switch {
	case k.Unverified:
		c.InsecureSkipVerify = true
	case k.CAFile != "":
		roots, err := k.authority()
		if err != nil {
			return nil, err
		}
		c.InsecureSkipVerify = true // by two names, which the library cannot
		c.VerifyConnection = func(s tls.ConnectionState) error { return verify(s, roots, to) }
	case says != "" && !version.Ours(says):
		c.InsecureSkipVerify = true
	}
	return c, nil
}

// verify believes a certificate that is signed by one of the roots and made out to a node
// or to the address of its agent.
func verify(s tls.ConnectionState, roots *x509.CertPool, to reach.Target) error {
	with := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
	for _, cert := range s.PeerCertificates[1:] {
		with.Intermediates.AddCert(cert)
	}
	leaf := s.PeerCertificates[0]
	if _, err := leaf.Verify(with); err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: s.PeerCertificates, Err: err}
	}
	err := leaf.VerifyHostname(to.Node)
	if err == nil {
		return nil
	}
	if host, _, split := net.SplitHostPort(to.Address); split == nil && leaf.VerifyHostname(host) == nil {
		return nil
	}
	return &tls.CertificateVerificationError{UnverifiedCertificates: s.PeerCertificates, Err: err}
}
