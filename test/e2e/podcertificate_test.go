package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/test/wait"
)

// testPodCertificates lets a pod wait for its certificate, which the test signs, and another
// one be refused.
func testPodCertificates(t *testing.T, c *cluster) {
	ns := c.namespace(t)
	const pod = "metadata: {name: %s}\nspec:\n  restartPolicy: Never\n  containers:\n  - {name: c, image: kemudi.local/busybox:1, command: [cat, /v/bundle.pem], volumeMounts: [{name: v, mountPath: /v}]}\n" +
		"  volumes: [{name: v, projected: {sources: [{podCertificate: {signerName: example.com/signer, keyType: ECDSAP256, credentialBundlePath: bundle.pem}}]}}]\n"
	c.create(t, ns, fmt.Sprintf(pod, "signed"))
	c.awaitEvent(t, ns, "signed", "FailedMount", `MountVolume.SetUp failed for volume "v" : credential bundle is not issued yet`)
	r := c.certificateRequest(t, ns, "signed")
	r.Status = c.sign(t, r)
	c.answer(t, r)
	c.await(t, ns, "signed", hasEnded)
	got := c.logs(t, ns, "signed", corev1.PodLogOptions{})
	key, chain := pem.Decode([]byte(got))
	if key == nil || key.Type != "PRIVATE KEY" || strings.TrimSpace(string(chain)) != strings.TrimSpace(r.Status.CertificateChain) {
		t.Errorf("got %s, want a key and\n%s", got, r.Status.CertificateChain)
	}

	c.create(t, ns, fmt.Sprintf(pod, "denied"))
	r = c.certificateRequest(t, ns, "denied")
	r.Status.Conditions = []metav1.Condition{{Type: certificatesv1.PodCertificateRequestConditionTypeDenied, Status: metav1.ConditionTrue, Reason: "No", Message: "not for you", LastTransitionTime: metav1.Now()}}
	c.answer(t, r)
	c.awaitEvent(t, ns, "denied", "Denied", fmt.Sprintf(`PodCertificateRequest %s/%s was denied, reason="No", message="not for you"`, ns, r.Name))
	c.awaitEvent(t, ns, "denied", "FailedMount", `PodCertificateRequest was permanently denied: reason="No" message="not for you"`)
}

// certificateRequest waits for the request for a pod's certificate.
func (c *cluster) certificateRequest(t *testing.T, ns, pod string) (r *certificatesv1.PodCertificateRequest) {
	t.Helper()
	wait.Until(t, func() error {
		list, err := c.client.CertificatesV1().PodCertificateRequests(ns).List(t.Context(), metav1.ListOptions{FieldSelector: "spec.podName=" + pod})
		if err != nil {
			return err
		}
		if len(list.Items) != 1 {
			return fmt.Errorf("got %d requests of pod %s, want 1", len(list.Items), pod)
		}
		r = &list.Items[0]
		return nil
	})
	return r
}

// answer tells what became of a request.
func (c *cluster) answer(t *testing.T, r *certificatesv1.PodCertificateRequest) {
	t.Helper()
	if _, err := c.client.CertificatesV1().PodCertificateRequests(r.Namespace).UpdateStatus(t.Context(), r, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// sign issues a certificate, of an authority of its own, for a day.
func (c *cluster) sign(t *testing.T, r *certificatesv1.PodCertificateRequest) certificatesv1.PodCertificateRequestStatus {
	t.Helper()
	stub, err := x509.ParseCertificateRequest(r.Spec.StubPKCS10Request)
	if err != nil {
		t.Fatal(err)
	}
	authority, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now().Truncate(time.Second)
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), DNSNames: []string{r.Spec.PodName}, NotBefore: begin, NotAfter: begin.Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, leaf, &x509.Certificate{SerialNumber: big.NewInt(1)}, stub.PublicKey, authority)
	if err != nil {
		t.Fatal(err)
	}
	at := func(after time.Duration) *metav1.Time { return new(metav1.NewTime(begin.Add(after))) }
	return certificatesv1.PodCertificateRequestStatus{
		Conditions:       []metav1.Condition{{Type: certificatesv1.PodCertificateRequestConditionTypeIssued, Status: metav1.ConditionTrue, Reason: "Issued", LastTransitionTime: metav1.Now()}},
		CertificateChain: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		NotBefore:        at(0), BeginRefreshAt: at(12 * time.Hour), NotAfter: at(24 * time.Hour),
	}
}
