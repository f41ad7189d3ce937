package objects

import (
	"context"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/api/certificates"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
)

// requestsOf are the requests for certificates of a pod.
func requestsOf(pod *v1.Pod) reference {
	return reference{certificates.PodCertificateRequests.Def, pod.Namespace, pod.Name}
}

// RequestCertificate asks for a certificate of a pod, of the key that a stub of a PKCS#10
// request proves to be there.
func (o *Objects) RequestCertificate(ctx context.Context, pod *v1.Pod, p *v1.PodCertificateProjection, stub []byte) (name string, err error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	account, err := client.For(o.t, core.ServiceAccounts).Get(ctx, pod.Namespace, pod.Spec.ServiceAccountName)
	if err != nil {
		return "", fmt.Errorf("while fetching service account: %w", err)
	}
	node, err := client.For(o.t, core.Nodes).Get(ctx, "", pod.Spec.NodeName)
	if err != nil {
		return "", fmt.Errorf("while fetching node: %w", err)
	}
	r, err := client.For(o.t, certificates.PodCertificateRequests).Create(ctx, &certificatesv1.PodCertificateRequest{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, GenerateName: "req-",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}},
		},
		Spec: certificatesv1.PodCertificateRequestSpec{
			SignerName: p.SignerName, PodName: pod.Name, PodUID: pod.UID, ServiceAccountName: account.Name, ServiceAccountUID: account.UID,
			NodeName: types.NodeName(node.Name), NodeUID: node.UID, MaxExpirationSeconds: p.MaxExpirationSeconds,
			StubPKCS10Request: stub, UnverifiedUserAnnotations: p.UserAnnotations,
		},
	})
	if err != nil {
		return "", err
	}
	return r.Name, nil
}

// CertificateRequest is a request that was made for a pod. One that is not seen, or not yet, is
// missing.
func (o *Objects) CertificateRequest(ctx context.Context, pod *v1.Pod, name string) (*certificatesv1.PodCertificateRequest, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	requests, release, err := hold[*certificatesv1.PodCertificateRequest](ctx, o, requestsOf(pod))
	defer release()
	if err != nil {
		return nil, fmt.Errorf("fetch requests for certificates of %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	r, ok := requests.Get(pod.Namespace, name)
	if !ok {
		return nil, apierrors.NewNotFound(certificatesv1.SchemeGroupVersion.WithResource("podcertificaterequests").GroupResource(), name)
	}
	return r, nil
}
