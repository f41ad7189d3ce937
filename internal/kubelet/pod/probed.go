package pod

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kemudi/kemudi/internal/kubelet/probe"
)

// probed is what has come of the probes of one kind of a container of the pod, its restarts included. It belongs to the
// pod's actor.
type probed struct {
	results map[string]uint64 // by what they are called
	within  []uint64          // how many took so long at most, by probeBuckets; not summed up
	took    float64           // seconds, all together
}

// probeKey is a kind of probes of a container.
type probeKey struct {
	container string
	kind      probe.Kind
}

var probeBuckets = prometheus.DefBuckets

// resultNames are upstream's.
var resultNames = map[probe.Result]string{probe.Success: "successful", probe.Warning: "successful", probe.Failure: "failed", probe.Unknown: "unknown"}

// countProbe counts a probe.
func (x *Actor) countProbe(key probeKey, r probe.Result, took time.Duration) {
	p := x.probed[key]
	if p == nil {
		p = &probed{results: map[string]uint64{}, within: make([]uint64, len(probeBuckets))}
		if x.probed == nil {
			x.probed = map[probeKey]*probed{}
		}
		x.probed[key] = p
	}
	p.results[resultNames[r]]++
	p.took += took.Seconds()
	for i, most := range probeBuckets {
		if took.Seconds() <= most {
			p.within[i]++
			break
		}
	}
}

// Probed collects what has come of the probes of all pods that there are.
type Probed struct{ Set *Set }

var (
	probeTotal = prometheus.NewDesc("prober_probe_total", "Cumulative number of a liveness, readiness or startup probe for a container by result.",
		[]string{"probe_type", "result", "container", "pod", "namespace", "pod_uid"}, nil)
	probeDuration = prometheus.NewDesc("prober_probe_duration_seconds", "Duration in seconds for a probe response.",
		[]string{"probe_type", "container", "pod", "namespace"}, nil)
)

// Describe tells the registry what there is.
func (p Probed) Describe(ch chan<- *prometheus.Desc) {
	ch <- probeTotal
	ch <- probeDuration
}

// Collect tells the registry the values.
func (p Probed) Collect(ch chan<- prometheus.Metric) {
	for _, metrics := range ask(p.Set, (*Actor).tellProbes) {
		for _, m := range metrics {
			ch <- m
		}
	}
}

func (x *Actor) tellProbes() (out []prometheus.Metric) {
	pod := x.d.Pod
	for key, p := range x.probed {
		var all uint64
		for result, n := range p.results {
			all += n
			out = append(out, prometheus.MustNewConstMetric(probeTotal, prometheus.CounterValue, float64(n), string(key.kind), result, key.container, pod.Name, pod.Namespace, string(x.uid)))
		}
		sums, sum := map[float64]uint64{}, uint64(0)
		for i, most := range probeBuckets {
			sum += p.within[i]
			sums[most] = sum
		}
		if !x.d.Gone { // else another pod may have the name already
			out = append(out, prometheus.MustNewConstHistogram(probeDuration, all, p.took, sums, string(key.kind), key.container, pod.Name, pod.Namespace))
		}
	}
	return out
}
