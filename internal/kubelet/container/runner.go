package container

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/kubelet/admit"
	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/kubelet/device"
	"github.com/kemudi/kemudi/internal/kubelet/disk"
	"github.com/kemudi/kemudi/internal/kubelet/dra"
	"github.com/kemudi/kemudi/internal/kubelet/image"
	"github.com/kemudi/kemudi/internal/kubelet/node"
	"github.com/kemudi/kemudi/internal/kubelet/objects"
	"github.com/kemudi/kemudi/internal/kubelet/pin"
	"github.com/kemudi/kemudi/internal/kubelet/probe"
)

// Connection is a new sandbox in the pod network.
type Connection struct {
	Pod           *v1.Pod
	Sandbox       string
	IPs           []string
	Receive, Send uint64 // bits a second that the pod may have; 0: as many as there are
}

// Runner is what makes the containers of all pods of a node. Its methods may be
// called concurrently.
type Runner struct {
	Runtime runtimeapi.RuntimeServiceClient
	Events  client.EventSink
	Log     *slog.Logger

	Node    *node.Node
	Facts   cri.Node // of the node, without what may change
	Disk    *disk.Disk
	Objects *objects.Objects
	Puller  *image.Puller
	Ledger  *admit.Ledger
	Devices *device.Manager // of plugins; nil: there are none
	Pins    *pin.Pins       // what pods have for themselves
	Claims  *dra.Manager    // prepares devices of resource claims; nil: there are none

	Version string // the agent's, as "v1.37.2"

	// ResolvConf is the file of the machine's own resolver.
	ResolvConf string
	// Connected is told of a pod's new sandbox before anybody else is, and before any container
	// starts. What it cannot do fails the sandbox. Optional.
	Connected func(context.Context, Connection) error

	// Registry tells of what is counted. Optional.
	Registry prometheus.Registerer

	metrics           *metrics
	prober            *probe.Prober
	sandboxes, starts semaphore
}

// New returns a runner with the exported fields of o.
func New(o Runner) *Runner {
	r := &o
	r.metrics = newMetrics(r.Registry)
	r.sandboxes, r.starts = make(semaphore, atOnce()), make(semaphore, atOnce())
	r.prober = &probe.Prober{Exec: r.Exec, Version: shortVersion(r.Version)}
	if r.Disk != nil {
		r.prober.Dial = (&net.Dialer{}).DialContext
	}
	return r
}

// shortVersion is "1.37" of "v1.37.2".
func shortVersion(v string) string {
	parts := strings.SplitN(strings.TrimPrefix(v, "v"), ".", 3)
	return strings.Join(parts[:min(len(parts), 2)], ".")
}

// Probe probes; on a simulated node, only commands can fail.
func (r *Runner) Probe(ctx context.Context, h *v1.ProbeHandler, t probe.Target) (probe.Result, string) {
	if r.Disk == nil && h.Exec == nil {
		return probe.Success, ""
	}
	return r.prober.Probe(ctx, h, t)
}

// now is what pods are translated with; the host's own DNS and hosts file may
// change and are read anew.
func (r *Runner) now() cri.Node {
	n := r.Facts
	n.IPs = r.Node.Addresses()
	if r.Disk == nil {
		return n
	}
	n.HostDNS = cri.HostResolv(r.ResolvConf, os.ReadFile)
	if data, err := os.ReadFile("/etc/hosts"); err == nil {
		n.HostHosts = string(data)
	}
	return n
}

// atOnce is how many sandboxes, and how many containers, are started at a time.
func atOnce() int { return max(4, 2*runtime.NumCPU()) }

// semaphore lets only so many through at a time: started all together, pods
// would all be slow.
type semaphore chan struct{}

// enter waits for a turn; leave gives it up.
func (s semaphore) enter(ctx context.Context) (leave func(), err error) {
	select {
	case s <- struct{}{}:
		return func() { <-s }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Subject is what an event is about.
type Subject struct {
	Annotations map[string]string // of events about the pod itself

	events    client.EventSink
	pod       *v1.Pod
	container string // empty: the pod itself
}

// About returns the subject of events about a container of a pod; empty: the pod itself.
func (r *Runner) About(pod *v1.Pod, container string) Subject {
	return Subject{events: r.Events, pod: pod, container: container}
}

// Event tells the user.
func (s Subject) Event(kind, reason, message string) {
	switch {
	case s.container == "" && len(s.Annotations) > 0:
		s.events.Event(client.Annotated{Object: s.pod, Annotations: s.Annotations}, kind, reason, message)
		return
	case s.container == "":
		s.events.Event(s.pod, kind, reason, message)
		return
	}
	s.events.Event(client.Part{Object: s.pod, FieldPath: cri.FieldPath(s.pod, s.container)}, kind, reason, message)
}

// Stats asks the runtime what the pod's containers use.
func (r *Runner) Stats(ctx context.Context, pod *v1.Pod) ([]*runtimeapi.ContainerStats, error) {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	resp, err := r.Runtime.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{
		Filter: &runtimeapi.ContainerStatsFilter{LabelSelector: map[string]string{cri.LabelPodUID: string(pod.UID)}},
	})
	if err != nil {
		return nil, fmt.Errorf("ask what containers use: %w", err)
	}
	return resp.Stats, nil
}
