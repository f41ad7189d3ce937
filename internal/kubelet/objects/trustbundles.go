package objects

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/certificates"
)

// errNoBundle is why a projection of a signer's trust bundles has nothing to hold.
var errNoBundle = &apierrors.StatusError{ErrStatus: metav1.Status{
	Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
	Message: "combination of signerName and labelSelector matched zero ClusterTrustBundles",
}}

// TrustBundles returns the bundle that a projection names, or those of its signer that it
// selects. Where there is none, IsMissing knows the error.
func (o *Objects) TrustBundles(ctx context.Context, p *v1.ClusterTrustBundleProjection) ([]*certificatesv1.ClusterTrustBundle, error) {
	if p.Name != nil {
		b, err := find(ctx, o, certificates.ClusterTrustBundles, "", *p.Name)
		if err != nil {
			return nil, fmt.Errorf("while getting ClusterTrustBundle: %w", err)
		}
		return []*certificatesv1.ClusterTrustBundle{b}, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(p.LabelSelector) // none selects nothing
	if err != nil {
		return nil, fmt.Errorf("while parsing label selector: %w", err)
	}
	signer := ptr.Deref(p.SignerName, "")
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	r, release, err := hold[*certificatesv1.ClusterTrustBundle](ctx, o, reference{def: certificates.ClusterTrustBundles.Def, name: signer})
	defer release()
	if err != nil {
		return nil, fmt.Errorf("fetch ClusterTrustBundles of %s: %w", signer, err)
	}
	found := slices.DeleteFunc(r.List("", selector), func(b *certificatesv1.ClusterTrustBundle) bool { return b.Spec.SignerName != signer })
	if len(found) == 0 {
		return nil, errNoBundle
	}
	return found, nil
}
