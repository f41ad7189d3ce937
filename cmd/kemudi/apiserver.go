package main

import (
	"context"
	"log/slog"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kemudi/kemudi/internal/cluster"
)

func newAPIServer() *cobra.Command {
	o := cluster.APIServerDefaults()
	return part{
		name: apiServerName, short: "Run the API server alone, in the foreground",
		long: `Serves the API of a cluster whose state an etcd of others keeps, with keys and certificates
that others have made. Neither controllers nor a scheduler nor a node run in the process.`,
		example: `  kemudi kube-apiserver --etcd-servers https://127.0.0.1:2379 --etcd-cafile etcd/ca.crt --etcd-certfile client.crt --etcd-keyfile client.key --tls-cert-file apiserver.crt --tls-private-key-file apiserver.key --client-ca-file ca.crt --service-account-signing-key-file sa.key --service-account-key-file sa.pub
  ln -s $(command -v kemudi) /usr/local/bin/kube-apiserver`,
		flags: func(f *pflag.FlagSet) { addAPIServerFlags(f, &o) },
		idle: []idleFlag{
			{name: "allow-privileged", why: "who may run privileged containers is for Pod Security to say", bool: true},
			{name: "storage-backend", why: "it is etcd"},
			{name: "service-account-lookup", why: "a token is good while its objects exist, whatever else is said", bool: true},
			{name: "enable-garbage-collector", why: "what the garbage collector needs is there", bool: true},
			{name: "enable-priority-and-fairness", why: "requests are always fairly dealt with", bool: true},
			{name: "enable-aggregator-routing", why: "servers of aggregated APIs are reached at their endpoints", bool: true},
			{name: "watch-cache", why: "all resources have one", bool: true},
			{name: "default-watch-cache-size", why: "caches hold what there is"},
			{name: "watch-cache-sizes", why: "caches hold what there is"},
			{name: "storage-media-type", why: "each kind is stored in one form"},
			{name: "delete-collection-workers", why: "objects of a collection are deleted as fast as the store takes it"},
			{name: "etcd-compaction-interval", why: "history is kept for five minutes"},
			{name: "etcd-count-metric-poll-period", why: "objects are counted when metrics are asked for"},
			{name: "etcd-db-metric-poll-interval", why: "the store is asked for its size when metrics are asked for"},
			{name: "etcd-healthcheck-timeout", why: "calls of the store have a time of their own"},
			{name: "etcd-readycheck-timeout", why: "calls of the store have a time of their own"},
			{name: "lease-reuse-duration-seconds", why: "events end by a lease that some of them share"},
			{name: "storage-initialization-timeout", why: "requests wait until the state is known"},
			{name: "endpoint-reconciler-type", why: "servers know of each other by leases of the store"},
			{name: "livez-grace-period", why: "a server that starts is alive"},
			{name: "shutdown-send-retry-after", why: "a server that stops takes no connections"},
			{name: "shutdown-watch-termination-grace-period", why: "watches end at once, and begin elsewhere where they were"},
			{name: "enable-logs-handler", why: "logs of the machine are for node agents to show", bool: true},
			{name: "max-connection-bytes-per-sec", why: "connections of users are as fast as they can be"},
			{name: "aggregator-reject-forwarding-redirect", why: "redirects of other servers are refused", bool: true},
			{name: "apiserver-count", why: "servers know of each other by leases of the store"},
			{name: "peer-ca-file", why: "the servers of a cluster serve the same"},
			{name: "peer-advertise-ip", why: "the servers of a cluster serve the same"},
			{name: "peer-advertise-port", why: "the servers of a cluster serve the same"},
			{name: "external-hostname", why: "nothing that is answered has it"},
			{name: "cert-dir", why: "--tls-cert-file names the certificate"},
			{name: "kubelet-port", why: "nodes say which ports their agents have"},
			{name: "kubelet-read-only-port", why: "node agents are asked over TLS"},
		},
		run: func(ctx context.Context, log *slog.Logger, step func(string, bool)) error {
			o.Logger, o.Step = log, step
			return cluster.RunAPIServer(ctx, o)
		},
	}.command()
}

func addAPIServerFlags(f *pflag.FlagSet, o *cluster.APIServerOptions) {
	a := &o.Alone
	f.Var((*addrFlag)(&o.BindAddress), "bind-address", "address to serve the API on; default all")
	f.Uint16Var(&o.SecurePort, "secure-port", o.SecurePort, "port to serve the API on")
	f.Var((*addrFlag)(&o.AdvertiseAddress), "advertise-address", "address at which others reach the API; default the machine's")
	f.StringVar(&a.Keys.ServingCert, "tls-cert-file", a.Keys.ServingCert, "certificate to serve with")
	f.StringVar(&a.Keys.ServingKey, "tls-private-key-file", a.Keys.ServingKey, "key of that certificate")
	addPortFlags(f, &o.Port)
	f.StringVar(&a.Keys.ProxyCert, "proxy-client-cert-file", a.Keys.ProxyCert, "certificate by which servers of aggregated APIs know this one")
	f.StringVar(&a.Keys.ProxyKey, "proxy-client-key-file", a.Keys.ProxyKey, "key of that certificate")
	f.StringVar(&a.Keys.ClientCA, "client-ca-file", a.Keys.ClientCA, "certificates of the authority that clients are known by")
	f.BoolVar(&a.BootstrapTokens, "enable-bootstrap-token-auth", a.BootstrapTokens, "believe the tokens of machines that join")
	f.Var((*prefixesFlag)(&o.Network.ServiceCIDRs), "service-cluster-ip-range", "addresses of services")
	f.Var((*portRangeFlag)(&o.Network.NodePorts), "service-node-port-range", "ports of NodePort services")
	addEtcdFlags(f, &o.Etcd)
	addAPIFlags(f, &o.API)
	addIdentityFlags(f, &o.Identity)
	addKubeletFlags(f, &o.Kubelets)
	f.Lookup("kubelet-certificate-authority").Usage = "certificates of the authority of node agents; default: whatever they show is believed"
	f.Lookup("etcd-servers").Usage = "addresses of the etcd that keeps the cluster's state: https://10.0.0.1:2379,..."
	f.Lookup("service-account-signing-key-file").Usage = "file of the key that signs tokens of service accounts"
	f.Lookup("kubelet-client-certificate").Usage = "certificate that this server shows to node agents"
}
