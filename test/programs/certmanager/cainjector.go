package main

import (
	"context"
	"errors"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"github.com/cert-manager/cert-manager/pkg/controller/cainjector"
	"github.com/cert-manager/cert-manager/pkg/util"
)

// runInjector writes authorities into whatever asks for one by annotation.
func runInjector(ctx context.Context, args []string) error {
	flags := pflag.NewFlagSet("cainjector", pflag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "the cluster")
	namespace := flags.String("leader-election-namespace", "kube-system", "of the lease")
	if err := flags.Parse(args); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme), apiregistrationv1.AddToScheme(scheme), certmanager.AddToScheme(scheme)); err != nil {
		return err
	}
	m, err := ctrl.NewManager(util.RestConfigWithUserAgent(config, "cainjector"), ctrl.Options{
		Scheme: scheme, LeaderElection: true, LeaderElectionID: "cert-manager-cainjector-leader-election", LeaderElectionNamespace: *namespace,
		LeaderElectionReleaseOnCancel: true, Metrics: server.Options{BindAddress: "0"},
		// It watches the metadata of Secrets alone.
		Client: client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}},
	})
	if err != nil {
		return err
	}
	if err := cainjector.RegisterAllInjectors(ctx, m, cainjector.SetupOptions{EnableCertificatesDataSource: true, EnabledReconcilersFor: map[string]bool{
		cainjector.MutatingWebhookConfigurationName: true, cainjector.ValidatingWebhookConfigurationName: true,
		cainjector.APIServiceName: true, cainjector.CustomResourceDefinitionName: true,
	}}); err != nil {
		return err
	}
	return m.Start(ctx)
}
