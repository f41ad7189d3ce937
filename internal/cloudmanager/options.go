package cloudmanager

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/kemudi/kemudi/internal/cloud"
	"github.com/kemudi/kemudi/internal/controllers"
	"github.com/kemudi/kemudi/internal/leader"
	"github.com/kemudi/kemudi/internal/secureport"
)

// Name is that of the program, and of the lease that is held while the loops run.
const Name = "cloud-controller-manager"

// Options configure a cloud controller manager.
type Options struct {
	Kubeconfig string // --kubeconfig; empty: as the pod that this runs in
	Master     string // --master
	// ClusterCIDRs are the addresses of pods (--cluster-cidr).
	ClusterCIDRs []netip.Prefix
	Controllers  controllers.Options
	// Untagged says that what the cloud has need not be marked as this cluster's (--allow-untagged-cloud).
	Untagged bool
	Election leader.Settings // --leader-elect and others
	// Secure is the port on which the process tells of itself; the zero value serves nothing.
	Secure secureport.Options
	Logger *slog.Logger
}

// Begin is called before the loops run, for a cloud that asks the API itself. What it begins ends
// with ctx.
type Begin func(ctx context.Context, provider cloudprovider.Interface, config *rest.Config) error

// port is upstream's.
const port = 10258

// Defaults are the options of who is given none.
func Defaults() Options {
	o := Options{Secure: secureport.Defaults(port), ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}, Controllers: controllers.Defaults(), Election: leader.Defaults(), Logger: slog.Default()}
	o.Election.Names = []string{Name}
	o.Controllers.Syncs = controllers.CloudSyncs()
	return o
}

// check says what is wrong with the options.
func (o *Options) check() error {
	if o.Controllers.Cloud.Name == "" || o.Controllers.Cloud.Name == cloud.External {
		return errors.New("--cloud-provider: want the name of the cloud that the loops are to ask")
	}
	if len(o.Election.Names) != 1 {
		return errors.New("--leader-elect-resource-name: want one name")
	}
	if err := o.Election.Check(); err != nil {
		return err
	}
	return o.Secure.Check()
}

// AddFlags adds upstream's flags.
func (o *Options) AddFlags(f *pflag.FlagSet) {
	c := &o.Controllers.Cloud
	f.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "file that says where the API is and who asks; default: as the pod that this runs in")
	f.StringVar(&o.Master, "master", o.Master, "URL of the API server, in place of that in the kubeconfig")
	f.StringVar(&c.Name, "cloud-provider", c.Name, "the cloud: "+strings.Join(cloud.Names(), ", ")+", or in a vendor's program the vendor's")
	f.StringVar(&c.ConfigFile, "cloud-config", c.ConfigFile, "file that the cloud provider is configured by")
	f.StringVar(&c.ClusterName, "cluster-name", c.ClusterName, "by what the cloud tells this cluster's routes and balancers from those of others")
	f.Var((*prefixes)(&o.ClusterCIDRs), "cluster-cidr", "addresses of pods: routes to others are left alone")
	f.Bool("allocate-node-cidrs", true, "for scripts: nodes get their shares from the node IPAM controller, wherever that runs")
	f.Var((*not)(&c.NoRoutes), "configure-cloud-routes", "keep a route in the cloud for the pods of each node")
	f.Lookup("configure-cloud-routes").NoOptDefVal = "true"
	f.DurationVar(&c.RoutePeriod, "route-reconciliation-period", c.RoutePeriod, "how often the cloud's routes are looked at")
	f.DurationVar(&c.StatusPeriod, "node-status-update-frequency", c.StatusPeriod, "how often the cloud is asked for the addresses of nodes")
	f.DurationVar(&o.Controllers.NodeLifecycle.MonitorPeriod, "node-monitor-period", o.Controllers.NodeLifecycle.MonitorPeriod, "how often the cloud is asked about nodes that are not ready")
	f.BoolVar(&o.Untagged, "allow-untagged-cloud", o.Untagged, "run although the cloud does not say whose cluster its machines are")
	f.StringSliceVar(&o.Controllers.Enabled, "controllers", o.Controllers.Enabled, "loops that run: *, all; a name, that one; -name, all but that one. There are: "+strings.Join(controllers.CloudNames(), ", "))
	for i := range o.Controllers.Syncs {
		s := &o.Controllers.Syncs[i]
		f.IntVar(&s.Keys, s.Flag, s.Keys, "how many "+s.Of+" are worked on at once")
	}
	o.addElectionFlags(f)
	o.Secure.AddFlags(f)
}

func (o *Options) addElectionFlags(f *pflag.FlagSet) {
	e := &o.Election
	f.Var((*not)(&e.Off), "leader-elect", "elect, of several such processes, which runs the loops")
	f.Lookup("leader-elect").NoOptDefVal = "true"
	f.DurationVar(&e.LeaseDuration, "leader-elect-lease-duration", e.LeaseDuration, "how long others wait for a leader that is silent before they take over")
	f.DurationVar(&e.RenewDeadline, "leader-elect-renew-deadline", e.RenewDeadline, "how long a leader tries to renew its lease before it gives up; less than the lease's duration")
	f.DurationVar(&e.RetryPeriod, "leader-elect-retry-period", e.RetryPeriod, "how long it waits between two tries")
	f.StringVar(&e.Lock, "leader-elect-resource-lock", e.Lock, "kind of object that is held: leases")
	f.StringSliceVar(&e.Names, "leader-elect-resource-name", e.Names, "name of the lease")
	f.StringVar(&e.Namespace, "leader-elect-resource-namespace", e.Namespace, "namespace of the lease")
}
