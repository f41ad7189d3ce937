package pki

import (
	"bytes"
	"crypto"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/kemudi/kemudi/internal/wholefile"
)

// Options say where the keys are and what the API server is called.
type Options struct {
	// Dir is the data directory; keys and certificates are in its
	// sub-directory "pki". Required.
	Dir string
	// Hosts are further names and addresses of the API server: those of the
	// machine, the first address of the service range, what the user asks for.
	// The names of the service "kubernetes" and the loopback are always there.
	Hosts []string
	// Domain is the cluster's DNS domain. Default cluster.local.
	Domain string
	// Joined says that the authorities are those of a cluster that others have begun: what is
	// missing of them is not made.
	Joined bool
}

// PKI is the keys and certificates of a server.
type PKI struct {
	CA           *Authority // of servers, clients and nodes
	FrontProxyCA *Authority // of aggregation: who may say for whom a request is
	// KubeletClient is what the API server shows to node agents.
	KubeletClient Pair
	// FrontProxyClient is what the API server shows to aggregated API servers.
	FrontProxyClient Pair
	// ServiceAccounts signs tokens of service accounts.
	ServiceAccounts crypto.Signer

	o                   Options
	given               *given // nil: the keys are this cluster's own
	serving             atomic.Pointer[tls.Certificate]
	kubelet, frontProxy atomic.Pointer[tls.Certificate]
	peers               atomic.Pointer[Authority] // nil: this server has never been one of several
}

// Names of the authorities and of the users that the server itself is.
const (
	caName            = "kubernetes-ca"
	frontProxyCAName  = "kubernetes-front-proxy-ca"
	servingName       = "kube-apiserver"
	kubeletClientName = "kube-apiserver-kubelet-client"
	// FrontProxyName is what the API server is called by aggregated ones.
	FrontProxyName = "front-proxy-client"
	// AdminName is the user of the kubeconfig that the operator gets.
	AdminName = "kubernetes-admin"
	// AdminGroup is that user's group. It may do everything, whatever the roles
	// say: who holds the data directory could take that power in any case, and
	// broken roles can be mended with it.
	AdminGroup = "system:masters"
)

// Ensure reads the keys and certificates, makes what is missing and renews
// what has less than a third of its life left.
func Ensure(o Options) (*PKI, error) {
	if o.Dir == "" {
		return nil, errors.New("pki options: no directory")
	}
	if o.Domain == "" {
		o.Domain = "cluster.local"
	}
	p := &PKI{o: o}
	f := p.files()
	if err := p.complete(); err != nil {
		return nil, err
	}
	var err error
	if p.CA, err = f.authority("ca", caName); err != nil {
		return nil, err
	}
	if p.FrontProxyCA, err = f.authority("front-proxy-ca", frontProxyCAName); err != nil {
		return nil, err
	}
	if p.ServiceAccounts, _, err = p.AccountKeys(); err != nil {
		return nil, err
	}
	if p.hasPeers() {
		if _, err := p.Peers(); err != nil {
			return nil, err
		}
	}
	return p, p.Renew()
}

// complete refuses to go on without what a cluster that others have begun must have given.
func (p *PKI) complete() error {
	if !p.o.Joined {
		return nil
	}
	for _, name := range sharedFiles {
		if strings.HasPrefix(name, peerCAFile) {
			continue // where the store is kept elsewhere there are no peers
		}
		if _, err := os.Stat(p.files().path(name)); err != nil {
			return fmt.Errorf("the cluster's keys are not all there: %w", err)
		}
	}
	return nil
}

// hasPeers says that this server is or has been one of several.
func (p *PKI) hasPeers() bool {
	_, err := os.Stat(p.files().path(peerCAFile + ".crt"))
	return err == nil
}

func (p *PKI) files() files { return files{filepath.Join(p.o.Dir, "pki")} }

// writePublic writes a public key if it is not there already.
func (p *PKI) writePublic(file string, key crypto.PublicKey) error {
	text, err := publicPEM(key)
	if err != nil {
		return err
	}
	path := p.files().path(file)
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, text) {
		return nil
	}
	return wholefile.Private(path, text)
}

// SetHosts changes the names and addresses that the API server is reached by,
// beside those that it always has: those of Options. [PKI.Renew], by the same
// goroutine, then makes a certificate for them.
func (p *PKI) SetHosts(hosts []string) { p.o.Hosts = hosts }

// Renew makes those certificates again that end soon. A server that runs for
// months calls it once a day: what [PKI.ServingCertificate] gives is then new,
// without a restart. It must not be called by two goroutines at once, and
// KubeletClient and FrontProxyClient must be read by the same one.
func (p *PKI) Renew() error {
	if p.given != nil {
		return nil // others renew them
	}
	f := p.files()
	serving, err := f.pair(p.CA, "apiserver", Subject{Name: servingName, Hosts: p.hosts(), Server: true})
	if err != nil {
		return err
	}
	cert := serving.TLS()
	p.serving.Store(&cert)
	p.KubeletClient, err = f.pair(p.CA, "apiserver-kubelet-client", Subject{
		Name: kubeletClientName, Organizations: []string{AdminGroup}, Client: true,
	})
	if err != nil {
		return err
	}
	shown := p.KubeletClient.TLS()
	p.kubelet.Store(&shown)
	if p.FrontProxyClient, err = f.pair(p.FrontProxyCA, "front-proxy-client", Subject{Name: FrontProxyName, Client: true}); err != nil {
		return err
	}
	proxy := p.FrontProxyClient.TLS()
	p.frontProxy.Store(&proxy)
	if a := p.peers.Load(); a != nil {
		err = p.renewPeer(a)
	}
	return err
}

// hosts are all names and addresses that the API server is reached by.
func (p *PKI) hosts() []string {
	hosts := []string{
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + p.o.Domain,
		"localhost", "127.0.0.1", "::1",
	}
	for _, h := range p.o.Hosts {
		if !slices.Contains(hosts, h) {
			hosts = append(hosts, h)
		}
	}
	return hosts
}

// ServingCertificate is what the API server serves with; it fits tls.Config's GetCertificate.
func (p *PKI) ServingCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if p.given != nil {
		return p.given.serving()
	}
	return p.serving.Load(), nil
}

// KubeletClientCertificate is what the API server shows to node agents; it fits
// tls.Config's GetClientCertificate.
func (p *PKI) KubeletClientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	if p.given != nil {
		return &tls.Certificate{}, nil // none
	}
	return p.kubelet.Load(), nil
}

// FrontProxyCertificate is what the API server shows to aggregated ones; it fits tls.Config's
// GetClientCertificate.
func (p *PKI) FrontProxyCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	if cert := p.frontProxy.Load(); cert != nil {
		return cert, nil
	}
	if p.given != nil && p.given.proxy != nil {
		return p.given.proxy()
	}
	return &tls.Certificate{}, nil // none
}

// Admin makes a client certificate for the operator.
func (p *PKI) Admin() (Pair, error) {
	return p.CA.Issue(Subject{Name: AdminName, Organizations: []string{AdminGroup}, Client: true})
}

// NodeClient makes a client certificate for a node agent.
func (p *PKI) NodeClient(node string) (Pair, error) {
	return p.CA.Issue(Subject{Name: "system:node:" + node, Organizations: []string{"system:nodes"}, Client: true})
}

// NodeServing makes the certificate that a node agent serves with.
func (p *PKI) NodeServing(node string, hosts []string) (Pair, error) {
	return p.CA.Issue(Subject{
		Name: "system:node:" + node, Organizations: []string{"system:nodes"}, Hosts: append([]string{node}, hosts...), Server: true,
	})
}

// Pair reads the certificate in the files called name, or makes it; like those
// of the server itself, it is renewed when it ends soon.
func (p *PKI) Pair(name string, s Subject) (Pair, error) {
	pair, err := p.files().pair(p.CA, name, s)
	if err != nil {
		return Pair{}, fmt.Errorf("certificate of %s: %w", name, err)
	}
	return pair, nil
}
