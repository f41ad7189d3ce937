package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/apiserver"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/controllers"
	"github.com/kemudi/kemudi/internal/kubelet"
	"github.com/kemudi/kemudi/internal/kubelet/image"
	"github.com/kemudi/kemudi/internal/leader"
	"github.com/kemudi/kemudi/internal/podnet"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/up"
	"github.com/kemudi/kemudi/internal/worker"
)

// Where a server keeps what it has, unless told otherwise.
const (
	DefaultDataDir = "/var/lib/kemudi"
	DefaultRunDir  = worker.DefaultRunDir
)

// Options configure a server. The zero value works; each field is the flag of
// `kemudi server` that is named, whose help says what it is.
type Options struct {
	DataDir string // --data-dir
	RunDir  string // --run-dir

	BindAddress      netip.Addr // --bind-address
	SecurePort       uint16     // --secure-port
	AdvertiseAddress netip.Addr // --advertise-address
	TLSSANs          []string   // --tls-san

	Network  Network
	API      API
	Identity Identity

	NoNode      bool              // --disable-agent
	NodeByHand  bool              // --register-node=false
	NodeName    string            // --node-name
	NodeIP      netip.Addr        // --node-ip
	NodeLabels  map[string]string // --node-labels
	NodeTaints  []corev1.Taint    // --register-with-taints
	Agent       worker.Agent
	Runtime     worker.Runtime
	Images      image.Config // --image-gc-high-threshold and others
	Controllers controllers.Options

	Scheduling Scheduling
	Election   leader.Settings // --leader-elect and others

	Logger *slog.Logger
	// Step is told of each step of the start when it is done; the last one is ready.
	Step func(name string, ready bool)

	seed func(ctx context.Context, st store.Store) error     // fills the store before it is served; nil: nobody does
	also func(ctx context.Context, t client.Transport) error // runs with the server; nil: nothing
}

// Defaults are the options of a server that is given none, as its flags show them. What is found
// out on the machine, such as the node's name, is not set.
func Defaults() Options {
	return Options{
		DataDir: DefaultDataDir, RunDir: DefaultRunDir, SecurePort: 6443,
		Network: defaultNetwork(),
		API: API{
			EncodedCacheSize: apiserver.DefaultEncodedBytes, RequestTimeout: apiserver.DefaultRequestTimeout,
			MaxReads: apiserver.DefaultMaxReads, MaxWrites: apiserver.DefaultMaxWrites,
		},
		Agent:  worker.Agent{Settings: kubelet.DefaultSettings(), Port: kubelet.DefaultPort, PodLogsDir: kubelet.DefaultPodLogsDir},
		Images: image.Defaults(), Controllers: controllers.Defaults(), Election: leader.Defaults(),
	}
}

// withDefaults fills in what is not set, and checks the rest.
func (o Options) withDefaults() (Options, error) {
	d := Defaults()
	o.DataDir, o.RunDir = cmp.Or(o.DataDir, d.DataDir), cmp.Or(o.RunDir, d.RunDir)
	if o.Agent.RootDir == "" {
		o.Agent.RootDir = worker.DefaultRoot(o.DataDir)
	}
	for _, dir := range []*string{&o.DataDir, &o.RunDir, &o.Agent.RootDir} {
		path, err := up.RealDir(*dir)
		if err != nil {
			return o, fmt.Errorf("directory %s: %w", *dir, err)
		}
		if strings.ContainsAny(path, ",:\\\n") {
			return o, fmt.Errorf("directory %q: lists of mounts and programs cannot have a path with a comma, colon or backslash", path)
		}
		*dir = path
	}
	o.SecurePort = cmp.Or(o.SecurePort, d.SecurePort)
	o.Agent.PodLogsDir, o.Agent.Port = cmp.Or(o.Agent.PodLogsDir, d.Agent.PodLogsDir), cmp.Or(o.Agent.Port, d.Agent.Port)
	for _, addr := range []*netip.Addr{&o.BindAddress, &o.Agent.Address} {
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
	if len(o.Runtime.Handlers) > 0 && o.Runtime.Endpoint != "" {
		return o, errors.New("--runtime-handlers are of the built-in container runtime: one of --container-runtime-endpoint has its own")
	}
	for _, check := range []func() error{o.Images.Check, o.Controllers.Check, o.Election.Check, o.Scheduling.check, o.API.check, o.Identity.check} {
		if err := check(); err != nil {
			return o, err
		}
	}
	var err error
	if o.Network, err = o.Network.withDefaults(); err != nil {
		return o, err
	}
	if err := o.Network.checkShare(o.Controllers.NodeIPAM.Bits); err != nil {
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
