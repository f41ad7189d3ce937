package cluster

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/controllers"
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
	MaxPods          int               // --max-pods; default 110
	AgentAddress     netip.Addr        // --address: where the node agent's API is served; default all
	AgentPort        uint16            // --port: of the node agent's API; default 10250
	RuntimeEndpoint  string            // --container-runtime-endpoint; empty: the embedded one
	PodLogsDir       string            // --pod-logs-dir; default /var/log/pods
	RegistryDir      string            // --registry-config-dir
	ResolvConf       string            // --resolv-conf: for DNS of names outside the cluster
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
		abs, err := filepath.Abs(*dir)
		if err != nil {
			return o, fmt.Errorf("directory %s: %w", *dir, err)
		}
		*dir = abs
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
		o.NodeName = strings.ToLower(host)
	}
	if !o.NodeIP.IsValid() {
		ip, err := machineIP()
		if err != nil {
			return err
		}
		o.NodeIP = ip
	}
	if !o.AdvertiseAddress.IsValid() {
		o.AdvertiseAddress = o.NodeIP
	}
	return nil
}

// machineIP is the first address of this machine that others can use: a global
// IPv4 address if there is one. A machine without a network uses its loopback.
func machineIP() (netip.Addr, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Addr{}, fmt.Errorf("find the node's address: %w", err)
	}
	var six netip.Addr
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		if err != nil || !p.Addr().IsGlobalUnicast() {
			continue
		}
		if p.Addr().Is4() {
			return p.Addr(), nil
		}
		if !six.IsValid() {
			six = p.Addr()
		}
	}
	if six.IsValid() {
		return six, nil
	}
	return netip.Addr{}, errors.New("this machine has no address but its loopback; give it one, or say which to use with --node-ip")
}
