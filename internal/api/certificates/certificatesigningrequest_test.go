package certificates

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/resource"
)

// request is one that nothing is wrong with.
func request(t *testing.T) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	key := newKey(t)
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "jane"}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "jane"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: "kubernetes.io/kube-apiserver-client",
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
		},
	}
}

func certificate(t *testing.T) []byte {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func condition(kind certificatesv1.RequestConditionType) certificatesv1.CertificateSigningRequestCondition {
	return certificatesv1.CertificateSigningRequestCondition{Type: kind, Status: corev1.ConditionTrue, Reason: "Test"}
}

// refusals runs a validation as the server does, through a subresource or not.
func refusals(obj, old *certificatesv1.CertificateSigningRequest, sub string) []string {
	errs := resource.NewErrors()
	def := CertificateSigningRequests.Def
	switch {
	case sub != "":
		s := def.Subresource(sub)
		s.Merge(obj, old)
		s.Validate(obj, old, errs)
	case old == nil:
		def.Prepare(obj, nil)
		def.Validate(obj, nil, errs)
	default:
		def.Prepare(obj, old)
		def.Validate(obj, old, errs)
	}
	var texts []string
	for _, e := range errs.List() {
		texts = append(texts, e.Error())
	}
	return texts
}

func TestNewRequestsAreChecked(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		change func(r *certificatesv1.CertificateSigningRequest)
		want   []string
	}{
		"good":     {func(*certificatesv1.CertificateSigningRequest) {}, nil},
		"any name": {func(r *certificatesv1.CertificateSigningRequest) { r.Name = "Node CSR!" }, nil},
		"no request": {
			func(r *certificatesv1.CertificateSigningRequest) { r.Spec.Request = nil },
			[]string{"spec.request: Invalid value: null: PEM block type must be CERTIFICATE REQUEST"},
		},
		"no usages": {
			func(r *certificatesv1.CertificateSigningRequest) { r.Spec.Usages = nil },
			[]string{"spec.usages: Required value"},
		},
		"repeated and unknown usages": {
			func(r *certificatesv1.CertificateSigningRequest) {
				r.Spec.Usages = []certificatesv1.KeyUsage{"client auth", "flying", "client auth"}
			},
			[]string{
				`spec.usages[1]: Unsupported value: "flying": supported values: "any", "cert sign", "client auth", "code signing", "content commitment", "crl sign", "data encipherment", "decipher only", "digital signature", "email protection", "encipher only", "ipsec end system", "ipsec tunnel", "ipsec user", "key agreement", "key encipherment", "microsoft sgc", "netscape sgc", "ocsp signing", "server auth", "signing", "s/mime", "timestamping"`,
				`spec.usages[2]: Duplicate value: "client auth"`,
			},
		},
		"a short life": {
			func(r *certificatesv1.CertificateSigningRequest) { r.Spec.ExpirationSeconds = ptr.To[int32](599) },
			[]string{"spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 600 seconds (10 minutes)"},
		},
		"no signer": {
			func(r *certificatesv1.CertificateSigningRequest) { r.Spec.SignerName = "" },
			[]string{"spec.signerName: Required value"},
		},
		"a signer without a path": {
			func(r *certificatesv1.CertificateSigningRequest) { r.Spec.SignerName = "example.com" },
			[]string{`spec.signerName: Invalid value: "example.com": must be a fully qualified domain and path of the form 'example.com/signer-name'`},
		},
		"a signer without a domain": {
			func(r *certificatesv1.CertificateSigningRequest) { r.Spec.SignerName = "example/x" },
			[]string{`spec.signerName: Invalid value: "example": should be a domain with at least two segments separated by dots`},
		},
		"a signer with a bad path": {
			func(r *certificatesv1.CertificateSigningRequest) { r.Spec.SignerName = "example.com/X" },
			[]string{`spec.signerName: Invalid value: "X": validating label "X": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`},
		},
		"the signer of old": {
			func(r *certificatesv1.CertificateSigningRequest) { r.Spec.SignerName = "kubernetes.io/legacy-unknown" },
			[]string{`spec.signerName: Invalid value: "kubernetes.io/legacy-unknown": the legacy signerName is not allowed via this API version`},
		},
		"a signature that is not the key's": {
			func(r *certificatesv1.CertificateSigningRequest) {
				block, _ := pem.Decode(r.Spec.Request)
				block.Bytes[len(block.Bytes)-1] ^= 1
				r.Spec.Request = pem.EncodeToMemory(block)
			},
			[]string{"spec.request: Invalid value: *: x509: ECDSA verification failure"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := request(t)
			c.change(r)
			got := refusals(r, nil, "")
			for i := range got {
				if value, rest, ok := strings.Cut(got[i], `": x509`); ok && strings.HasPrefix(value, "spec.request") {
					got[i] = "spec.request: Invalid value: *: x509" + rest
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(c.want, "\n  "))
			}
		})
	}
}

func TestOnlyApprovalApprovesAndOnlyStatusSigns(t *testing.T) {
	t.Parallel()
	old := request(t)
	old.ResourceVersion = "1"
	changed := func(change func(s *certificatesv1.CertificateSigningRequestStatus)) *certificatesv1.CertificateSigningRequest {
		r := old.DeepCopy()
		change(&r.Status)
		return r
	}
	approve := func(s *certificatesv1.CertificateSigningRequestStatus) {
		s.Conditions = append(s.Conditions, condition(certificatesv1.CertificateApproved))
	}
	cert := certificate(t)
	sign := func(s *certificatesv1.CertificateSigningRequestStatus) { s.Certificate = cert }

	if got := refusals(changed(approve), old, "approval"); got != nil {
		t.Errorf("approve through approval: %q", got)
	}
	if got := refusals(changed(sign), old, "status"); got != nil {
		t.Errorf("sign through status: %q", got)
	}
	want := []string{`status.conditions: Forbidden: updates may not add a condition of type "Approved"`}
	if got := refusals(changed(approve), old, "status"); !slices.Equal(got, want) {
		t.Errorf("approve through status: got %q, want %q", got, want)
	}
	signed := changed(sign)
	if got := refusals(signed, old, "approval"); got != nil || signed.Status.Certificate != nil {
		t.Errorf("sign through approval: %q, certificate %q", got, signed.Status.Certificate)
	}
	other := changed(func(s *certificatesv1.CertificateSigningRequestStatus) { sign(s); approve(s) })
	other.Spec.SignerName = "example.com/other"
	if got := refusals(other, old, ""); got != nil || other.Spec.SignerName != old.Spec.SignerName || len(other.Status.Conditions) > 0 {
		t.Errorf("a plain update changed the request: %q, %+v", got, other)
	}
}

func TestDecisionsAndCertificatesAreFinal(t *testing.T) {
	t.Parallel()
	old := request(t)
	old.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{condition(certificatesv1.CertificateApproved)}
	old.Status.Conditions[0].LastUpdateTime, old.Status.Conditions[0].LastTransitionTime = metav1.Now(), metav1.Now()
	old.Status.Certificate = certificate(t)
	cases := map[string]struct {
		sub    string
		change func(s *certificatesv1.CertificateSigningRequestStatus)
		want   []string
	}{
		"taking back": {
			"approval", func(s *certificatesv1.CertificateSigningRequestStatus) { s.Conditions = nil },
			[]string{`status.conditions: Forbidden: updates may not remove a condition of type "Approved"`},
		},
		"denying too": {
			"approval", func(s *certificatesv1.CertificateSigningRequestStatus) {
				s.Conditions = append(s.Conditions, condition(certificatesv1.CertificateDenied))
			},
			[]string{`status.conditions[1].type: Invalid value: "Denied": Approved and Denied conditions are mutually exclusive`},
		},
		"approving with another status": {
			"approval", func(s *certificatesv1.CertificateSigningRequestStatus) {
				s.Conditions[0].Status = corev1.ConditionFalse
			},
			[]string{`status.conditions[0].status: Unsupported value: "False": supported values: "True"`},
		},
		"another certificate": {
			"status", func(s *certificatesv1.CertificateSigningRequestStatus) { s.Certificate = certificate(t) },
			[]string{"status.certificate: Forbidden: updates may not modify existing certificate content"},
		},
		"a certificate that is none": {
			"status", func(s *certificatesv1.CertificateSigningRequestStatus) { s.Certificate = []byte("x") },
			[]string{
				`status.certificate: Invalid value: "<certificate data>": must contain at least one CERTIFICATE PEM block`,
				"status.certificate: Forbidden: updates may not modify existing certificate content",
			},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := old.DeepCopy()
			c.change(&r.Status)
			if got := refusals(r, old, c.sub); !slices.Equal(got, c.want) {
				t.Errorf("got:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(c.want, "\n  "))
			}
		})
	}
}

func TestConditionsGetTheTimesThatClientsLeaveOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := metav1.Now()
		old := request(t)
		old.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{condition(certificatesv1.CertificateApproved)}
		old.Status.Conditions[0].LastTransitionTime = before
		time.Sleep(time.Hour)
		r := old.DeepCopy()
		r.Status.Conditions[0].LastTransitionTime = metav1.Time{}
		r.Status.Conditions = append(r.Status.Conditions, condition(certificatesv1.CertificateFailed))
		stampConditions(r, old)
		now := metav1.Now()
		if c := r.Status.Conditions[0]; !c.LastTransitionTime.Equal(&before) || !c.LastUpdateTime.Equal(&now) {
			t.Errorf("kept condition: %+v", c)
		}
		if c := r.Status.Conditions[1]; !c.LastTransitionTime.Equal(&now) || !c.LastUpdateTime.Equal(&now) {
			t.Errorf("new condition: %+v", c)
		}
	})
}

func TestRequestsPrintTheirState(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		conditions []certificatesv1.RequestConditionType
		issued     bool
	}{
		"Pending":         {},
		"Approved":        {conditions: []certificatesv1.RequestConditionType{"Approved"}},
		"Denied":          {conditions: []certificatesv1.RequestConditionType{"Denied", "Approved"}},
		"Approved,Failed": {conditions: []certificatesv1.RequestConditionType{"Failed", "Approved"}},
		"Approved,Issued": {conditions: []certificatesv1.RequestConditionType{"Approved"}, issued: true},
	}
	for want, c := range cases {
		r := &certificatesv1.CertificateSigningRequest{}
		for _, kind := range c.conditions {
			r.Status.Conditions = append(r.Status.Conditions, condition(kind))
		}
		if c.issued {
			r.Status.Certificate = []byte("x")
		}
		if got := conditionText(r); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestTheRequesterIsNotTheClientsToChoose(t *testing.T) {
	t.Parallel()
	r := request(t)
	r.Spec.Username, r.Spec.Extra = "admin", map[string]certificatesv1.ExtraValue{"a": {"b"}}
	setRequester(r, &user.DefaultInfo{Name: "jane", UID: "7", Groups: []string{"devs"}, Extra: map[string][]string{"c": {"d"}}})
	if r.Spec.Username != "jane" || r.Spec.UID != "7" || !slices.Equal(r.Spec.Groups, []string{"devs"}) || len(r.Spec.Extra) != 1 || r.Spec.Extra["c"][0] != "d" {
		t.Errorf("got %+v", r.Spec)
	}
}
