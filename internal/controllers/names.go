package controllers

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/kemudi/kemudi/internal/auth/authn"
	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/cloud/loopback"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/controllers/cloud"
	"github.com/kemudi/kemudi/internal/controllers/clusterdns"
)

// switchName is how people turn a controller on and off: upstream's name and, for scripts that are
// older than that, the one that it had before.
type switchName struct{ name, before string }

// switchNames are those that do not follow from the controller's own name, which is that of its
// service account.
var switchNames = map[string]switchName{
	"attachdetach-controller":                        {"persistentvolume-attach-detach-controller", "attachdetach"},
	"bootstrap-signer":                               {"bootstrap-signer-controller", "bootstrapsigner"},
	"certificatesigningrequest-approving-controller": {"certificatesigningrequest-approving-controller", "csrapproving"},
	"certificatesigningrequest-cleaner-controller":   {"certificatesigningrequest-cleaner-controller", "csrcleaner"},
	"certificatesigningrequest-signing-controller":   {"certificatesigningrequest-signing-controller", "csrsigning"},
	"daemon-set-controller":                          {"daemonset-controller", "daemonset"},
	"disruption-pod-controller":                      {"disruption-controller", "disruption"}, // upstream's does both
	"expand-controller":                              {"persistentvolume-expander-controller", "persistentvolume-expander"},
	"endpoint-controller":                            {"endpoints-controller", "endpoint"},
	"endpointslicemirroring-controller":              {"endpointslice-mirroring-controller", "endpointslicemirroring"},
	"generic-garbage-collector":                      {"garbage-collector-controller", "garbagecollector"},
	"horizontal-pod-autoscaler":                      {"horizontal-pod-autoscaler-controller", "horizontalpodautoscaling"},
	"ingress-status-controller":                      {"ingress-controller", "ingress"}, // one switch for both
	"job-orphan-controller":                          {"job-controller", "job"},         // upstream's does both
	"kube-apiserver-serving-clustertrustbundle-publisher": {
		"kube-apiserver-serving-clustertrustbundle-publisher-controller", "kube-apiserver-serving-clustertrustbundle-publisher",
	},
	"legacy-service-account-token-cleaner":        {"legacy-serviceaccount-token-cleaner-controller", "legacy-service-account-token-cleaner"},
	"node-controller":                             {"node-lifecycle-controller", "nodelifecycle"},
	"node-ipam-controller":                        {"node-ipam-controller", "nodeipam"},
	"persistent-volume-binder":                    {"persistentvolume-binder-controller", "persistentvolume-binder"},
	"pod-garbage-collector":                       {"pod-garbage-collector-controller", "podgc"},
	"route-controller":                            {"node-route-controller", "route"},
	"service-controller":                          {"service-lb-controller", "service"},
	"pv-protection-controller":                    {"persistentvolume-protection-controller", "pv-protection"},
	"pvc-protection-controller":                   {"persistentvolumeclaim-protection-controller", "pvc-protection"},
	"replication-controller":                      {"replicationcontroller-controller", "replicationcontroller"},
	"resource-claim-controller":                   {"resourceclaim-controller", "resource-claim-controller"},
	"root-ca-cert-publisher":                      {"root-ca-certificate-publisher-controller", "root-ca-cert-publisher"},
	"service-account-controller":                  {"serviceaccount-controller", "serviceaccount"},
	"service-cidrs-controller":                    {"service-cidr-controller", "service-cidr"},
	"token-cleaner":                               {"token-cleaner-controller", "tokencleaner"},
	"validatingadmissionpolicy-status-controller": {"validatingadmissionpolicy-status-controller", "validatingadmissionpolicy-status-controller"},
}

// switchNameOf is how people turn c on and off.
func switchNameOf(c *controller.Controller) switchName {
	if n, ok := switchNames[c.Name]; ok {
		return n
	}
	return switchName{c.Name, strings.TrimSuffix(c.Name, "-controller")}
}

// Names are those that people may turn controllers on and off by, sorted.
func Names() []string {
	var names []string
	for _, c := range every() {
		names = append(names, switchNameOf(c).name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// every is all the controllers that there may be. They are not to be run.
func every() []*controller.Controller {
	return All(Options{
		Tokens: new(authn.Issuer), Authority: new(pki.Authority), PodCIDRs: []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 8)},
		DNS: clusterdns.Options{Address: netip.IPv4Unspecified()}, PodGroups: true, Cloud: cloud.Options{Provider: &loopback.Cloud{}},
	})
}

// checkNames says which of the names in Enabled are none.
func (o *Options) checkNames() error {
	known := every()
	for _, word := range o.Enabled {
		name := strings.TrimPrefix(word, "-")
		if word == "*" || slices.ContainsFunc(known, func(c *controller.Controller) bool { return switchNameOf(c).is(name) }) {
			continue
		}
		return fmt.Errorf("--controllers: '%s' is not in the list of known controllers: %s", name, strings.Join(Names(), ", "))
	}
	return nil
}

func (n switchName) is(word string) bool { return word == n.name || word == n.before }

// Running are those of the controllers that are turned on: a controller that is named is on, one that
// is named after a minus is off, and * stands for all others. Nothing named is all of them.
func (o *Options) Running(all []*controller.Controller) []*controller.Controller {
	return slices.DeleteFunc(slices.Clone(all), func(c *controller.Controller) bool { return !o.enabled(c) })
}

func (o *Options) enabled(c *controller.Controller) bool {
	n := switchNameOf(c)
	for _, word := range o.Enabled { // the first word that is about it counts
		if n.is(word) {
			return true
		}
		if off, ok := strings.CutPrefix(word, "-"); ok && n.is(off) {
			return false
		}
	}
	return len(o.Enabled) == 0 || slices.Contains(o.Enabled, "*")
}
