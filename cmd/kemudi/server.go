package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/cluster"
	"github.com/kemudi/kemudi/internal/obs"
	"github.com/kemudi/kemudi/internal/up"
)

func newServer() *cobra.Command {
	var o cluster.Options
	var logs obs.LogOptions
	c := &cobra.Command{
		Use:   "server",
		Short: "Run the control plane, and a node, in the foreground",
		Long: `Runs etcd, API server, controllers and scheduler in this process, and, unless
told otherwise, a node with container runtime, network and DNS. It ends on SIGTERM;
containers keep running, and are found again by the next start.

Each flag of each command can also be given as an environment variable, --data-dir
as KEMUDI_DATA_DIR, or as a key of a YAML file, data-dir: /srv/kemudi, that --config
names. The command line goes before the environment, and both before the file.`,
		Example: `  kemudi server
  kemudi server --data-dir /srv/kemudi --secure-port 7443
  kemudi server --disable-agent        # control plane only
  kemudi server --config /srv/kemudi.yaml`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			log, err := obs.NewLogger(os.Stderr, logs)
			if err != nil {
				return errUsage{err}
			}
			obs.CaptureKlog(log)
			n, err := up.NewNotifier()
			if err != nil {
				return err
			}
			o.Logger, o.Step = log, func(name string, ready bool) {
				log.Info("started", "step", name)
				n.Done(name, ready)
			}
			return cluster.Run(c.Context(), o)
		},
	}
	logs.AddFlags(c.Flags())
	addServerFlags(c.Flags(), &o)
	return c
}

func addServerFlags(f *pflag.FlagSet, o *cluster.Options) {
	f.StringVar(&o.DataDir, "data-dir", cluster.DefaultDataDir, "directory of the cluster's state")
	f.StringVar(&o.RunDir, "run-dir", cluster.DefaultRunDir, "directory of sockets and process IDs; at most 40 characters")
	f.Var((*addrFlag)(&o.BindAddress), "bind-address", "address to serve the API on; default all")
	f.Uint16Var(&o.SecurePort, "secure-port", 6443, "port to serve the API on")
	f.Var((*addrFlag)(&o.AdvertiseAddress), "advertise-address", "address at which others reach the API; default the node's")
	f.StringSliceVar(&o.TLSSANs, "tls-san", nil, "further names and addresses of the API server, for its certificate")
	f.Var((*runtimeConfigFlag)(&o.RuntimeConfig), "runtime-config", "group-versions to turn on or off: extensions/v1beta1=false,api/alpha=true,...; alpha versions are off otherwise")

	f.Var((*prefixesFlag)(&o.Network.ServiceCIDRs), "service-cluster-ip-range", "addresses of services; default 10.96.0.0/16")
	f.Var((*prefixesFlag)(&o.Network.ClusterCIDRs), "cluster-cidr", "addresses of pods; default 10.244.0.0/16")
	f.Var((*portRangeFlag)(&o.Network.NodePorts), "service-node-port-range", "ports of NodePort services; default 30000-32767")
	f.Var((*addrFlag)(&o.Network.ClusterDNS), "cluster-dns", "address of the DNS service; default the tenth service address")
	f.StringVar(&o.Network.ClusterDomain, "cluster-domain", "cluster.local", "DNS domain of the cluster")

	f.BoolVar(&o.NoNode, "disable-agent", false, "run no pods on this machine")
	f.VarPF((*notFlag)(&o.NodeByHand), "register-node", "", "make the Node object; if false, people do").NoOptDefVal = "true"
	f.StringVar(&o.NodeName, "node-name", "", "name of the node; default the host name")
	f.Var(&nodeIPFlag{&o.NodeIP, &o.Network.SecondNodeIP}, "node-ip", "address of the node, or one of each family; default what it sends from to the world")
	f.StringToStringVar(&o.NodeLabels, "node-labels", nil, "labels of the node when it registers")
	f.Var((*taintsFlag)(&o.NodeTaints), "register-with-taints", "taints of the node when it registers: key=value:effect,...")
	f.IntVar(&o.Agent.MaxPods, "max-pods", 110, "how many pods the node takes")
	f.StringVar(&o.Agent.ManifestDir, "pod-manifest-path", "", "directory with manifests of pods that run without the API")
	f.Var(&o.Agent.LogMaxSize, "container-log-max-size", "how large a container's log grows before a new one is begun; default 10Mi")
	f.IntVar(&o.Agent.LogMaxFiles, "container-log-max-files", 5, "how many files a container's log has at the most")
	f.Var(&o.Agent.Eviction, "eviction-hard", "how little may be left before pods are evicted; empty: never evict")
	f.DurationVar(&o.Agent.Transition, "eviction-pressure-transition-period", 5*time.Minute, "how long a node stays under pressure after its cause has gone")
	f.Var((*addrFlag)(&o.AgentAddress), "address", "address to serve the node agent's API on; default all")
	f.Uint16Var(&o.AgentPort, "port", 10250, "port to serve the node agent's API on")
	f.StringVar(&o.RuntimeEndpoint, "container-runtime-endpoint", "", "socket of another container runtime, which is to find CNI in cni/net.d and bin of the data directory; default the built-in one")
	f.StringVar(&o.PodLogsDir, "pod-logs-dir", "/var/log/pods", "directory of the containers' logs")
	f.StringVar(&o.RegistryDir, "registry-config-dir", "", "directories with hosts.toml files of registries")
	f.IntVar(&o.Images.HighPercent, "image-gc-high-threshold", 85, "how full the disk of the images gets, in percent, before unused ones are removed; 100: they never are")
	f.IntVar(&o.Images.LowPercent, "image-gc-low-threshold", 80, "how full it is when enough is removed")
	f.DurationVar(&o.Images.MinAge, "minimum-image-ttl-duration", 2*time.Minute, "how long an unused image is kept at least")
	f.DurationVar(&o.Images.MaxAge, "image-maximum-gc-age", 0, "how long an unused image is kept at the most; default for ever")
	f.IntVar(&o.Images.MaxPulls, "max-parallel-image-pulls", 4, "how many images are pulled at a time")
	f.StringVar(&o.Images.ProviderConfig, "image-credential-provider-config", "", "CredentialProviderConfig file, or directory of them, that names programs which know registry credentials")
	f.StringVar(&o.Images.ProviderBinDir, "image-credential-provider-bin-dir", "", "directory of these programs")
	f.StringVar(&o.Network.ResolvConf, "resolv-conf", "/etc/resolv.conf", "file that names the DNS servers for names outside of the cluster")

	f.Int64Var(&o.EncodedCacheSize, "encoded-cache-bytes", 32<<20, "memory for the encoded forms of objects that are read often")

	f.IntVar(&o.Controllers.MaxEndpointsPerSlice, "max-endpoints-per-slice", 100, "how many endpoints an EndpointSlice holds")
	f.IntVar(&o.Controllers.PodGCThreshold, "terminated-pod-gc-threshold", 12500, "how many finished pods are kept")
	f.DurationVar(&o.Controllers.NodeLifecycle.GracePeriod, "node-monitor-grace-period", 0, "how long a node may be silent; default 50s")
	f.Float64Var(&o.Controllers.NodeLifecycle.EvictionRate, "node-eviction-rate", 0.1, "how many lost nodes of a zone begin to be emptied in a second")
	f.Float64Var(&o.Controllers.NodeLifecycle.SecondaryEvictionRate, "secondary-node-eviction-rate", 0.01, "the same for a large zone much of which is lost")
	f.Float64Var(&o.Controllers.NodeLifecycle.UnhealthyZoneThreshold, "unhealthy-zone-threshold", 0.55, "how much of a zone that is, from 0 to 1")
	f.IntVar(&o.Controllers.NodeLifecycle.LargeClusterSize, "large-cluster-size-threshold", 50, "how many nodes a small zone has at the most; it is left alone when much of it is lost")
	f.IntVar(&o.Controllers.NodeCIDRBits4, "node-cidr-mask-size-ipv4", 24, "size of a node's share of the IPv4 addresses of pods: length of its prefix")
	f.IntVar(&o.Controllers.NodeCIDRBits6, "node-cidr-mask-size-ipv6", 64, "the same of the IPv6 addresses")
	f.DurationVar(&o.Controllers.CertificateLife, "cluster-signing-duration", 0, "how long certificates that are signed on request are good for; default a year")
	f.IntVar(&o.Controllers.MaxMirroredAddresses, "mirroring-max-endpoints-per-subset", 1000, "how many addresses of hand-made Endpoints are mirrored to slices")
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
	first, last, ok := strings.Cut(s, "-")
	if !ok {
		return errors.New("not of the form 30000-32767")
	}
	a, err := strconv.ParseUint(first, 10, 16)
	if err != nil {
		return err
	}
	b, err := strconv.ParseUint(last, 10, 16)
	*p = portRangeFlag{First: uint16(a), Last: uint16(b)}
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
