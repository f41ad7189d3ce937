package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	kubeletconfig "k8s.io/kubelet/config/v1"
	config "k8s.io/kubelet/config/v1beta1"
)

// Account is a pod's service account, as far as credential providers may know it (KEP-4412).
type Account struct {
	Get func(ctx context.Context) (*v1.ServiceAccount, error)
	// Token asks for a token for an audience that is bound to the pod.
	Token func(ctx context.Context, audience string) (string, error)
}

// bearer is what one provider is told of a pod's service account. The zero value: nothing.
type bearer struct {
	account     *config.ImagePullServiceAccount
	annotations map[string]string
	token       func(ctx context.Context) (string, error)
	once        bool // what it answers is good for this pod only
}

// checkTokens says what is wrong with what a provider wants of service accounts.
func checkTokens(t *kubeletconfig.ServiceAccountTokenAttributes) error {
	switch {
	case t == nil:
		return nil
	case t.ServiceAccountTokenAudience == "":
		return errors.New("tokenAttributes.serviceAccountTokenAudience is required")
	case t.RequireServiceAccount == nil:
		return errors.New("tokenAttributes.requireServiceAccount is required")
	case t.CacheType != kubeletconfig.ServiceAccountServiceAccountTokenCacheType && t.CacheType != kubeletconfig.TokenServiceAccountTokenCacheType:
		return fmt.Errorf("tokenAttributes.cacheType %q: want ServiceAccount or Token", t.CacheType)
	case len(t.RequiredServiceAccountAnnotationKeys) > 0 && !*t.RequireServiceAccount:
		return errors.New("tokenAttributes.requireServiceAccount must be true where requiredServiceAccountAnnotationKeys names some")
	}
	all := slices.Concat(t.RequiredServiceAccountAnnotationKeys, t.OptionalServiceAccountAnnotationKeys)
	for i, key := range all {
		if problems := validation.IsQualifiedName(key); len(problems) > 0 {
			return fmt.Errorf("tokenAttributes: annotation key %q: %s", key, problems[0])
		}
		if slices.Contains(all[:i], key) {
			return fmt.Errorf("tokenAttributes: annotation key %q is there twice", key)
		}
	}
	return nil
}

// bearerOf is what a provider is told of the service account of a pod; nil: that has none. Ok is false where
// the provider is not for such pods.
func bearerOf(ctx context.Context, t *kubeletconfig.ServiceAccountTokenAttributes, a *Account) (b bearer, ok bool, err error) {
	switch {
	case t == nil:
		return b, true, nil
	case a == nil:
		return b, !*t.RequireServiceAccount, nil
	}
	sa, err := a.Get(ctx)
	if err != nil {
		return b, false, fmt.Errorf("look at the pod's service account: %w", err)
	}
	b.annotations = map[string]string{}
	for _, key := range slices.Concat(t.RequiredServiceAccountAnnotationKeys, t.OptionalServiceAccountAnnotationKeys) {
		value, has := sa.Annotations[key]
		if has {
			b.annotations[key] = value
		} else if slices.Contains(t.RequiredServiceAccountAnnotationKeys, key) {
			return b, false, fmt.Errorf("service account %s/%s has no annotation %s", sa.Namespace, sa.Name, key)
		}
	}
	b.account = accountOf(sa)
	b.token = func(ctx context.Context) (string, error) { return a.Token(ctx, t.ServiceAccountTokenAudience) }
	b.once = t.CacheType == kubeletconfig.TokenServiceAccountTokenCacheType
	return b, true, nil
}

func accountOf(sa *v1.ServiceAccount) *config.ImagePullServiceAccount {
	return &config.ImagePullServiceAccount{UID: string(sa.UID), Namespace: sa.Namespace, Name: sa.Name}
}

// key tells apart for whom answers are good.
func (b bearer) key() string {
	if b.account == nil {
		return ""
	}
	data, err := json.Marshal([]any{b.account, b.annotations})
	if err != nil {
		panic(fmt.Sprintf("encode service account %s/%s: %v", b.account.Namespace, b.account.Name, err))
	}
	return string(data)
}
