package server

import (
	"context"
	"errors"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kemudi/kemudi/internal/api/core/claims"
	"github.com/kemudi/kemudi/internal/kubelet/cgroup"
	"github.com/kemudi/kemudi/internal/kubelet/csi"
	"github.com/kemudi/kemudi/internal/kubelet/machine"
	"github.com/kemudi/kemudi/internal/kubelet/pod"
	"github.com/kemudi/kemudi/internal/kubelet/usage"
	"github.com/kemudi/kemudi/internal/obs"
)

// volumes are what volumes hold: those whose drivers measure that, and the node's own, which are as full as the file systems that they are
// on. What cannot be had now is left out.
func (s *Server) volumes(ctx context.Context) (out []usage.Volume) {
	disk := s.o.Pods.Runner.Disk
	if disk == nil {
		return nil
	}
	var driven []usage.Volume
	var of []csi.Published
	for _, p := range s.o.Cached.ByIndex("spec.nodeName", s.o.NodeName) {
		for i := range p.Spec.Volumes {
			v := &p.Spec.Volumes[i]
			path := disk.Volumes.Path(p, v)
			one := usage.Volume{Pod: p.UID, Namespace: p.Namespace, Name: v.Name, Claim: claims.OfVolume(p, v)}
			switch {
			case path == "":
			case disk.Driven.Owns(path):
				of, driven = append(of, csi.Published{Pod: p.UID, Path: path}), append(driven, one)
			case disk.Volumes.OnDisk(path):
				if fs, err := machine.FileSystemOf(path); err == nil {
					one.Held = usage.Held(&fs)
					out = append(out, one)
				}
			}
		}
	}
	if len(of) == 0 {
		return out
	}
	held := disk.Driven.Held(ctx, of)
	for i, v := range driven {
		if h, ok := held[of[i].Path]; ok {
			v.Held = h
			out = append(out, v)
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
	used, there, err := s.listed(r.Context())
	reg := prometheus.NewRegistry()
	look := &usage.Look{Containers: used, There: there}
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

// serveProbes answers with what has come of probes.
func (s *Server) serveProbes(w http.ResponseWriter, r *http.Request) {
	reg := prometheus.NewRegistry()
	reg.MustRegister(pod.Probed{Set: s.o.Pods})
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(w, r)
}

// register adds the agent's own metrics to those that are served.
func (s *Server) register() {
	name := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "kubelet_node_name", Help: "The node's name. The count is always 1.", ConstLabels: prometheus.Labels{"node": s.o.NodeName},
	})
	name.Set(1)
	s.o.Registry.MustRegister(name)
	if s.o.Pods.Runner.Disk == nil {
		return
	}
	version := prometheus.NewGauge(prometheus.GaugeOpts{Name: "kubelet_cgroup_version", Help: "cgroup version on the hosts."})
	version.Set(1)
	if cgroup.Open(cgroup.Top).V2() {
		version.Set(2)
	}
	s.o.Registry.MustRegister(version)
}

// serveConfig answers with how the agent is configured.
func (s *Server) serveConfig(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, map[string]any{"kubeletconfig": s.o.Config})
}
