package cluster

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/controllers"
	"github.com/kemudi/kemudi/internal/kubelet"
	"github.com/kemudi/kemudi/internal/kubelet/image"
	"github.com/kemudi/kemudi/internal/podnet"
	"github.com/kemudi/kemudi/internal/up"
)

// Where a server keeps what it has, unless told otherwise.
const (
	DefaultDataDir = "/var/lib/kemudi"
	DefaultRunDir  = "/run/kemudi"
)

// Options configure a server. The zero value works; each field is a flag of
// `kemudi server`.
type Options struct {
	DataDir string // --data-dir
	RunDir  string // --run-dir

	BindAddress      netip.Addr // --bind-address: where the API is served; default all
	SecurePort       uint16     // --secure-port; default 6443
	AdvertiseAddress netip.Addr // --advertise-address: how others reach the API; default the node's address
	TLSSANs          []string   // --tls-san: further names of the API server

	Network       Network
	RuntimeConfig map[string]bool // --runtime-config: group-versions on or off

	NoNode           bool              // --disable-agent: this machine runs no pods
	NodeByHand       bool              // --register-node=false: people make the Node object
	NodeName         string            // --node-name; default the host name
	NodeIP           netip.Addr        // --node-ip; default the address of the default route
	NodeLabels       map[string]string // --node-labels
	NodeTaints       []corev1.Taint    // --register-with-taints
	Agent            kubelet.Settings  // of the node agent, each by its flag
	AgentAddress     netip.Addr        // --address: where the node agent's API is served; default all
	AgentPort        uint16            // --port: of the node agent's API; default 10250
	RuntimeEndpoint  string            // --container-runtime-endpoint; empty: the embedded one
	PodLogsDir       string            // --pod-logs-dir; default /var/log/pods
	RegistryDir      string            // --registry-config-dir
	Images           image.Config      // --image-gc-high-threshold and others
	Controllers      controllers.Options
	EncodedCacheSize int64 // --encoded-cache-bytes; default 32 MiB

	Logger *slog.Logger
	// Step is told of each step of the start when it is done; the last one is ready.
	Step func(name string, ready bool)
}

// withDefaults fills in what is not set, and checks the rest.
func (o Options) withDefaults() (Options, error) {
	if o.DataDir == "" {
		o.DataDir = DefaultDataDir
	}
	if o.RunDir == "" {
		o.RunDir = DefaultRunDir
	}
	for _, dir := range []*string{&o.DataDir, &o.RunDir} {
		path, err := up.RealDir(*dir)
		if err != nil {
			return o, fmt.Errorf("directory %s: %w", *dir, err)
		}
		if strings.ContainsAny(path, ",:\\\n") {
			return o, fmt.Errorf("directory %q: lists of mounts and programs cannot have a path with a comma, colon or backslash", path)
		}
		*dir = path
	}
	if o.SecurePort == 0 {
		o.SecurePort = 6443
	}
	if o.PodLogsDir == "" {
		o.PodLogsDir = sharedLogsDir
	}
	if o.AgentPort == 0 {
		o.AgentPort = 10250
	}
	for _, addr := range []*netip.Addr{&o.BindAddress, &o.AgentAddress} {
		if !addr.IsValid() {
			*addr = netip.IPv6Unspecified()
		}
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Step == nil {
		o.Step = func(string, bool) {}
	}
	if err := o.Images.Check(); err != nil {
		return o, err
	}
	if err := o.Controllers.Check(); err != nil {
		return o, err
	}
	var err error
	if o.Network, err = o.Network.withDefaults(); err != nil {
		return o, err
	}
	return o, o.findNode()
}

// findNode finds out the node's name and address.
func (o *Options) findNode() error {
	if o.NodeName == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("find the node's name: %w", err)
		}
		o.NodeName = host
	}
	o.NodeName = strings.ToLower(strings.TrimSpace(o.NodeName))
	if err := checkNodeName(o.NodeName); err != nil {
		return err
	}
	if err := o.findAddresses(); err != nil {
		return err
	}
	if !o.AdvertiseAddress.IsValid() {
		o.AdvertiseAddress = o.NodeIP
	}
	for _, a := range []struct {
		flag string
		addr netip.Addr
	}{{"--node-ip", o.NodeIP}, {"--advertise-address", o.AdvertiseAddress}} {
		if a.addr.IsLoopback() || a.addr.IsUnspecified() {
			return fmt.Errorf("%s %s: pods and other machines reach nothing there%s", a.flag, a.addr, nextStep)
		}
	}
	if first := o.Network.ServiceCIDRs[0]; o.AdvertiseAddress.Is4() != first.Addr().Is4() {
		return fmt.Errorf("the API is reached at %s and as a service of %s: --advertise-address (default --node-ip) and the first --service-cluster-ip-range must be of one family", o.AdvertiseAddress, first)
	}
	return nil
}

// nextStep is for those whose machine has no network.
const nextStep = "; a machine without a network can be given an address: ip address add 192.168.255.1/32 dev lo"

// findAddresses finds out those addresses of the node that are not given.
func (o *Options) findAddresses() error {
	first := o.Network.ServiceCIDRs[0].Addr().Is4()
	if !o.NodeIP.IsValid() {
		if o.NodeIP = machineIP(first); !o.NodeIP.IsValid() {
			o.NodeIP = machineIP(!first)
		}
		if !o.NodeIP.IsValid() {
			return errors.New("this machine has no address but its loopback" + nextStep)
		}
	}
	if o.NodeIP.Is4() == o.Network.SecondNodeIP.Is4() && o.Network.SecondNodeIP.IsValid() {
		return fmt.Errorf("--node-ip %s,%s: want one of each family", o.NodeIP, o.Network.SecondNodeIP)
	}
	if len(o.Network.ClusterCIDRs) == 2 && !o.Network.SecondNodeIP.IsValid() {
		o.Network.SecondNodeIP = machineIP(!o.NodeIP.Is4())
	}
	return nil
}

// machineIP is the address of a family by which others know this machine, or
// the zero Addr: what it sends from by the default route, or else its first
// global address that is not of a pod network.
func machineIP(four bool) netip.Addr {
	if from := routedIP(four); from.IsValid() {
		return from
	}
	links, err := net.Interfaces()
	if err != nil {
		return netip.Addr{}
	}
	for _, l := range links {
		if l.Name == podnet.DefaultBridge {
			continue
		}
		addrs, _ := l.Addrs() // none, if it has just gone
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().IsGlobalUnicast() && p.Addr().Is4() == four {
				return p.Addr()
			}
		}
	}
	return netip.Addr{}
}

// routedIP is the address of a family that the machine sends from to the world,
// or the zero Addr.
func routedIP(four bool) netip.Addr {
	network, anywhere := "udp4", "192.0.2.1:9"
	if !four {
		network, anywhere = "udp6", "[2001:db8::1]:9"
	}
	c, err := net.Dial(network, anywhere) // which sends nothing
	if err != nil {
		return netip.Addr{}
	}
	from := c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
	_ = c.Close()
	if !from.IsGlobalUnicast() {
		return netip.Addr{}
	}
	return from
}
