package dns

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/pkg/dnsutil"
	"github.com/coredns/coredns/plugin/pkg/fall"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// What is answered for names such as 10-244-1-2.namespace.pod.
const (
	PodsDisabled = "disabled" // they do not exist
	PodsInsecure = "insecure" // the address in the name, whoever has it
	PodsVerified = "verified" // the same, if a pod of the namespace has it
)

// Rules are what the directive kubernetes of a Corefile says.
type Rules struct {
	Zones       []string // in lower case and with a dot at the end, reverse ones among them
	TTL         uint32   // for how long clients may remember a record, in seconds
	Pods        string   // one of those above
	PodNames    bool     // endpoints without a hostname are called as their pods
	NoEndpoints bool     // there are no records of endpoints
	IgnoreEmpty bool     // services with a cluster IP and no endpoints do not exist
	// Of which namespaces and services there are names; empty or nil: of all.
	Namespaces              []string
	NamespaceLabels, Labels labels.Selector
	// Fall says of which zones names that do not exist are asked further on.
	Fall fall.F
}

// defaultTTL is what upstream's plugin has for a Corefile that does not say it.
const defaultTTL = 5

// primary is the zone that the names of addresses are in.
func (r *Rules) primary() string {
	return r.Zones[slices.IndexFunc(r.Zones, ofNames)]
}

// ofNames says that a zone is of names, and not of addresses.
func ofNames(zone string) bool {
	return dnsutil.IsReverse(zone) == 0 && zone != "in-addr.arpa." && zone != "ip6.arpa."
}

// zone is the longest of the zones that a name, in lower case, is in; empty: none.
func (r *Rules) zone(name string) (found string) {
	for _, z := range r.Zones {
		if len(z) > len(found) && within(z, name) {
			found = z
		}
	}
	return found
}

// within is what dns.IsSubDomain says of names in lower case that end in a dot, without
// taking them apart: it is asked of each question.
func within(zone, name string) bool {
	if zone == "." {
		return true
	}
	n := len(name) - len(zone)
	return n == 0 && name == zone || n > 0 && name[n:] == zone && name[n-1] == '.' && (n < 2 || name[n-2] != '\\')
}

// limited says that not all that a cluster has is to be seen.
func (r *Rules) limited() bool {
	return r.NoEndpoints || len(r.Namespaces) > 0 || r.NamespaceLabels != nil || r.Labels != nil
}

// parseRules reads the one directive kubernetes of a block.
func parseRules(c *caddy.Controller) (Rules, error) {
	r := Rules{TTL: defaultTTL, Pods: PodsDisabled}
	for n := 0; c.Next(); n++ {
		if n > 0 {
			return r, plugin.ErrOnce
		}
		r.Zones = plugin.OriginsFromArgsOrServerBlock(c.RemainingArgs(), c.ServerBlockKeys)
		if !slices.ContainsFunc(r.Zones, ofNames) {
			return r, errors.New("non-reverse zone name must be used")
		}
		for c.NextBlock() {
			if err := r.option(c, c.Val(), c.RemainingArgs()); err != nil {
				return r, err
			}
		}
	}
	if len(r.Namespaces) > 0 && r.NamespaceLabels != nil {
		return r, c.Err("namespaces and namespace_labels cannot both be set")
	}
	return r, nil
}

// option takes one line of the directive in.
func (r *Rules) option(c *caddy.Controller, name string, args []string) (err error) {
	switch name {
	case "pods":
		if len(args) != 1 {
			return c.ArgErr()
		}
		if r.Pods = args[0]; !slices.Contains([]string{PodsDisabled, PodsInsecure, PodsVerified}, r.Pods) {
			return c.Errf("wrong value for pods: %s, must be one of: disabled, verified, insecure", r.Pods)
		}
	case "endpoint_pod_names", "noendpoints":
		if len(args) > 0 {
			return c.ArgErr()
		}
		r.PodNames, r.NoEndpoints = r.PodNames || name == "endpoint_pod_names", r.NoEndpoints || name == "noendpoints"
	case "namespaces":
		if len(args) == 0 {
			return c.ArgErr()
		}
		r.Namespaces = append(r.Namespaces, args...)
	case "labels":
		r.Labels, err = selector(c, args)
	case "namespace_labels":
		r.NamespaceLabels, err = selector(c, args)
	case "ttl":
		return r.ttl(c, args)
	case "ignore":
		if len(args) != 1 || args[0] != "empty_service" {
			return c.Errf("unable to parse ignore value: '%s'", strings.Join(args, " "))
		}
		r.IgnoreEmpty = true
	case "fallthrough":
		r.Fall.SetZonesFromArgs(args)
	default:
		return elsewhere(c, name, args)
	}
	return err
}

// elsewhere checks what says how upstream's plugin reaches an API, and has no effect here,
// where DNS reads what its process knows anyway.
func elsewhere(c *caddy.Controller, name string, args []string) error {
	switch name {
	case "startup_timeout":
		if len(args) != 1 {
			return c.ArgErr()
		}
		if _, err := time.ParseDuration(args[0]); err != nil {
			return c.Errf("failed to parse startup_timeout: %v", err)
		}
	case "apiserver_qps", "apiserver_burst", "apiserver_max_inflight":
		if len(args) != 1 {
			return c.ArgErr()
		}
		if v, err := strconv.ParseFloat(args[0], 32); err != nil || v < 0 {
			return c.Errf("invalid %s %q", name, args[0])
		}
	case "upstream", "resyncperiod", "transfer": // of former times, without effect in CoreDNS either
	case "endpoint", "tls", "kubeconfig":
		return c.Errf("%s: this DNS knows the names of its own cluster only", name)
	case "multicluster", "zonal":
		return c.Errf("%s is not supported", name)
	default:
		return c.Errf("unknown property '%s'", name)
	}
	return nil
}

func (r *Rules) ttl(c *caddy.Controller, args []string) error {
	if len(args) == 0 {
		return c.ArgErr()
	}
	t, err := strconv.Atoi(args[0])
	if err != nil {
		return c.Errf("ttl: %q is not a number", args[0])
	}
	if t < 0 || t > 3600 {
		return c.Errf("ttl must be in range [0, 3600]: %d", t)
	}
	r.TTL = uint32(t)
	return nil
}

func selector(c *caddy.Controller, args []string) (labels.Selector, error) {
	if len(args) == 0 {
		return nil, c.ArgErr()
	}
	text := strings.Join(args, " ")
	wanted, err := metav1.ParseToLabelSelector(text)
	if err != nil {
		return nil, c.Errf("unable to parse label selector value: '%v': %v", text, err)
	}
	s, err := metav1.LabelSelectorAsSelector(wanted)
	if err != nil {
		return nil, fmt.Errorf("label selector '%v': %w", text, err)
	}
	return s, nil
}

// limited is what the rules let be seen of a cluster.
type limited struct {
	View
	r *Rules
}

func (l limited) Namespace(name string) *corev1.Namespace {
	if len(l.r.Namespaces) > 0 && !slices.Contains(l.r.Namespaces, name) {
		return nil
	}
	ns := l.View.Namespace(name)
	if ns == nil || l.r.NamespaceLabels != nil && !l.r.NamespaceLabels.Matches(labels.Set(ns.Labels)) {
		return nil
	}
	return ns
}

func (l limited) seen(svc *corev1.Service) bool {
	return svc != nil && l.Namespace(svc.Namespace) != nil && (l.r.Labels == nil || l.r.Labels.Matches(labels.Set(svc.Labels)))
}

func (l limited) Service(namespace, name string) *corev1.Service {
	if svc := l.View.Service(namespace, name); l.seen(svc) {
		return svc
	}
	return nil
}

func (l limited) Services() []*corev1.Service {
	return slices.DeleteFunc(l.View.Services(), func(svc *corev1.Service) bool { return !l.seen(svc) })
}

func (l limited) Slices(svc *corev1.Service) []*discoveryv1.EndpointSlice {
	if l.r.NoEndpoints {
		return nil
	}
	return l.View.Slices(svc)
}

func (l limited) ByAddress(ip netip.Addr) []Owner {
	return slices.DeleteFunc(l.View.ByAddress(ip), func(o Owner) bool {
		return !l.seen(o.Service) || l.r.NoEndpoints && o.Endpoint != nil
	})
}
