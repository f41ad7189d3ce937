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
			{name: "event-ttl", why: "events are kept for an hour"},
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
