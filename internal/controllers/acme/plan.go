package acme

import (
	"crypto/tls"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/kemudi/kemudi/internal/api/networking"
)

// secretsOf are the names of the Secrets that an Ingress wants filled.
func secretsOf(i *networkingv1.Ingress) (names []string) {
	if !networking.WantsACME(i) || i.DeletionTimestamp != nil {
		return nil
	}
	for _, t := range i.Spec.TLS {
		if t.SecretName != "" && !slices.Contains(names, t.SecretName) {
			names = append(names, t.SecretName)
		}
	}
	return names
}

// hostsOf are the hosts that a Secret is to be good for, as an Ingress wants it.
func hostsOf(secret string, i *networkingv1.Ingress) (hosts []string) {
	for _, t := range i.Spec.TLS {
		if t.SecretName != secret {
			continue
		}
		hosts = append(hosts, t.Hosts...)
		for n := range i.Spec.Rules {
			if len(t.Hosts) == 0 && i.Spec.Rules[n].Host != "" {
				hosts = append(hosts, i.Spec.Rules[n].Host)
			}
		}
	}
	return hosts
}

// allHosts are the hosts that a Secret is to be good for, as all want it that ask, in order.
func allHosts(from []asker) (hosts []string) {
	for _, a := range from {
		for _, h := range a.hosts {
			hosts = append(hosts, strings.ToLower(h))
		}
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// renewal is when the certificate in a Secret is to be renewed: when a third of its time is left. ok is false if
// there is none for these hosts.
func renewal(s *corev1.Secret, hosts []string) (at time.Time, ok bool) {
	chain, key, ok := networking.TLSPair(s)
	if !ok {
		return at, false
	}
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return at, false
	}
	for _, h := range hosts {
		if pair.Leaf.VerifyHostname(h) != nil {
			return at, false
		}
	}
	return pair.Leaf.NotAfter.Add(-pair.Leaf.NotAfter.Sub(pair.Leaf.NotBefore) / 3), true
}

// Waits after tries that fail. A server that answers and refuses counts them.
const (
	firstWait, longestWait       = 5 * time.Second, 5 * time.Minute
	firstRefusal, longestRefusal = time.Minute, 4 * time.Hour
)

// waitAfter is how long is waited after so many failures, the last of them a refusal or not.
func waitAfter(failures int, refused bool) time.Duration {
	wait, longest := firstWait, longestWait
	if refused {
		wait, longest = firstRefusal, longestRefusal
	}
	for range failures - 1 {
		if wait *= 2; wait >= longest {
			return longest
		}
	}
	return wait
}
