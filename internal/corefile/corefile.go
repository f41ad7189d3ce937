// Package corefile has what a cluster's DNS is told unless people say otherwise: the
// controller of DNS writes it down for them, and the servers go by it where nobody has
// written anything. How a Corefile is read is in package dns.
package corefile

import (
	"cmp"
	"strings"
)

// Where a Corefile is, in the namespace kube-system.
const (
	ConfigMap = "coredns"
	Key       = "Corefile"
)

// Default is what kubeadm writes, but for the directives health and ready: they are for the
// probes of pods, which these servers are not, and would take ports of the machine
// (docs/decisions/046-coredns.md). An empty domain is cluster.local.
func Default(domain string) string {
	return strings.ReplaceAll(`.:53 {
    errors
    kubernetes DOMAIN in-addr.arpa ip6.arpa {
       pods insecure
       fallthrough in-addr.arpa ip6.arpa
       ttl 30
    }
    prometheus :9153
    forward . /etc/resolv.conf {
       max_concurrent 1000
    }
    cache 30 {
       disable success DOMAIN
       disable denial DOMAIN
    }
    loop
    reload
    loadbalance
}
`, "DOMAIN", cmp.Or(strings.Trim(domain, "."), "cluster.local"))
}
