package main

import (
	"context"
	"log/slog"
	"slices"
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
			{name: "attach-detach-reconcile-sync-period", why: "what is attached is looked at when it changes"},
			{name: "disable-attach-detach-reconcile-sync", why: "what is attached is looked at when it changes", bool: true},
			{name: "flex-volume-plugin-dir", why: "there are no such volumes"},
			{name: "enable-dynamic-provisioning", why: "claims get volumes as their classes say", bool: true},
			{name: "enable-hostpath-provisioner", why: "claims get volumes as their classes say", bool: true},
			{name: "external-cloud-volume-plugin", why: "volumes of clouds are their drivers' affair"},
			{name: "enable-leader-migration", why: "which controllers run is for --controllers to say", bool: true},
			{name: "leader-migration-config", why: "which controllers run is for --controllers to say"},
			{name: "cidr-allocator-type", why: "a cloud gives nodes their addresses itself if --allocate-node-cidrs=false"},
			{name: "controller-start-interval", why: "controllers cost nothing when they begin together"},
			{name: "min-resync-period", why: actedOn},
			{name: "namespace-sync-period", why: actedOn},
			{name: "pvclaimbinder-sync-period", why: actedOn},
			{name: "endpoint-updates-batch-period", why: "changes that come together are written together"},
			{name: "endpointslice-updates-batch-period", why: "changes that come together are written together"},
			{name: "mirroring-endpointslice-updates-batch-period", why: "changes that come together are written together"},
			{name: "concurrent-validating-admission-policy-status-syncs", why: "types of policies are checked one after the other"},
		},
		shared: slices.Concat(clientIdle, portIdle),
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
	f.StringVar(&o.Keys.Signing.Cert, "cluster-signing-cert-file", o.Keys.Signing.Cert, "certificate of the authority that signs what is asked for; default: nothing is signed")
	f.StringVar(&o.Keys.Signing.Key, "cluster-signing-key-file", o.Keys.Signing.Key, "key of that certificate")
	for _, s := range parts.OwnSigners() {
		own := o.Keys.Signers[s]
		f.StringVar(&own.Cert, "cluster-signing-"+s.Flag+"-cert-file", own.Cert, "certificate of the authority that signs for "+s.Name+", in the place of --cluster-signing-cert-file; what has none is not signed then")
		f.StringVar(&own.Key, "cluster-signing-"+s.Flag+"-key-file", own.Key, "key of that certificate")
	}
	f.StringVar(&o.Keys.Accounts, "service-account-private-key-file", o.Keys.Accounts, "key that signs tokens of service accounts that are kept in secrets; default: there are none")
	f.Var((*prefixesFlag)(&o.ClusterCIDRs), "cluster-cidr", "addresses of pods")
	f.VarPF((*notFlag)(&o.NoGarbage), "enable-garbage-collector", "", "delete what owners that have gone leave behind").NoOptDefVal = "true"
	f.BoolVar(&o.NodeCIDRs, "allocate-node-cidrs", o.NodeCIDRs, "give nodes their shares of --cluster-cidr")
	f.StringVar(&c.Cloud.Name, "cloud-provider", c.Cloud.Name, "the cloud whose loops run here: "+strings.Join(cluster.CloudProviders(), ", ")+"; external: they run elsewhere; default none")
	f.StringVar(&c.Cloud.ConfigFile, "cloud-config", c.Cloud.ConfigFile, "file that a built-in cloud provider is configured by")
	f.StringVar(&c.Cloud.ClusterName, "cluster-name", c.Cloud.ClusterName, "by what the cloud tells this cluster's routes and balancers from those of others")
	f.VarPF((*notFlag)(&c.Cloud.NoRoutes), "configure-cloud-routes", "", "keep a route in the cloud for the pods of each node").NoOptDefVal = "true"
	f.DurationVar(&c.Cloud.RoutePeriod, "route-reconciliation-period", c.Cloud.RoutePeriod, "how often the cloud's routes are looked at")
	addControllersFlags(f, c)
	addTunedControllerFlags(f, c)
}
