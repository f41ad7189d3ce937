package persistentvolume

import (
	"cmp"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core/claims"
	"github.com/kemudi/kemudi/internal/api/core/csi"
	"github.com/kemudi/kemudi/internal/obs"
)

// metrics show what volumes and claims there are, counted when somebody asks, count the claims that
// have got a class after they were made, and say how long provisioners take. All have upstream's names.
type metrics struct {
	binder atomic.Pointer[binder] // once the controller runs

	volumes                    *prometheus.Desc
	boundVolumes, freeVolumes  *prometheus.Desc
	boundClaims, unboundClaims *prometheus.Desc
	classed, couldNotBeClassed prometheus.Counter
	whole                      *prometheus.HistogramVec
}

// operations of provisioners that are measured.
const (
	provisioning = "provision"
	deleting     = "delete"
)

// begun is what a provisioner is to do about a claim, or a volume, and since when.
type begun struct {
	operation, provisioner string
	since                  time.Time
}

var _ prometheus.Collector = (*metrics)(nil)

func newMetrics(reg prometheus.Registerer) *metrics {
	ofClaim := []string{"namespace", "storage_class", "volume_attributes_class"}
	m := &metrics{
		volumes:       prometheus.NewDesc("pv_collector_total_pv_count", "Volumes there are.", []string{"plugin_name", "volume_mode"}, nil),
		boundVolumes:  prometheus.NewDesc("pv_collector_bound_pv_count", "Volumes that a claim has.", []string{"storage_class"}, nil),
		freeVolumes:   prometheus.NewDesc("pv_collector_unbound_pv_count", "Volumes that no claim has.", []string{"storage_class"}, nil),
		boundClaims:   prometheus.NewDesc("pv_collector_bound_pvc_count", "Claims that have a volume.", ofClaim, nil),
		unboundClaims: prometheus.NewDesc("pv_collector_unbound_pvc_count", "Claims that have no volume.", ofClaim, nil),
		classed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "retroactive_storageclass_total", Help: "Claims that got the default class after they were made.",
		}),
		couldNotBeClassed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "retroactive_storageclass_errors_total", Help: "Times that giving a claim the default class afterwards has failed.",
		}),
		whole: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "volume_operation_total_seconds", Help: "Total volume operation time: until a claim has a volume that is made for it, or a volume is gone that its claim has left",
			Buckets: obs.VolumeSeconds(),
		}, []string{"plugin_name", "operation_name"}),
	}
	reg.MustRegister(m, m.classed, m.couldNotBeClassed, m.whole)
	return m
}

// gaveClass notes what has come of giving a claim the default class.
func (m *metrics) gaveClass(err error) {
	if err != nil {
		m.couldNotBeClassed.Inc()
		return
	}
	m.classed.Inc()
}

// begin notes that a provisioner is to do something about the claim or volume of a key, unless it is about to.
func (b *binder) begin(key, operation, provisioner string) {
	if b.begun[key].operation != operation {
		b.begun[key] = begun{operation, cmp.Or(provisioner, "N/A"), time.Now()}
	}
}

// ended measures what was to be done, if it was this.
func (b *binder) ended(key, operation string) {
	if o := b.begun[key]; o.operation == operation {
		b.metrics.whole.WithLabelValues(o.provisioner, operation).Observe(time.Since(o.since).Seconds())
	}
	delete(b.begun, key)
}

// Describe is part of prometheus.Collector.
func (m *metrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.volumes, m.boundVolumes, m.freeVolumes, m.boundClaims, m.unboundClaims} {
		out <- d
	}
}

// tally counts by labels.
type tally map[[3]string]int

func (t tally) show(out chan<- prometheus.Metric, d *prometheus.Desc, labels int) {
	for l, n := range t {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), l[:labels]...)
	}
}

// Collect is part of prometheus.Collector.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	b := m.binder.Load()
	if b == nil {
		return
	}
	all, bound, free := tally{}, tally{}, tally{}
	for _, v := range b.volumes.List("", nil) {
		all[[3]string{plugin(v), string(ptr.Deref(v.Spec.VolumeMode, corev1.PersistentVolumeFilesystem))}]++
		of := [3]string{claims.VolumeClass(v)}
		if v.Status.Phase == corev1.VolumeBound {
			bound[of]++
		} else {
			free[of]++
		}
	}
	all.show(out, m.volumes, 2)
	bound.show(out, m.boundVolumes, 1)
	free.show(out, m.freeVolumes, 1)
	bound, free = tally{}, tally{}
	for _, c := range b.claims.List(metav1.NamespaceAll, nil) {
		of := [3]string{c.Namespace, claims.Class(c), ptr.Deref(c.Spec.VolumeAttributesClassName, "")}
		if c.Status.Phase == corev1.ClaimBound {
			bound[of]++
		} else {
			free[of]++
		}
	}
	bound.show(out, m.boundClaims, 3)
	free.show(out, m.unboundClaims, 3)
}

// plugin is upstream's name of what a volume is served by.
func plugin(v *corev1.PersistentVolume) string {
	s := &v.Spec
	switch {
	case s.CSI != nil:
		return "kubernetes.io/csi:" + s.CSI.Driver
	case s.HostPath != nil:
		return "kubernetes.io/host-path"
	case s.Local != nil:
		return "kubernetes.io/local-volume"
	case s.NFS != nil:
		return "kubernetes.io/nfs"
	case s.ISCSI != nil:
		return "kubernetes.io/iscsi"
	case s.FC != nil:
		return "kubernetes.io/fc"
	}
	return cmp.Or(csi.Plugin(v), "N/A")
}
