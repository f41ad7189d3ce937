package pod

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/kubelet/cri"
)

// resizes count what becomes of pods that ask for other resources while they run.
type resizes struct {
	asked, infeasible, accepted *prometheus.CounterVec
	took                        *prometheus.HistogramVec // in milliseconds
}

// triggerUpdated: the pod that was to wait for what it had asked for asks for something else.
const triggerUpdated = "pod_updated"

var (
	pendingResizes   = prometheus.NewDesc("kubelet_pod_pending_resizes", "Number of pending resizes for pods.", []string{"reason"}, nil)
	resizesUnderWay  = prometheus.NewDesc("kubelet_pod_in_progress_resizes", "Number of in-progress resizes for pods.", nil, nil)
	resizeConditions = map[string]string{v1.PodReasonDeferred: "deferred", v1.PodReasonInfeasible: "infeasible"}
)

func newResizes() resizes {
	return resizes{
		asked: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_container_requested_resizes_total", Help: "Number of requested resizes, of each container and resource, by whether requests or limits change, and how.",
		}, []string{"resource", "requirement", "operation"}),
		infeasible: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_pod_infeasible_resizes_total", Help: "Number of infeasible resizes for pods.",
		}, []string{"reason_detail"}),
		accepted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_pod_deferred_accepted_resizes_total", Help: "Cumulative number of resizes that were accepted after being deferred.",
		}, []string{"retry_trigger"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_pod_resize_duration_milliseconds", Help: "Duration in milliseconds to actuate a pod resize", Buckets: prometheus.ExponentialBuckets(10, 2, 12),
		}, []string{"success"}),
	}
}

func (r *resizes) all() []prometheus.Collector {
	return []prometheus.Collector{r.asked, r.infeasible, r.accepted, r.took}
}

// requested counts what a pod asks for now that it did not ask for before.
func (r *resizes) requested(before, now *v1.Pod) {
	for _, list := range [][]v1.Container{now.Spec.InitContainers, now.Spec.Containers} {
		for i := range list {
			old := cri.FindContainer(before, list[i].Name)
			if old == nil {
				continue
			}
			for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
				r.change(name, "requests", old.Resources.Requests, list[i].Resources.Requests)
				r.change(name, "limits", old.Resources.Limits, list[i].Resources.Limits)
			}
		}
	}
}

func (r *resizes) change(name v1.ResourceName, requirement string, before, now v1.ResourceList) {
	old, had := before[name]
	q, has := now[name]
	operation := ""
	switch {
	case !had && has:
		operation = "add"
	case had && !has:
		operation = "remove"
	case q.Cmp(old) > 0:
		operation = "increase"
	case q.Cmp(old) < 0:
		operation = "decrease"
	default:
		return
	}
	r.asked.WithLabelValues(string(name), requirement, operation).Inc()
}

// tried counts that a pod was given what it had asked for, or could not be.
func (r *resizes) tried(began time.Time, err error) {
	success := "true"
	if err != nil {
		success = "false"
	}
	r.took.WithLabelValues(success).Observe(float64(time.Since(began)) / float64(time.Millisecond))
}
