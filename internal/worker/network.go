package worker

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/dns"
	"github.com/kemudi/kemudi/internal/edgefeed"
	"github.com/kemudi/kemudi/internal/podnet"
	"github.com/kemudi/kemudi/internal/proxy"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/version"
)

// network starts the pod network, the service proxy and DNS.
func (w *Worker) network(g *task.Group, share []netip.Prefix, recorder *client.Recorder) error {
	o := &w.o
	options := podnetOptions(o.DataDir, o.RunDir)
	options.PodCIDRs, options.ClusterCIDRs, options.ServiceCIDRs = share, w.c.Settings.ClusterCIDRs, w.c.Settings.ServiceCIDRs
	options.Mode, options.VXLAN = podnet.Mode(w.c.Settings.PodNetwork), podnet.VXLAN{Port: w.c.Settings.VXLANPort, ID: w.c.Settings.VXLANID}
	options.Log = o.Logger.With("part", "podnet")
	options.Trouble = func(message string) {
		if node, ok := client.Cached(w.c.Transport, core.Nodes, "").Get("", o.NodeName); ok {
			recorder.For("kemudi").Event(node, corev1.EventTypeWarning, "FirewallDropsForwarded", message)
		}
	}
	pods, err := podnet.New(options)
	if err != nil {
		return err
	}
	if err := pods.Ensure(g.Context()); err != nil {
		return fmt.Errorf("pod network: %w", err)
	}
	w.bridge.is(pods)
	g.Go("pod network", func(ctx context.Context) error {
		defer pods.Close()
		g := task.NewGroup(ctx)
		g.Go("this node", pods.Run)
		g.Go("other nodes", func(ctx context.Context) error { return w.followNodes(ctx, pods.Routes) })
		return g.Wait()
	})
	w.keepPolicies(g)
	o.Step("pod network", false)
	// As kube-proxy has it by default: the kernel's minute for connections that one end has closed ends answers that are still
	// on their way to who has nothing more to ask.
	if err := (proxy.Conntrack{TCPEstablished: 24 * time.Hour, TCPCloseWait: time.Hour}).Set(); err != nil {
		o.Logger.Warn("cannot set how long connections are tracked", "err", err)
	}
	measured := prometheus.NewRegistry()
	addresses := newBalancers(g, o.NodeName, w.c.Transport)
	addresses.events, addresses.log = recorder.For("kemudi"), o.Logger.With("part", "balancers")
	told := newRoutes(g, o.NodeName, w.c.Transport, o.Peers)
	told.events, told.log = addresses.events, addresses.log
	config := o.proxy(&w.c.Settings)
	config.Edge = w.edge != nil
	services, err := proxy.New(proxy.Options{
		Config: config, Transport: w.c.Transport, Healthz: o.NodePorts.Healthz, Status: o.NodePorts.Status, Services: func(deltas []cache.Delta) {
			addresses.seen(deltas)
			told.seen(deltas)
		},
		Events: recorder.For("kube-proxy"), Log: o.Logger.With("part", "proxy"), Metrics: measured, Applied: &w.applied, Served: &told.served,
	})
	if err != nil {
		return err
	}
	w.agent.Registry().MustRegister(measured)
	if o.Registry != nil {
		o.Registry.MustRegister(measured)
	}
	g.Go("service proxy", func(ctx context.Context) error {
		defer services.Close()
		return services.Run(ctx)
	})
	g.Go("service ranges", func(ctx context.Context) error { return w.followRanges(ctx, pods, services) })
	if w.edge != nil {
		g.Go("edge", w.edge.Run)
	}
	return w.dns(g, share, recorder.For("coredns"))
}

// newEdge returns what has Ingresses and Gateways served here as soon as there are some.
func (w *Worker) newEdge(recorder *client.Recorder) *edgefeed.Feeder {
	o := &w.o
	return edgefeed.New(edgefeed.Options{
		Transport: w.c.Transport, NodeName: o.NodeName, RunDir: o.RunDir, LogFile: filepath.Join(o.DataDir, "edge.log"), AccessLog: filepath.Join(o.DataDir, "edge-access.log"),
		Cgroup: cgroupParent(o.RunDir) + "/edge", Ports: o.Edge, Version: version.Git(), Events: recorder.For("edge"), Log: o.Logger.With("part", "edge"),
	})
}

// dnsPort is where DNS is served on the addresses of the bridge.
const dnsPort = 53

// dns serves DNS on the node's end of the pod network, in each family.
func (w *Worker) dns(g *task.Group, share []netip.Prefix, events client.EventSink) error {
	o, s := &w.o, &w.c.Settings
	var addresses []netip.AddrPort
	for _, p := range share {
		addresses = append(addresses, netip.AddrPortFrom(podnet.Gateway(p), dnsPort))
	}
	counted := prometheus.NewRegistry()
	names, err := dns.New(dns.Options{
		Transport: w.c.Transport, Domain: s.ClusterDomain, Addresses: addresses, ServiceIP: s.ClusterDNS,
		ResolvConf: o.ResolvConf, NodeName: o.NodeName, Share: share, ClusterCIDRs: s.ClusterCIDRs,
		Dir: filepath.Join(o.DataDir, "dns"), Events: events, Metrics: counted, Logger: o.Logger.With("part", "dns"),
	})
	if err != nil {
		return err
	}
	w.agent.Registry().MustRegister(counted)
	if o.Registry != nil {
		o.Registry.MustRegister(counted)
	}
	g.Go("dns", names.Run)
	if err := await(g, names.Ready()); err != nil {
		return err
	}
	o.Step("cluster DNS", false)
	return nil
}
