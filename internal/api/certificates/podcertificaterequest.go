package certificates

import (
	"encoding/base64"
	"fmt"
	"maps"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/resource"
)

// defaultMostSeconds is for how long a pod's certificate may be good that says nothing of it.
const defaultMostSeconds = 86400

// PodCertificateRequests ask a signer for a certificate of a pod. What is checked is in
// podcertificaterequest_validate.go.
var PodCertificateRequests = resource.Define(resource.Spec[*certificatesv1.PodCertificateRequest]{
	Names: resource.Names{
		Group: "certificates.k8s.io", Version: "v1", Kind: "PodCertificateRequest", Plural: "podcertificaterequests", Namespaced: true,
	},
	Update: resource.UpdateNeedsRevision,
	Default: func(r *certificatesv1.PodCertificateRequest) {
		if r.Spec.MaxExpirationSeconds == nil {
			r.Spec.MaxExpirationSeconds = ptr.To[int32](defaultMostSeconds)
		}
	},
	Prepare: func(obj, old *certificatesv1.PodCertificateRequest) {
		if old == nil {
			obj.Status = certificatesv1.PodCertificateRequestStatus{}
			return
		}
		obj.Status = old.Status
	},
	Validate: validatePodRequest,
	Columns: []resource.Column[*certificatesv1.PodCertificateRequest]{
		{Name: "PodName", Description: certificatesv1.PodCertificateRequestSpec{}.SwaggerDoc()["podName"], Value: func(r *certificatesv1.PodCertificateRequest) any { return r.Spec.PodName }},
		{Name: "ServiceAccountName", Description: certificatesv1.PodCertificateRequestSpec{}.SwaggerDoc()["serviceAccountName"], Value: func(r *certificatesv1.PodCertificateRequest) any { return r.Spec.ServiceAccountName }},
		{Name: "NodeName", Description: certificatesv1.PodCertificateRequestSpec{}.SwaggerDoc()["nodeName"], Value: func(r *certificatesv1.PodCertificateRequest) any { return string(r.Spec.NodeName) }},
		{Name: "SignerName", Description: certificatesv1.PodCertificateRequestSpec{}.SwaggerDoc()["signerName"], Value: func(r *certificatesv1.PodCertificateRequest) any { return r.Spec.SignerName }},
		{Name: "State", Description: "Is the request Pending, Issued, Denied, or Failed?", Value: func(r *certificatesv1.PodCertificateRequest) any {
			if state := podRequestState(r); state != "" {
				return state
			}
			return "Pending"
		}},
	},
	Fields: map[string]func(*certificatesv1.PodCertificateRequest) string{
		"spec.signerName": func(r *certificatesv1.PodCertificateRequest) string { return r.Spec.SignerName },
		"spec.podName":    func(r *certificatesv1.PodCertificateRequest) string { return r.Spec.PodName },
		"spec.nodeName":   func(r *certificatesv1.PodCertificateRequest) string { return string(r.Spec.NodeName) },
	},
	Sub: []resource.Sub[*certificatesv1.PodCertificateRequest]{{
		Name: "status", Keeps: resource.KeepsMetadata,
		Merge:    func(obj, old *certificatesv1.PodCertificateRequest) { obj.Spec = old.Spec },
		Validate: validatePodRequestStatus,
	}},
	Versions: []resource.Version[*certificatesv1.PodCertificateRequest]{betaPodRequests()},
})

// podRequestState is the condition in which a request has ended; empty: it has not.
func podRequestState(r *certificatesv1.PodCertificateRequest) string {
	for _, c := range r.Status.Conditions {
		switch c.Type {
		case certificatesv1.PodCertificateRequestConditionTypeIssued, certificatesv1.PodCertificateRequestConditionTypeDenied, certificatesv1.PodCertificateRequestConditionTypeFailed:
			if c.Status == metav1.ConditionTrue {
				return c.Type
			}
		}
	}
	return ""
}

// Annotations that keep what v1beta1 alone has: a key, and what proves that the pod has it.
const (
	betaKey   = "certificates.k8s.io/v1beta1-pkix-public-key"
	betaProof = "certificates.k8s.io/v1beta1-proof-of-possession"
)

func betaPodRequests() resource.Version[*certificatesv1.PodCertificateRequest] {
	v := resource.SameWire[*certificatesv1beta1.PodCertificateRequest](resource.Version[*certificatesv1.PodCertificateRequest]{
		Group: "certificates.k8s.io", Version: "v1beta1",
		Deprecated: "certificates.k8s.io/v1beta1 PodCertificateRequest is deprecated in v1.37+, unavailable in v1.40+; use certificates.k8s.io/v1 PodCertificateRequest",
	})
	to, from := v.To, v.From
	v.To = func(obj resource.Object) (*certificatesv1.PodCertificateRequest, error) {
		out, err := to(obj)
		if err != nil {
			return nil, err
		}
		spec := &obj.(*certificatesv1beta1.PodCertificateRequest).Spec
		delete(out.Annotations, betaKey)
		delete(out.Annotations, betaProof)
		for name, value := range map[string][]byte{betaKey: spec.PKIXPublicKey, betaProof: spec.ProofOfPossession} {
			if len(value) > 0 {
				if out.Annotations == nil {
					out.Annotations = map[string]string{}
				}
				out.Annotations[name] = base64.StdEncoding.EncodeToString(value)
			}
		}
		return out, nil
	}
	v.From = func(r *certificatesv1.PodCertificateRequest) (resource.Object, error) {
		made, err := from(r)
		if err != nil {
			return nil, err
		}
		out := made.(*certificatesv1beta1.PodCertificateRequest)
		kept := maps.Clone(out.Annotations)
		for name, field := range map[string]*[]byte{betaKey: &out.Spec.PKIXPublicKey, betaProof: &out.Spec.ProofOfPossession} {
			text, ok := kept[name]
			if !ok {
				continue
			}
			if *field, err = base64.StdEncoding.DecodeString(text); err != nil {
				return nil, fmt.Errorf("annotation %s: %w", name, err)
			}
			delete(kept, name)
		}
		out.Annotations = kept
		return out, nil
	}
	return v
}

// podKey is the key that v1beta1 can name apart from a request for it; nil: there is none.
func podKey(r *certificatesv1.PodCertificateRequest) (key, proof []byte) {
	decode := func(name string) []byte {
		data, err := base64.StdEncoding.DecodeString(r.Annotations[name])
		if err != nil {
			return nil
		}
		return data
	}
	return decode(betaKey), decode(betaProof)
}
