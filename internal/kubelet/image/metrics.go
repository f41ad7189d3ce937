package image

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics have upstream's names. Nil metrics are not counted.
type metrics struct {
	collected *prometheus.CounterVec
	took      *prometheus.HistogramVec
}

// Measured has what becomes of images counted in reg, and returns the puller. It is called before it is used.
func (p *Puller) Measured(reg prometheus.Registerer) *Puller {
	p.metrics = &metrics{
		collected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_image_garbage_collected_total", Help: "Unused images that were deleted, for want of space or for their age.",
		}, []string{"reason"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_image_pull_duration_seconds", Help: "Duration in seconds to pull an image, by its size.",
			Buckets: []float64{1, 5, 10, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600},
		}, []string{"image_size_in_bytes"}),
	}
	reg.MustRegister(p.metrics.collected, p.metrics.took)
	return p
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

// sizes are the classes of sizes of images, each up to so many megabytes.
var sizes = []struct {
	below uint64
	name  string
}{
	{10, "0-10MB"}, {100, "10MB-100MB"}, {500, "100MB-500MB"}, {1000, "500MB-1GB"}, {5000, "1GB-5GB"}, {10_000, "5GB-10GB"},
	{20_000, "10GB-20GB"}, {30_000, "20GB-30GB"}, {40_000, "30GB-40GB"}, {60_000, "40GB-60GB"}, {100_000, "60GB-100GB"},
}

func sizeClass(size uint64) string {
	for _, s := range sizes {
		if size < s.below*1_000_000 {
			return s.name
		}
	}
	return "GT100GB"
}
