package pod

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/core/claims"
	"github.com/kemudi/kemudi/internal/kubelet/admit"
	"github.com/kemudi/kemudi/internal/kubelet/container"
	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/kubelet/podstep"
	"github.com/kemudi/kemudi/internal/kubelet/volume"
)

// metrics have upstream's names. They cost nothing but when something is done.
type metrics struct {
	seen, starts, total, sli, containers prometheus.Histogram
	pods, podErrors, orphans             prometheus.Counter
	ownUsers, ownUsersErrors             prometheus.Counter // of those pods, the ones with users of their own
	synced                               prometheus.Histogram
	started, startErrors, terminated     *prometheus.CounterVec
	rejections                           *prometheus.CounterVec
	resizes                              resizes
}

// startBuckets reach from what starts at once to an hour.
var startBuckets = []float64{0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600}

func newMetrics(reg prometheus.Registerer, s *Set) *metrics {
	m := &metrics{
		seen: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubelet_pod_worker_start_duration_seconds", Help: "Duration in seconds from kubelet seeing a pod to starting a worker.", Buckets: prometheus.DefBuckets,
		}),
		starts: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubelet_pod_start_duration_seconds", Help: "Duration in seconds from kubelet seeing a pod for the first time to the pod starting to run", Buckets: startBuckets,
		}),
		total: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "kubelet_pod_start_total_duration_seconds",
			Help:    "Duration in seconds to start a pod since creation, including time to pull images and run init containers, until the node sees that all its containers have started.",
			Buckets: startBuckets,
		}),
		sli: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "kubelet_pod_start_sli_duration_seconds",
			Help:    "Duration in seconds to start a pod, excluding time to pull images and run init containers, since creation until the node sees that all its containers have started.",
			Buckets: startBuckets,
		}),
		containers: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubelet_containers_per_pod_count", Help: "The number of containers per pod.", Buckets: prometheus.ExponentialBuckets(1, 2, 5),
		}),
		pods:      prometheus.NewCounter(prometheus.CounterOpts{Name: "kubelet_started_pods_total", Help: "Cumulative number of pods started"}),
		podErrors: prometheus.NewCounter(prometheus.CounterOpts{Name: "kubelet_started_pods_errors_total", Help: "Cumulative number of errors when starting pods"}),
		ownUsers:  prometheus.NewCounter(prometheus.CounterOpts{Name: "kubelet_started_user_namespaced_pods_total", Help: "Pods with users of their own that were started, or were to be."}),
		ownUsersErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_started_user_namespaced_pods_errors_total", Help: "Pods with users of their own that could not be started.",
		}),
		synced: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubelet_pod_status_sync_duration_seconds", Help: "Duration in seconds until the API has a status of a pod that it did not have.",
			Buckets: []float64{0.010, 0.050, 0.100, 0.500, 1, 5, 10, 20, 30, 45, 60},
		}),
		orphans: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_orphaned_runtime_pods_total", Help: "Number of pods that the container runtime had of which the agent was not told.",
		}),
		started: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_started_containers_total", Help: "Cumulative number of containers started",
		}, []string{"container_type"}),
		startErrors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_started_containers_errors_total", Help: "Cumulative number of errors when starting containers",
		}, []string{"container_type", "code"}),
		terminated: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_terminated_containers_total", Help: "Cumulative number of containers terminated, by their exit code",
		}, []string{"container_type", "exit_code"}),
		rejections: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_admission_rejections_total", Help: "Pods that the node has not taken on, by reason.",
		}, []string{"reason"}),
		resizes: newResizes(),
	}
	if reg != nil {
		reg.MustRegister(m.seen, m.starts, m.total, m.sli, m.containers, m.pods, m.podErrors, m.orphans, m.started, m.startErrors, m.terminated, census{s})
		reg.MustRegister(m.ownUsers, m.ownUsersErrors, m.synced, m.rejections)
		reg.MustRegister(m.resizes.all()...)
	}
	return m
}

// rejected counts a pod that the node has rejected, if it has.
func (m *metrics) rejected(f *podstep.Failure) {
	if f == nil {
		return
	}
	reason := f.Reason
	if strings.HasPrefix(reason, admit.OutOf) && !slices.Contains(counted, reason) {
		reason = "OutOfExtendedResources"
	}
	m.rejections.WithLabelValues(reason).Inc()
}

// counted are the resources that every node has.
var counted = []string{admit.OutOf + "cpu", admit.OutOf + "memory", admit.OutOf + "ephemeral-storage", admit.OutOf + "pods"}

// triedSandbox counts a sandbox that was made, or could not be.
func (m *metrics) triedSandbox(pod *v1.Pod, err error) {
	tried, failed := []prometheus.Counter{m.pods}, []prometheus.Counter{m.podErrors}
	if cri.HasOwnUsers(pod) {
		tried, failed = append(tried, m.ownUsers), append(failed, m.ownUsersErrors)
	}
	if err == nil {
		failed = nil
	}
	for _, c := range slices.Concat(tried, failed) {
		c.Inc()
	}
}

// triedContainer counts a container that was started, or could not be for a reason.
func (m *metrics) triedContainer(pod *v1.Pod, name, reason string) {
	kind := kindOf(pod, name)
	m.started.WithLabelValues(kind).Inc()
	if reason != "" {
		m.startErrors.WithLabelValues(kind, reason).Inc()
	}
}

// ended counts a container that has ended.
func (m *metrics) ended(pod *v1.Pod, name string, code int32) {
	m.terminated.WithLabelValues(kindOf(pod, name), strconv.Itoa(int(code))).Inc()
}

// kindOf is what sort of container one is of a name.
func kindOf(pod *v1.Pod, name string) string {
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == name {
			return "init_container"
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if pod.Spec.EphemeralContainers[i].Name == name {
			return "ephemeral_container"
		}
	}
	return "container"
}

// reasonOf is why a container could not be started; empty: it could.
func reasonOf(err error) string {
	var start *container.StartError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &start):
		return start.Reason
	}
	return "CreateContainerError"
}

// starting follows the start of a pod that did not run yet when it was first seen; it belongs to the pod's actor.
type starting struct {
	since  time.Time     // when it was first seen
	pulls  int           // of images, under way
	began  time.Time     // when the first of them did
	pulled time.Duration // that pulls have taken
}

// pull notes that the pull of an image begins (1) or ends (-1).
func (s *starting) pull(more int, now time.Time) {
	if s == nil {
		return
	}
	if s.pulls == 0 {
		s.began = now
	}
	if s.pulls += more; s.pulls == 0 {
		s.pulled += now.Sub(s.began)
	}
}

// runs tells how long the pod has taken, once it runs.
func (m *metrics) runs(x *Actor) {
	if x.starting == nil || x.status.Phase == v1.PodPending || x.status.Phase == "" {
		return
	}
	s := x.starting
	x.starting = nil
	if x.status.Phase == v1.PodFailed { // it has not come up, perhaps
		return
	}
	m.starts.Observe(x.now.Sub(s.since).Seconds())
	all := x.now.Sub(x.d.Pod.CreationTimestamp.Time)
	m.total.Observe(all.Seconds())
	for i := range x.status.InitContainerStatuses {
		if t := x.status.InitContainerStatuses[i].State.Terminated; t != nil {
			all -= t.FinishedAt.Sub(t.StartedAt.Time)
		}
	}
	m.sli.Observe(max(all-s.pulled, 0).Seconds())
}

// census counts pods and containers, by asking all actors.
type census struct{ s *Set }

var (
	runningPods  = prometheus.NewDesc("kubelet_running_pods", "Number of pods that have a running pod sandbox", nil, nil)
	containers   = prometheus.NewDesc("kubelet_running_containers", "Number of containers that there are, by their state", []string{"container_state"}, nil)
	desiredPods  = prometheus.NewDesc("kubelet_desired_pods", "The number of pods the kubelet is being instructed to run. static is true if the pod is not from the apiserver.", []string{"static"}, nil)
	activePods   = prometheus.NewDesc("kubelet_active_pods", "The number of pods that have not finished, and count when new pods are admitted. static is true if the pod is not from the apiserver.", []string{"static"}, nil)
	mirrorPods   = prometheus.NewDesc("kubelet_mirror_pods", "The number of mirror pods the kubelet will try to create (one per admitted static pod)", nil, nil)
	volumesThere = prometheus.NewDesc("volume_manager_total_volumes", "Number of volumes of pods, as they are to be and as they are", []string{"plugin_name", "state"}, nil)
	workingPods  = prometheus.NewDesc("kubelet_working_pods", "Number of pods that the agent has to do with, by how far they are, whether they are still wanted, and whether they are static.", []string{"lifecycle", "config", "static"}, nil)
	ephemeralAll = prometheus.NewDesc("kubelet_managed_ephemeral_containers", "Current number of ephemeral containers in pods managed by this kubelet.", nil, nil)
)

func (c census) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{runningPods, containers, desiredPods, activePods, mirrorPods, volumesThere, ephemeralAll, workingPods, pendingResizes, resizesUnderWay} {
		ch <- d
	}
}

// head is what one actor says of its pod.
type head struct {
	sandbox, static, desired, active bool
	lifecycle                        string // in the words of the metric
	ephemeral                        int
	states                           map[string]int // of containers
	volumes                          map[string]int // by plugin
	ready                            bool           // these are there
	pending                          string         // why the pod has not what it asks for, in the words of the metric
	resizing                         bool
}

func (x *Actor) head() head {
	h := head{
		sandbox: len(x.o.Sandboxes) > 0 && x.o.Sandboxes[0].Ready, static: x.o.Mirror != nil, desired: !x.d.Gone,
		ephemeral: len(x.d.Pod.Spec.EphemeralContainers), states: map[string]int{}, volumes: map[string]int{}, ready: x.o.Volumes.Ready && !x.o.CleanedUp,
	}
	switch {
	case x.o.CleanedUp:
		h.lifecycle = "terminated"
	case !x.o.EndingSince.IsZero():
		h.lifecycle = "terminating"
	default:
		h.lifecycle = "sync"
	}
	h.active = h.desired && x.status.Phase != v1.PodFailed && x.status.Phase != v1.PodSucceeded
	for i := range x.status.Conditions {
		switch c := &x.status.Conditions[i]; c.Type {
		case v1.PodResizePending:
			h.pending = resizeConditions[c.Reason]
		case v1.PodResizeInProgress:
			h.resizing = true
		}
	}
	if x.s.Runner.Disk != nil {
		for i := range x.d.Pod.Spec.Volumes {
			h.volumes[x.plugin(&x.d.Pod.Spec.Volumes[i])]++
		}
	}
	for i := range x.o.Containers {
		h.states[stateNames[x.o.Containers[i].State]]++
	}
	return h
}

// plugin is what metrics call the plugin of a volume: of a claim, that of the volume that the pod has got for it.
func (x *Actor) plugin(v *v1.Volume) string {
	if claims.OfVolume(x.d.Pod, v) == "" {
		return volume.Plugin(v)
	}
	disk := x.s.Runner.Disk
	path := disk.Volumes.Path(x.d.Pod, v)
	return cmp.Or(disk.Driven.PluginAt(path), disk.Volumes.PluginAt(x.d.Pod.UID, path), volume.Plugin(v))
}

var stateNames = map[podstep.State]string{podstep.Created: "created", podstep.Running: "running", podstep.Exited: "exited", podstep.Unknown: "unknown"}

func (c census) Collect(ch chan<- prometheus.Metric) {
	var running, ephemeral, resizing int
	pending := map[string]int{}
	states, wanted, there := map[string]int{"running": 0}, map[string]int{}, map[string]int{}
	desired, active := map[string]int{"": 0, "true": 0}, map[string]int{"": 0, "true": 0}
	working := map[[3]string]int{}
	for _, h := range ask(c.s, (*Actor).head) {
		static := ""
		if h.static {
			static = "true"
		}
		config := "orphan"
		if h.desired {
			config = "desired"
		}
		working[[3]string{h.lifecycle, config, static}]++
		if h.sandbox {
			running++
		}
		if h.desired {
			desired[static]++
		}
		if h.active {
			active[static]++
		}
		ephemeral += h.ephemeral
		if h.resizing {
			resizing++
		}
		if h.pending != "" {
			pending[h.pending]++
		}
		for plugin, n := range h.volumes {
			if h.active {
				wanted[plugin] += n
			}
			if h.ready {
				there[plugin] += n
			}
		}
		for state, n := range h.states {
			states[state] += n
		}
	}
	gauge := func(d *prometheus.Desc, n int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	for _, lifecycle := range []string{"sync", "terminating", "terminated"} {
		for _, config := range []string{"desired", "orphan"} {
			for _, static := range []string{"", "true"} {
				gauge(workingPods, working[[3]string{lifecycle, config, static}], lifecycle, config, static)
			}
		}
		gauge(workingPods, 0, lifecycle, "runtime_only", "unknown") // what only the runtime knows has an actor, too
	}
	gauge(runningPods, running)
	gauge(mirrorPods, desired["true"])
	gauge(ephemeralAll, ephemeral)
	gauge(resizesUnderWay, resizing)
	for reason, n := range pending {
		gauge(pendingResizes, n, reason)
	}
	for state, n := range states {
		gauge(containers, n, state)
	}
	for plugin, n := range wanted {
		gauge(volumesThere, n, plugin, "desired_state_of_world")
	}
	for plugin, n := range there {
		gauge(volumesThere, n, plugin, "actual_state_of_world")
	}
	for static, n := range desired {
		gauge(desiredPods, n, static)
		gauge(activePods, active[static], static)
	}
}
