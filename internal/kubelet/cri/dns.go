package cri

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Limits of a resolv.conf, which longer lists are cut to.
const (
	maxNameservers  = 3
	maxSearches     = 32
	maxSearchLength = 2048
	maxSearchName   = 253 // of one domain: a longer one has some resolvers abort
)

// Resolv is the content of a resolv.conf.
type Resolv struct {
	Servers, Searches, Options []string
}

// ParseResolv reads a resolv.conf as the C library does: the last search line counts.
func ParseResolv(content string) Resolv {
	var r Resolv
	for line := range strings.Lines(content) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		switch f[0] {
		case "nameserver":
			r.Servers = append(r.Servers, f[1])
		case "search", "domain":
			r.Searches = nil
			for _, s := range f[1:] {
				if s != "." {
					s = strings.TrimSuffix(s, ".")
				}
				r.Searches = append(r.Searches, s)
			}
		case "options":
			r.Options = append(r.Options, f[1:]...)
		}
	}
	return r
}

// HostResolv is what pods may know of the machine's resolver. Read returns a file's content.
// Where file names a resolver for the machine's own processes only, it is that of
// systemd-resolved, as a rule, which keeps the servers behind it in another file.
func HostResolv(file string, read func(string) ([]byte, error)) Resolv {
	data, err := read(file)
	if err != nil {
		return Resolv{}
	}
	r := ParseResolv(string(data))
	if !r.local() {
		return r
	}
	if data, err := read("/run/systemd/resolve/resolv.conf"); err == nil {
		if behind := ParseResolv(string(data)); len(behind.Servers) > 0 && !behind.local() {
			return behind
		}
	}
	return r
}

// ResolvUnfit says what of the machine's resolver settings is more than pods can have beside the domains of the
// cluster; empty: nothing.
func ResolvUnfit(file, clusterDomain string, read func(string) ([]byte, error)) string {
	data, err := read(file)
	if err != nil {
		return err.Error()
	}
	most := maxSearches
	if clusterDomain != "" {
		most -= 3 // the namespace's, those of services, and the cluster's
	}
	searches := ParseResolv(string(data)).Searches
	switch {
	case len(searches) > most:
		return fmt.Sprintf("Resolv.conf file '%s' contains search line consisting of more than %d domains!", file, most)
	case len(strings.Join(searches, " ")) > maxSearchLength:
		return fmt.Sprintf("Resolv.conf file '%s' contains search line which length is more than allowed %d chars!", file, maxSearchLength)
	}
	return ""
}

// local reports whether all servers are on the machine's loopback link, which a pod
// with a network of its own cannot reach.
func (r Resolv) local() bool {
	return len(r.Servers) > 0 && !slices.ContainsFunc(r.Servers, func(s string) bool {
		a, err := netip.ParseAddr(s)
		return err != nil || !a.IsLoopback()
	})
}

// DNS is the pod's resolver configuration. Notes are what to tell the user:
// event reason and message.
func DNS(pod *v1.Pod, n *Node) (config *runtimeapi.DNSConfig, notes []Note) {
	r := Resolv{}
	policy := pod.Spec.DNSPolicy
	cluster := policy == v1.DNSClusterFirstWithHostNet || (policy == v1.DNSClusterFirst || policy == "") && !pod.Spec.HostNetwork
	switch {
	case policy == v1.DNSNone:
	case cluster && len(n.ClusterDNS) > 0:
		r = Resolv{Servers: n.ClusterDNS, Options: []string{"ndots:5"}}
		if n.ClusterDomain != "" {
			r.Searches = []string{pod.Namespace + ".svc." + n.ClusterDomain, "svc." + n.ClusterDomain, n.ClusterDomain}
		}
		r.Searches = unique(append(r.Searches, n.HostDNS.Searches...))
	case cluster:
		notes = append(notes, Note{"MissingClusterDNS", fmt.Sprintf(
			"pod: %q. kubelet does not have ClusterDNS IP configured and cannot create Pod using %q policy. Falling back to %q policy.",
			pod.Name+"_"+pod.Namespace+"("+string(pod.UID)+")", v1.DNSClusterFirst, v1.DNSDefault)})
		r = n.HostDNS
	default:
		r = n.HostDNS
		if r.local() && !pod.Spec.HostNetwork && len(n.ClusterDNS) > 0 {
			r.Servers = n.ClusterDNS // which reaches them for the pod
		}
	}
	if c := pod.Spec.DNSConfig; c != nil {
		r.Servers = unique(slices.Concat(r.Servers, c.Nameservers))
		r.Searches = unique(slices.Concat(r.Searches, c.Searches))
		r.Options = mergeOptions(r.Options, c.Options)
	}
	notes = append(notes, r.fit()...)
	return &runtimeapi.DNSConfig{Servers: r.Servers, Searches: r.Searches, Options: r.Options}, notes
}

// Note is something worth an event.
type Note struct{ Reason, Message string }

// fit cuts r to the limits of resolvers.
func (r *Resolv) fit() []Note {
	var notes []Note
	if len(r.Servers) > maxNameservers {
		r.Servers = r.Servers[:maxNameservers]
		notes = append(notes, Note{"DNSConfigForming", fmt.Sprintf(
			"Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: %s", strings.Join(r.Servers, " "))})
	}
	fit := slices.DeleteFunc(slices.Clone(r.Searches), func(s string) bool { return len(s) > maxSearchName })
	cut := len(fit) < len(r.Searches)
	r.Searches = fit
	for len(r.Searches) > maxSearches || len(strings.Join(r.Searches, " ")) > maxSearchLength {
		r.Searches, cut = r.Searches[:len(r.Searches)-1], true
	}
	if cut {
		notes = append(notes, Note{"DNSConfigForming", fmt.Sprintf(
			"Search Line limits were exceeded, some search paths have been omitted, the applied search line is: %s", strings.Join(r.Searches, " "))})
	}
	return notes
}

// mergeOptions lays a pod's options over those given; an option of the same
// name replaces.
func mergeOptions(have []string, with []v1.PodDNSConfigOption) []string {
	out := slices.Clone(have)
	for _, o := range with {
		text := o.Name
		if o.Value != nil && *o.Value != "" {
			text += ":" + *o.Value
		}
		i := slices.IndexFunc(out, func(s string) bool {
			name, _, _ := strings.Cut(s, ":")
			return name == o.Name
		})
		if i >= 0 {
			out[i] = text
		} else {
			out = append(out, text)
		}
	}
	return out
}

func unique(list []string) []string {
	var out []string
	for _, s := range list {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}
