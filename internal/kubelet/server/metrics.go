package server

import (
	"errors"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/kubelet/machine"
	"github.com/kemudi/kemudi/internal/kubelet/usage"
)

// serveSummary answers with what pods and containers use now.
func (s *Server) serveSummary(w http.ResponseWriter, r *http.Request) {
	resp, err := s.runtime.ListContainerStats(r.Context(), &runtimeapi.ListContainerStatsRequest{})
	if err != nil {
		fail(w, err)
		return
	}
	writeJSON(w, usage.Summary(s.o.NodeName, resp.Stats))
}

// serveResources answers with what containers and pods use now, in the form
// that the metrics server reads.
func (s *Server) serveResources(w http.ResponseWriter, r *http.Request) {
	resp, err := s.runtime.ListContainerStats(r.Context(), &runtimeapi.ListContainerStatsRequest{})
	reg := prometheus.NewRegistry()
	look := &usage.Look{Containers: resp.GetStats()}
	if s.o.Pods.Runner.Disk != nil {
		var nodeErr error
		look.Node, nodeErr = machine.Used()
		err = errors.Join(err, nodeErr)
	}
	if look.Failed = err != nil; look.Failed {
		s.o.Log.Warn("look at what containers use", "err", err)
	}
	reg.MustRegister(look)
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(w, r)
}

// serveScrape answers with what containers use now, in the form of cAdvisor.
func (s *Server) serveScrape(w http.ResponseWriter, r *http.Request) {
	used, err := s.runtime.ListContainerStats(r.Context(), &runtimeapi.ListContainerStatsRequest{})
	if err != nil {
		fail(w, err)
		return
	}
	there, err := s.runtime.ListContainers(r.Context(), &runtimeapi.ListContainersRequest{})
	if err != nil {
		fail(w, err)
		return
	}
	runner := s.o.Pods.Runner
	scrape := &usage.Scrape{
		Stats: used.Stats, Containers: there.Containers, Cgroups: map[string]string{}, Capacity: runner.Node.Capacity(nil), Now: time.Now(),
	}
	for _, pod := range s.o.Cached.ByIndex("spec.nodeName", s.o.NodeName) {
		scrape.Cgroups[string(pod.UID)] = runner.Facts.Cgroup(pod, core.QOSClass(pod))
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(scrape)
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(w, r)
}

// register adds the agent's own metrics to those that are served.
func (s *Server) register() {
	s.o.Registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "kubelet_running_pods", Help: "Number of pods that have a running pod sandbox."},
			func() float64 { pods, _ := s.o.Pods.Count(); return float64(pods) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "kubelet_running_containers", Help: "Number of containers currently running."},
			func() float64 { _, containers := s.o.Pods.Count(); return float64(containers) }),
	)
}

// serveConfig answers with how the agent is configured.
func (s *Server) serveConfig(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, map[string]any{"kubeletconfig": s.o.Config})
}
