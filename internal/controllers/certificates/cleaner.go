package certificates

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	api "github.com/kemudi/kemudi/internal/api/certificates"
	"github.com/kemudi/kemudi/internal/controller"
)

// How long a request stays: a settled one needs nothing more, and the sender of a
// pending one has given up by then.
const (
	settledFor = time.Hour
	pendingFor = 24 * time.Hour
)

// Cleaner deletes old requests.
var Cleaner = controller.New(controller.Spec[*certificatesv1.CertificateSigningRequest]{
	Name:    "certificatesigningrequest-cleaner-controller",
	For:     api.CertificateSigningRequests,
	Writes:  []controller.Permission{controller.Delete(api.CertificateSigningRequests.Def)},
	Workers: 1, // there is little to do
	Setup: func(k *controller.Kit) controller.Reconciler[*certificatesv1.CertificateSigningRequest] {
		return &cleaner{controller.For(k, api.CertificateSigningRequests)}
	},
})

type cleaner struct {
	requests controller.Client[*certificatesv1.CertificateSigningRequest]
}

// Reconcile deletes a request when its time is over.
func (c *cleaner) Reconcile(ctx context.Context, r *certificatesv1.CertificateSigningRequest) (controller.Next, error) {
	end, ok := ending(r)
	if !ok {
		return controller.Done, nil
	}
	if left := time.Until(end); left > 0 {
		return controller.After(left), nil
	}
	return controller.Done, c.requests.Delete(ctx, r)
}

// ending is when a request is to go; ok is false for one that was approved and
// waits for its signer.
func ending(r *certificatesv1.CertificateSigningRequest) (end time.Time, ok bool) {
	if len(r.Status.Conditions) == 0 {
		return r.CreationTimestamp.Add(pendingFor), true
	}
	for _, c := range r.Status.Conditions {
		settled := c.Type == certificatesv1.CertificateDenied || c.Type == certificatesv1.CertificateFailed ||
			c.Type == certificatesv1.CertificateApproved && len(r.Status.Certificate) > 0
		if at := c.LastUpdateTime.Add(settledFor); settled && (!ok || at.Before(end)) {
			end, ok = at, true
		}
	}
	if expiry, known := expires(r.Status.Certificate); ok && known && expiry.Before(end) {
		end = expiry
	}
	return end, ok
}

func expires(certificate []byte) (time.Time, bool) {
	block, _ := pem.Decode(certificate)
	if block == nil {
		return time.Time{}, false
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}, false
	}
	return cert.NotAfter, true
}
