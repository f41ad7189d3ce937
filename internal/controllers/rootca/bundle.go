package rootca

import (
	"context"
	"crypto/sha256"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/certificates"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/controller"
)

// serving is the signer of the API server's own certificates.
const serving = "kubernetes.io/kube-apiserver-serving"

// NewBundle returns the publisher of the CA bundle, in PEM, of which there is one ClusterTrustBundle of
// the signer at a time. A bundle without a certificate is not published.
func NewBundle(bundle string) *controller.Controller {
	// Its only key: there is one thing to do. It is woken first by a namespace that every cluster has.
	key := bundleName(bundle)
	return controller.NewKeyed(controller.Keyed{
		Name: "kube-apiserver-serving-clustertrustbundle-publisher",
		Watches: []controller.Watch{
			controller.Mapped(certificates.ClusterTrustBundles, func(_ *controller.Kit, b *certificatesv1.ClusterTrustBundle) []string {
				if b.Spec.SignerName != serving {
					return nil
				}
				return []string{key}
			}),
			controller.Mapped(core.Namespaces, func(_ *controller.Kit, ns *corev1.Namespace) []string {
				if ns.Name != metav1.NamespaceSystem {
					return nil
				}
				return []string{key}
			}),
		},
		Writes: []controller.Permission{
			controller.Create(certificates.ClusterTrustBundles.Def), controller.Update(certificates.ClusterTrustBundles.Def), controller.Delete(certificates.ClusterTrustBundles.Def),
		},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{certificatesv1.GroupName}, Resources: []string{"signers"}, Verbs: []string{"attest"}, ResourceNames: []string{serving},
		}},
		Workers: 1,
		Setup: func(k *controller.Kit) func(ctx context.Context, key string) (controller.Next, error) {
			p := &publisher{bundle: bundle, bundles: controller.For(k, certificates.ClusterTrustBundles), metrics: controller.OwnMetrics(k, newBundleMetrics)}
			return p.reconcile
		},
	})
}

// bundleName is the name of the object with a bundle: another bundle has another one.
func bundleName(bundle string) string {
	digest := sha256.Sum256([]byte(bundle))
	return fmt.Sprintf("%s:%x", strings.ReplaceAll(serving, "/", ":"), digest[:12])
}

type publisher struct {
	bundle  string
	bundles controller.Client[*certificatesv1.ClusterTrustBundle]
	metrics *bundleMetrics
}

func (p *publisher) reconcile(ctx context.Context, name string) (controller.Next, error) {
	if block, _ := pem.Decode([]byte(p.bundle)); block == nil {
		return controller.Done, nil
	}
	began := time.Now()
	err := p.publish(ctx, name)
	if err == nil {
		err = p.removeOthers(ctx, name)
	}
	p.metrics.published(began, err)
	return controller.Done, err
}

// publish creates the object, or puts it right.
func (p *publisher) publish(ctx context.Context, name string) error {
	has, ok := p.bundles.Get("", name)
	if !ok {
		_, err := p.bundles.Create(ctx, &certificatesv1.ClusterTrustBundle{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: certificatesv1.ClusterTrustBundleSpec{SignerName: serving, TrustBundle: p.bundle},
		})
		return err
	}
	if has.Spec.TrustBundle == p.bundle {
		return nil
	}
	has = has.DeepCopy()
	has.Spec.TrustBundle = p.bundle
	_, err := p.bundles.Update(ctx, has)
	return err
}

// removeOthers deletes what was published before: who is not in the bundle any more is not believed.
func (p *publisher) removeOthers(ctx context.Context, name string) error {
	var errs []error
	for _, b := range p.bundles.List("", nil) {
		if b.Spec.SignerName != serving || b.Name == name {
			continue
		}
		if err := p.bundles.Delete(ctx, b); !apierrors.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
