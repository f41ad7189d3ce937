package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/core/claims"
	"github.com/kemudi/kemudi/internal/kubelet/machine"
	"github.com/kemudi/kemudi/internal/kubelet/usage"
	"github.com/kemudi/kemudi/internal/obs"
)

// serveSummary answers with what pods and containers use now.
func (s *Server) serveSummary(w http.ResponseWriter, r *http.Request) {
	resp, err := s.runtime.ListContainerStats(r.Context(), &runtimeapi.ListContainerStatsRequest{})
	if err != nil {
		fail(w, err)
		return
	}
	summary := usage.Summary(s.o.NodeName, resp.Stats)
	usage.AddVolumes(&summary, s.volumes(r.Context()))
	writeJSON(w, summary)
}

// volumes are what volumes hold whose drivers measure that. What cannot be had now is left out.
func (s *Server) volumes(ctx context.Context) (out []usage.Volume) {
	disk := s.o.Pods.Runner.Disk
	if disk == nil {
		return nil
	}
	for _, pod := range s.o.Cached.ByIndex("spec.nodeName", s.o.NodeName) {
		for i := range pod.Spec.Volumes {
			v := &pod.Spec.Volumes[i]
			path := disk.Volumes.Path(pod, v)
			if path == "" || !disk.Driven.Owns(path) {
				continue
			}
			held, ok, err := disk.Driven.Held(ctx, pod.UID, path)
			if err != nil {
				s.o.Log.Debug("ask what a volume holds", "pod", pod.Namespace+"/"+pod.Name, "volume", v.Name, "err", err)
			}
			if ok {
				out = append(out, usage.Volume{Pod: pod.UID, Namespace: pod.Namespace, Name: v.Name, Claim: claims.OfVolume(pod, v), Held: held})
			}
		}
	}
	return out
}

// serveMetrics answers with the agent's metrics, and what volumes hold.
func (s *Server) serveMetrics(w http.ResponseWriter, r *http.Request) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(usage.Volumes(s.volumes(r.Context())))
	obs.MetricsHandler(prometheus.Gatherers{s.o.Registry, registry}, s.o.Log).ServeHTTP(w, r)
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
