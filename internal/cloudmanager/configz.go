package cloudmanager

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/secureport"
)

// section is one of the sections of the configuration, by the names that its fields have on the wire.
type section = map[string]any

// configuration is how the loops are configured, as far as upstream's have the same settings. Fields of
// that kind have the names that they have in Go.
func (o *Options) configuration() secureport.Configuration {
	c := &o.Controllers.Cloud
	span := func(d time.Duration) metav1.Duration { return metav1.Duration{Duration: d} }
	cidrs := make([]string, len(o.ClusterCIDRs))
	for i, p := range o.ClusterCIDRs {
		cidrs[i] = p.String()
	}
	return secureport.Configuration{Name: "cloudcontrollermanager.config.k8s.io", Value: section{
		"kind": "CloudControllerManagerConfiguration", "apiVersion": "cloudcontrollermanager.config.k8s.io/v1alpha1",
		"Generic": section{
			"Port": o.Secure.Port, "Address": o.Secure.Bind.String(), "Controllers": o.Controllers.Enabled, "ClientConnection": section{"kubeconfig": o.Kubeconfig},
			"LeaderElection": section{
				"leaderElect": !o.Election.Off, "leaseDuration": span(o.Election.LeaseDuration), "renewDeadline": span(o.Election.RenewDeadline),
				"retryPeriod": span(o.Election.RetryPeriod), "resourceLock": o.Election.Lock, "resourceName": o.Election.Names[0], "resourceNamespace": o.Election.Namespace,
			},
			"Debugging": section{"enableProfiling": o.Secure.Profiling},
		},
		"KubeCloudShared": section{
			"CloudProvider": section{"Name": c.Name, "CloudConfigFile": c.ConfigFile}, "AllowUntaggedCloud": o.Untagged,
			"RouteReconciliationPeriod": span(c.RoutePeriod), "NodeMonitorPeriod": span(o.Controllers.NodeLifecycle.MonitorPeriod), "ClusterName": c.ClusterName,
			"ClusterCIDR": strings.Join(cidrs, ","), "ConfigureCloudRoutes": !c.NoRoutes,
		},
		"NodeStatusUpdateFrequency": span(c.StatusPeriod),
	}}
}
