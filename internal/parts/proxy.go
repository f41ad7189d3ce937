package parts

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/kemudi/kemudi/internal/obs"
	"github.com/kemudi/kemudi/internal/proxy"
	"github.com/kemudi/kemudi/internal/task"
)

// ProxyName is upstream's name of the service proxy.
const ProxyName = "kube-proxy"

// Proxy are the options of the service proxy alone, each field by its flag.
type Proxy struct {
	API           API
	NodeName      string          // --hostname-override; default the host name
	ClusterCIDRs  []netip.Prefix  // --cluster-cidr
	NodePorts     []netip.Prefix  // --nodeport-addresses: of the node's addresses, those that serve node ports; none, and not Primary: all
	Primary       bool            // --nodeport-addresses: the node's first of each family does
	MasqueradeAll bool            // --masquerade-all
	Healthz       netip.AddrPort  // --healthz-bind-address; none: not served
	Metrics       netip.AddrPort  // --metrics-bind-address; likewise
	Profiling     bool            // --profiling: with the metrics
	Conntrack     proxy.Conntrack // --conntrack-*: limits of the machine
	Scheduler     proxy.Scheduler // --ipvs-scheduler: which endpoint is next
	Userspace     bool            // --proxy-mode=userspace: the process carries connections
	Logger        *slog.Logger
}

// DefaultProxy are the options of who is given none.
func DefaultProxy() Proxy {
	return Proxy{
		Healthz: netip.AddrPortFrom(netip.IPv4Unspecified(), 10256), Metrics: netip.MustParseAddrPort("127.0.0.1:10249"), Logger: slog.Default(),
	}
}

// Schedule has endpoints chosen as a scheduler of IPVS does (--ipvs-scheduler; empty: its default), or as
// is nearest to that: exact is false then.
func (o *Proxy) Schedule(name string) (exact bool, err error) {
	if o.Scheduler, exact, err = proxy.SchedulerOf(name); err != nil {
		return false, fmt.Errorf("--ipvs-scheduler: %w", err)
	}
	return exact, nil
}

// Run keeps the rules of this machine in step with the cluster's services until ctx ends. The
// rules stay.
func (o Proxy) Run(ctx context.Context) error {
	p, err := newProcess(ProxyName, o.API, o.Logger)
	if err != nil {
		return err
	}
	if o.NodeName == "" {
		o.NodeName = strings.ToLower(p.host)
	}
	services, err := proxy.New(proxy.Options{
		Config: proxy.Config{
			NodeName: o.NodeName, ClusterCIDRs: o.ClusterCIDRs, NodePortAddresses: o.NodePorts, NodePortPrimary: o.Primary, MasqueradeAll: o.MasqueradeAll,
			Scheduler: o.Scheduler, Userspace: o.Userspace,
		},
		Transport: p.api, Events: p.events.For(ProxyName), Log: o.Logger.With("part", "proxy"), Metrics: p.registry,
	})
	if err != nil {
		return err
	}
	defer services.Close()
	if err := o.Conntrack.Set(); err != nil {
		o.Logger.Warn("cannot set limits of tracked connections", "err", err)
	}
	return p.run(ctx, func(g *task.Group) error {
		if err := (Plain{"--healthz-bind-address", o.Healthz, services.Handler()}).Serve(g); err != nil {
			return err
		}
		if err := (Plain{"--metrics-bind-address", o.Metrics, o.measures(p, services.Handler())}).Serve(g); err != nil {
			return err
		}
		g.Go("service proxy", services.Run)
		return nil
	})
}

// measures are the paths beside the metrics, as upstream's proxy has them.
func (o *Proxy) measures(p *process, health http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", obs.MetricsHandler(p.registry, p.log))
	mux.Handle("/proxyMode", health)
	mux.Handle("/configz", o.configuration())
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
	paths := []string{"/configz", "/flagz", "/healthz", "/metrics", "/proxyMode", "/statusz"}
	if o.Profiling {
		obs.InstallProfiles(mux)
		mux.Handle(obs.VerbosityPath, obs.Verbosity{Log: p.log})
		paths = append(paths, obs.ProfilesPath)
	}
	(&obs.Pages{Component: ProxyName, Began: time.Now(), Paths: func() []string { return paths }}).Install(mux)
	return mux
}

// CleanUp removes the rules of the service proxy of this machine (--cleanup).
func CleanUp(ctx context.Context) ([]string, error) {
	removed, err := proxy.Reset(ctx)
	if err != nil {
		return removed, fmt.Errorf("remove the rules of the service proxy: %w", err)
	}
	return removed, nil
}
