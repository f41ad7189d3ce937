package cri

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Limits of a host name: of a DNS label, and of the kernel.
const (
	maxLabel    = 63
	maxHostname = 64
)

// Hostname returns the pod's host name and, if it has one, its domain.
func Hostname(pod *v1.Pod, clusterDomain string) (name, domain string) {
	if o := overriding(pod); o != "" {
		return o, ""
	}
	name = pod.Name
	if pod.Spec.Hostname != "" {
		name = pod.Spec.Hostname
	}
	if len(name) > maxLabel {
		name = strings.TrimRight(name[:maxLabel], "-.")
	}
	if pod.Spec.Subdomain != "" {
		domain = fmt.Sprintf("%s.%s.svc.%s", pod.Spec.Subdomain, pod.Namespace, clusterDomain)
	}
	return name, domain
}

// overriding is the host name that goes before all others; empty: there is none, also where the field is there.
func overriding(pod *v1.Pod) string {
	if o := pod.Spec.HostnameOverride; o != nil {
		return *o
	}
	return ""
}

// kernelHostname is the host name that the pod's kernel namespace gets.
func kernelHostname(pod *v1.Pod, clusterDomain string) (string, error) {
	name, domain := Hostname(pod, clusterDomain)
	if pod.Spec.SetHostnameAsFQDN == nil || !*pod.Spec.SetHostnameAsFQDN || domain == "" {
		return name, nil
	}
	full := name + "." + domain
	if len(full) > maxHostname {
		return "", fmt.Errorf("failed to construct FQDN from pod hostname and cluster domain, FQDN %s is too long (%d characters is the max, %d characters requested)", full, maxHostname, len(full))
	}
	return full, nil
}

// HostsFile is the content of the pod's /etc/hosts.
func HostsFile(pod *v1.Pod, n *Node, podIPs []string) string {
	var b strings.Builder
	if pod.Spec.HostNetwork {
		b.WriteString("# Kubernetes-managed hosts file (host network).\n")
		b.WriteString(n.HostHosts)
	} else {
		b.WriteString("# Kubernetes-managed hosts file.\n" +
			"127.0.0.1\tlocalhost\n" +
			"::1\tlocalhost ip6-localhost ip6-loopback\n" +
			"fe00::0\tip6-localnet\n" +
			"fe00::0\tip6-mcastprefix\n" +
			"fe00::1\tip6-allnodes\n" +
			"fe00::2\tip6-allrouters\n")
		name, domain := Hostname(pod, n.ClusterDomain)
		for _, ip := range podIPs {
			if domain != "" {
				fmt.Fprintf(&b, "%s\t%s.%s\t%s\n", ip, name, domain, name)
			} else {
				fmt.Fprintf(&b, "%s\t%s\n", ip, name)
			}
		}
	}
	if len(pod.Spec.HostAliases) > 0 {
		b.WriteString("\n# Entries added by HostAliases.\n")
		for _, a := range pod.Spec.HostAliases {
			fmt.Fprintf(&b, "%s\t%s\n", a.IP, strings.Join(a.Hostnames, "\t"))
		}
	}
	return b.String()
}
