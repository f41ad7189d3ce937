package sim

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kemudi/kemudi/internal/api/certificates"
	"github.com/kemudi/kemudi/internal/client"
)

// requestCertificate makes a request for a certificate, in the name of a user.
func requestCertificate(ctx context.Context, r *run, args []string) error {
	if len(args) == 0 {
		return errArgs
	}
	obj := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: args[0]}}
	template := &x509.CertificateRequest{}
	by := &user.DefaultInfo{Name: "system:admin", Groups: []string{user.SystemPrivilegedGroup}}
	for _, arg := range args[1:] {
		key, value, _ := strings.Cut(arg, "=")
		list := strings.Split(value, ",")
		switch key {
		case "user":
			by.Name, by.Groups = list[0], append(list[1:], user.AllAuthenticated)
		case "signer":
			obj.Spec.SignerName = "kubernetes.io/" + value
		case "usages":
			for _, u := range list {
				obj.Spec.Usages = append(obj.Spec.Usages, certificatesv1.KeyUsage(u))
			}
		case "expires":
			n, err := strconv.ParseInt(value, 10, 32)
			if err != nil {
				return errArgs
			}
			obj.Spec.ExpirationSeconds = new(int32(n))
		case "cn":
			template.Subject.CommonName = value
		case "org":
			template.Subject.Organization = list
		case "dns":
			template.DNSNames = list
		case "ip":
			template.IPAddresses = []net.IP{net.ParseIP(value)}
		default:
			return errArgs
		}
	}
	der, err := newRequest(template)
	if err != nil {
		return err
	}
	obj.Spec.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	_, err = client.For(r.c.Server().As(by, "sim"), certificates.CertificateSigningRequests).Create(ctx, obj)
	return err
}

func newRequest(template *x509.CertificateRequest) ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	return x509.CreateCertificateRequest(rand.Reader, template, key)
}

// printCertificate prints what is in a certificate that was signed, and checks
// that the cluster's authority has signed it.
func printCertificate(_ context.Context, r *run, args []string) error {
	if len(args) != 1 {
		return errArgs
	}
	obj, ok := client.Cached(r.c.API(), certificates.CertificateSigningRequests, "").Get("", args[0])
	if !ok {
		return fmt.Errorf("there is no request %q", args[0])
	}
	block, _ := pem.Decode(obj.Status.Certificate)
	if block == nil {
		return errors.New("no certificate was issued")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return err
	}
	if _, err := cert.Verify(x509.VerifyOptions{Roots: r.c.ca.Pool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
		return err
	}
	r.stdout = fmt.Sprintf("subject %s\nhosts %v %v\nusages %v %v\nlife %s\nage %s\nca %t\n", subjectOf(cert.Subject), cert.DNSNames, cert.IPAddresses,
		cert.KeyUsage, cert.ExtKeyUsage, cert.NotAfter.Sub(cert.NotBefore), time.Since(cert.NotBefore).Round(time.Minute), cert.IsCA)
	return nil
}

func subjectOf(n pkix.Name) string { return n.CommonName + " " + strings.Join(n.Organization, ",") }
