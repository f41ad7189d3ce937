package main

import (
	"github.com/spf13/pflag"

	"github.com/kemudi/kemudi/internal/cluster"
)

// featureGatesFlag is name=bool pairs of features that there are in name.
type featureGatesFlag cluster.FeatureGates

func (m *featureGatesFlag) Type() string   { return "gates" }
func (m *featureGatesFlag) String() string { return cluster.FeatureGates(*m).String() }

func (m *featureGatesFlag) Set(s string) error {
	if *m == nil {
		*m = featureGatesFlag{}
	}
	return cluster.FeatureGates(*m).Say(s)
}

func addEmulationFlags(f *pflag.FlagSet, emulated, compatible *[]string) {
	f.StringSliceVar(emulated, "emulated-version", *emulated, "release to act as, 1.36 or kube=1.36: of the last three, or this one, which is the default. Versions of the API that came later are not served, and feature gates of later ones refused")
	f.StringSliceVar(compatible, "min-compatibility-version", *compatible, "oldest release of other parts of the control plane: not newer than --emulated-version; default the one before that")
}

func addAuthorizationFlags(f *pflag.FlagSet, o *cluster.Authorization) {
	f.StringSliceVar(&o.Modes, "authorization-mode", o.Modes, "who decides who may do what, in the order in which they are asked: Node, RBAC, Webhook, ABAC, AlwaysAllow, AlwaysDeny; default Node,RBAC")
	f.StringVar(&o.ConfigFile, "authorization-config", o.ConfigFile, "file of an AuthorizationConfiguration that says so in place of --authorization-mode, with any number of webhooks; it is read again when it changes")
	f.StringVar(&o.PolicyFile, "authorization-policy-file", o.PolicyFile, "file of policies for ABAC, a JSON object a line")
	w := &o.Webhook
	f.StringVar(&w.ConfigFile, "authorization-webhook-config-file", w.ConfigFile, "kubeconfig of the server that is asked in the mode Webhook")
	f.StringVar(&w.Version, "authorization-webhook-version", w.Version, "version of the SubjectAccessReviews that it is asked by: v1 or v1beta1")
	f.DurationVar(&w.Allowed, "authorization-webhook-cache-authorized-ttl", w.Allowed, "how long its answers hold that allow something; 0: they are not remembered")
	f.DurationVar(&w.Refused, "authorization-webhook-cache-unauthorized-ttl", w.Refused, "how long its other answers hold; 0: they are not remembered")
}
