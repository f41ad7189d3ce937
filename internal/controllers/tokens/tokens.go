package tokens

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/auth/authn"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/controller"
)

// New returns the controller of a cluster with the issuer and the CA bundle, in PEM.
func New(issuer *authn.Issuer, bundle string) *controller.Controller {
	return controller.New(controller.Spec[*corev1.Secret]{
		Name: "serviceaccount-token-controller",
		For:  core.Secrets,
		Watches: []controller.Watch{controller.Mapped(core.ServiceAccounts, func(k *controller.Kit, sa *corev1.ServiceAccount) []string {
			var keys []string
			for _, s := range controller.For(k, core.Secrets).List(sa.Namespace, nil) {
				if s.Type == corev1.SecretTypeServiceAccountToken && s.Annotations[corev1.ServiceAccountNameKey] == sa.Name {
					keys = append(keys, cache.Key(s.Namespace, s.Name))
				}
			}
			return keys
		})},
		Writes: []controller.Permission{
			controller.Update(core.Secrets.Def), controller.Delete(core.Secrets.Def), controller.Update(core.ServiceAccounts.Def),
		},
		Setup: func(k *controller.Kit) controller.Reconciler[*corev1.Secret] {
			return &reconciler{
				issuer: issuer, bundle: []byte(bundle),
				secrets: controller.For(k, core.Secrets), accounts: controller.For(k, core.ServiceAccounts),
			}
		},
	})
}

type reconciler struct {
	issuer   *authn.Issuer
	bundle   []byte
	secrets  controller.Client[*corev1.Secret]
	accounts controller.Client[*corev1.ServiceAccount]
}

// Reconcile fills a secret, or deletes it.
func (r *reconciler) Reconcile(ctx context.Context, s *corev1.Secret) (controller.Next, error) {
	name, uid := s.Annotations[corev1.ServiceAccountNameKey], s.Annotations[corev1.ServiceAccountUIDKey]
	if s.Type != corev1.SecretTypeServiceAccountToken || name == "" || s.DeletionTimestamp != nil {
		return controller.Done, nil
	}
	sa, ok := r.accounts.Get(s.Namespace, name)
	if !ok || uid != "" && string(sa.UID) != uid {
		return controller.Done, r.remove(ctx, s, name)
	}
	want, err := r.filled(s, sa)
	if err != nil || want == nil {
		return controller.Done, err
	}
	_, err = r.secrets.Update(ctx, want)
	return controller.Done, err
}

// remove deletes a secret whose account is gone: the cache may not show a new
// account yet.
func (r *reconciler) remove(ctx context.Context, s *corev1.Secret, account string) error {
	if sa, err := r.accounts.Live(ctx, s.Namespace, account); err == nil {
		if uid := s.Annotations[corev1.ServiceAccountUIDKey]; uid == "" || uid == string(sa.UID) {
			return nil // it is about to be seen
		}
	}
	return r.secrets.Delete(ctx, s)
}

// filled is the secret with all that it should have; nil if it has that.
func (r *reconciler) filled(s *corev1.Secret, sa *corev1.ServiceAccount) (*corev1.Secret, error) {
	data := maps.Clone(s.Data)
	if data == nil {
		data = map[string][]byte{}
	}
	if len(r.bundle) > 0 {
		data[corev1.ServiceAccountRootCAKey] = r.bundle
	}
	if len(data[corev1.ServiceAccountNamespaceKey]) == 0 {
		data[corev1.ServiceAccountNamespaceKey] = []byte(s.Namespace)
	}
	if len(data[corev1.ServiceAccountTokenKey]) == 0 {
		token, err := r.issuer.IssueLegacy(sa, s)
		if err != nil {
			return nil, fmt.Errorf("make token of service account %s: %w", sa.Name, err)
		}
		data[corev1.ServiceAccountTokenKey] = []byte(token)
	}
	if maps.EqualFunc(data, s.Data, bytes.Equal) && s.Annotations[corev1.ServiceAccountUIDKey] == string(sa.UID) {
		return nil, nil
	}
	s = s.DeepCopy()
	s.Data = data
	s.Annotations[corev1.ServiceAccountNameKey], s.Annotations[corev1.ServiceAccountUIDKey] = sa.Name, string(sa.UID)
	return s, nil
}

// Gone takes a secret that was deleted out of the lists of accounts.
func (r *reconciler) Gone(ctx context.Context, key string) error {
	namespace, name, _ := strings.Cut(key, "/")
	isIt := func(ref corev1.ObjectReference) bool { return ref.Name == name }
	for _, sa := range r.accounts.List(namespace, nil) {
		if !slices.ContainsFunc(sa.Secrets, isIt) {
			continue
		}
		sa = sa.DeepCopy()
		sa.Secrets = slices.DeleteFunc(sa.Secrets, isIt)
		if _, err := r.accounts.Update(ctx, sa); err != nil {
			return err
		}
	}
	return nil
}
