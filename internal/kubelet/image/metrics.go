package image

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
)

// metrics have upstream's names. Nil metrics are not counted.
type metrics struct {
	collected, ensured, checked *prometheus.CounterVec

	took *prometheus.HistogramVec
}

// Measured has what becomes of images counted in reg, and returns the puller. It is called before it is used.
func (p *Puller) Measured(reg prometheus.Registerer) *Puller {
	p.metrics = &metrics{
		collected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_image_garbage_collected_total", Help: "Unused images that were deleted, for want of space or for their age.",
		}, []string{"reason"}),
		ensured: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_image_manager_ensure_image_requests_total", Help: "Containers whose image was to be there, by whether it was and had to be pulled.",
		}, []string{"pull_policy", "present_locally", "pull_required"}),
		checked: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_imagemanager_image_mustpull_checks_total", Help: "Images that were there, by why their pod could have them without a pull, or could not.",
		}, []string{"result"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_image_pull_duration_seconds", Help: "Duration in seconds to pull an image, by its size.",
			Buckets: []float64{1, 5, 10, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600},
		}, []string{"image_size_in_bytes"}),
	}
	reg.MustRegister(p.metrics.collected, p.metrics.ensured, p.metrics.checked, p.metrics.took)
	if p.records != nil {
		reg.MustRegister(
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "kubelet_imagemanager_ondisk_pullintents", Help: "Records of images that are being pulled.",
			}, func() float64 { return p.records.count("pulling") }),
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "kubelet_imagemanager_ondisk_pulledrecords", Help: "Records of images that were pulled.",
			}, func() float64 { return p.records.count("pulled") }),
		)
	}
	return p
}

// asked counts a container whose image was to be there.
func (m *metrics) asked(policy v1.PullPolicy, f finding) {
	if m != nil {
		m.ensured.WithLabelValues(strings.ToLower(string(policy)), f.present, f.pull).Inc()
	}
}

// What is found out when a pod wants an image that is there.
const (
	freeForAll = "credentialPolicyAllowed"
	provedToBe = "credentialRecordFound"
	mustProve  = "mustAuthenticate"
	unreadable = "error"
)

// mayUse counts what was found out.
func (m *metrics) mayUse(result string) {
	if m != nil {
		m.checked.WithLabelValues(result).Inc()
	}
}

// Why an image is removed.
const (
	forAge   = "age"
	forSpace = "space"
)

func (m *metrics) removed(why string) {
	if m != nil {
		m.collected.WithLabelValues(why).Inc()
	}
}

func (m *metrics) pulled(began time.Time, size uint64) {
	if m != nil {
		m.took.WithLabelValues(sizeClass(size)).Observe(time.Since(began).Seconds())
	}
}

// sizes are the classes of sizes of images, each up to so many mebibytes.
var sizes = []struct {
	most uint64
	name string
}{
	{10, "0-10MB"}, {100, "10MB-100MB"}, {500, "100MB-500MB"}, {1 << 10, "500MB-1GB"}, {5 << 10, "1GB-5GB"}, {10 << 10, "5GB-10GB"},
	{20 << 10, "10GB-20GB"}, {30 << 10, "20GB-30GB"}, {40 << 10, "30GB-40GB"}, {60 << 10, "40GB-60GB"}, {100 << 10, "60GB-100GB"},
}

func sizeClass(size uint64) string {
	if size == 0 { // the runtime does not say
		return "N/A"
	}
	for _, s := range sizes {
		if size <= s.most<<20 {
			return s.name
		}
	}
	return "GT100GB"
}
