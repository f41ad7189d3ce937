package worker

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/netip"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/announce/bgp"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/container"
	"github.com/kemudi/kemudi/internal/drain"
	"github.com/kemudi/kemudi/internal/edge"
	"github.com/kemudi/kemudi/internal/kubelet"
	"github.com/kemudi/kemudi/internal/kubelet/image"
	"github.com/kemudi/kemudi/internal/obs/tracing"
	"github.com/kemudi/kemudi/internal/podnet"
	"github.com/kemudi/kemudi/internal/proxy"
	"github.com/kemudi/kemudi/internal/secureport"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/worker/settings"
)

// DefaultProxyHealthz is where the service proxy of a node tells of its health.
var DefaultProxyHealthz = netip.AddrPortFrom(netip.IPv4Unspecified(), 10256)

// DefaultProxyStatus is where it shows its metrics and its mode to the node.
var DefaultProxyStatus = netip.MustParseAddrPort("127.0.0.1:10249")

// DefaultRunDir is where sockets and process IDs are, unless told otherwise.
const DefaultRunDir = "/run/kemudi"

// Options say what the machine's own people want of it. All fields are complete.
type Options struct {
	DataDir, RunDir string

	NodeName string
	ByHand   bool              // people make the Node
	Closed   bool              // it takes no pods until people say so
	Labels   map[string]string // of the Node when it registers
	Taints   []corev1.Taint

	// Alone says that the node agent and its runtime run here, and nothing else: neither pod
	// network nor service proxy nor DNS. CNIConfDir is then where others configure the network.
	Alone      bool
	CNIConfDir string       // --cni-conf-dir
	DNS        []netip.Addr // --cluster-dns: where the DNS of others is, in the order in which pods ask

	Agent      Agent
	Runtime    Runtime
	Images     image.Config
	ResolvConf string // the machine's resolver, for names outside the cluster
	NodePorts  NodePorts
	Edge       edge.Ports // of Ingresses: --ingress-http-port and others
	Peers      []bgp.Peer // routers that are told of addresses of balancers: --load-balancer-bgp

	// Registry gets the service proxy's metrics as well, for those who ask the API server. Nil:
	// there is none, and they are among the node agent's alone.
	Registry *prometheus.Registry
	// Lasting has what ends after everything else: the node agent's spans are sent when it ends.
	Lasting *task.Group
	Logger  *slog.Logger
	// Step is told of each step of the start when it is done.
	Step func(name string, ready bool)
}

// Agent is what people tune of the node agent, each by its flag.
type Agent struct {
	kubelet.Settings
	Address    netip.Addr           // --address
	Port       uint16               // --port
	RootDir    string               // --root-dir
	PodLogsDir string               // --pod-logs-dir
	TLS        secureport.Handshake // of the port, of an agent that is a process of its own
	Tracing    tracing.Setting      // --node-tracing
}

// Runtime says what runs containers, each field by its flag.
type Runtime struct {
	Endpoint    string             // --container-runtime-endpoint; empty: the embedded one
	RegistryDir string             // --registry-config-dir
	Handlers    container.Handlers // --runtime-handlers: of the embedded one, beside runc
}

// NodePorts say how services are reached by the node's own addresses.
type NodePorts struct {
	Addresses     []netip.Prefix // --nodeport-addresses: of the node's, those that serve node ports; none, and not Primary: all
	Primary       bool           // --nodeport-addresses: the node's first of each family does, whichever that is
	MasqueradeAll bool           // --masquerade-all: hide who connects to cluster IPs
	Healthz       netip.AddrPort // --proxy-healthz-bind-address: where balancers ask whether they may come here; port 0: nowhere
	Status        netip.AddrPort // --proxy-metrics-bind-address: where the service proxy shows its metrics; port 0: nowhere
}

// Cluster is what a worker knows of its cluster once it belongs to it.
type Cluster struct {
	// Transport is the API as the node itself sees it.
	Transport client.Transport
	// ClientCA signs the certificates of those who may ask the node agent.
	// It may be another one each time.
	ClientCA func() *x509.CertPool
	// Serving is the certificate of the node agent's port, asked for with each connection.
	Serving func() (*tls.Certificate, error)
	// Metrics are of how the node reaches the API, and is known to it. Optional.
	Metrics []prometheus.Collector

	Settings settings.Settings
	NodeIPs  []string // the node's addresses, the primary one first

	// Others says when the other nodes send nothing more to a pod that ends. Not needed if Alone.
	Others drain.Others
}

// proxy is what the rules of the service proxy depend on.
func (o *Options) proxy(s *settings.Settings) proxy.Config {
	return proxy.Config{
		NodeName: o.NodeName, ClusterCIDRs: s.ClusterCIDRs, ServiceCIDRs: s.ServiceCIDRs,
		NodePortAddresses: o.NodePorts.Addresses, NodePortPrimary: o.NodePorts.Primary, MasqueradeAll: o.NodePorts.MasqueradeAll,
	}
}

// cgroupParent is the cgroup of all pods: one of its own for each server of a
// machine.
func cgroupParent(runDir string) string {
	if runDir == DefaultRunDir {
		return "/kemudi"
	}
	return "/kemudi-" + filepath.Base(runDir)
}

// podnetOptions are those that depend on the directories alone.
func podnetOptions(dataDir, runDir string) podnet.Options {
	return podnet.Options{
		CNIConfDir: filepath.Join(dataDir, "cni/net.d"), DataDir: filepath.Join(dataDir, "podnet"), RuntimeCacheDir: filepath.Join(dataDir, "cni"),
		NetNSDirs: []string{container.Options{DataDir: dataDir, RunDir: runDir}.NetNSDir()},
	}
}
