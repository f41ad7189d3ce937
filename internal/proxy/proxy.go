package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/obs"
	"github.com/kemudi/kemudi/internal/podnet/nft"
	"github.com/kemudi/kemudi/internal/proxy/userspace"
	"github.com/kemudi/kemudi/internal/task"
)

// Options say what to proxy, and how.
type Options struct {
	// Config is what the rules depend on. NodeName is required.
	Config
	// Transport is where Services, EndpointSlices, this node's Pods and the Node
	// are read from. Required.
	Transport client.Transport
	// Events notes trouble at the objects concerned; default: nowhere.
	Events client.EventSink
	// Log defaults to no log.
	Log *slog.Logger
	// Applied is told up to which revision of EndpointSlices the rules are true. Optional.
	Applied *cache.Progress
	// Served is told up to which revision of Services they are. Optional.
	Served *cache.Progress
	// Metrics is where the metrics are registered; default: one of the proxy's own.
	Metrics *prometheus.Registry
	// Services is told of the changes of Services that the proxy is told of, the first state included;
	// nil: nobody is. It must not wait.
	Services func([]cache.Delta)
	// MinInterval is the least time between two transactions, so that a burst of
	// changes becomes one; the first change after a pause does not wait. Default 20 ms.
	MinInterval time.Duration
	// Healthz is where /healthz and /livez are served, for balancers that look for nodes;
	// port 0: nowhere.
	Healthz netip.AddrPort
	// Status is where Metrics, /proxyMode and /healthz are served to this machine; port 0: nowhere.
	Status netip.AddrPort
	// Listen opens the health check ports of services, of Healthz and of Status, node ports at ::1, and those of Userspace. Default: this machine's.
	Listen func(ctx context.Context, network, addr string) (net.Listener, error)
}

func (o Options) withDefaults() (Options, error) {
	if o.NodeName == "" || o.Transport == nil {
		return o, errors.New("service proxy: NodeName and Transport must be set")
	}
	for _, list := range [][]netip.Prefix{o.ClusterCIDRs, o.ServiceCIDRs, o.NodePortAddresses} {
		for _, p := range list {
			if !p.IsValid() {
				return o, fmt.Errorf("service proxy: %v: invalid prefix in it", list)
			}
		}
	}
	if o.Metrics == nil {
		o.Metrics = prometheus.NewRegistry()
	}
	if o.Events == nil {
		o.Events = client.NoEvents
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.MinInterval == 0 {
		o.MinInterval = 20 * time.Millisecond
	}
	if o.Applied == nil {
		o.Applied = &cache.Progress{}
	}
	if o.Served == nil {
		o.Served = &cache.Progress{}
	}
	if o.Listen == nil {
		o.Listen = (&net.ListenConfig{}).Listen
	}
	return o, nil
}

// unhealthyAfter is how long a change may wait to come into force before the
// proxy is not healthy any more.
const unhealthyAfter = time.Minute

// foreignInterval is the least time between two full rewrites that changes of
// our tables by another program call for.
const foreignInterval = time.Second

// Proxy is the service proxy of one node.
type Proxy struct {
	o       Options
	model   *Model
	kernel  *kernel
	end     func([]flow, nft.Family) (int, error) // the kernel's
	stale   []flow                                // whose connections are still to be looked through
	watch   *nft.Watch
	feed    *feed
	health  *serviceHealth
	metrics *metrics
	relays  *userspace.Relays // nil: packets do not pass through this process
	tracked *nft.Groups       // nil: connections are not counted
	recount chan struct{}     // holds one token: connections have come or gone
	foreign chan struct{}     // holds one token: another program has changed our tables

	loopback *userspace.Relays // node ports at ::1

	counting atomic.Int64 // how long it took to count connections the last time

	mu struct {
		sync.Mutex
		applied time.Time // when the rules were last in order
		broken  time.Time // since when they are not; zero: they are
		leaving bool
	}
}

// New returns a proxy that works on the network namespace of the calling
// thread. Nothing is done before Run. The caller must Close it.
func New(o Options) (*Proxy, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	k, err := openKernel()
	if err != nil {
		return nil, err
	}
	watch, err := k.Watch()
	if err != nil {
		k.close()
		return nil, err
	}
	f := newFeed()
	p := &Proxy{
		o: o, model: NewModel(o.Config), kernel: k, end: k.endStale, watch: watch, feed: f,
		metrics: newMetrics(o.Metrics, f.pending), foreign: make(chan struct{}, 1), recount: make(chan struct{}, 1),
	}
	if o.Scheduler == Least {
		if p.tracked, err = openTracked(); err != nil {
			watch.Close()
			k.close()
			return nil, err
		}
	}
	carry := userspace.Options{Listen: o.Listen, Dial: (&net.Dialer{}).DialContext, Log: o.Log}
	p.loopback = userspace.New(carry)
	if o.Userspace {
		p.relays = userspace.New(carry)
	}
	p.health = &serviceHealth{
		listen: o.Listen, events: o.Events, log: o.Log, node: o.NodeName, healthy: p.healthy,
		open: map[types.NamespacedName]*healthPort{},
	}
	return p, nil
}

// Close closes the proxy's sockets. The rules stay in force; Reset removes them.
func (p *Proxy) Close() {
	p.watch.Close()
	if p.tracked != nil {
		p.tracked.Close()
	}
	p.kernel.close()
}

// Run keeps the rules in step with the cluster until ctx ends. It may be called
// once.
func (p *Proxy) Run(ctx context.Context) error {
	p.o.Events.Event(client.Deed{Object: p.node(), Action: "StartKubeProxy"}, corev1.EventTypeNormal, "Starting", "")
	g := task.NewGroup(ctx)
	p.feed.follow(g, p.o.Transport, p.o.NodeName, p.o.Services)
	g.Go("watch tables", p.watchTables)
	if p.tracked != nil {
		g.Go("tracked connections", p.hear)
	}
	if p.o.Healthz.Port() != 0 {
		g.Go("health of the service proxy", func(ctx context.Context) error { return p.serveSelf(ctx, ownPort{p.o.Healthz, p.Handler(), true}) })
	}
	if p.o.Status.Port() != 0 {
		g.Go("status of the service proxy", func(ctx context.Context) error { return p.serveSelf(ctx, ownPort{p.o.Status, p.status(), false}) })
	}
	g.Go("rules", func(ctx context.Context) error {
		defer p.health.close()
		return p.keep(ctx, g)
	})
	return g.Wait()
}

// node is what events of the proxy itself are about. Its UID is its name, as in those of all who know no more of their node:
// who describes a node looks for both.
func (p *Proxy) node() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: p.o.NodeName, UID: types.UID(p.o.NodeName)}}
}

// watchTables notices when another program takes our rules away.
func (p *Proxy) watchTables(ctx context.Context) error {
	for {
		if err := p.watch.Next(ctx, tableOf(nft.IPv4), tableOf(nft.IPv6)); err != nil {
			return err
		}
		select {
		case p.foreign <- struct{}{}:
		default: // that is known already
		}
		if err := task.Sleep(ctx, foreignInterval); err != nil {
			return err
		}
	}
}

// keep is the loop that owns the model and the kernel: it waits for changes,
// takes in all there are, and brings them into force.
func (p *Proxy) keep(ctx context.Context, g *task.Group) error {
	var (
		full  = true // all rules are to be written
		last  time.Time
		retry <-chan time.Time
		back  = task.Backoff{Initial: 100 * time.Millisecond, Max: 30 * time.Second, Jitter: 0.2}
	)
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-p.feed.ready:
			if err := task.Sleep(ctx, time.Until(last.Add(p.o.MinInterval))); err != nil {
				return err
			}
		case <-retry:
		case <-p.recount:
			if err := p.count(); err != nil {
				p.o.Log.Warn("cannot count connections: endpoints are chosen by those of before", "err", err)
			}
		case <-p.foreign:
			if last.IsZero() {
				continue
			}
			p.o.Log.Warn("rules of the service proxy were changed by another program: writing them again", "table", tableName)
			p.metrics.overwritten.Inc()
			full = true
		}
		in, ok := p.feed.take()
		if !ok {
			continue
		}
		retry = nil
		err := p.sync(ctx, g, in, full)
		last = time.Now()
		p.health.update(ctx, g, p.model.HealthAddrs(), p.model.Health())
		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			wait := back.Next()
			p.o.Log.Error("cannot bring service rules into force", "err", err, "retry", wait)
			full, retry = true, time.After(wait)
			continue
		}
		full = false
		err = p.endStale()
		p.o.Applied.Advance(p.model.taken)
		p.o.Served.Advance(p.model.served)
		if err != nil {
			wait := back.Next()
			p.o.Log.Warn("cannot end stale UDP flows", "err", err, "retry", wait)
			retry = time.After(wait)
			continue
		}
		back.Reset()
	}
}

// sync takes changes into the model and brings the outcome into force.
func (p *Proxy) sync(ctx context.Context, g *task.Group, in intake, full bool) error {
	start := time.Now()
	p.metrics.serviceChanges.Add(float64(in.counts["service"]))
	p.metrics.endpointChanges.Add(float64(in.counts["endpointslice"]))
	for _, family := range familyNames {
		p.metrics.lastQueue.WithLabelValues(family).SetToCurrentTime()
	}
	if full {
		p.model.Anew()
	}
	for _, change := range in.changes {
		change(p.model)
	}
	touched := p.model.touched()
	lead, err := p.open(g, touched)
	if err != nil {
		return err
	}
	step := p.model.Commit()
	lead()
	p.serveLoopback(g, touched)
	if full {
		step = p.model.Full()
	}
	for i, family := range familyNames {
		p.metrics.noLocal.WithLabelValues("internal", family).Set(float64(p.model.away[i].internal))
		p.metrics.noLocal.WithLabelValues("external", family).Set(float64(p.model.away[i].external))
	}
	if !step.Empty() {
		if err := p.kernel.Apply(ctx, step.Tables[:]...); err != nil {
			p.note(err)
			for i, family := range familyNames {
				if !step.Tables[i].Empty() {
					p.metrics.failures.WithLabelValues(family).Inc()
				}
			}
			return err
		}
		p.stale = latest(p.stale, step.Flows)
	}
	p.note(nil)
	p.measure(time.Since(start), full, step)
	for i, family := range familyNames {
		for _, c := range in.causes[i] {
			p.metrics.programming.WithLabelValues(family).Observe(time.Since(c).Seconds())
		}
	}
	return nil
}

// endStale ends the UDP flows that have lost their endpoint. Those that it could not
// end are tried again, by what holds then.
func (p *Proxy) endStale() error {
	if len(p.stale) == 0 {
		return nil
	}
	var failed error
	for i, f := range families {
		if !slices.ContainsFunc(p.stale, func(s flow) bool { return s.Family == f }) {
			continue
		}
		start := time.Now()
		n, err := p.end(p.stale, f)
		p.metrics.staleTook.WithLabelValues(familyNames[i]).Observe(time.Since(start).Seconds())
		p.metrics.staleFlows.WithLabelValues(familyNames[i]).Add(float64(n))
		failed = errors.Join(failed, err)
	}
	if failed != nil {
		p.stale = latest(p.stale, p.model.flows())
		return failed
	}
	p.stale = nil
	return nil
}

// measure takes in how long a step took, of the families that it changed. When rules were last in order all know:
// who compares that with when a change was asked for looks for rules that are behind.
func (p *Proxy) measure(took time.Duration, full bool, step *Step) {
	for i, family := range familyNames {
		p.metrics.lastSync.WithLabelValues(family).SetToCurrentTime()
		if step.Tables[i].Empty() {
			continue
		}
		p.metrics.sync.WithLabelValues(family).Observe(took.Seconds())
		if full {
			p.metrics.full.WithLabelValues(family).Observe(took.Seconds())
		} else {
			p.metrics.partial.WithLabelValues(family).Observe(took.Seconds())
		}
	}
}

// note keeps what the health check says.
func (p *Proxy) note(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.leaving = p.model.leaving
	switch {
	case err == nil:
		p.mu.applied, p.mu.broken = time.Now(), time.Time{}
	case p.mu.broken.IsZero():
		p.mu.broken = time.Now()
	}
}

func (p *Proxy) healthy() bool {
	waiting := p.feed.waiting()
	p.mu.Lock()
	defer p.mu.Unlock()
	late := func(t time.Time) bool { return !t.IsZero() && time.Since(t) > unhealthyAfter }
	return !p.mu.applied.IsZero() && !late(waiting) && !late(p.mu.broken)
}

// Synced says whether the rules have been brought into force since the start.
func (p *Proxy) Synced() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.mu.applied.IsZero()
}

// Check is nil when the proxy works; it is for the process's health checks.
func (p *Proxy) Check(context.Context) error {
	if !p.healthy() {
		return errors.New("service rules are not in step with the cluster")
	}
	return nil
}

// Handler serves /healthz, /livez and /proxyMode as kube-proxy does. /healthz
// also tells load balancers to look for another node when this one is leaving.
func (p *Proxy) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { p.answer(w, true) })
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { p.answer(w, false) })
	mux.HandleFunc("GET /proxyMode", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if p.relays != nil {
			_, _ = w.Write([]byte("userspace"))
			return
		}
		_, _ = w.Write([]byte("nftables"))
	})
	return mux
}

// status are the paths beside the metrics that kube-proxy has where they are.
func (p *Proxy) status() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", obs.MetricsHandler(p.o.Metrics, p.o.Log))
	mux.Handle("GET /proxyMode", p.Handler())
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
	return mux
}

// selfHealth is what /healthz and /livez tell, in the words of kube-proxy.
type selfHealth struct {
	LastUpdated  string `json:"lastUpdated"`
	CurrentTime  string `json:"currentTime"`
	NodeEligible *bool  `json:"nodeEligible,omitempty"`
	Healthy      bool   `json:"healthy"`
	// Status is by family. The rules of both come into force together.
	Status map[string]familyHealth `json:"status"`
}

type familyHealth struct {
	LastUpdated string `json:"lastUpdated"`
	Healthy     bool   `json:"healthy"`
}

func (p *Proxy) answer(w http.ResponseWriter, eligibility bool) {
	healthy := p.healthy()
	p.mu.Lock()
	applied, leaving := p.mu.applied, p.mu.leaving
	p.mu.Unlock()
	now := time.Now()
	if healthy {
		applied = now // that is: nothing is outstanding
	}
	answer := selfHealth{
		LastUpdated: applied.UTC().Format(time.RFC3339Nano), CurrentTime: now.UTC().Format(time.RFC3339Nano),
		Healthy: healthy, Status: map[string]familyHealth{},
	}
	for _, family := range familyNames {
		answer.Status[family] = familyHealth{answer.LastUpdated, healthy}
	}
	counter := p.metrics.livez
	if eligibility {
		eligible := !leaving
		answer.NodeEligible = &eligible
		healthy = healthy && eligible
		counter = p.metrics.healthz
	}
	status := http.StatusOK
	if !healthy {
		status = http.StatusServiceUnavailable
	}
	counter.WithLabelValues(strconv.Itoa(status)).Inc()
	writeJSON(w, status, answer)
}
