package cloud

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	cloudprovider "k8s.io/cloud-provider"

	"github.com/kemudi/kemudi/internal/cloud"
	"github.com/kemudi/kemudi/internal/cloud/scale"
	"github.com/kemudi/kemudi/internal/controller"
)

// Options say which cloud there is and how often it is asked. The zero value is a cluster
// without one; what else is zero is as upstream.
type Options struct {
	// Name is the provider's (--cloud-provider): empty, there is no cloud; external, another
	// program takes care of it.
	Name string
	// ConfigFile says what a built-in provider is to know (--cloud-config).
	ConfigFile string
	Provider   cloudprovider.Interface // as it was opened; nil: no loop runs
	// ClusterName is how the cloud tells what this cluster has from what others have (--cluster-name).
	ClusterName string
	// ClusterCIDRs are the pods' addresses: routes to others are left alone.
	ClusterCIDRs []netip.Prefix
	// NoRoutes says that the cloud's routes are somebody else's (--configure-cloud-routes=false).
	NoRoutes bool
	// RoutePeriod is how often the cloud's routes are looked at (--route-reconciliation-period).
	RoutePeriod time.Duration
	// StatusPeriod is how often the addresses of nodes are asked for (--node-status-update-frequency).
	StatusPeriod time.Duration
	// MonitorPeriod is how often the cloud is asked about nodes that are not ready
	// (--node-monitor-period).
	MonitorPeriod time.Duration
}

// Defaults are the options of loops that are given none.
func Defaults() Options { return Options{}.withDefaults() }

func (o Options) withDefaults() Options {
	o.ClusterName = cmp.Or(o.ClusterName, "kubernetes")
	o.RoutePeriod = cmp.Or(o.RoutePeriod, 10*time.Second)
	o.StatusPeriod = cmp.Or(o.StatusPeriod, 5*time.Minute)
	o.MonitorPeriod = cmp.Or(o.MonitorPeriod, 5*time.Second)
	return o
}

// Check says what is wrong with the options.
func (o Options) Check() error {
	if o.ConfigFile != "" && (o.Name == "" || o.Name == cloud.External) {
		return errors.New("--cloud-config is of a built-in --cloud-provider")
	}
	if err := cloud.Check(o.Name); err != nil {
		return err
	}
	for flag, d := range map[string]time.Duration{
		"route-reconciliation-period": o.RoutePeriod, "node-status-update-frequency": o.StatusPeriod, "node-monitor-period": o.MonitorPeriod,
	} {
		if d < 0 {
			return fmt.Errorf("--%s %s must not be negative", flag, d)
		}
	}
	return nil
}

// A Lack is a loop that the cloud has nothing for.
type Lack struct{ Loop, Why string }

// Lacks are the loops that do not run, and why.
func (o Options) Lacks() (out []Lack) {
	if _, err := o.machines(); err != nil {
		out = append(out, Lack{nodeName, err.Error()}, Lack{lifecycleName, err.Error()})
	}
	if _, ok := o.Provider.Routes(); o.NoRoutes {
		out = append(out, Lack{routeName, "--configure-cloud-routes is false"})
	} else if !ok {
		out = append(out, Lack{routeName, "the cloud provider does not support routes"})
	}
	if _, ok := o.Provider.LoadBalancer(); !ok {
		out = append(out, Lack{serviceName, "the cloud provider does not support external load balancers"})
	}
	return out
}

// Balances says that the cloud has the balancers of Services without a class, or the program that
// takes care of it.
func (o Options) Balances() bool {
	if o.Provider == nil {
		return o.Name != ""
	}
	_, ok := o.Provider.LoadBalancer()
	return ok
}

// Has says that a controller is not one of those loops.
func (o Options) Has(c *controller.Controller) bool {
	return !slices.ContainsFunc(o.Lacks(), func(l Lack) bool { return l.Loop == c.Name })
}

// Scale is the cloud's machines that come and go as pods need them, if it has such.
func (o Options) Scale() (scale.Cloud, bool) {
	if p, ok := o.Provider.(interface{ Scale() (scale.Cloud, bool) }); ok {
		return p.Scale()
	}
	return nil, false
}

// The loops are named after their service accounts, upstream's where it has ones of their own.
const (
	nodeName      = "cloud-node-controller"
	lifecycleName = "cloud-node-lifecycle-controller"
	routeName     = "route-controller"
	serviceName   = "service-controller"
	// scalerName is that of package clusterautoscaler.
	scalerName = "cluster-autoscaler"
)

// Loop says that a controller is one that looks after a cloud.
func Loop(c *controller.Controller) bool {
	return slices.Contains([]string{nodeName, lifecycleName, routeName, serviceName, scalerName}, c.Name)
}

// errNoInstances is upstream's.
var errNoInstances = errors.New("cloud provider does not support instances")

func (o Options) machines() (machines, error) {
	if v2, ok := o.Provider.InstancesV2(); ok && v2 != nil {
		return newer{v2}, nil
	}
	if v1, ok := o.Provider.Instances(); ok && v1 != nil {
		zones, _ := o.Provider.Zones()
		return older{o.Provider, v1, zones}, nil
	}
	return nil, errNoInstances
}
