package acme

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/networking"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/gateway"
	"github.com/kemudi/kemudi/internal/resource"
)

// The Secret in kube-system with the key of the cluster's account.
const (
	accountSecret = "kemudi-acme-account"
	accountKey    = "account.key"
)

// settle is how long the edges have to hear of an account before they are asked for it. One that is later costs another try.
const settle = time.Second

// leastAge is how old a certificate gets at least, whatever its times and the machine's clock say.
const leastAge = 30 * time.Second

// New returns the controller.
func New(kinds controller.Kinds, o Options) *controller.Controller {
	return controller.NewKeyed(controller.Keyed{
		Name: "acme-controller",
		Watches: []controller.Watch{
			controller.Mapped(networking.Ingresses, func(_ *controller.Kit, i *networkingv1.Ingress) (keys []string) {
				for _, name := range secretsOf(i) {
					keys = append(keys, cache.Key(i.Namespace, name))
				}
				return keys
			}),
			controller.Mapped(core.Secrets, func(_ *controller.Kit, s *corev1.Secret) []string {
				if s.Type != corev1.SecretTypeTLS {
					return nil
				}
				return []string{cache.Key(s.Namespace, s.Name)}
			}),
		},
		Every: &controller.Every{
			Kinds: kinds,
			Of: func(def *resource.Def) (controller.Watch, bool) {
				return controller.Watch{Def: def, Keys: func(k *controller.Kit, obj resource.Object) []string { return wantedBy(k, kinds, def, obj) }}, ofGateways(def)
			},
			Changed: func(*controller.Kit) []string { return nil }, // what is new wakes its keys itself
		},
		Writes: []controller.Permission{
			controller.Create(core.Secrets.Def), controller.Update(core.Secrets.Def), controller.Update(networking.Ingresses.Def),
		},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{gateway.Group}, Resources: []string{"gateways", "gatewayclasses", "listenersets"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{gateway.Group}, Resources: []string{"gateways"}, Verbs: []string{"update"}},
		},
		Setup: func(k *controller.Kit) func(context.Context, string) (controller.Next, error) {
			r := &reconciler{o: o, k: k, kinds: kinds, ingresses: controller.For(k, networking.Ingresses), secrets: controller.For(k, core.Secrets), turn: make(chan struct{}, 1)}
			r.mu.held = map[string]held{}
			return r.reconcile
		},
	})
}

type reconciler struct {
	o         Options
	k         *controller.Kit
	kinds     controller.Kinds
	ingresses controller.Client[*networkingv1.Ingress]
	secrets   controller.Client[*corev1.Secret]
	turn      chan struct{} // holds a token while the account's key is looked for

	mu struct {
		sync.Mutex
		held map[string]held // by the keys of Secrets
	}
}

// held is a Secret for which nothing is tried for a time.
type held struct {
	until    time.Time
	failures int
	told     string // why, in the last event
}

// reconcile fills one Secret, if it is time.
func (r *reconciler) reconcile(ctx context.Context, key string) (controller.Next, error) {
	namespace, name, _ := strings.Cut(key, "/")
	from := r.askers(namespace, name)
	hosts := allHosts(from)
	if len(hosts) == 0 {
		r.release(key)
		return controller.Done, nil
	}
	secret, has := r.secrets.Get(namespace, name)
	if why := r.cannot(secret, hosts, from); why != "" {
		for _, a := range r.unsaid(key, why, from) {
			r.k.Events.Event(a.object, corev1.EventTypeWarning, "CertificateNotOrdered", why)
		}
		return controller.Done, nil
	}
	if has {
		if at, ok := renewal(secret, hosts); ok && time.Now().Before(at) {
			r.release(key)
			return controller.After(time.Until(at)), nil
		}
	}
	if !slices.ContainsFunc(from, func(a asker) bool { return !a.far && !a.waits }) {
		return controller.Done, nil // a Gateway that gets its address wakes its keys
	}
	if wait := r.heldFor(key); wait > 0 {
		return controller.After(wait), nil
	}
	account, err := r.account(ctx)
	if err != nil {
		return controller.Done, err
	}
	print, err := thumbprint(account)
	if err != nil {
		return controller.Done, err
	}
	changed, err := r.introduce(ctx, print, from)
	if err != nil {
		return controller.Done, err
	}
	if changed {
		r.hold(key, settle)
		return controller.After(settle), nil
	}
	chain, own, err := order(ctx, r.o, account, hosts)
	if ctx.Err() != nil {
		return controller.Done, ctx.Err()
	}
	if err != nil {
		wait := r.failed(key, refused(err))
		why := fmt.Sprintf("secret %q is not filled with a certificate, and it is tried again in %s or later: %v", name, wait, err)
		for _, a := range r.unsaid(key, why, from) {
			r.k.Events.Event(a.object, corev1.EventTypeWarning, "CertificateFailed", why)
		}
		return controller.After(wait), nil
	}
	if err := r.fill(ctx, key, secret, map[string][]byte{corev1.TLSCertKey: chain, corev1.TLSPrivateKeyKey: own}); err != nil {
		return controller.Done, err
	}
	r.release(key)
	r.hold(key, leastAge)
	for _, a := range from {
		r.k.Events.Event(a.object, corev1.EventTypeNormal, "CertificateIssued", fmt.Sprintf("secret %q has a new certificate for %s", name, strings.Join(hosts, ", ")))
	}
	return controller.Done, nil // the Secret wakes its key
}

// cannot says why nobody is asked for a certificate; empty: nothing is in the way.
func (r *reconciler) cannot(s *corev1.Secret, hosts []string, from []asker) string {
	wild := slices.IndexFunc(hosts, func(h string) bool { return strings.HasPrefix(h, "*") })
	switch {
	case r.o.Server == "":
		return "no server is known that signs certificates (--acme-server)"
	case wild >= 0:
		return fmt.Sprintf("%s cannot be had by a challenge of HTTP: name each host", hosts[wild])
	case !slices.ContainsFunc(from, func(a asker) bool { return !a.far }):
		return "ACME servers ask at port 80, at which the Gateway has no listener of protocol HTTP"
	case s != nil && s.Annotations[networking.AnnotationACMEServer] == "":
		return fmt.Sprintf("secret %q is somebody else's, and is left as it is: delete it, or name another one", s.Name)
	}
	return ""
}

// unsaid notes what is said of a Secret, and returns those that are to be told: nobody, if it has just been said.
func (r *reconciler) unsaid(key, message string, from []asker) []asker {
	r.mu.Lock()
	h := r.mu.held[key]
	same := h.told == message
	h.told = message
	r.mu.held[key] = h
	r.mu.Unlock()
	if same {
		return nil
	}
	r.k.Logger.Warn("a certificate is not had", "key", key, "why", message)
	return from
}

func (r *reconciler) release(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.mu.held, key)
}

func (r *reconciler) heldFor(key string) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Until(r.mu.held[key].until)
}

func (r *reconciler) hold(key string, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.mu.held[key]
	h.until = time.Now().Add(wait)
	r.mu.held[key] = h
}

func (r *reconciler) failed(key string, refused bool) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.mu.held[key]
	h.failures++
	wait := waitAfter(h.failures, refused)
	h.until = time.Now().Add(wait)
	r.mu.held[key] = h
	return wait
}

// account is the key of the cluster's account, which is made if there is none.
func (r *reconciler) account(ctx context.Context) (*ecdsa.PrivateKey, error) {
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	s, ok := r.secrets.Get(metav1.NamespaceSystem, accountSecret)
	if !ok {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, fmt.Errorf("make the key of an account: %w", err)
		}
		data, err := encodeKey(key)
		if err != nil {
			return nil, err
		}
		_, err = r.secrets.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: accountSecret}, Data: map[string][]byte{accountKey: data},
		})
		if err != nil { // that there is one already is seen soon
			return nil, fmt.Errorf("keep the key of an account: %w", err)
		}
		return key, nil
	}
	key, err := decodeKey(s.Data[accountKey])
	if err != nil {
		return nil, fmt.Errorf("read the account of secret %s: %w; delete it to have another one", accountSecret, err)
	}
	return key, nil
}

// fill puts a certificate into a Secret, which is nil if there is none.
func (r *reconciler) fill(ctx context.Context, key string, s *corev1.Secret, data map[string][]byte) error {
	namespace, name, _ := strings.Cut(key, "/")
	server := map[string]string{networking.AnnotationACMEServer: r.o.directory()}
	var err error
	if s == nil {
		_, err = r.secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: server}, Type: corev1.SecretTypeTLS, Data: data})
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return nil
		}
	} else {
		s = s.DeepCopy()
		s.Data = data
		for name, value := range server {
			s.Annotations[name] = value
		}
		_, err = r.secrets.Update(ctx, s)
	}
	if err != nil {
		return fmt.Errorf("keep a certificate: %w", err)
	}
	return nil
}
