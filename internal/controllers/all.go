package controllers

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kemudi/kemudi/internal/auth/authn"
	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/controllers/acme"
	"github.com/kemudi/kemudi/internal/controllers/attachdetach"
	"github.com/kemudi/kemudi/internal/controllers/bootstraptokens"
	"github.com/kemudi/kemudi/internal/controllers/certificates"
	"github.com/kemudi/kemudi/internal/controllers/cloud"
	"github.com/kemudi/kemudi/internal/controllers/clusterautoscaler"
	"github.com/kemudi/kemudi/internal/controllers/clusterdns"
	"github.com/kemudi/kemudi/internal/controllers/clusterip"
	"github.com/kemudi/kemudi/internal/controllers/clusterroleaggregation"
	"github.com/kemudi/kemudi/internal/controllers/cronjob"
	"github.com/kemudi/kemudi/internal/controllers/daemonset"
	"github.com/kemudi/kemudi/internal/controllers/deployment"
	"github.com/kemudi/kemudi/internal/controllers/devicetainteviction"
	"github.com/kemudi/kemudi/internal/controllers/disruption"
	"github.com/kemudi/kemudi/internal/controllers/endpoints"
	"github.com/kemudi/kemudi/internal/controllers/endpointslice"
	"github.com/kemudi/kemudi/internal/controllers/endpointslicemirroring"
	"github.com/kemudi/kemudi/internal/controllers/ephemeralvolume"
	"github.com/kemudi/kemudi/internal/controllers/flowcontrol"
	"github.com/kemudi/kemudi/internal/controllers/garbagecollector"
	"github.com/kemudi/kemudi/internal/controllers/gateway"
	"github.com/kemudi/kemudi/internal/controllers/ingress"
	"github.com/kemudi/kemudi/internal/controllers/job"
	"github.com/kemudi/kemudi/internal/controllers/loadbalancer"
	"github.com/kemudi/kemudi/internal/controllers/localvolume"
	"github.com/kemudi/kemudi/internal/controllers/namespace"
	"github.com/kemudi/kemudi/internal/controllers/nodeipam"
	"github.com/kemudi/kemudi/internal/controllers/nodelifecycle"
	"github.com/kemudi/kemudi/internal/controllers/nodettl"
	"github.com/kemudi/kemudi/internal/controllers/persistentvolume"
	"github.com/kemudi/kemudi/internal/controllers/podautoscaler"
	"github.com/kemudi/kemudi/internal/controllers/podgc"
	"github.com/kemudi/kemudi/internal/controllers/podgroupprotection"
	"github.com/kemudi/kemudi/internal/controllers/policystatus"
	"github.com/kemudi/kemudi/internal/controllers/replicaset"
	"github.com/kemudi/kemudi/internal/controllers/resourceclaim"
	"github.com/kemudi/kemudi/internal/controllers/resourcequota"
	"github.com/kemudi/kemudi/internal/controllers/rootca"
	"github.com/kemudi/kemudi/internal/controllers/serverrole"
	"github.com/kemudi/kemudi/internal/controllers/serviceaccount"
	"github.com/kemudi/kemudi/internal/controllers/servicecidr"
	"github.com/kemudi/kemudi/internal/controllers/statefulset"
	"github.com/kemudi/kemudi/internal/controllers/storagemigration"
	"github.com/kemudi/kemudi/internal/controllers/storageprotection"
	"github.com/kemudi/kemudi/internal/controllers/tainteviction"
	"github.com/kemudi/kemudi/internal/controllers/tokens"
	"github.com/kemudi/kemudi/internal/controllers/ttlafterfinished"
	"github.com/kemudi/kemudi/internal/controllers/volumeexpand"
)

// Options configure the controllers. What people set is each controller's own, and its
// zero value is upstream's.
type Options struct {
	Kinds    controller.Kinds // all resources of the server, as they come and go; required
	CABundle string           // PEM of the cluster's CA; required
	PodCIDRs []netip.Prefix   // what nodes get their shares from; none: nobody gives any
	// ServiceCIDR says what addresses of services the cluster begins with.
	ServiceCIDR servicecidr.Options
	// DNS says where the service is that leads to the nodes' DNS; no address: nobody publishes it.
	DNS clusterdns.Options
	// Cloud is the cluster's cloud; without a provider nothing of it runs.
	Cloud cloud.Options
	// Tokens makes the tokens that are kept in secrets; nil: nobody does.
	Tokens *authn.Issuer
	// Authority signs requests for certificates; nil: nobody signs, but for [certificates.Options.Authorities].
	Authority *pki.Authority
	// Registry takes the metrics of single controllers; nil: they are not shown.
	Registry *prometheus.Registry

	// ServerNode is the node of this server's machine; empty: it is none.
	ServerNode string
	// PodGroups says that groups of pods are served.
	PodGroups bool
	// Elsewhere empties namespaces of what other servers have; nil: none has any.
	Elsewhere namespace.Elsewhere

	Enabled []string // which controllers run, by upstream's names (--controllers)
	Syncs   []Sync   // how many keys they reconcile at once; nil: [DefaultSyncs]

	Edges
	Losses
	Certificates           certificates.Options
	EndpointSlice          endpointslice.Options
	EndpointSliceMirroring endpointslicemirroring.Options
	LoadBalancer           loadbalancer.Options
	NodeIPAM               nodeipam.Options
	PodAutoscaler          podautoscaler.Options
	PodGC                  podgc.Options
	ResourceQuota          resourcequota.Options
	LegacyTokens           tokens.Options
}

// Edges are the options of what edges serve: Ingresses and Gateways.
type Edges struct {
	ACME    acme.Options
	Gateway gateway.Options
}

// Losses are the options of when nodes are taken for lost, with what is attached to them, and of how volumes lose what claims have
// left there.
type Losses struct {
	AttachDetach  attachdetach.Options
	NodeLifecycle nodelifecycle.Options
	Recycle       persistentvolume.Options
}

// Defaults are the options that people set, as they are when nobody does.
func Defaults() Options {
	return Options{
		Enabled: []string{"*"}, Syncs: DefaultSyncs(),
		Certificates: certificates.Defaults(), Cloud: cloud.Defaults(), EndpointSlice: endpointslice.Defaults(), EndpointSliceMirroring: endpointslicemirroring.Defaults(),
		LoadBalancer: loadbalancer.Defaults(), Losses: Losses{NodeLifecycle: nodelifecycle.Defaults(), Recycle: persistentvolume.Defaults()}, NodeIPAM: nodeipam.Defaults(), PodAutoscaler: podautoscaler.Defaults(), PodGC: podgc.Defaults(),
		ResourceQuota: resourcequota.Defaults(), LegacyTokens: tokens.Defaults(),
	}
}

// Check says what is wrong with the options that people set.
func (o *Options) Check() error {
	for _, own := range []interface{ Check() error }{o.ACME, o.Cloud, o.EndpointSlice, o.EndpointSliceMirroring, o.LoadBalancer, o.NodeIPAM, o.NodeLifecycle, o.Recycle, o.PodAutoscaler, o.ResourceQuota, o.LegacyTokens} {
		if err := own.Check(); err != nil {
			return err
		}
	}
	for _, s := range o.Syncs {
		if s.Keys < 1 {
			return fmt.Errorf("--%s %d must be greater than 0", s.Flag, s.Keys)
		}
	}
	return o.checkNames()
}

// All returns the controllers, in no particular order.
func All(o Options) []*controller.Controller {
	o.LoadBalancer.Beside = o.LoadBalancer.Beside || o.Cloud.Balances()
	all := []*controller.Controller{
		namespace.New(o.Kinds, o.Elsewhere),
		serviceaccount.Controller,
		servicecidr.New(o.ServiceCIDR),
		clusterip.Controller,
		rootca.New(o.CABundle),
		rootca.NewBundle(o.CABundle),
		replicaset.Controller,
		replicaset.ReplicationController,
		daemonset.Controller,
		statefulset.Controller,
		deployment.Controller,
		job.Controller,
		job.Orphans,
		cronjob.Controller,
		ttlafterfinished.Controller,
		disruption.New(o.Kinds),
		disruption.Pods,
		endpointslice.New(o.EndpointSlice),
		endpoints.Controller,
		endpointslicemirroring.New(o.EndpointSliceMirroring),
		loadbalancer.New(o.LoadBalancer),
		nodelifecycle.New(o.NodeLifecycle),
		nodettl.Controller,
		tainteviction.Controller,
		flowcontrol.Controller,
		garbagecollector.New(o.Kinds),
		podautoscaler.New(o.Kinds, o.PodAutoscaler),
		podgc.New(o.PodGC),
		persistentvolume.New(o.Recycle),
		attachdetach.New(o.AttachDetach),
		storagemigration.New(o.Kinds),
		storageprotection.Claims,
		storageprotection.Volumes,
		storageprotection.Attributes,
		ephemeralvolume.Controller,
		localvolume.Controller,
		volumeexpand.Controller,
		resourceclaim.New(o.Registry),
		devicetainteviction.Controller,
		resourcequota.New(o.Kinds, o.ResourceQuota),
		clusterroleaggregation.Controller,
		policystatus.New(o.Kinds),
		certificates.Approving,
		certificates.Cleaner,
		certificates.PodCleaner,
		certificates.Keys,
		certificates.ServingApproving,
		bootstraptokens.Cleaner,
		bootstraptokens.Signer,
		acme.New(o.Kinds, o.ACME),
		ingress.Controller,
		ingress.Status,
		gateway.New(o.Kinds, o.Gateway),
		serverrole.New(o.ServerNode),
	}
	if o.Tokens != nil {
		all = append(all, tokens.New(o.Tokens, o.CABundle), tokens.NewCleaner(o.LegacyTokens))
	}
	if o.Authority != nil || len(o.Certificates.Authorities) > 0 {
		all = append(all, certificates.NewSigning(o.Authority, o.Certificates))
	}
	if len(o.PodCIDRs) > 0 && !o.NodeIPAM.Off {
		all = append(all, nodeipam.New(o.PodCIDRs, o.NodeIPAM))
	}
	if o.DNS.Address.IsValid() {
		o.DNS.MaxInSlice = cmp.Or(o.EndpointSlice.MaxEndpointsPerSlice, endpointslice.Defaults().MaxEndpointsPerSlice)
		all = append(all, clusterdns.New(o.DNS))
	}
	if o.Cloud.Provider != nil {
		o.Cloud.MonitorPeriod = o.NodeLifecycle.MonitorPeriod
		all = append(all, cloud.NewNode(o.Cloud), cloud.NewNodeLifecycle(o.Cloud), cloud.NewRoute(o.Cloud), cloud.NewService(o.Cloud))
		all = slices.DeleteFunc(all, func(c *controller.Controller) bool { return !o.Cloud.Has(c) })
		if pools, ok := o.Cloud.Scale(); ok {
			all = append(all, clusterautoscaler.New(pools))
		}
	}
	if o.PodGroups {
		all = append(all, podgroupprotection.Controller)
	}
	return o.sized(all)
}
