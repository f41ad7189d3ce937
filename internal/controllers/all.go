package controllers

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/kemudi/kemudi/internal/auth/authn"
	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/controllers/bootstraptokens"
	"github.com/kemudi/kemudi/internal/controllers/certificates"
	"github.com/kemudi/kemudi/internal/controllers/clusterroleaggregation"
	"github.com/kemudi/kemudi/internal/controllers/deployment"
	"github.com/kemudi/kemudi/internal/controllers/endpoints"
	"github.com/kemudi/kemudi/internal/controllers/endpointslice"
	"github.com/kemudi/kemudi/internal/controllers/endpointslicemirroring"
	"github.com/kemudi/kemudi/internal/controllers/garbagecollector"
	"github.com/kemudi/kemudi/internal/controllers/namespace"
	"github.com/kemudi/kemudi/internal/controllers/nodeipam"
	"github.com/kemudi/kemudi/internal/controllers/nodelifecycle"
	"github.com/kemudi/kemudi/internal/controllers/podgc"
	"github.com/kemudi/kemudi/internal/controllers/replicaset"
	"github.com/kemudi/kemudi/internal/controllers/rootca"
	"github.com/kemudi/kemudi/internal/controllers/serviceaccount"
	"github.com/kemudi/kemudi/internal/controllers/tainteviction"
	"github.com/kemudi/kemudi/internal/controllers/tokens"
	"github.com/kemudi/kemudi/internal/resource"
)

// Options configure the controllers. Zero values are upstream's defaults,
// except where noted.
type Options struct {
	Defs     []*resource.Def // all resources of the server; required
	CABundle string          // PEM of the cluster's CA; required
	PodCIDRs []netip.Prefix  // what nodes get their shares from; none: nobody gives any
	// Tokens makes the tokens that are kept in secrets; nil: nobody does.
	Tokens *authn.Issuer
	// Authority signs requests for certificates; nil: nobody signs.
	Authority *pki.Authority

	MaxEndpointsPerSlice int // --max-endpoints-per-slice
	MaxMirroredAddresses int // --mirroring-max-endpoints-per-subset
	PodGCThreshold       int // --terminated-pod-gc-threshold
	NodeCIDRBits         int // --node-cidr-mask-size: of the only family, where neither of the next is set
	NodeCIDRBits4        int // --node-cidr-mask-size-ipv4
	NodeCIDRBits6        int // --node-cidr-mask-size-ipv6
	NodeLifecycle        nodelifecycle.Options
	// CertificateLife is how long certificates that are signed on request are
	// good for (--cluster-signing-duration).
	CertificateLife time.Duration
}

// Defaults are the options that people set, as they are when nobody does.
func Defaults() Options {
	shares := nodeipam.Defaults()
	return Options{
		MaxEndpointsPerSlice: endpointslice.DefaultLimit, MaxMirroredAddresses: endpointslicemirroring.DefaultLimit,
		PodGCThreshold: podgc.DefaultThreshold, CertificateLife: certificates.DefaultLife,
		NodeCIDRBits4: shares.Bits4, NodeCIDRBits6: shares.Bits6, NodeLifecycle: nodelifecycle.Defaults(),
	}
}

// Check says what is wrong with the options that people set.
func (o *Options) Check() error {
	for _, n := range []struct {
		flag             string
		value, low, high int
	}{
		{"max-endpoints-per-slice", o.MaxEndpointsPerSlice, 1, 1000},
		{"mirroring-max-endpoints-per-subset", o.MaxMirroredAddresses, 1, 1000},
		{"node-cidr-mask-size", o.NodeCIDRBits, 1, 128},
		{"node-cidr-mask-size-ipv4", o.NodeCIDRBits4, 1, 32},
		{"node-cidr-mask-size-ipv6", o.NodeCIDRBits6, 1, 128},
	} {
		if n.value != 0 && (n.value < n.low || n.value > n.high) {
			return fmt.Errorf("--%s %d is not between %d and %d", n.flag, n.value, n.low, n.high)
		}
	}
	if o.NodeCIDRBits != 0 && (o.NodeCIDRBits4 != 0 || o.NodeCIDRBits6 != 0) {
		return errors.New("--node-cidr-mask-size stands for --node-cidr-mask-size-ipv4 or --node-cidr-mask-size-ipv6, not beside them")
	}
	if t := o.NodeLifecycle.UnhealthyZoneThreshold; t < 0 || t > 1 {
		return fmt.Errorf("--unhealthy-zone-threshold %g is not between 0 and 1", t)
	}
	return nil
}

// All returns the controllers, in no particular order.
func All(o Options) []*controller.Controller {
	d := Defaults()
	o.MaxEndpointsPerSlice = cmp.Or(o.MaxEndpointsPerSlice, d.MaxEndpointsPerSlice)
	o.MaxMirroredAddresses = cmp.Or(o.MaxMirroredAddresses, d.MaxMirroredAddresses)
	o.PodGCThreshold = cmp.Or(o.PodGCThreshold, d.PodGCThreshold)
	o.CertificateLife = cmp.Or(o.CertificateLife, d.CertificateLife)
	all := []*controller.Controller{
		namespace.New(controller.Fixed(o.Defs)),
		serviceaccount.Controller,
		rootca.New(o.CABundle),
		replicaset.Controller,
		deployment.Controller,
		endpointslice.New(o.MaxEndpointsPerSlice),
		endpoints.Controller,
		endpointslicemirroring.New(o.MaxMirroredAddresses),
		nodelifecycle.New(o.NodeLifecycle),
		tainteviction.Controller,
		garbagecollector.New(controller.Fixed(o.Defs)),
		podgc.New(o.PodGCThreshold),
		clusterroleaggregation.Controller,
		certificates.Approving,
		certificates.Cleaner,
		bootstraptokens.Cleaner,
		bootstraptokens.Signer,
	}
	if o.Tokens != nil {
		all = append(all, tokens.New(o.Tokens, o.CABundle))
	}
	if o.Authority != nil {
		all = append(all, certificates.NewSigning(o.Authority, o.CertificateLife))
	}
	if len(o.PodCIDRs) > 0 {
		all = append(all, nodeipam.New(nodeipam.Options{
			CIDRs: o.PodCIDRs, Bits: o.NodeCIDRBits, Bits4: o.NodeCIDRBits4, Bits6: o.NodeCIDRBits6,
		}))
	}
	return all
}
