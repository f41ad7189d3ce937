package tokens

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/resource"
)

// Options configure the cleaner. The zero value is upstream's.
type Options struct {
	// CleanUpPeriod is for how long a token must not have been used before it is taken from
	// service, and then again before it is deleted (--legacy-service-account-token-clean-up-period).
	CleanUpPeriod time.Duration
}

// Defaults are the options of a cleaner that is given none.
func Defaults() Options { return Options{}.withDefaults() }

func (o Options) withDefaults() Options {
	o.CleanUpPeriod = cmp.Or(o.CleanUpPeriod, 365*24*time.Hour)
	return o
}

// Check says what is wrong with the options.
func (o Options) Check() error {
	if o.CleanUpPeriod < 0 {
		return errors.New("--legacy-service-account-token-clean-up-period must be positive")
	}
	return nil
}

// tracking is the config map of kube-system that says since when the uses of tokens are
// noted.
const (
	tracking = "kube-apiserver-legacy-service-account-token-tracking"
	since    = "since"
)

// NewCleaner returns the controller that deletes tokens which the cluster itself has made for
// an account, long ago, and which nobody uses.
func NewCleaner(o Options) *controller.Controller {
	period := o.withDefaults().CleanUpPeriod
	return controller.New(controller.Spec[*corev1.Secret]{
		Name:  "legacy-service-account-token-cleaner",
		For:   core.Secrets,
		Reads: []*resource.Def{core.ServiceAccounts.Def, core.Pods.Def, core.ConfigMaps.Def},
		Writes: []controller.Permission{
			controller.Patch(core.Secrets.Def, ""), controller.Delete(core.Secrets.Def), controller.Create(core.ConfigMaps.Def),
		},
		Workers: 1, // there is little to do
		Setup: func(k *controller.Kit) controller.Reconciler[*corev1.Secret] {
			return &cleaner{
				k: k, period: period, secrets: controller.For(k, core.Secrets), accounts: controller.For(k, core.ServiceAccounts),
				pods: controller.For(k, core.Pods), maps: controller.For(k, core.ConfigMaps),
			}
		},
	})
}

type cleaner struct {
	k        *controller.Kit
	period   time.Duration
	secrets  controller.Client[*corev1.Secret]
	accounts controller.Client[*corev1.ServiceAccount]
	pods     controller.Client[*corev1.Pod]
	maps     controller.Client[*corev1.ConfigMap]
}

// Reconcile takes a token from service that was not used for long, and deletes it when it was
// not missed for as long.
func (c *cleaner) Reconcile(ctx context.Context, s *corev1.Secret) (controller.Next, error) {
	if s.Type != corev1.SecretTypeServiceAccountToken || s.DeletionTimestamp != nil {
		return controller.Done, nil
	}
	tracked, err := c.trackedSince(ctx)
	if err != nil {
		return controller.Done, err
	}
	now := time.Now().UTC()
	tomorrow := controller.After(now.Truncate(24 * time.Hour).Add(24 * time.Hour).Sub(now))
	long := now.Add(-c.period)
	if tracked.After(long) || s.CreationTimestamp.After(long) || !c.ofAccount(s) || c.used(s, long) {
		return tomorrow, nil
	}
	invalid, err := time.Parse(time.DateOnly, s.Labels[core.LabelTokenInvalidSince])
	switch {
	case err != nil:
		c.k.Logger.Info("a token that nobody uses is invalid from now on", "secret", s.Namespace+"/"+s.Name)
		_, err := c.secrets.MergePatch(ctx, s, "", map[string]any{
			"metadata": map[string]any{"labels": map[string]string{core.LabelTokenInvalidSince: now.Format(time.DateOnly)}},
		})
		return tomorrow, err
	case !invalid.Before(long.Truncate(24 * time.Hour)):
		return tomorrow, nil
	}
	c.k.Logger.Info("delete a token that nobody uses", "secret", s.Namespace+"/"+s.Name, "invalid", invalid)
	return controller.Done, c.secrets.Delete(ctx, s)
}

// ofAccount says that the secret is in the list of its account: it was made by a cluster of old,
// and not by a person.
func (c *cleaner) ofAccount(s *corev1.Secret) bool {
	sa, ok := c.accounts.Get(s.Namespace, s.Annotations[corev1.ServiceAccountNameKey])
	if uid := s.Annotations[corev1.ServiceAccountUIDKey]; !ok || uid != "" && uid != string(sa.UID) {
		return false
	}
	return slices.ContainsFunc(sa.Secrets, func(ref corev1.ObjectReference) bool { return ref.Name == s.Name })
}

// used says that the token was used since, or may be: a pod mounts the secret, or nobody can tell.
func (c *cleaner) used(s *corev1.Secret, since time.Time) bool {
	if text, ok := s.Labels[core.LabelTokenLastUsed]; ok {
		last, err := time.Parse(time.DateOnly, text)
		if err != nil || !last.Before(since.Truncate(24*time.Hour)) {
			return true
		}
	}
	for _, pod := range c.pods.List(s.Namespace, nil) {
		for ref := range core.References(pod) {
			if ref.Kind == core.ToSecret && ref.Name == s.Name {
				return true
			}
		}
	}
	return false
}

// trackedSince is the beginning of the first day of which all uses are noted. The first who asks
// sets it.
func (c *cleaner) trackedSince(ctx context.Context) (time.Time, error) {
	cm, ok := c.maps.Get(metav1.NamespaceSystem, tracking)
	if !ok {
		var err error
		cm, err = c.maps.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: tracking},
			Data:       map[string]string{since: time.Now().UTC().Format(time.DateOnly)},
		})
		if apierrors.IsAlreadyExists(err) {
			cm, err = c.maps.Live(ctx, metav1.NamespaceSystem, tracking)
		}
		if err != nil {
			return time.Time{}, err
		}
	}
	first, err := time.Parse(time.DateOnly, cm.Data[since])
	if err != nil {
		return time.Time{}, fmt.Errorf("config map %s: %w", tracking, err)
	}
	return first.AddDate(0, 0, 1), nil
}
