package main

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kemudi/kemudi/internal/parts"
)

func newProxy() *cobra.Command {
	o := parts.DefaultProxy()
	set := proxySettings{}
	return part{
		name: parts.ProxyName, short: "Run the service proxy alone, in the foreground",
		long: `Makes services reachable on this machine by rules of nftables, in tables of its own. The rules
stay in force when it ends; --cleanup removes them.`,
		example: `  kemudi kube-proxy --kubeconfig kube-proxy.conf --cluster-cidr 10.244.0.0/16
  kemudi kube-proxy --cleanup
  ln -s $(command -v kemudi) /usr/local/bin/kube-proxy`,
		flags: func(f *pflag.FlagSet) {
			addKubeconfigFlags(f, &o.API)
			f.StringVar(&o.NodeName, "hostname-override", o.NodeName, "name of the node; default the host name")
			f.Var((*prefixesFlag)(&o.ClusterCIDRs), "cluster-cidr", "addresses of pods; who connects from others is hidden from pods")
			addNodePortFlags(f, &o.NodePorts, nodePorts{&o.Primary, &o.MasqueradeAll})
			f.Var((*addrPortFlag)(&o.Healthz), "healthz-bind-address", "where to serve /healthz; port 0: nowhere")
			f.Var((*addrPortFlag)(&o.Metrics), "metrics-bind-address", "where to serve metrics; port 0: nowhere")
			f.BoolVar(&o.Profiling, "profiling", o.Profiling, "serve profiles of the process beside the metrics")
			f.IntVar(&o.Conntrack.MaxPerCore, "conntrack-max-per-core", 0, "how many connections the machine tracks for each of its cores; 0: as many as before")
			f.IntVar(&o.Conntrack.Min, "conntrack-min", 0, "how many it tracks at least, with --conntrack-max-per-core")
			f.DurationVar(&o.Conntrack.TCPEstablished, "conntrack-tcp-timeout-established", 0, "how long TCP connections without packets are tracked; 0: as before")
			f.DurationVar(&o.Conntrack.TCPCloseWait, "conntrack-tcp-timeout-close-wait", 0, "the same for those that one end has closed")
			f.DurationVar(&o.Conntrack.UDP, "conntrack-udp-timeout", 0, "the same for UDP flows without answers")
			f.DurationVar(&o.Conntrack.UDPStream, "conntrack-udp-timeout-stream", 0, "the same for those with answers")
			f.BoolVar(&o.Conntrack.TCPLiberal, "conntrack-tcp-be-liberal", false, "take packets outside of a TCP connection's window for its own")
			f.StringVar(&set.mode, "proxy-mode", set.mode, "how services are proxied: by nftables, whichever of upstream's modes it is, but for userspace: connections are carried by this process then, and another endpoint is tried where one does not answer")
			f.StringVar(&set.scheduler, "ipvs-scheduler", set.scheduler, "with --proxy-mode=ipvs, which endpoint is next: in turn (rr), by the client's address (sh) or by the service's (dh), or the one with the fewest connections (lc, sed, nq)")
			f.BoolVar(&set.cleanUp, "cleanup", set.cleanUp, "remove the rules from this machine, and end")
		},
		config: proxyConfig(),
		idle: []idleFlag{
			featureGates,
			{name: "bind-address", why: "nothing but health and metrics is served"},
			{name: "config-sync-period", why: "rules follow the cluster at once"},
			{name: "detect-local-mode", why: "pods are told from others by --cluster-cidr"},
			{name: "pod-bridge-interface", why: "pods are told from others by --cluster-cidr"},
			{name: "pod-interface-name-prefix", why: "pods are told from others by --cluster-cidr"},
			{name: "iptables-sync-period", why: "what other programs do to the rules is seen at once"},
			{name: "iptables-min-sync-period", why: "rules follow the cluster at once"},
			{name: "iptables-masquerade-bit", why: "packets are not marked"},
			{name: "iptables-localhost-nodeports", why: "--nodeport-addresses says so", bool: true},
			{name: "ipvs-sync-period", why: "what other programs do to the rules is seen at once"},
			{name: "ipvs-min-sync-period", why: "rules follow the cluster at once"},
			{name: "ipvs-strict-arp", why: "no address of a service is an interface's", bool: true},
			{name: "ipvs-exclude-cidrs", why: "rules of others are left alone"},
			{name: "ipvs-tcp-timeout", why: "connections are tracked for as long as --conntrack-tcp-timeout-established says"},
			{name: "ipvs-tcpfin-timeout", why: "connections are tracked for as long as --conntrack-tcp-timeout-close-wait says"},
			{name: "ipvs-udp-timeout", why: "flows are tracked for as long as --conntrack-udp-timeout-stream says"},
			{name: "oom-score-adj", why: "the process keeps the score that it was started with"},
			{name: "proxy-port-range", why: "the ports of --proxy-mode=userspace are the kernel's to choose"},
			{name: "bind-address-hard-fail", why: "a port that it cannot serve on ends the proxy", bool: true},
		},
		shared: clientIdle,
		run: func(ctx context.Context, log *slog.Logger, _ func(string, bool)) error {
			if !slices.Contains(proxyModes, set.mode) {
				return errUsage{fmt.Errorf("--proxy-mode %s: want %s, or nothing", set.mode, strings.Join(proxyModes[1:], ", "))}
			}
			if set.cleanUp {
				removed, err := parts.CleanUp(ctx)
				log.Info("removed", "what", removed)
				return err
			}
			o.Userspace = set.mode == "userspace"
			if set.mode != "" && set.mode != proxyModes[1] && !o.Userspace {
				log.Warn("services are proxied by rules of nftables all the same", "mode", set.mode)
			}
			if set.mode == "ipvs" {
				exact, err := o.Schedule(set.scheduler)
				if err != nil {
					return errUsage{err}
				}
				if !exact {
					log.Warn("no connections are counted for the sake of balance: endpoints of a service are chosen without", "scheduler", set.scheduler)
				}
			}
			o.Logger = log
			return o.Run(ctx)
		},
	}.command()
}

// proxySettings are what the command itself acts on.
type proxySettings struct {
	mode      string
	scheduler string
	cleanUp   bool
}

// proxyModes are upstream's on Linux, of all times. What they do is the same here, but for the schedulers of ipvs, and for userspace.
var proxyModes = []string{"", "nftables", "iptables", "ipvs", "userspace"}

// splitList are the parts of a list with commas.
func splitList(s string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for part := range strings.SplitSeq(s, ",") {
			if part = strings.TrimSpace(part); part != "" && !yield(part) {
				return
			}
		}
	}
}

// proxyConfig is the configuration file of service proxies.
func proxyConfig() *configKind {
	const (
		kernel = "rules are of nftables"
		calls  = "calls are limited by number, and encoded as suits"
	)
	flags := map[string]configField{"iptables.masqueradeAll": {flag: "masquerade-all"}, "nftables.masqueradeAll": {flag: "masquerade-all"}}
	for path, flag := range map[string]string{
		"clientConnection.kubeconfig": "kubeconfig", "clusterCIDR": "cluster-cidr", "detectLocal.clusterCIDRs": "cluster-cidr", "hostnameOverride": "hostname-override", "mode": "proxy-mode", "ipvs.scheduler": "ipvs-scheduler",
		"nodePortAddresses": "nodeport-addresses", "healthzBindAddress": "healthz-bind-address", "metricsBindAddress": "metrics-bind-address", "enableProfiling": "profiling",
		"conntrack.maxPerCore": "conntrack-max-per-core", "conntrack.min": "conntrack-min", "conntrack.tcpBeLiberal": "conntrack-tcp-be-liberal",
		"conntrack.tcpEstablishedTimeout": "conntrack-tcp-timeout-established", "conntrack.tcpCloseWaitTimeout": "conntrack-tcp-timeout-close-wait",
		"conntrack.udpTimeout": "conntrack-udp-timeout", "conntrack.udpStreamTimeout": "conntrack-udp-timeout-stream",
	} {
		flags[path] = configField{flag: flag}
	}
	return &configKind{
		apiVersion: "kubeproxy.config.k8s.io/v1alpha1", kind: "KubeProxyConfiguration", flags: flags,
		only: map[string][]string{"detectLocalMode": {"ClusterCIDR"}},
		idle: map[string]string{
			"bindAddress": "nothing but health and metrics is served", "clientConnection": calls, "configSyncPeriod": "rules follow the cluster at once",
			"iptables": kernel, "ipvs": kernel, "nftables": kernel, "linux": kernel, "featureGates": featureGates.why, "logging": loggedElsewhere,
			"syncPeriod": "rules follow the cluster at once", "minSyncPeriod": "rules follow the cluster at once", "oomScoreAdj": "the process keeps the score that it was started with",
		},
	}
}
