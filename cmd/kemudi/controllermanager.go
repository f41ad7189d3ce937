package main

import (
	"context"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kemudi/kemudi/internal/cluster"
	"github.com/kemudi/kemudi/internal/parts"
)

func newControllerManager() *cobra.Command {
	o := parts.DefaultControllerManager()
	return part{
		name: parts.ControllerManagerName, short: "Run the controllers alone, in the foreground",
		long: `Runs the controllers of a cluster whose API server is another process. Of several such
processes one works; the others wait for it to end.`,
		example: `  kemudi kube-controller-manager --kubeconfig controller-manager.conf --use-service-account-credentials --root-ca-file ca.crt --service-account-private-key-file sa.key --cluster-signing-cert-file ca.crt --cluster-signing-key-file ca.key
  ln -s $(command -v kemudi) /usr/local/bin/kube-controller-manager`,
		flags: func(f *pflag.FlagSet) { addControllerManagerFlags(f, &o) },
		idle: []idleFlag{
			featureGates,
			{name: "service-cluster-ip-range", why: "no controller gives out addresses of services"},
			{name: "kube-api-qps", why: "calls are limited by number, not by rate"},
			{name: "kube-api-burst", why: "calls are limited by number, not by rate"},
			{name: "attach-detach-reconcile-sync-period", why: "what is attached is looked at when it changes"},
			{name: "disable-attach-detach-reconcile-sync", why: "what is attached is looked at when it changes", bool: true},
			{name: "flex-volume-plugin-dir", why: "there are no such volumes"},
		},
		run: func(ctx context.Context, log *slog.Logger, _ func(string, bool)) error {
			o.Logger = log
			return o.Run(ctx)
		},
	}.command()
}

func addControllerManagerFlags(f *pflag.FlagSet, o *parts.ControllerManager) {
	c := &o.Controllers
	addKubeconfigFlags(f, &o.API)
	o.Secure.AddFlags(f)
	addEmulationFlags(f, &o.API.Emulated, &o.API.Compatible)
	addOfficeFlags(f, &o.Election)
	f.BoolVar(&o.Accounts, "use-service-account-credentials", o.Accounts, "have each controller write as a service account of its own in kube-system")
	f.StringVar(&o.Keys.RootCA, "root-ca-file", o.Keys.RootCA, "certificates that pods are to trust; default those of the kubeconfig")
	f.StringVar(&o.Keys.SigningCert, "cluster-signing-cert-file", o.Keys.SigningCert, "certificate of the authority that signs what is asked for; default: nothing is signed")
	f.StringVar(&o.Keys.SigningKey, "cluster-signing-key-file", o.Keys.SigningKey, "key of that certificate")
	f.StringVar(&o.Keys.Accounts, "service-account-private-key-file", o.Keys.Accounts, "key that signs tokens of service accounts that are kept in secrets; default: there are none")
	f.Var((*prefixesFlag)(&o.ClusterCIDRs), "cluster-cidr", "addresses of pods")
	f.BoolVar(&o.NodeCIDRs, "allocate-node-cidrs", o.NodeCIDRs, "give nodes their shares of --cluster-cidr")
	f.StringVar(&c.Cloud.Name, "cloud-provider", c.Cloud.Name, "the cloud whose loops run here: "+strings.Join(cluster.CloudProviders(), ", ")+"; external: they run elsewhere; default none")
	f.StringVar(&c.Cloud.ConfigFile, "cloud-config", c.Cloud.ConfigFile, "file that a built-in cloud provider is configured by")
	f.StringVar(&c.Cloud.ClusterName, "cluster-name", c.Cloud.ClusterName, "by what the cloud tells this cluster's routes and balancers from those of others")
	f.VarPF((*notFlag)(&c.Cloud.NoRoutes), "configure-cloud-routes", "", "keep a route in the cloud for the pods of each node").NoOptDefVal = "true"
	f.DurationVar(&c.Cloud.RoutePeriod, "route-reconciliation-period", c.Cloud.RoutePeriod, "how often the cloud's routes are looked at")
	addControllersFlags(f, c)
	addTunedControllerFlags(f, c)
}
