// Command operator is an operator as most are written, on the newest controller-runtime: a kind of two versions
// with conversion, mutating and validating webhooks, caches with selectors, watches of metadata alone,
// server-side apply, finalizers, owners, status, scale, events, leader election and guarded metrics. It installs itself in
// the cluster of $KUBECONFIG as the library's test environment does, goes through a story there, in the namespace that its argument
// names, and ends with an error at what was otherwise than on any other Kubernetes.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	corev1 "k8s.io/api/core/v1"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "operator:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 2 {
		return errors.New("want one argument, the namespace")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	ctrl.SetLogger(klog.Background())
	c, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme)); err != nil {
		return err
	}
	addToScheme(scheme)
	existing := true
	env := &envtest.Environment{
		UseExistingCluster: &existing, Config: c, Scheme: scheme,
		CRDInstallOptions: envtest.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{definition()}, CleanUpAfterUse: true, Scheme: scheme},
		WebhookInstallOptions: envtest.WebhookInstallOptions{
			MutatingWebhooks: mutating(), ValidatingWebhooks: validating(),
		},
	}
	if _, err := env.Start(); err != nil {
		return fmt.Errorf("install: %w", err)
	}
	s := &story{config: c, scheme: scheme, env: env, namespace: os.Args[1], leads: make(chan string, 2)}
	err = s.tell(ctx)
	return errors.Join(err, s.cleanUp(context.WithoutCancel(ctx)), env.Stop())
}

// hook is how the webhooks are called: the test environment fills in where.
func hook(path string) (admissionregistrationv1.WebhookClientConfig, []admissionregistrationv1.RuleWithOperations) {
	all := admissionregistrationv1.NamespacedScope
	return admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Name: "gardener", Namespace: "default", Path: &path}},
		[]admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{"CREATE", "UPDATE", "DELETE"},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{v1.Group}, APIVersions: []string{v1.Version}, Resources: []string{"gardens"}, Scope: &all},
		}}
}

func mutating() []*admissionregistrationv1.MutatingWebhookConfiguration {
	none := admissionregistrationv1.SideEffectClassNone
	to, on := hook("/mutate-gardens-example-com-v1-garden")
	on[0].Operations = on[0].Operations[:2]
	return []*admissionregistrationv1.MutatingWebhookConfiguration{{
		TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "MutatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: "gardener"},
		Webhooks:   []admissionregistrationv1.MutatingWebhook{{Name: "default.gardens.example.com", ClientConfig: to, Rules: on, SideEffects: &none, AdmissionReviewVersions: []string{"v1"}}},
	}}
}

func validating() []*admissionregistrationv1.ValidatingWebhookConfiguration {
	none := admissionregistrationv1.SideEffectClassNone
	to, on := hook("/validate-gardens-example-com-v1-garden")
	return []*admissionregistrationv1.ValidatingWebhookConfiguration{{
		TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: "gardener"},
		Webhooks:   []admissionregistrationv1.ValidatingWebhook{{Name: "check.gardens.example.com", ClientConfig: to, Rules: on, SideEffects: &none, AdmissionReviewVersions: []string{"v1"}}},
	}}
}

// newManager makes an operator of its own.
func (s *story) newManager(name string, hooks webhook.Server) (manager.Manager, error) {
	tools, err := labels.NewRequirement(toolLabel, selection.Exists, nil)
	if err != nil {
		return nil, err
	}
	lease, renew, retry, again := 3*time.Second, 2*time.Second, 200*time.Millisecond, true
	own := rest.CopyConfig(s.config)
	own.UserAgent = name
	return ctrl.NewManager(own, ctrl.Options{
		Scheme:         s.scheme,
		LeaderElection: hooks == nil, LeaderElectionID: "gardener", LeaderElectionNamespace: s.namespace, LeaderElectionReleaseOnCancel: true,
		LeaseDuration: &lease, RenewDeadline: &renew, RetryPeriod: &retry,
		Metrics:       metricsserver.Options{BindAddress: "127.0.0.1:0", SecureServing: true, CertDir: s.env.WebhookInstallOptions.LocalServingCertDir, FilterProvider: filters.WithAuthenticationAndAuthorization},
		WebhookServer: hooks,
		Cache: cache.Options{
			DefaultNamespaces: map[string]cache.Config{s.namespace: {}},
			ByObject:          map[client.Object]cache.ByObject{&corev1.Secret{}: {Label: labels.NewSelector().Add(*tools)}},
		},
		Controller: config.Controller{SkipNameValidation: &again},
	})
}

// startWebhooks runs what answers for the webhooks until what it returns is called.
func (s *story) startWebhooks(ctx context.Context) (stop func() error, err error) {
	o := s.env.WebhookInstallOptions
	m, err := s.newManager("webhooks", webhook.NewServer(webhook.Options{Host: o.LocalServingHost, Port: o.LocalServingPort, CertDir: o.LocalServingCertDir}))
	if err != nil {
		return nil, err
	}
	if err := setUpWebhooks(m); err != nil {
		return nil, err
	}
	return s.start(ctx, m, func() {}), nil
}

// startController runs a controller until what it returns is called, and puts its name into leads once it leads.
func (s *story) startController(ctx context.Context, name string) (stop func() error, err error) {
	m, err := s.newManager(name, nil)
	if err != nil {
		return nil, err
	}
	if err := setUpController(ctx, m, name); err != nil {
		return nil, err
	}
	return s.start(ctx, m, func() { s.leads <- name }), nil
}

// start runs a manager until what it returns is called, and tells when it leads.
func (s *story) start(ctx context.Context, m manager.Manager, leads func()) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	var ended error
	wg.Go(func() { ended = m.Start(ctx) })
	wg.Go(func() {
		select {
		case <-m.Elected():
			leads()
		case <-ctx.Done():
		}
	})
	return func() error {
		cancel()
		wg.Wait()
		return ended
	}
}
