package worker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/container"
	"github.com/kemudi/kemudi/internal/drain"
	"github.com/kemudi/kemudi/internal/edgefeed"
	"github.com/kemudi/kemudi/internal/kubelet"
	"github.com/kemudi/kemudi/internal/kubelet/cgroup"
	"github.com/kemudi/kemudi/internal/netpolicy"
	"github.com/kemudi/kemudi/internal/obs/tracing"
	"github.com/kemudi/kemudi/internal/podnet"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/version"
)

// Worker runs pods on this machine.
type Worker struct {
	o       Options
	cri     *container.CRI
	runtime *container.Embedded // nil: an external one
	agent   *kubelet.Agent
	tracing *tracing.Provider // of the agent; nil: nothing is traced
	c       Cluster           // once it is started
	share   []netip.Prefix    // of the pod addresses, likewise
	applied cache.Progress    // up to which revision of EndpointSlices the kernel's rules are true
	edge    *edgefeed.Feeder  // that serves Ingresses here; nil: no port is to be used

	recorder atomic.Pointer[client.Recorder] // likewise
	bridge   bridge

	policies         *netpolicy.Agent     // likewise; nil: others see to the network
	measuredPolicies *prometheus.Registry // its metrics
}

// New starts the container runtime; the rest follows when the API is there.
func New(g *task.Group, o Options) (*Worker, error) {
	w := &Worker{o: o, bridge: bridge{there: make(chan struct{})}}
	if err := noteLogs(o.DataDir, o.Agent.PodLogsDir); err != nil {
		return nil, err
	}
	if err := noteRoot(o.DataDir, o.Agent.RootDir); err != nil {
		return nil, err
	}
	if err := checkPrograms(o.DataDir); err != nil {
		return nil, err
	}
	if err := cgroup.Open(cgroup.Top).Check(cgroupParent(o.RunDir)); err != nil {
		return nil, err
	}
	if err := ensureHosts(hostsFile); err != nil {
		return nil, err
	}
	if !o.Alone {
		if err := podnet.DropMoved(podnetOptions(o.DataDir, o.RunDir)); err != nil {
			return nil, err
		}
	}
	var err error
	if w.tracing, err = tracing.Begin(o.Lasting, tracing.Options{
		Config: o.Agent.Tracing.Config, Part: "kubelet", Attributes: []tracing.Attribute{tracing.HostName(o.NodeName)}, Logger: o.Logger.With("part", "tracing"),
	}); err != nil {
		return nil, err
	}
	if o.Runtime.Endpoint != "" {
		cri, closer, err := container.Dial(o.Runtime.Endpoint)
		if err != nil {
			return nil, err
		}
		w.cri = cri
		if err := container.UnpackPlugins(container.Options{DataDir: o.DataDir, RunDir: o.RunDir}); err != nil {
			return nil, errors.Join(err, closer.Close())
		}
		g.Go("runtime connection", func(ctx context.Context) error {
			<-ctx.Done()
			return closer.Close()
		})
		return w, nil
	}
	w.runtime, err = container.New(container.Options{
		DataDir: o.DataDir, RunDir: o.RunDir, CNIConfDir: o.CNIConfDir, CgroupParent: cgroupParent(o.RunDir), RegistryConfigDir: o.Runtime.RegistryDir,
		Handlers: o.Runtime.Handlers, StreamIdle: o.Agent.Serve.StreamIdle, OwnTemp: true, Logger: o.Logger.With("part", "runtime"),
	})
	if err != nil {
		return nil, err
	}
	w.cri = w.runtime.CRI()
	g.Go("container runtime", w.runtime.Run)
	return w, nil
}

// Tracing makes spans of what the node agent does, for its connections to the API; nil: there are none.
func (w *Worker) Tracing() *tracing.Provider { return w.tracing }

// Start starts node agent, pod network, service proxy and DNS, and returns
// when the node is ready for pods. A node agent alone becomes ready when others have
// configured the network; nobody waits for it.
func (w *Worker) Start(g *task.Group, c Cluster) error {
	o := &w.o
	w.c = c
	if !o.Alone {
		w.c.Transport = Shared{c.Transport}
	}
	if w.runtime != nil {
		if err := await(g, w.runtime.Ready()); err != nil {
			return err
		}
		o.Step("container runtime", false)
	}
	recorder := client.NewRecorder(w.c.Transport, o.NodeName, o.Logger)
	w.recorder.Store(recorder)
	g.Go("node events", recorder.Run)
	if !o.Alone {
		if err := w.openPolicies(); err != nil {
			return err
		}
		w.edge = w.newEdge(recorder)
	}
	if err := w.startAgent(g, recorder); err != nil {
		return err
	}
	if o.Alone {
		return w.servePort(g)
	}
	if err := w.serve(g); err != nil {
		return err
	}
	if err := w.servePort(g); err != nil {
		return err
	}
	var err error
	if w.share, err = w.podCIDRs(g.Context()); err != nil {
		return err
	}
	if err := w.network(g, w.share, recorder); err != nil {
		return err
	}
	return w.ready(g.Context())
}

// startAgent starts the node agent.
func (w *Worker) startAgent(g *task.Group, recorder *client.Recorder) (err error) {
	o, c := &w.o, &w.c
	var profile string
	if w.runtime != nil {
		profile = w.runtime.SandboxSeccomp()
	}
	var network kubelet.Network // whose network it is sees to it
	if !o.Alone {
		pods := &drain.Pods{Transport: c.Transport, Own: w.rules(), Others: c.Others}
		network = kubelet.Network{Connected: w.connected, Drained: pods.Await}
	}
	var dns []string
	for _, at := range o.DNS {
		dns = append(dns, at.String())
	}
	if c.Settings.ClusterDNS.IsValid() {
		dns = append(dns, c.Settings.ClusterDNS.String())
	}
	told, linkErr := linkRoot(chartsDir, o.Agent.RootDir)
	if told != chartsDir {
		o.Logger.Info("charts of storage drivers and other plugins must be told the node agent's root directory", "dir", told, "instead of", chartsDir, "err", linkErr)
	}
	git := version.Git()
	if o.Alone {
		git = version.Alone()
	}
	tuned := o.Agent.Settings
	tuned.External = c.Settings.CloudProvider != ""
	calls := prometheus.NewRegistry()
	runtime := w.cri.Traced(w.tracing).Measured(calls)
	w.agent, err = kubelet.New(kubelet.Options{
		NodeName: o.NodeName, Transport: c.Transport, Runtime: runtime.Runtime, Images: runtime.Images, Events: recorder.For("kubelet"),
		NodeIPs: c.NodeIPs, ByHand: o.ByHand, Closed: o.Closed, Labels: o.Labels, Taints: o.Taints, Settings: tuned,
		Dirs:        kubelet.Dirs{RootDir: o.Agent.RootDir, ToldRootDir: told, PodLogsDir: o.Agent.PodLogsDir},
		Confinement: kubelet.Confinement{CgroupParent: cgroupParent(o.RunDir), SandboxSeccomp: profile},
		ClusterDNS:  dns, ClusterDomain: c.Settings.ClusterDomain, ResolvConf: o.ResolvConf, ImageConfig: o.Images,
		Network: network, Version: git, Port: int(o.Agent.Port), Log: o.Logger.With("part", "kubelet"), Tracing: w.tracing,
	})
	if err != nil {
		return err
	}
	w.agent.Registry().MustRegister(calls, certificate(c.Serving))
	w.agent.Registry().MustRegister(c.Metrics...)
	g.Go("node agent", w.agent.Run)
	if w.runtime != nil {
		g.Go("image changes", func(ctx context.Context) error {
			if err := w.runtime.Images().Follow(ctx, w.agent.ImagesChanged); ctx.Err() == nil {
				o.Logger.Warn("images that are imported will be seen in the node's status later", "err", err)
			}
			return nil
		})
	}
	return nil
}

// SetNodeIPs tells a worker that was started that the node has other addresses now, the
// primary one first.
func (w *Worker) SetNodeIPs(ips []string) { w.agent.SetNodeIPs(ips) }

// connected is told of a new pod in the pod network.
func (w *Worker) connected(ctx context.Context, c kubelet.Connection) error {
	o := podnetOptions(w.o.DataDir, w.o.RunDir)
	var addrs []netip.Addr
	for _, ip := range c.IPs {
		if a, err := netip.ParseAddr(ip); err == nil {
			addrs = append(addrs, a)
		}
	}
	if err := podnet.ForgetNeighbours(o, addrs); err != nil {
		w.o.Logger.Warn("cannot forget who had a pod's address before: it may not answer for some seconds", "err", err)
	}
	if c.Receive != 0 || c.Send != 0 {
		if err := podnet.Limit(o, c.Sandbox, podnet.Limits{Receive: c.Receive, Send: c.Send}); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, isolatedWithin)
	defer cancel()
	if err := w.bridge.connected(ctx, c.Sandbox); err != nil {
		return err
	}
	return w.policies.Connected(ctx, c.Pod, addrs)
}

// Socket is where the node agent's API is served to the API server of the
// same machine. Who can open it is root already.
func (w *Worker) Socket() string { return filepath.Join(w.o.RunDir, "kubelet.sock") }

func (w *Worker) serve(g *task.Group) error {
	path := w.Socket()
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove old socket: %w", err)
	}
	l, err := (&net.ListenConfig{}).Listen(g.Context(), "unix", path)
	if err != nil {
		return fmt.Errorf("serve the node agent's API: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return fmt.Errorf("serve the node agent's API: %w", err)
	}
	srv := &http.Server{Handler: w.handler(), ReadHeaderTimeout: headerTimeout, BaseContext: func(net.Listener) context.Context { return g.Context() }}
	g.Go("node agent API", func(context.Context) error {
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	g.Go("end node agent API", func(ctx context.Context) error {
		<-ctx.Done()
		return srv.Close()
	})
	return nil
}

const headerTimeout = 30 * time.Second

// rules are what this node sends connections to pods by.
func (w *Worker) rules() drain.Rules {
	all := drain.All{&w.applied}
	if w.edge != nil {
		all = append(all, w.edge)
	}
	return all
}

// handler serves the node agent's API, and what servers ask of the rest of the node.
func (w *Worker) handler() http.Handler {
	if w.o.Alone {
		return w.agent.Handler()
	}
	mux := http.NewServeMux()
	mux.HandleFunc(drain.Pattern, drain.Handler(w.rules()))
	mux.Handle("/", w.agent.Handler())
	return mux
}

// podCIDRs waits for the node's share of the pod addresses.
func (w *Worker) podCIDRs(ctx context.Context) ([]netip.Prefix, error) {
	node, err := w.await(ctx, func(node *corev1.Node) bool { return len(node.Spec.PodCIDRs) > 0 })
	if err != nil {
		return nil, err
	}
	var share []netip.Prefix
	for _, cidr := range node.Spec.PodCIDRs {
		p, err := netip.ParsePrefix(cidr)
		if err != nil {
			return nil, fmt.Errorf("pod CIDR of node %s: %w", node.Name, err)
		}
		share = append(share, p)
	}
	return share, nil
}

// errFound ends a watch that saw what it waited for.
var errFound = errors.New("found")

// await waits until this machine's Node passes the test.
func (w *Worker) await(ctx context.Context, test func(*corev1.Node) bool) (*corev1.Node, error) {
	var found *corev1.Node
	nodes := client.Cached(w.c.Transport, core.Nodes, "")
	err := nodes.Each(ctx, cache.FollowOptions{}, func([]cache.Delta) error {
		if node, ok := nodes.Get("", w.o.NodeName); ok && test(node) {
			found = node
			return errFound
		}
		return nil
	})
	if !errors.Is(err, errFound) {
		return nil, err
	}
	return found, nil
}

// ready waits until the node is ready.
func (w *Worker) ready(ctx context.Context) error {
	_, err := w.await(ctx, func(node *corev1.Node) bool {
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady {
				return c.Status == corev1.ConditionTrue
			}
		}
		return false
	})
	return err
}

// await waits for a part to be ready.
func await(g *task.Group, ready <-chan struct{}) error {
	select {
	case <-ready:
		return nil
	case <-g.Context().Done():
		return context.Cause(g.Context())
	}
}
