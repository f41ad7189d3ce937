package obs

import (
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kemudi/kemudi/internal/version"
)

// NewRegistry returns a registry that holds the metrics of the Go runtime, of
// the process and of the build. Each part adds its own with MustRegister: a
// name registered twice is a broken invariant of ours.
func NewRegistry() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		buildInfo(),
		prometheus.NewCounter(prometheus.CounterOpts{Name: "disabled_metrics_total", Help: "Metrics that are switched off: none can be."}),
		prometheus.NewCounter(prometheus.CounterOpts{Name: "hidden_metrics_total", Help: "Metrics that are hidden as they are to go: none are."}),
	)
	return reg
}

// buildInfo is the constant metric kubernetes_build_info, as upstream's programs have it.
func buildInfo() prometheus.Collector {
	info := version.Info()
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "kubernetes_build_info",
		Help: "Build of this program: 1, labelled with the versions of Kubernetes and Kemudi, the commit, the Go version and the platform.",
		ConstLabels: prometheus.Labels{
			"major": info.Major, "minor": info.Minor, "git_version": info.GitVersion, "git_commit": info.GitCommit,
			"git_tree_state": info.GitTreeState, "build_date": info.BuildDate, "go_version": info.GoVersion,
			"compiler": info.Compiler, "platform": info.Platform,
		},
	})
	g.Set(1)
	return g
}

// VolumeSeconds are the classes of how long it takes to do something about a volume, as upstream has them: from
// what needs no waiting to what has been given up.
func VolumeSeconds() []float64 {
	return []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600}
}

// VersionInfo is the constant metric version_info: at which level a component is.
func VersionInfo(l version.Level) prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "version_info",
		Help: "Provides the compatibility version info of the component. The component label is the name of the component, usually kube, but is relevant for aggregated-apiservers.",
		ConstLabels: prometheus.Labels{
			"component": "kube", "binary": version.Kubernetes, "emulation": version.Text(l.Emulates()), "min_compat": version.Text(l.Compatible()),
		},
	})
	g.Set(1)
	return g
}

// MetricsHandler serves what from holds in the Prometheus formats. A metric
// that cannot be collected is logged and left out; the others are served.
func MetricsHandler(from prometheus.Gatherer, log *slog.Logger) http.Handler {
	return promhttp.HandlerFor(from, promhttp.HandlerOpts{
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelError),
		ErrorHandling:     promhttp.ContinueOnError,
		EnableOpenMetrics: true,
		ProcessStartTime:  time.Now(), // near enough: handlers are made when a process starts
	})
}

// Shared registers a metric, unless reg has one like it: that is used then. Without a registry it is shown to
// nobody.
func Shared[C prometheus.Collector](reg *prometheus.Registry, c C) C {
	if reg == nil {
		return c
	}
	err := reg.Register(c)
	var there prometheus.AlreadyRegisteredError
	if errors.As(err, &there) {
		if c, ok := there.ExistingCollector.(C); ok {
			return c
		}
	}
	return c
}
