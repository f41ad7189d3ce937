package kubelet

import (
	"errors"
	"net/http"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	config "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/kubelet/machine"
	"github.com/kemudi/kemudi/internal/kubelet/usage"
)

// serveSummary answers with what pods and containers use now.
func (a *Agent) serveSummary(w http.ResponseWriter, r *http.Request) {
	resp, err := a.o.Runtime.ListContainerStats(r.Context(), &runtimeapi.ListContainerStatsRequest{})
	if err != nil {
		fail(w, err)
		return
	}
	writeJSON(w, usage.Summary(a.o.NodeName, resp.Stats))
}

// serveResources answers with what containers and pods use now, in the form
// that the metrics server reads.
func (a *Agent) serveResources(w http.ResponseWriter, r *http.Request) {
	resp, err := a.o.Runtime.ListContainerStats(r.Context(), &runtimeapi.ListContainerStatsRequest{})
	reg := prometheus.NewRegistry()
	look := &usage.Look{Containers: resp.GetStats()}
	if !a.o.Simulated {
		var nodeErr error
		look.Node, nodeErr = machine.Used()
		err = errors.Join(err, nodeErr)
	}
	if look.Failed = err != nil; look.Failed {
		a.o.Log.Warn("look at what containers use", "err", err)
	}
	reg.MustRegister(look)
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(w, r)
}

// metricsHandler serves the agent's own metrics.
func (a *Agent) metricsHandler() http.Handler {
	reg := prometheus.NewRegistry()
	reg.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "kubelet_running_pods", Help: "Number of pods that have a running pod sandbox."},
			func() float64 { pods, _ := a.pods.Count(); return float64(pods) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "kubelet_running_containers", Help: "Number of containers currently running."},
			func() float64 { _, containers := a.pods.Count(); return float64(containers) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "go_goroutines", Help: "Number of goroutines that currently exist."},
			func() float64 { return float64(runtime.NumGoroutine()) }),
	)
	return promhttp.HandlerFor(reg, promhttp.HandlerOpts{})
}

// serveConfig answers with how the agent is configured, as far as upstream's
// agent has the same settings.
func (a *Agent) serveConfig(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, map[string]any{"kubeletconfig": config.KubeletConfiguration{
		TypeMeta: metav1.TypeMeta{Kind: "KubeletConfiguration", APIVersion: "kubelet.config.k8s.io/v1beta1"},
		Port:     int32(a.o.Port), MaxPods: int32(a.o.Settings.MaxPods), ClusterDomain: a.o.ClusterDomain, ClusterDNS: a.o.ClusterDNS,
		CgroupRoot: a.o.CgroupParent, PodLogsDir: a.o.PodLogsDir, EnableSystemLogHandler: ptr.To(!a.o.Settings.NoSystemLogs),
		Authentication: config.KubeletAuthentication{
			Anonymous: config.KubeletAnonymousAuthentication{Enabled: ptr.To(false)}, Webhook: config.KubeletWebhookAuthentication{Enabled: ptr.To(true)},
		},
		Authorization: config.KubeletAuthorization{Mode: config.KubeletAuthorizationModeWebhook},
	}})
}
