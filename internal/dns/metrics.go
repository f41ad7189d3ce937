package dns

import (
	"context"
	"crypto/sha512"
	"encoding/hex"
	"runtime"
	"time"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	kube "github.com/kemudi/kemudi/internal/cache"
)

// counters has the names of CoreDNS' plugins where it is the same thing. What those count themselves is
// beside it on the page; here is what they do not, as ours are in their place, or as only CoreDNS' own start sets it.
type counters struct {
	failed           prometheus.Counter
	version, enabled *prometheus.GaugeVec
	programmed       *prometheus.HistogramVec
}

// newCounters registers them with the page of this server, and those that say that something is wrong
// with the process, too.
func newCounters(page, process prometheus.Registerer) *counters {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	build := gauge("coredns_build_info", "The version of CoreDNS whose plugins answer; the value is always 1.", "version", "revision", "goversion")
	build.WithLabelValues(coremain.CoreVersion, coremain.GitCommit, runtime.Version()).Set(1)
	c := &counters{
		failed:  prometheus.NewCounter(prometheus.CounterOpts{Name: "coredns_reload_failed_total", Help: "Corefiles that could not be used."}),
		version: gauge("coredns_reload_version_info", "The hash of the Corefile in force; the value is always 1.", "hash", "value"),
		enabled: gauge("coredns_plugin_enabled", "Plugins that questions of a zone pass; the value is always 1.", "server", "zone", "view", "name"),
		programmed: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "coredns_kubernetes_dns_programming_duration_seconds",
			Help:    "Time from a change of a service or pod to having its names answered by it, in seconds.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 20)}, []string{"service_kind"}),
	}
	page.MustRegister(c.failed, c.version, c.enabled, c.programmed, build)
	if process != nil {
		process.MustRegister(c.failed)
	}
	return c
}

// loaded notes which Corefile is in force, and what it uses.
func (n *counters) loaded(text string, c *config) {
	sum := sha512.Sum512([]byte(text))
	n.version.Reset()
	n.version.WithLabelValues("sha512", hex.EncodeToString(sum[:])).Set(1)
	n.enabled.Reset()
	for _, labels := range c.plugins {
		n.enabled.WithLabelValues(labels[:]...).Set(1)
	}
}

// notePlugins notes the plugins of blocks that are measured, as labels of a metric.
func (l *loading) notePlugins(measured []*dnsserver.Config) {
	for _, b := range measured {
		for _, host := range b.ListenHosts {
			for _, p := range b.Handlers() {
				l.plugins = append(l.plugins, [...]string{b.Transport + "://" + host + ":" + b.Port, b.Zone, b.ViewName, p.Name()})
			}
		}
	}
}

// programming measures how long changes of endpoints take until they are answered: they are as soon as the caches
// have them. What was there at the start has no such time.
func (s *Server) programming(ctx context.Context) error {
	first := true
	return s.view.slices.Each(ctx, kube.FollowOptions{}, func(changes []kube.Delta) error {
		if first {
			first = false
			return nil
		}
		for _, d := range changes {
			if d.Now == nil {
				continue
			}
			if slice, ok := d.Now.Object.(*discoveryv1.EndpointSlice); ok {
				s.measure(slice, time.Now())
			}
		}
		return nil
	})
}

// measure takes in a change of a slice, if whoever made it says what led to it, and when.
func (s *Server) measure(slice *discoveryv1.EndpointSlice, now time.Time) {
	since, err := time.Parse(time.RFC3339Nano, slice.Annotations[corev1.EndpointsLastChangeTriggerTime])
	if err != nil {
		return
	}
	svc := s.view.Service(slice.Namespace, slice.Labels[discoveryv1.LabelServiceName])
	if svc == nil {
		return
	}
	kind := "cluster_ip"
	if headless(svc) {
		kind = "headless_with_selector"
	}
	s.counted.programmed.WithLabelValues(kind).Observe(now.Sub(since).Seconds())
}
