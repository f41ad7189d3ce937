package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/cert-manager/cert-manager/pkg/controller"
	// Controllers and issuers list themselves: all that need no service elsewhere, and those of Ingresses.
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificate-shim/ingresses"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/selfsigned"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/metrics"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	_ "github.com/cert-manager/cert-manager/pkg/controller/clusterissuers"
	_ "github.com/cert-manager/cert-manager/pkg/controller/issuers"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned"
)

// runController runs the controllers, once it is their leader.
func runController(ctx context.Context, args []string) error {
	flags := pflag.NewFlagSet("controller", pflag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "the cluster")
	namespace := flags.String("leader-election-namespace", "kube-system", "of the lease, and of what belongs to ClusterIssuers")
	if err := flags.Parse(args); err != nil {
		return err
	}
	c, err := controller.NewContextFactory(ctx, contextOptions(*kubeconfig, *namespace))
	if err != nil {
		return err
	}
	leading, err := c.Build("leader-election")
	if err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	var ended error
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: *namespace, Name: "cert-manager-controller"}, Client: leading.Client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: fmt.Sprintf("%s-%d", host, os.Getpid()), EventRecorder: leading.Recorder},
		},
		LeaseDuration: time.Minute, RenewDeadline: 40 * time.Second, RetryPeriod: 15 * time.Second, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				ended = runAll(ctx, c)
				cancel()
			},
			OnStoppedLeading: func() {},
		},
	})
	return ended
}

// contextOptions are those that the project's own controller has by itself.
func contextOptions(kubeconfig, namespace string) controller.ContextOptions {
	return controller.ContextOptions{
		Kubeconfig: kubeconfig, KubernetesAPIQPS: 20, KubernetesAPIBurst: 50,
		IssuerOptions: controller.IssuerOptions{ClusterResourceNamespace: namespace, ClusterIssuerAmbientCredentials: true},
		ACMEOptions: controller.ACMEOptions{
			HTTP01SolverResourceRequestCPU: resource.MustParse("10m"), HTTP01SolverResourceRequestMemory: resource.MustParse("64Mi"),
			HTTP01SolverResourceLimitsCPU: resource.MustParse("100m"), HTTP01SolverResourceLimitsMemory: resource.MustParse("64Mi"),
			ACMEHTTP01SolverRunAsNonRoot: true, DNS01CheckRetryPeriod: 10 * time.Second,
		},
		IngressShimOptions: controller.IngressShimOptions{
			DefaultIssuerKind: "Issuer", DefaultIssuerGroup: "cert-manager.io", DefaultAutoCertificateAnnotations: []string{"kubernetes.io/tls-acme"},
		},
		CertificateOptions: controller.CertificateOptions{
			CopiedAnnotationPrefixes:                 []string{"*", "-kubectl.kubernetes.io/"},
			CertificateRequestMinimumBackoffDuration: time.Hour, CertificateRequestMaximumBackoffDuration: 32 * time.Hour,
		},
		SchedulerOptions: controller.SchedulerOptions{MaxConcurrentChallenges: 60},
	}
}

// runAll runs the controllers until ctx ends or one of them fails.
func runAll(ctx context.Context, c *controller.ContextFactory) error {
	built := map[string]controller.Interface{}
	for name, make := range controller.Known() {
		one, err := make(c)
		if err != nil {
			return fmt.Errorf("make controller %s: %w", name, err)
		}
		built[name] = one
	}
	base, err := c.Build()
	if err != nil {
		return err
	}
	base.SharedInformerFactory.Start(ctx.Done())
	base.KubeSharedInformerFactory.Start(ctx.Done())
	base.HTTP01ResourceMetadataInformersFactory.Start(ctx.Done())
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	ended := make(chan error, len(built)) // of each controller
	for name, one := range built {
		all.Go(func() {
			if err := one.Run(5, ctx); err != nil {
				ended <- fmt.Errorf("run controller %s: %w", name, err)
				cancel()
			}
		})
	}
	all.Wait()
	close(ended)
	var failed error
	for err := range ended {
		failed = errors.Join(failed, err)
	}
	return failed
}
