package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/announce/bgp"
	"github.com/kemudi/kemudi/internal/container"
	"github.com/kemudi/kemudi/internal/edge"
	"github.com/kemudi/kemudi/internal/kubelet"
	"github.com/kemudi/kemudi/internal/kubelet/image"
	"github.com/kemudi/kemudi/internal/podnet"
	"github.com/kemudi/kemudi/internal/up"
	"github.com/kemudi/kemudi/internal/worker"
)

// Machine says what is wanted of a machine, be it a server's or an agent's. Each field is the
// flag of both that is named, whose help says what it is.
type Machine struct {
	DataDir string // --data-dir
	RunDir  string // --run-dir

	NodeByHand   bool              // --register-node=false
	NodeClosed   bool              // --register-schedulable=false
	NodeName     string            // --node-name
	NodeIP       netip.Addr        // --node-ip
	SecondNodeIP netip.Addr        // --node-ip: the node's of the other family, where pods have both; default as NodeIP
	NodeLabels   map[string]string // --node-labels
	NodeTaints   []corev1.Taint    // --register-with-taints
	Agent        worker.Agent
	Runtime      worker.Runtime
	Images       image.Config // --image-gc-high-threshold and others
	NodePorts    worker.NodePorts
	Edge         edge.Ports // --ingress-http-port, --ingress-https-port, --ingress-status-port
	BGP          []string   // --load-balancer-bgp
	ResolvConf   string     // --resolv-conf: the machine's resolver, for names outside the cluster

	Logger *slog.Logger
	// Step is told of each step of the start when it is done; the last one is ready.
	Step func(name string, ready bool)

	peers []bgp.Peer // what BGP says
}

func defaultMachine() Machine {
	return Machine{
		DataDir: DefaultDataDir, RunDir: DefaultRunDir, ResolvConf: kubelet.DefaultResolvConf,
		Agent:  worker.Agent{Settings: kubelet.DefaultSettings(), Port: kubelet.DefaultPort, PodLogsDir: kubelet.DefaultPodLogsDir},
		Images: image.Defaults(), NodePorts: worker.NodePorts{Healthz: worker.DefaultProxyHealthz, Status: worker.DefaultProxyStatus}, Edge: edge.DefaultPorts(),
	}
}

// complete fills in what is not set, but for addresses, and checks the rest.
func (m *Machine) complete() error {
	d := defaultMachine()
	m.DataDir, m.RunDir = cmp.Or(m.DataDir, d.DataDir), cmp.Or(m.RunDir, d.RunDir)
	if m.Agent.RootDir == "" {
		m.Agent.RootDir = worker.DefaultRoot(m.DataDir)
	}
	for _, dir := range []*string{&m.DataDir, &m.RunDir, &m.Agent.RootDir} {
		path, err := up.RealDir(*dir)
		if err != nil {
			return fmt.Errorf("directory %s: %w", *dir, err)
		}
		if strings.ContainsAny(path, ",:\\\n") {
			return fmt.Errorf("directory %q: lists of mounts and programs cannot have a path with a comma, colon or backslash", path)
		}
		*dir = path
	}
	m.Agent.PodLogsDir, m.Agent.Port = cmp.Or(m.Agent.PodLogsDir, d.Agent.PodLogsDir), cmp.Or(m.Agent.Port, d.Agent.Port)
	if !m.Agent.Address.IsValid() {
		m.Agent.Address = netip.IPv6Unspecified()
	}
	if m.Logger == nil {
		m.Logger = slog.Default()
	}
	if m.Step == nil {
		m.Step = func(string, bool) {}
	}
	if len(m.Runtime.Handlers) > 0 && m.Runtime.Endpoint != "" {
		return errors.New("--runtime-handlers are of the built-in container runtime: one of --container-runtime-endpoint has its own")
	}
	if err := m.Images.Check(); err != nil {
		return err
	}
	var err error
	if m.peers, err = bgp.ParsePeers(m.BGP); err != nil {
		return err
	}
	return m.findName()
}

// checkNode refuses a machine on which no pods can run, before anything is made there.
func (m *Machine) checkNode(without string) error {
	if err := container.CheckRunDir(m.RunDir); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("a node needs root%s: %w", without, os.ErrPermission)
	}
	return nil
}

// claim makes this process the only one that uses the machine's directories, until the
// returned function is called.
func (m *Machine) claim() (release func(), _ error) {
	lock, err := up.Claim(m.RunDir)
	if err != nil {
		return nil, err
	}
	data, err := up.ClaimData(m.DataDir)
	if err != nil {
		_ = lock.Close() // the error is known
		return nil, err
	}
	return func() {
		_ = data.Close() // what is locked stays as it is
		_ = lock.Close()
	}, nil
}

// worker is what the machine is told that runs pods.
func (m *Machine) worker(sg *stages) worker.Options {
	return worker.Options{
		DataDir: m.DataDir, RunDir: m.RunDir,
		NodeName: m.NodeName, ByHand: m.NodeByHand, Closed: m.NodeClosed, Labels: m.NodeLabels, Taints: m.NodeTaints,
		Agent: m.Agent, Runtime: m.Runtime, Images: m.Images, ResolvConf: m.ResolvConf, NodePorts: m.NodePorts, Edge: m.Edge, Peers: m.peers,
		Lasting: sg.store, Logger: m.Logger, Step: m.Step,
	}
}

// findName finds out the node's name.
func (m *Machine) findName() error {
	if m.NodeName == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("find the node's name: %w", err)
		}
		m.NodeName = host
	}
	m.NodeName = strings.ToLower(strings.TrimSpace(m.NodeName))
	return checkNodeName(m.NodeName)
}

// nextStep is for those whose machine has no network.
const nextStep = "; a machine without a network can be given an address: ip address add 192.168.255.1/32 dev lo"

// findAddresses finds out those addresses of the node that are not given: one of IPv4, or
// of IPv6, or of the other family if there is none; and a second one if both are wanted.
func (m *Machine) findAddresses(four, both bool) error {
	if !m.NodeIP.IsValid() {
		if m.NodeIP = machineIP(four); !m.NodeIP.IsValid() {
			m.NodeIP = machineIP(!four)
		}
		if !m.NodeIP.IsValid() {
			return errors.New("this machine has no address but its loopback" + nextStep)
		}
	}
	if m.NodeIP.Is4() == m.SecondNodeIP.Is4() && m.SecondNodeIP.IsValid() {
		return fmt.Errorf("--node-ip %s,%s: want one of each family", m.NodeIP, m.SecondNodeIP)
	}
	if both && !m.SecondNodeIP.IsValid() {
		m.SecondNodeIP = machineIP(!m.NodeIP.Is4())
	}
	return checkReachable("--node-ip", m.NodeIP)
}

// checkReachable refuses addresses at which others reach nothing.
func checkReachable(flag string, addr netip.Addr) error {
	if addr.IsLoopback() || addr.IsUnspecified() {
		return fmt.Errorf("%s %s: pods and other machines reach nothing there%s", flag, addr, nextStep)
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
		if podnet.OwnLink(l.Name) {
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
