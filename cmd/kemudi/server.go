package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kemudi/kemudi/internal/backup"
	"github.com/kemudi/kemudi/internal/cluster"
	"github.com/kemudi/kemudi/internal/obs"
	"github.com/kemudi/kemudi/internal/up"
)

func newServer() *cobra.Command {
	o := cluster.Defaults()
	var logs obs.LogOptions
	var token, tokenFile string
	c := &cobra.Command{
		Use:   "server",
		Short: "Run the control plane, and a node, in the foreground",
		Long: `Runs etcd, API server, controllers and scheduler in this process, and, unless
told otherwise, a node with container runtime, network and DNS. It ends on SIGTERM;
containers keep running, and are found again by the next start.

With --server and --token it becomes one of the servers of a cluster that others have
begun (kemudi token create --for server, on one of them): the store is then kept by all of
them, and each answers alike. Later starts need neither.

Each flag of each command can also be given as an environment variable, --data-dir
as KEMUDI_DATA_DIR, or as a key of a YAML file, data-dir: /srv/kemudi, that --config
names. The command line goes before the environment, and both before the file.`,
		Example: `  kemudi server
  kemudi server --data-dir /srv/kemudi --secure-port 7443
  kemudi server --disable-agent        # control plane only
  kemudi server --ephemeral            # gone when it ends
  kemudi server --from-etcd /var/lib/etcd --from-pki /etc/kubernetes/pki
  kemudi server --server 10.0.0.1 --token-file /root/token   # one more of a cluster
  kemudi server --config /srv/kemudi.yaml`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if o.Logger, o.Step, err = foreground(logs); err != nil {
				return err
			}
			if o.Joining.Token, err = readToken(token, tokenFile); err != nil {
				return err
			}
			if err := takeInvitation(&o.Machine, up.RoleServer, &o.Joining.Servers, &o.Joining.Token); err != nil {
				return err
			}
			o.Say(c.Flags().Changed)
			return cluster.Run(c.Context(), o)
		},
	}
	logs.AddFlags(c.Flags())
	addServerFlags(c.Flags(), &o)
	addJoiningFlags(c.Flags(), &o.Joining)
	c.Flags().StringVar(&token, "token", token, "token to join the servers by; others on this machine may see it here: prefer --token-file, or KEMUDI_TOKEN")
	obs.Classify(c.Flags(), "token")
	c.Flags().StringVar(&tokenFile, "token-file", tokenFile, "file with the token")
	return c
}

func addServerFlags(f *pflag.FlagSet, o *cluster.Options) {
	addMachineFlags(f, &o.Machine)
	f.Var((*addrFlag)(&o.BindAddress), "bind-address", "address to serve the API on; default all")
	f.Uint16Var(&o.SecurePort, "secure-port", o.SecurePort, "port to serve the API on")
	f.Var((*addrFlag)(&o.AdvertiseAddress), "advertise-address", "address at which others reach the API; default the node's")
	f.StringSliceVar(&o.TLSSANs, "tls-san", o.TLSSANs, "further names and addresses of the API server, for its certificate")
	addPortFlags(f, &o.Port)
	f.Var((*addrsFlag)(&o.VirtualIPs), "virtual-ip", "address that one of the servers holds, or one of each family: it moves within seconds when that fails; on a network that all servers are on")
	addEtcdFlags(f, &o.Etcd)
	f.BoolVar(&o.Ephemeral, "ephemeral", o.Ephemeral, "keep the cluster's state in memory: when the server ends, the cluster and all that runs in it is gone")
	f.StringVar(&o.Takeover.Etcd, "from-etcd", o.Takeover.Etcd, "data directory of the etcd of another Kubernetes, or a snapshot of it, whose store this server takes over; it stays as it is")
	f.StringVar(&o.Takeover.PKI, "from-pki", o.Takeover.PKI, "directory of that Kubernetes' keys and certificates, as kubeadm lays it out: ca, sa and front-proxy-ca are taken over; default they are made anew")
	addBackupFlags(f, &o.Backup)
	addAPIFlags(f, &o.API)
	addIdentityFlags(f, &o.Identity)
	addKubeletFlags(f, &o.Kubelets)
	addSSHFlags(f, &o.SSH)
	addElectionFlags(f, o)
	addCloudFlags(f, o)
	addControllersFlags(f, &o.Controllers)

	f.Var((*prefixesFlag)(&o.Network.ServiceCIDRs), "service-cluster-ip-range", "addresses of services")
	f.Var((*prefixesFlag)(&o.Network.ClusterCIDRs), "cluster-cidr", "addresses of pods")
	f.Var((*portRangeFlag)(&o.Network.NodePorts), "service-node-port-range", "ports of NodePort services")
	f.Var((*addrFlag)(&o.Network.ClusterDNS), "cluster-dns", "address of the DNS service; default the tenth service address")
	f.StringVar(&o.Network.ClusterDomain, "cluster-domain", o.Network.ClusterDomain, "DNS domain of the cluster")
	f.StringVar((*string)(&o.Network.PodNetwork), "pod-network", string(o.Network.PodNetwork), "how packets get to the pods of other nodes: routes to neighbours and VXLAN to others (auto), routes alone, vxlan to all, or none of these")
	f.Uint16Var(&o.Network.VXLAN.Port, "vxlan-port", o.Network.VXLAN.Port, "UDP port to which nodes send each other VXLAN")
	f.Uint32Var(&o.Network.VXLAN.ID, "vxlan-id", o.Network.VXLAN.ID, "number of the cluster's VXLAN network")

	f.BoolVar(&o.Controllers.Gateway.Define, "gateway-api", o.Controllers.Gateway.Define, "define the kinds of the Gateway API, where nobody else has; Gateways of class kemudi are served wherever these kinds are defined")
	f.BoolVar(&o.NoNode, "disable-agent", o.NoNode, "run no pods on this machine")

	f.StringVar(&o.Scheduling.ConfigFile, "scheduler-config", o.Scheduling.ConfigFile, "file of a KubeSchedulerConfiguration: profiles, their plugins with arguments, extenders, leader election; flags go before it")
	f.IntVar(&o.Scheduling.NodesToScore, "percentage-of-nodes-to-score", o.Scheduling.NodesToScore, "how much of the cluster is searched before the best node found is taken, in percent; default 50 to 5, the less the larger the cluster")
	addTunedControllerFlags(f, &o.Controllers)
}

// addBackupFlags adds when a server makes backups by itself.
func addBackupFlags(f *pflag.FlagSet, o *backup.Options) {
	f.Var((*dirFlag)(&o.Dir), "backup-dir", "directory in which this server backs the cluster up by itself, as kemudi backup does; default: it does not")
	f.StringVar(&o.Schedule, "backup-schedule", o.Schedule, "with --backup-dir: when, as cron says it, in this machine's time: minute, hour, day, month and weekday, or such as @daily; one that was missed is made up for")
	f.IntVar(&o.Keep, "backup-keep", o.Keep, "with --backup-dir: how many of this server's backups stay there, the newest ones; 0: all")
}

// addTunedControllerFlags adds what people tune of single controllers.
func addTunedControllerFlags(f *pflag.FlagSet, o *cluster.ControllerOptions) {
	f.IntVar(&o.EndpointSlice.MaxEndpointsPerSlice, "max-endpoints-per-slice", o.EndpointSlice.MaxEndpointsPerSlice, "how many endpoints an EndpointSlice holds")
	f.Var((*limitFlag)(&o.PodGC.Threshold), "terminated-pod-gc-threshold", "how many finished pods are kept; 0 or less: all of them")
	f.DurationVar(&o.PodAutoscaler.SyncPeriod, "horizontal-pod-autoscaler-sync-period", o.PodAutoscaler.SyncPeriod, "how often an autoscaler looks at what its pods use")
	f.Var((*spanFlag)(&o.PodAutoscaler.Downscale), "horizontal-pod-autoscaler-downscale-stabilization", "how long an autoscaler keeps the most pods that were wanted before it takes any away")
	f.Float64Var(&o.PodAutoscaler.Tolerance, "horizontal-pod-autoscaler-tolerance", o.PodAutoscaler.Tolerance, "how far a metric may be off its target, as a share of it, with nothing done about it")
	f.Var((*spanFlag)(&o.PodAutoscaler.CPUInitialization), "horizontal-pod-autoscaler-cpu-initialization-period", "how long after its start what a pod uses of processors does not count, unless it has been ready for all of it")
	f.Var((*spanFlag)(&o.PodAutoscaler.InitialReadinessDelay), "horizontal-pod-autoscaler-initial-readiness-delay", "how long after its start a pod that becomes unready is taken never to have been ready")
	f.DurationVar(&o.LegacyTokens.CleanUpPeriod, "legacy-service-account-token-clean-up-period", o.LegacyTokens.CleanUpPeriod, "for how long nobody must have used a token of old in a secret before it is refused, and then before it is deleted")
	f.BoolVar(&o.AttachDetach.Patient, "disable-force-detach-on-timeout", o.AttachDetach.Patient, "leave nodes that are not ready the volumes that they may still use, however long that lasts; else 6 minutes")
	f.StringVar(&o.Recycle.HostPath.Template, "pv-recycler-pod-template-filepath-hostpath", o.Recycle.HostPath.Template, "file of the pod that empties volumes of a machine's directories which are used again (Recycle), instead of upstream's; its first volume becomes the one that it is to empty")
	f.Int64Var(&o.Recycle.HostPath.Least, "pv-recycler-minimum-timeout-hostpath", o.Recycle.HostPath.Least, "how many seconds that pod has at least")
	f.Int64Var(&o.Recycle.HostPath.PerGiB, "pv-recycler-timeout-increment-hostpath", o.Recycle.HostPath.PerGiB, "how many it has for each GiB, if that is more")
	f.StringVar(&o.Recycle.NFS.Template, "pv-recycler-pod-template-filepath-nfs", o.Recycle.NFS.Template, "the same for volumes of NFS")
	f.Int64Var(&o.Recycle.NFS.Least, "pv-recycler-minimum-timeout-nfs", o.Recycle.NFS.Least, "how many seconds it has at least")
	f.Int64Var(&o.Recycle.NFS.PerGiB, "pv-recycler-increment-timeout-nfs", o.Recycle.NFS.PerGiB, "how many it has for each GiB, if that is more")
	f.DurationVar(&o.ResourceQuota.SyncPeriod, "resource-quota-sync-period", o.ResourceQuota.SyncPeriod, "how often what is used of quotas is counted without cause")
	f.DurationVar(&o.NodeLifecycle.GracePeriod, "node-monitor-grace-period", o.NodeLifecycle.GracePeriod, "how long a node may be silent")
	f.DurationVar(&o.NodeLifecycle.StartupGracePeriod, "node-startup-grace-period", o.NodeLifecycle.StartupGracePeriod, "the same for a node that has never reported")
	f.Float64Var(&o.NodeLifecycle.EvictionRate, "node-eviction-rate", o.NodeLifecycle.EvictionRate, "how many lost nodes of a zone begin to be emptied in a second")
	f.Float64Var(&o.NodeLifecycle.SecondaryEvictionRate, "secondary-node-eviction-rate", o.NodeLifecycle.SecondaryEvictionRate, "the same for a large zone much of which is lost")
	f.Float64Var(&o.NodeLifecycle.UnhealthyZoneThreshold, "unhealthy-zone-threshold", o.NodeLifecycle.UnhealthyZoneThreshold, "how much of a zone that is, from 0 to 1")
	f.IntVar(&o.NodeLifecycle.LargeClusterSize, "large-cluster-size-threshold", o.NodeLifecycle.LargeClusterSize, "how many nodes a small zone has at the most; it is left alone when much of it is lost")
	f.IntVar(&o.NodeIPAM.Bits4, "node-cidr-mask-size-ipv4", o.NodeIPAM.Bits4, "size of a node's share of the IPv4 addresses of pods: length of its prefix")
	f.IntVar(&o.NodeIPAM.Bits6, "node-cidr-mask-size-ipv6", o.NodeIPAM.Bits6, "the same of the IPv6 addresses")
	f.IntVar(&o.NodeIPAM.Bits, "node-cidr-mask-size", o.NodeIPAM.Bits, "size of a node's share where pods have addresses of one family, in place of that family's flag")
	o.NodeIPAM.Bits4, o.NodeIPAM.Bits6 = 0, 0 // shown, but not said: --node-cidr-mask-size is for who says neither
	f.DurationVar(&o.Certificates.Life, "cluster-signing-duration", o.Certificates.Life, "how long certificates that are signed on request are good for")
	f.IntVar(&o.EndpointSliceMirroring.MaxEndpointsPerSubset, "mirroring-max-endpoints-per-subset", o.EndpointSliceMirroring.MaxEndpointsPerSubset, "how many addresses of hand-made Endpoints are mirrored to slices")
}

func addAPIFlags(f *pflag.FlagSet, o *cluster.API) {
	f.Var((*runtimeConfigFlag)(&o.RuntimeConfig), "runtime-config", "group-versions to turn on or off: extensions/v1beta1=false,api/alpha=true,...; api/legacy is all that are deprecated, api/ga, api/beta, api/alpha and api/all are the others; alpha versions are off otherwise")
	f.Int64Var(&o.EncodedCacheSize, "encoded-cache-bytes", o.EncodedCacheSize, "memory for the encoded forms of objects that are read often")
	f.Var((*memoryFlag)(&o.MemoryLimit), "memory-limit", "memory that this process makes do with, 400Mi say: near to it the API refuses large requests, and then others (429); default three quarters of what the machine or the cgroup has")
	f.DurationVar(&o.RequestTimeout, "request-timeout", o.RequestTimeout, "how long a request may take that is not a watch or the like")
	f.Var(secondsFlag{&o.WatchTime}, "min-request-timeout", "how many seconds a watch lasts at the least whose client does not say so; it lasts up to twice as long; 0: as long as its client likes; default 1800")
	f.DurationVar(&o.EventTTL, "event-ttl", o.EventTTL, "how long events are kept")
	f.IntVar(&o.MaxReads, "max-requests-inflight", o.MaxReads, "with --max-mutating-requests-inflight, the seats of requests that priority levels share")
	f.IntVar(&o.MaxWrites, "max-mutating-requests-inflight", o.MaxWrites, "with --max-requests-inflight, the seats of requests that priority levels share")
	f.VarPF((*notFlag)(&o.FrameByFrame), "coalesce-http2", "", "send what is to be sent at one time in few large pieces; if false, each frame by itself as Go's own server does").NoOptDefVal = "true"
	addServingFlags(f, o)
	f.VarPF((*notFlag)(&o.NoProfiling), "profiling", "", "serve profiles of the process below /debug/pprof to who may get them").NoOptDefVal = "true"
	f.BoolVar(&o.Contention, "contention-profiling", o.Contention, "note where goroutines wait for each other, for /debug/pprof/block, if profiles are served")
	on, off := cluster.AdmissionPlugins()
	f.Var((*pluginsFlag)(&o.Plugins.Enable), "enable-admission-plugins", "admission plugins to turn on: "+strings.Join(off, ", "))
	f.Var((*pluginsFlag)(&o.Plugins.Disable), "disable-admission-plugins", "admission plugins to turn off that are on: "+strings.Join(on, ", "))
	f.Var(secondsFlag{&o.Plugins.Stay.NotReady}, "default-not-ready-toleration-seconds", "how long pods that say nothing of it stay on a node that is not ready; default 300")
	f.Var(secondsFlag{&o.Plugins.Stay.Unreachable}, "default-unreachable-toleration-seconds", "the same for a node that cannot be reached; default 300")
	f.StringVar(&o.PluginConfigFile, "admission-control-config-file", o.PluginConfigFile, "AdmissionConfiguration file with what plugins are told")
	addAuditFlags(f, &o.Audit)
	f.StringVar(&o.Encryption.File, "encryption-provider-config", o.Encryption.File, "file of an EncryptionConfiguration: which resources lie encrypted in the store, and by what; none: nothing does")
	f.BoolVar(&o.Encryption.Reload, "encryption-provider-config-automatic-reload", o.Encryption.Reload, "take over that file when it changes")
	f.StringVar(&o.EgressFile, "egress-selector-config-file", o.EgressFile, "file of an EgressSelectorConfiguration: the proxy by which nodes, pods and services are reached; default directly")
	f.StringVar(&o.TracingFile, "tracing-config-file", o.TracingFile, "file of a TracingConfiguration: where spans of requests go (OpenTelemetry), and of how many; default nowhere")
	addAuthorizationFlags(f, &o.Authorization)
	addEmulationFlags(f, &o.Emulation.Version, &o.Emulation.Compatible)
	f.BoolVar(&o.Emulation.Forward, "emulation-forward-compatible", o.Emulation.Forward, "with --emulated-version: serve newer versions too of resources that this release has, alpha versions excepted")
	f.BoolVar(&o.Emulation.Explicit, "runtime-config-emulation-forward-compatible", o.Emulation.Explicit, "with --emulated-version: serve newer versions that --runtime-config names")
	f.Var((*featureGatesFlag)(&o.Features), "feature-gates", "upstream's feature gates, WatchList=true,...: they are known by name, and nothing follows from them, as what there is here is on, but for CoordinatedLeaderElection=true, with which a server gives leases away to who stands for them as LeaseCandidates")
	c := &o.Coordinated
	f.DurationVar(&c.LeaseDuration, "coordinated-leadership-lease-duration", c.LeaseDuration, "with CoordinatedLeaderElection: how long the lease of the server that does so is good for")
	f.DurationVar(&c.RenewDeadline, "coordinated-leadership-renew-deadline", c.RenewDeadline, "with CoordinatedLeaderElection: how long that server tries to renew it before it gives it up")
	f.DurationVar(&c.RetryPeriod, "coordinated-leadership-retry-period", c.RetryPeriod, "with CoordinatedLeaderElection: how often servers try to get or to renew it")
}

// addPortFlags adds how the API's port takes connections.
func addPortFlags(f *pflag.FlagSet, p *cluster.Port) { p.AddFlags(f) }

// addServingFlags adds how HTTP is spoken with clients.
func addServingFlags(f *pflag.FlagSet, o *cluster.API) {
	s := &o.Serving
	f.IntVar(&s.Streams, "http2-max-streams-per-connection", s.Streams, "how many requests a client may have under way on a connection of HTTP/2; 0: a thousand")
	f.BoolVar(&s.NoHTTP2, "disable-http2-serving", s.NoHTTP2, "speak HTTP/1.1 alone")
	f.Float64Var(&s.GoAway, "goaway-chance", s.GoAway, "chance of each request over HTTP/2 that its client is asked to connect anew, to where a balancer leads it: 0 to 0.02")
	f.StringSliceVar(&s.Origins, "cors-allowed-origins", s.Origins, "expressions for the sites whose pages may ask the API, with the begin and the end of the host's name: ^https://ui\\.example\\.com$; default none")
	f.StringSliceVar(&s.Transport, "strict-transport-security-directives", s.Transport, "what browsers are told of TLS: max-age=31536000,includeSubDomains,preload; default nothing")
	f.DurationVar(&s.Delay, "shutdown-delay-duration", s.Delay, "how long a server that is told to stop still answers, while /readyz says that it stops and balancers look elsewhere")
}

func addControllersFlags(f *pflag.FlagSet, o *cluster.ControllerOptions) {
	f.StringSliceVar(&o.Enabled, "controllers", o.Enabled, "controllers that run: *, all; a name, that one; -name, all but that one. There are: "+strings.Join(cluster.Controllers(), ", "))
	for i := range o.Syncs {
		s := &o.Syncs[i]
		f.IntVar(&s.Keys, s.Flag, s.Keys, "how many "+s.Of+" are worked on at once")
	}
	f.DurationVar(&o.NodeLifecycle.MonitorPeriod, "node-monitor-period", o.NodeLifecycle.MonitorPeriod, "how often it is decided about lost nodes; that they are lost is noticed at once")
}

func addCloudFlags(f *pflag.FlagSet, o *cluster.Options) {
	f.StringVar(&o.Controllers.ACME.Server, "acme-server", o.Controllers.ACME.Server, "who signs the certificates of Ingresses and Gateways with the annotation kemudi.io/acme: letsencrypt, or the URL of an ACME server's directory; to say so is to agree to its terms; default nobody")
	f.StringVar(&o.Controllers.ACME.Email, "acme-email", o.Controllers.ACME.Email, "whom it may write to; default nobody")
	f.StringVar(&o.Controllers.ACME.CAFile, "acme-ca-file", o.Controllers.ACME.CAFile, "file with the authorities of its own certificate; default those that the machine knows")
	f.StringSliceVar(&o.Controllers.LoadBalancer.From, "load-balancer", o.Controllers.LoadBalancer.From, "what Services of type LoadBalancer are reached at: nodes, the addresses of the nodes; addresses of a pool, 192.0.2.0/28, 192.0.2.10-192.0.2.20 or NAME=fd00::/120, of several the first unless a Service names one; none: another program sees to them. With a --cloud-provider that has balancers, those of class kemudi.io/load-balancer alone")
	f.StringVar(&o.Controllers.Cloud.Name, "cloud-provider", o.Controllers.Cloud.Name, "the cloud that the machines are of: "+strings.Join(cluster.CloudProviders(), ", ")+"; external: that of another program, which tells the nodes what they are; default none")
	f.StringVar(&o.Controllers.Cloud.ConfigFile, "cloud-config", o.Controllers.Cloud.ConfigFile, "file that a built-in cloud provider is configured by")
	f.StringVar(&o.Controllers.Cloud.ClusterName, "cluster-name", o.Controllers.Cloud.ClusterName, "by what the cloud tells this cluster's routes and balancers from those of others")
	f.VarPF((*notFlag)(&o.Controllers.Cloud.NoRoutes), "configure-cloud-routes", "", "keep a route in the cloud for the pods of each node").NoOptDefVal = "true"
	f.DurationVar(&o.Controllers.Cloud.RoutePeriod, "route-reconciliation-period", o.Controllers.Cloud.RoutePeriod, "how often the cloud's routes are looked at")
	f.DurationVar(&o.Controllers.Cloud.StatusPeriod, "node-status-update-frequency", o.Controllers.Cloud.StatusPeriod, "how often the cloud is asked for the addresses of nodes")
	f.VarPF((*notFlag)(&o.Controllers.NodeIPAM.Off), "allocate-node-cidrs", "", "give nodes their shares of --cluster-cidr; if false, somebody else does").NoOptDefVal = "true"
}

func addElectionFlags(f *pflag.FlagSet, o *cluster.Options) {
	f.VarPF((*notFlag)(&o.Election.Off), "leader-elect", "", "elect, of several servers with one store, which runs the controllers and which the scheduler; a server that has its store to itself writes no lease").NoOptDefVal = "true"
	f.DurationVar(&o.Election.LeaseDuration, "leader-elect-lease-duration", o.Election.LeaseDuration, "how long others wait for a leader that is silent before they take over")
	f.DurationVar(&o.Election.RenewDeadline, "leader-elect-renew-deadline", o.Election.RenewDeadline, "how long a leader tries to renew its lease before it gives up; less than the lease's duration")
	f.DurationVar(&o.Election.RetryPeriod, "leader-elect-retry-period", o.Election.RetryPeriod, "how long it waits between two tries")
	f.StringVar(&o.Election.Lock, "leader-elect-resource-lock", o.Election.Lock, "kind of object that is held: leases")
	f.StringSliceVar(&o.Election.Names, "leader-elect-resource-name", o.Election.Names, "names of the leases of controllers and scheduler, or of one for both")
	f.StringVar(&o.Election.Namespace, "leader-elect-resource-namespace", o.Election.Namespace, "namespace of the leases")
}

func addEtcdFlags(f *pflag.FlagSet, o *cluster.Etcd) {
	f.StringSliceVar(&o.Servers, "etcd-servers", o.Servers, "addresses of an etcd that keeps the cluster's state: https://10.0.0.1:2379,...; default the built-in one")
	f.StringVar(&o.CAFile, "etcd-cafile", o.CAFile, "certificates of the authority of that etcd")
	f.StringVar(&o.CertFile, "etcd-certfile", o.CertFile, "certificate that this server shows to it")
	f.StringVar(&o.KeyFile, "etcd-keyfile", o.KeyFile, "key of that certificate")
	f.StringSliceVar(&o.Overrides, "etcd-servers-overrides", o.Overrides, "resources that other etcds keep, /events#https://10.0.0.2:2379;...: taken of events, for scripts and without effect, as all is in one store, and refused of others")
	f.StringVar(&o.Prefix, "etcd-prefix", o.Prefix, "what the keys of the cluster's objects begin with in that etcd; default /registry")
}

func addJoiningFlags(f *pflag.FlagSet, o *cluster.Joining) {
	f.StringSliceVar(&o.Servers, "server", o.Servers, "address or URL of a server to join, or of several; port 6443 unless it is said; default: a cluster of its own")
	f.Var((*addrFlag)(&o.PeerAddress), "peer-address", "address at which other servers reach this one's part of the store; default the node's")
	f.Uint16Var(&o.PeerPort, "peer-port", o.PeerPort, "port of it; nothing listens there while there are no other servers")
}

func addKubeletFlags(f *pflag.FlagSet, o *cluster.Kubelets) {
	f.Var((*authorityFlag)(o), "kubelet-certificate-authority", "certificates of the authority that signs those of node agents; empty, if said: these are not verified; default the cluster's own authority for agents of Kemudi, and whatever they show for those of others")
	f.StringVar(&o.CertFile, "kubelet-client-certificate", o.CertFile, "certificate that this server shows to node agents; default one of the cluster's")
	f.StringVar(&o.KeyFile, "kubelet-client-key", o.KeyFile, "key of that certificate")
	f.StringSliceVar(&o.AddressTypes, "kubelet-preferred-address-types", o.AddressTypes, "which of a node's addresses its agent is reached by: the first of these types that it has")
	f.DurationVar(&o.Timeout, "kubelet-timeout", o.Timeout, "how long it may take to reach a node agent")
}

func addSSHFlags(f *pflag.FlagSet, o *cluster.SSH) {
	f.StringVar(&o.User, "ssh-user", o.User, "reach node agents, pods and services of other machines by SSH alone, as this user of theirs")
	f.StringVar(&o.KeyFile, "ssh-keyfile", o.KeyFile, "private key by which that user is logged in as")
}

// authorityFlag is a file of certificates, or the word that nothing is verified: none.
type authorityFlag cluster.Kubelets

func (a *authorityFlag) Type() string   { return "string" }
func (a *authorityFlag) String() string { return a.CAFile }

func (a *authorityFlag) Set(file string) error {
	a.CAFile, a.Unverified = file, file == ""
	return nil
}

// memoryFlag is bytes, as a quantity.
type memoryFlag int64

func (m *memoryFlag) Type() string { return "quantity" }
func (m *memoryFlag) String() string {
	if *m == 0 {
		return ""
	}
	return resource.NewQuantity(int64(*m), resource.BinarySI).String()
}

func (m *memoryFlag) Set(s string) error {
	q, err := resource.ParseQuantity(s)
	*m = memoryFlag(q.Value())
	return err
}

// pluginsFlag is names of admission plugins.
type pluginsFlag []string

func (p *pluginsFlag) Type() string   { return "plugins" }
func (p *pluginsFlag) String() string { return strings.Join(*p, ",") }

func (p *pluginsFlag) Set(s string) error {
	on, off := cluster.AdmissionPlugins()
	known := slices.Sorted(slices.Values(slices.Concat(on, off)))
	for part := range strings.SplitSeq(s, ",") {
		name := strings.TrimSpace(part)
		if name == "" {
			continue
		}
		if !slices.Contains(known, name) {
			return fmt.Errorf("there is no plugin %q; there are %s", name, strings.Join(known, ", "))
		}
		*p = append(*p, name)
	}
	return nil
}

// notFlag is true when its flag is false.
type notFlag bool

func (n *notFlag) Type() string   { return "bool" }
func (n *notFlag) String() string { return strconv.FormatBool(!bool(*n)) }

func (n *notFlag) Set(s string) error {
	yes, err := strconv.ParseBool(s)
	*n = notFlag(!yes)
	return err
}

// limitFlag is a number that limits nothing from 0 down. It is negative then: an
// option that is 0 was not said.
type limitFlag int

func (l *limitFlag) Type() string   { return "int" }
func (l *limitFlag) String() string { return strconv.Itoa(int(*l)) }

func (l *limitFlag) Set(s string) error {
	n, err := strconv.Atoi(s)
	if n <= 0 {
		n = -1
	}
	*l = limitFlag(n)
	return err
}

// secondsFlag is a number of seconds that may be 0, or not said.
type secondsFlag struct{ at **int64 }

func (f secondsFlag) Type() string { return "int" }
func (f secondsFlag) String() string {
	if f.at == nil || *f.at == nil {
		return ""
	}
	return strconv.FormatInt(**f.at, 10)
}

func (f secondsFlag) Set(s string) error {
	n, err := strconv.ParseInt(s, 10, 64)
	if err == nil && n < 0 {
		err = fmt.Errorf("%d: want 0 or more", n)
	}
	*f.at = &n
	return err
}

// spanFlag is a time that may be 0. It is negative then: an option that is 0 was not said.
type spanFlag time.Duration

func (s *spanFlag) Type() string   { return "duration" }
func (s *spanFlag) String() string { return max(time.Duration(*s), 0).String() }

func (s *spanFlag) Set(text string) error {
	d, err := time.ParseDuration(text)
	if d <= 0 {
		d = -1
	}
	*s = spanFlag(d)
	return err
}

// addrFlag is an IP address.
type addrFlag netip.Addr

func (a *addrFlag) Type() string { return "ip" }
func (a *addrFlag) String() string {
	if addr := netip.Addr(*a); addr.IsValid() {
		return addr.String()
	}
	return ""
}

func (a *addrFlag) Set(s string) error {
	addr, err := netip.ParseAddr(s)
	*a = addrFlag(addr)
	return err
}

// addrsFlag is IP addresses.
type addrsFlag []netip.Addr

func (a *addrsFlag) Type() string { return "ips" }
func (a *addrsFlag) String() string {
	var list []string
	for _, addr := range *a {
		list = append(list, addr.String())
	}
	return strings.Join(list, ",")
}

func (a *addrsFlag) Set(s string) error {
	var list addrsFlag
	for part := range splitList(s) {
		addr, err := netip.ParseAddr(part)
		if err != nil {
			return err
		}
		list = append(list, addr)
	}
	*a = list
	return nil
}

// nodeIPFlag is one address, or one of each family.
type nodeIPFlag struct{ first, second *netip.Addr }

func (n *nodeIPFlag) Type() string { return "ips" }
func (n *nodeIPFlag) String() string {
	if n.first == nil || !n.first.IsValid() {
		return ""
	}
	if !n.second.IsValid() {
		return n.first.String()
	}
	return n.first.String() + "," + n.second.String()
}

func (n *nodeIPFlag) Set(s string) error {
	first, second, two := strings.Cut(s, ",")
	if err := (*addrFlag)(n.first).Set(strings.TrimSpace(first)); err != nil || !two {
		*n.second = netip.Addr{}
		return err
	}
	return (*addrFlag)(n.second).Set(strings.TrimSpace(second))
}

// prefixesFlag is one prefix, or one of each family.
type prefixesFlag []netip.Prefix

func (p *prefixesFlag) Type() string { return "cidrs" }
func (p *prefixesFlag) String() string {
	var list []string
	for _, one := range *p {
		list = append(list, one.String())
	}
	return strings.Join(list, ",")
}

func (p *prefixesFlag) Set(s string) error {
	*p = nil
	for part := range strings.SplitSeq(s, ",") {
		one, err := netip.ParsePrefix(part)
		if err != nil {
			return err
		}
		*p = append(*p, one.Masked())
	}
	return nil
}

// nodePortsFlag is prefixes, and words for some of them.
type nodePortsFlag struct {
	prefixes *[]netip.Prefix
	primary  *bool
}

const primaryWord = "primary"

func (n *nodePortsFlag) Type() string { return "cidrs" }
func (n *nodePortsFlag) String() string {
	if n.prefixes == nil {
		return ""
	}
	list := (*prefixesFlag)(n.prefixes).String()
	if !*n.primary {
		return list
	}
	return strings.TrimSuffix(primaryWord+","+list, ",")
}

func (n *nodePortsFlag) Set(s string) error {
	*n.prefixes, *n.primary = nil, false
	all := false
	for part := range strings.SplitSeq(s, ",") {
		switch part {
		case primaryWord:
			*n.primary = true
		case "all":
			all = true
		case "localhost":
			*n.prefixes = append(*n.prefixes, netip.MustParsePrefix("127.0.0.0/8"), netip.PrefixFrom(netip.IPv6Loopback(), 128))
		default:
			var one prefixesFlag
			if err := one.Set(part); err != nil {
				return err
			}
			*n.prefixes = append(*n.prefixes, one...)
		}
	}
	if all {
		*n.prefixes, *n.primary = nil, false
	}
	return nil
}

// portRangeFlag is "first-last".
type portRangeFlag cluster.PortRange

func (p *portRangeFlag) Type() string { return "ports" }
func (p *portRangeFlag) String() string {
	if *p == (portRangeFlag{}) {
		return ""
	}
	return cluster.PortRange(*p).String()
}

func (p *portRangeFlag) Set(s string) error {
	r, err := cluster.ParsePortRange(s)
	*p = portRangeFlag(r)
	return err
}

// runtimeConfigFlag is group/version=bool pairs.
type runtimeConfigFlag map[string]bool

func (m *runtimeConfigFlag) Type() string { return "map" }
func (m *runtimeConfigFlag) String() string {
	var list []string
	for k, v := range *m {
		list = append(list, k+"="+strconv.FormatBool(v))
	}
	return strings.Join(list, ",")
}

func (m *runtimeConfigFlag) Set(s string) error {
	if *m == nil {
		*m = runtimeConfigFlag{}
	}
	for part := range strings.SplitSeq(s, ",") {
		key, value, ok := strings.Cut(part, "=")
		if !ok {
			value = "true"
		}
		on, err := strconv.ParseBool(value)
		if err != nil {
			return fmt.Errorf("%s: %w", part, err)
		}
		(*m)[key] = on
	}
	return nil
}

// taintsFlag is key=value:effect,...
type taintsFlag []corev1.Taint

func (t *taintsFlag) Type() string { return "taints" }
func (t *taintsFlag) String() string {
	var list []string
	for i := range *t {
		list = append(list, (*t)[i].ToString())
	}
	return strings.Join(list, ",")
}

func (t *taintsFlag) Set(s string) error {
	*t = nil
	for part := range strings.SplitSeq(s, ",") {
		rest, effect, ok := strings.Cut(part, ":")
		if !ok {
			return fmt.Errorf("%q is not of the form key=value:effect", part)
		}
		key, value, _ := strings.Cut(rest, "=")
		*t = append(*t, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)})
	}
	return nil
}
