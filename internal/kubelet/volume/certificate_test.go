package volume

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// certified is a pod that shows a certificate, as one file and as two.
type certified struct {
	*testing.T
	m   *Manager
	src *sources
	pod *v1.Pod
}

func newCertified(t *testing.T) *certified {
	return &certified{t, newManager(t), &sources{}, podOf(t, `{securityContext: {fsGroup: 2000}, volumes: [{name: v, projected: {sources: [
		{secret: {name: none, optional: true}},
		{podCertificate: {signerName: example.com/signer, keyType: ECDSAP256, credentialBundlePath: bundle.pem, keyPath: key.pem, certificateChainPath: chain.pem}}]}}]}`)}
}

// fails checks why the volume cannot be made, or be brought up to date.
func (c *certified) fails(want string) {
	c.Helper()
	if _, err := c.m.Prepare(c.Context(), c.pod, c.src); err == nil || !strings.HasSuffix(err.Error(), want) {
		c.Fatalf("got %v, want %s", err, want)
	}
}

// issue answers a request with a chain of one certificate, good from now on.
func (c *certified) issue(request int, chain string, refresh, end time.Duration) {
	at := func(d time.Duration) *metav1.Time { return new(metav1.NewTime(time.Now().Add(d))) }
	c.src.requests[request].Status = certificatesv1.PodCertificateRequestStatus{
		Conditions:       []metav1.Condition{{Type: certificatesv1.PodCertificateRequestConditionTypeIssued, Status: metav1.ConditionTrue}},
		CertificateChain: "# remark\n" + chain, NotBefore: at(0), BeginRefreshAt: at(refresh), NotAfter: at(end),
	}
}

// shows checks that the files are a chain and the key of a request.
func (c *certified) shows(request int, chain string) {
	c.Helper()
	var key string
	for _, line := range tree(c.T, c.m.Path(c.pod, &c.pod.Spec.Volumes[0])) {
		if rest, ok := strings.CutPrefix(line, "key.pem 0640 "); ok {
			key = rest
		}
	}
	wantTree(c.T, c.m.Path(c.pod, &c.pod.Spec.Volumes[0]), "bundle.pem 0640 "+key+chain, "chain.pem 0640 "+chain, "key.pem 0640 "+key)
	block, _ := pem.Decode([]byte(key))
	if block == nil || block.Type != "PRIVATE KEY" {
		c.Fatalf("key: got %q", key)
	}
	private, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		c.Fatal(err)
	}
	stub, err := x509.ParseCertificateRequest(c.src.requests[request].Spec.StubPKCS10Request)
	if err != nil {
		c.Fatal(err)
	}
	if err := stub.CheckSignature(); err != nil {
		c.Error(err)
	}
	if public := private.(crypto.Signer).Public(); !public.(interface{ Equal(crypto.PublicKey) bool }).Equal(stub.PublicKey) {
		c.Errorf("the key is not that of request %d", request)
	}
}

func (c *certified) warned(want ...string) {
	c.Helper()
	if !slices.Equal(c.src.warnings, want) {
		c.Errorf("told: got %q, want %q", c.src.warnings, want)
	}
}

func chainOf(text string) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(text)}))
}

func TestCertificateIsAskedForShownAndRefreshed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCertified(t)
		c.src.broken = errors.New("away")
		c.fails("while creating PodCertificateRequest: away")
		c.src.broken = nil
		for range 3 {
			c.fails("credential bundle is not issued yet")
		}
		c.issue(0, chainOf("one"), time.Hour, 2*time.Hour)
		begun := time.Now()
		again := prepare(t, c.m, c.pod, c.src)
		if after := again.Sub(begun); after < time.Hour || after > time.Hour+refreshWithin {
			t.Errorf("looked after in %v, want in an hour or a little more", after)
		}
		c.shows(0, chainOf("one"))
		prepare(t, c.m, c.pod, c.src)
		if len(c.src.requests) != 1 {
			t.Fatalf("got %d requests, want 1", len(c.src.requests))
		}

		// It is refreshed in time, with a new key.
		time.Sleep(time.Until(again))
		prepare(t, c.m, c.pod, c.src)
		c.shows(0, chainOf("one"))
		c.issue(1, chainOf("two"), time.Hour, 2*time.Hour)
		again = prepare(t, c.m, c.pod, c.src)
		c.shows(1, chainOf("two"))
		c.warned()

		// An API that is away is asked again, a signer that is late is waited for, and both is told.
		time.Sleep(time.Until(again))
		c.src.broken = errors.New("away")
		again = prepare(t, c.m, c.pod, c.src)
		time.Sleep(time.Until(again))
		c.src.broken = nil
		for range 100 {
			time.Sleep(time.Until(prepare(t, c.m, c.pod, c.src)))
			if len(c.src.warnings) == 2 {
				break
			}
		}
		c.shows(1, chainOf("two"))
		c.warned("CertificateOverdueForRefresh: PodCertificate refresh overdue", "CertificateExpired: PodCertificate expired")
		c.issue(2, chainOf("three"), time.Hour, 2*time.Hour)
		again = prepare(t, c.m, c.pod, c.src)
		c.shows(2, chainOf("three"))
		if len(c.src.requests) != 3 {
			t.Errorf("got %d requests, want 3", len(c.src.requests))
		}

		// One that is denied is not asked for again; what is shown stays.
		time.Sleep(time.Until(again))
		prepare(t, c.m, c.pod, c.src)
		c.src.warnings = nil
		c.src.requests[3].Status.Conditions = []metav1.Condition{{Type: certificatesv1.PodCertificateRequestConditionTypeDenied, Status: metav1.ConditionTrue, Reason: "Unknown", Message: "who?"}}
		for range 2 {
			c.fails(`PodCertificateRequest was permanently denied: reason="Unknown" message="who?"`)
		}
		c.shows(2, chainOf("three"))
		c.warned(`Denied: PodCertificateRequest default/3 was denied, reason="Unknown", message="who?"`)
		if len(c.src.requests) != 4 {
			t.Errorf("got %d requests, want 4", len(c.src.requests))
		}
		if err := c.m.CleanUp(t.Context(), c.pod.UID); err != nil || len(c.m.mu.certificates) != 0 {
			t.Errorf("got %v, %d certificates, want none left", err, len(c.m.mu.certificates))
		}
	})
}

func TestCertificateThatFailsOrIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCertified(t)
		c.fails("credential bundle is not issued yet")
		c.src.requests[0] = nil // deleted, or not seen yet
		time.Sleep(abandonAfter - time.Second)
		c.fails("credential bundle is not issued yet")
		if len(c.src.requests) != 1 {
			t.Errorf("got %d requests, want 1", len(c.src.requests))
		}
		time.Sleep(2 * time.Second)
		c.fails("credential bundle is not issued yet")
		if len(c.src.requests) != 2 {
			t.Fatalf("got %d requests, want 2", len(c.src.requests))
		}
		c.src.requests[1].Status.Conditions = []metav1.Condition{{Type: certificatesv1.PodCertificateRequestConditionTypeFailed, Status: metav1.ConditionTrue, Reason: "Broken", Message: "no"}}
		c.fails(`PodCertificateRequest failed: reason="Broken" message="no"`)
		c.warned(`Failed: PodCertificateRequest default/1 failed, reason="Broken", message="no"`)
	})
	synctest.Test(t, func(t *testing.T) {
		c := newCertified(t)
		c.fails("credential bundle is not issued yet")
		c.issue(0, "no certificate", time.Hour, 2*time.Hour)
		c.fails("PodCertificateRequest was issued without a certificate chain, or without the times that it is good for")
	})
}

func TestKeysOfAllTypesProveThemselves(t *testing.T) {
	m := newManager(t)
	for _, kind := range []string{"RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"} {
		src := &sources{}
		pod := podOf(t, fmt.Sprintf(`{volumes: [{name: %s, projected: {sources: [{podCertificate: {signerName: example.com/signer, keyType: %[1]s, keyPath: key}}]}}]}`, kind))
		if _, err := m.Prepare(t.Context(), pod, src); !errors.Is(err, errNotIssued) {
			t.Fatalf("%s: got %v", kind, err)
		}
		stub, err := x509.ParseCertificateRequest(src.requests[0].Spec.StubPKCS10Request)
		if err != nil {
			t.Fatal(err)
		}
		if err := stub.CheckSignature(); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if _, err := newKey("DSA"); err == nil {
		t.Error("an unknown type of keys: got no error, want one")
	}
}
