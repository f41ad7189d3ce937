package certificates

import (
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kemudi/kemudi/internal/resource"
)

// CertificateSigningRequests ask for a client or server certificate. What is
// checked is in certificatesigningrequest_validate.go.
var CertificateSigningRequests = resource.Define(resource.Spec[*certificatesv1.CertificateSigningRequest]{
	Names: resource.Names{
		Group: "certificates.k8s.io", Version: "v1", Kind: "CertificateSigningRequest", Plural: "certificatesigningrequests",
		Short: []string{"csr"}, NameRule: func(string, bool) []string { return nil },
	},
	Prepare: func(obj, old *certificatesv1.CertificateSigningRequest) {
		if old == nil {
			obj.Status = certificatesv1.CertificateSigningRequestStatus{}
			return
		}
		obj.Spec, obj.Status = old.Spec, old.Status
	},
	Requester: setRequester,
	Validate: func(obj, old *certificatesv1.CertificateSigningRequest, errs *resource.Errors) {
		validateRequest(obj, old, anyone, errs)
	},
	Columns: []resource.Column[*certificatesv1.CertificateSigningRequest]{
		resource.AgeColumn[*certificatesv1.CertificateSigningRequest](),
		{Name: "SignerName", Description: certificatesv1.CertificateSigningRequestSpec{}.SwaggerDoc()["signerName"], Value: func(r *certificatesv1.CertificateSigningRequest) any { return r.Spec.SignerName }},
		{Name: "Requestor", Description: certificatesv1.CertificateSigningRequestSpec{}.SwaggerDoc()["username"], Value: func(r *certificatesv1.CertificateSigningRequest) any { return r.Spec.Username }},
		{Name: "RequestedDuration", Description: certificatesv1.CertificateSigningRequestSpec{}.SwaggerDoc()["expirationSeconds"], Value: func(r *certificatesv1.CertificateSigningRequest) any {
			if r.Spec.ExpirationSeconds == nil {
				return "<none>"
			}
			return duration.HumanDuration(time.Duration(*r.Spec.ExpirationSeconds) * time.Second)
		}},
		{Name: "Condition", Description: certificatesv1.CertificateSigningRequestStatus{}.SwaggerDoc()["conditions"], Value: func(r *certificatesv1.CertificateSigningRequest) any { return conditionText(r) }},
	},
	Fields: map[string]func(*certificatesv1.CertificateSigningRequest) string{
		"spec.signerName": func(r *certificatesv1.CertificateSigningRequest) string { return r.Spec.SignerName },
	},
	Sub: []resource.Sub[*certificatesv1.CertificateSigningRequest]{
		{
			Name: "status",
			Merge: func(obj, old *certificatesv1.CertificateSigningRequest) {
				obj.Spec = old.Spec
				stampConditions(obj, old)
			},
			Validate: func(obj, old *certificatesv1.CertificateSigningRequest, errs *resource.Errors) {
				validateRequest(obj, old, signer, errs)
			},
		},
		{
			Name: "approval",
			Merge: func(obj, old *certificatesv1.CertificateSigningRequest) {
				stampConditions(obj, old)
				conditions := obj.Status.Conditions
				obj.Spec, obj.Status = old.Spec, old.Status
				obj.Status.Conditions = conditions
			},
			Validate: func(obj, old *certificatesv1.CertificateSigningRequest, errs *resource.Errors) {
				validateRequest(obj, old, approver, errs)
			},
		},
	},
	Versions: legacyRequests(),
})

// setRequester writes down who asks for a certificate, over what the request
// says itself.
func setRequester(r *certificatesv1.CertificateSigningRequest, by user.Info) {
	r.Spec.Username, r.Spec.UID, r.Spec.Groups, r.Spec.Extra = by.GetName(), by.GetUID(), by.GetGroups(), nil
	for k, v := range by.GetExtra() {
		if r.Spec.Extra == nil {
			r.Spec.Extra = map[string]certificatesv1.ExtraValue{}
		}
		r.Spec.Extra[k] = v
	}
}

// stampConditions sets the times that a client left out. A condition that had
// its status already keeps the time of that change.
func stampConditions(obj, old *certificatesv1.CertificateSigningRequest) {
	now := metav1.Now()
	for i := range obj.Status.Conditions {
		c := &obj.Status.Conditions[i]
		if c.LastUpdateTime.IsZero() {
			c.LastUpdateTime = now
		}
		if !c.LastTransitionTime.IsZero() {
			continue
		}
		c.LastTransitionTime = now
		for _, o := range old.Status.Conditions {
			if o.Type == c.Type && o.Status == c.Status && !o.LastTransitionTime.IsZero() {
				c.LastTransitionTime = o.LastTransitionTime
				break
			}
		}
	}
}

func conditionText(r *certificatesv1.CertificateSigningRequest) string {
	text := "Pending"
	failed := false
	for _, c := range r.Status.Conditions {
		switch {
		case c.Type == certificatesv1.CertificateDenied:
			text = "Denied"
		case c.Type == certificatesv1.CertificateApproved && text != "Denied":
			text = "Approved"
		case c.Type == certificatesv1.CertificateFailed:
			failed = true
		}
	}
	if failed {
		text += ",Failed"
	}
	if len(r.Status.Certificate) > 0 {
		text += ",Issued"
	}
	return text
}
