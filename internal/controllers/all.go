package controllers

import (
	"net/netip"

	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/controllers/deployment"
	"github.com/kemudi/kemudi/internal/controllers/endpoints"
	"github.com/kemudi/kemudi/internal/controllers/endpointslice"
	"github.com/kemudi/kemudi/internal/controllers/garbagecollector"
	"github.com/kemudi/kemudi/internal/controllers/namespace"
	"github.com/kemudi/kemudi/internal/controllers/nodeipam"
	"github.com/kemudi/kemudi/internal/controllers/nodelifecycle"
	"github.com/kemudi/kemudi/internal/controllers/podgc"
	"github.com/kemudi/kemudi/internal/controllers/replicaset"
	"github.com/kemudi/kemudi/internal/controllers/rootca"
	"github.com/kemudi/kemudi/internal/controllers/serviceaccount"
	"github.com/kemudi/kemudi/internal/controllers/tainteviction"
	"github.com/kemudi/kemudi/internal/resource"
)

// Options configure the controllers. Zero values are upstream's defaults,
// except where noted.
type Options struct {
	Defs     []*resource.Def // all resources of the server; required
	CABundle string          // PEM of the cluster's CA; required
	PodCIDRs []netip.Prefix  // what nodes get their shares from; none: nobody gives any

	MaxEndpointsPerSlice int // --max-endpoints-per-slice; default 100
	PodGCThreshold       int // --terminated-pod-gc-threshold; default 12500
	NodeLifecycle        nodelifecycle.Options
}

// All returns the controllers, in no particular order.
func All(o Options) []*controller.Controller {
	if o.MaxEndpointsPerSlice == 0 {
		o.MaxEndpointsPerSlice = endpointslice.DefaultLimit
	}
	if o.PodGCThreshold == 0 {
		o.PodGCThreshold = podgc.DefaultThreshold
	}
	all := []*controller.Controller{
		namespace.New(o.Defs),
		serviceaccount.Controller,
		rootca.New(o.CABundle),
		replicaset.Controller,
		deployment.Controller,
		endpointslice.New(o.MaxEndpointsPerSlice),
		endpoints.Controller,
		nodelifecycle.New(o.NodeLifecycle),
		tainteviction.Controller,
		garbagecollector.New(o.Defs),
		podgc.New(o.PodGCThreshold),
	}
	if len(o.PodCIDRs) > 0 {
		all = append(all, nodeipam.New(o.PodCIDRs))
	}
	return all
}
