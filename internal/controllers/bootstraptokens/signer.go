package bootstraptokens

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/auth/authn"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/controller"
)

// What is signed, and where the signatures are.
const (
	clusterInfo = "cluster-info" // in kube-public
	signed      = "kubeconfig"
	signatures  = "jws-kubeconfig-" // and the token's ID
)

// Signer signs cluster-info.
var Signer = controller.New(controller.Spec[*corev1.ConfigMap]{
	Name: "bootstrap-signer",
	For:  core.ConfigMaps,
	Watches: []controller.Watch{controller.Mapped(core.Secrets, func(_ *controller.Kit, s *corev1.Secret) []string {
		if s.Namespace != metav1.NamespaceSystem || s.Type != corev1.SecretTypeBootstrapToken {
			return nil
		}
		return []string{cache.Key(metav1.NamespacePublic, clusterInfo)}
	})},
	Writes:  []controller.Permission{controller.Update(core.ConfigMaps.Def)},
	Workers: 1, // there is one object
	Setup: func(k *controller.Kit) controller.Reconciler[*corev1.ConfigMap] {
		return &signer{maps: controller.For(k, core.ConfigMaps), secrets: controller.For(k, core.Secrets)}
	},
})

type signer struct {
	maps    controller.Client[*corev1.ConfigMap]
	secrets controller.Client[*corev1.Secret]
}

// Reconcile makes cluster-info have a signature of each token, and no others.
func (r *signer) Reconcile(ctx context.Context, cm *corev1.ConfigMap) (controller.Next, error) {
	content, ok := cm.Data[signed]
	if cm.Namespace != metav1.NamespacePublic || cm.Name != clusterInfo || cm.DeletionTimestamp != nil || !ok {
		return controller.Done, nil
	}
	data := maps.Clone(cm.Data)
	maps.DeleteFunc(data, func(key, _ string) bool { return strings.HasPrefix(key, signatures) })
	next, now := controller.Done, time.Now()
	var end time.Time // the first
	for _, s := range r.secrets.List(metav1.NamespaceSystem, nil) {
		t, ok := authn.ReadBootstrapToken(s)
		if !ok || !t.Signs || t.Ended(now) || s.DeletionTimestamp != nil {
			continue
		}
		data[signatures+t.ID] = sign(content, t.ID, t.Secret)
		if !t.Ends.IsZero() && (end.IsZero() || t.Ends.Before(end)) {
			end = t.Ends
			next = controller.After(end.Sub(now))
		}
	}
	if maps.Equal(data, cm.Data) {
		return next, nil
	}
	cm = cm.DeepCopy()
	cm.Data = data
	_, err := r.maps.Update(ctx, cm)
	return next, err
}

// sign is the JWS signature (HS256) of a content that is left out, in its
// compact form.
func sign(content, id, secret string) string {
	enc := base64.RawURLEncoding
	header := enc.EncodeToString([]byte(`{"alg":"HS256","kid":"` + id + `"}`))
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(header + "." + enc.EncodeToString([]byte(content))))
	return header + ".." + enc.EncodeToString(mac.Sum(nil))
}
