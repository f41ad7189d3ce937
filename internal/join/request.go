package join

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	api "github.com/kemudi/kemudi/internal/api/certificates"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
)

// wish is a certificate that the machine asks for.
type wish struct {
	node   string
	key    crypto.Signer
	signer string
	usage  certificatesv1.KeyUsage
	hosts  []string // names and addresses
}

// clientWish is the certificate by which the API knows the node.
func clientWish(node string, key crypto.Signer) *wish {
	return &wish{node: node, key: key, signer: certificatesv1.KubeAPIServerClientKubeletSignerName, usage: certificatesv1.UsageClientAuth}
}

// servingWish is the certificate that the node's agent serves with.
func servingWish(node string, key crypto.Signer, hosts []string) *wish {
	return &wish{node: node, key: key, signer: certificatesv1.KubeletServingSignerName, usage: certificatesv1.UsageServerAuth, hosts: hosts}
}

// object is the request as the API takes it.
func (w *wish) object() (*certificatesv1.CertificateSigningRequest, error) {
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:" + w.node, Organization: []string{user.NodesGroup}}}
	for _, h := range w.hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, w.key)
	if err != nil {
		return nil, fmt.Errorf("make a request for a certificate: %w", err)
	}
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "csr-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: w.signer,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, w.usage},
		},
	}, nil
}

// errSigned ends the wait for a signature.
var errSigned = errors.New("signed")

// ask asks for a certificate and returns it, in PEM, once it is signed. The caches of
// the transport must be fed. told is called with the name of the request.
func ask(ctx context.Context, t client.Transport, w *wish, told func(name string)) ([]byte, error) {
	obj, err := w.object()
	if err != nil {
		return nil, err
	}
	obj, err = client.For(t, api.CertificateSigningRequests).Create(ctx, obj)
	if err != nil {
		return nil, err
	}
	name := obj.Name
	told(name)
	var signed []byte
	seen := false
	look := func(deltas []cache.Delta) error {
		for _, d := range deltas {
			if d.Last().Key != name {
				continue
			}
			if d.Now == nil {
				return fmt.Errorf("the request %s for a certificate was deleted before it was signed", name)
			}
			seen = true
			if signed, err = outcome(d.Now.Object.(*certificatesv1.CertificateSigningRequest)); signed != nil {
				err = errSigned
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	c, release := t.Hold(api.CertificateSigningRequests.Def, "metadata.name="+name)
	defer release() // nobody needs it any more, and there is one for each renewal
	err = c.Each(ctx, cache.FollowOptions{}, look)
	switch {
	case errors.Is(err, errSigned):
		return signed, nil
	case ctx.Err() != nil && seen:
		return nil, fmt.Errorf("wait until the request %s for a certificate is approved and signed: %w", name, err)
	}
	return nil, err
}

// outcome is the certificate of a request, or why there will be none; neither says that
// nobody has decided yet.
func outcome(r *certificatesv1.CertificateSigningRequest) ([]byte, error) {
	for _, c := range r.Status.Conditions {
		switch c.Type {
		case certificatesv1.CertificateDenied:
			return nil, refuse("the cluster has denied this machine a certificate: %s", c.Message)
		case certificatesv1.CertificateFailed:
			return nil, refuse("the cluster could not sign the certificate of this machine: %s", c.Message)
		}
	}
	if len(r.Status.Certificate) > 0 {
		return r.Status.Certificate, nil
	}
	return nil, nil
}
