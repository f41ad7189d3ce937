package usage

import (
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kemudi/kemudi/internal/kubelet/machine"
)

// Volume is what a volume of a pod holds.
type Volume struct {
	Pod             types.UID
	Namespace, Name string
	Claim           string // empty: it stands in the pod
	Held            stats.FsStats
}

// Held is what a volume holds that is as full as its file system.
func Held(fs *machine.FileSystem) stats.FsStats { return *fileSystem(fs, metav1.Now()) }

// AddVolumes adds what volumes hold to the pods of a summary.
func AddVolumes(s *stats.Summary, volumes []Volume) {
	pods := map[string]*stats.PodStats{}
	for i := range s.Pods {
		pods[s.Pods[i].PodRef.UID] = &s.Pods[i]
	}
	for _, v := range volumes {
		p := pods[string(v.Pod)]
		if p == nil {
			continue
		}
		one := stats.VolumeStats{FsStats: v.Held, Name: v.Name}
		if v.Claim != "" {
			one.PVCRef = &stats.PVCReference{Name: v.Claim, Namespace: v.Namespace}
		}
		p.VolumeStats = append(p.VolumeStats, one)
	}
}

// Volumes is one look at what the volumes of claims hold, to be collected.
type Volumes []Volume

var _ prometheus.Collector = Volumes(nil)

var (
	ofClaim = []string{"namespace", "persistentvolumeclaim"}

	volumeCapacity   = prometheus.NewDesc("kubelet_volume_stats_capacity_bytes", "Capacity in bytes of the volume", ofClaim, nil)
	volumeAvailable  = prometheus.NewDesc("kubelet_volume_stats_available_bytes", "Number of available bytes in the volume", ofClaim, nil)
	volumeUsed       = prometheus.NewDesc("kubelet_volume_stats_used_bytes", "Number of used bytes in the volume", ofClaim, nil)
	volumeInodes     = prometheus.NewDesc("kubelet_volume_stats_inodes", "Maximum number of inodes in the volume", ofClaim, nil)
	volumeInodesFree = prometheus.NewDesc("kubelet_volume_stats_inodes_free", "Number of free inodes in the volume", ofClaim, nil)
	volumeInodesUsed = prometheus.NewDesc("kubelet_volume_stats_inodes_used", "Number of used inodes in the volume", ofClaim, nil)
)

// Describe tells the registry what there is.
func (v Volumes) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{volumeCapacity, volumeAvailable, volumeUsed, volumeInodes, volumeInodesFree, volumeInodesUsed} {
		ch <- d
	}
}

// Collect tells the registry the values, those of a claim that several pods use once.
func (v Volumes) Collect(ch chan<- prometheus.Metric) {
	type claim struct{ namespace, name string }
	told := map[claim]bool{}
	for i := range v {
		one := &v[i]
		c := claim{one.Namespace, one.Claim}
		if one.Claim == "" || told[c] {
			continue
		}
		told[c] = true
		for d, value := range map[*prometheus.Desc]*uint64{
			volumeCapacity: one.Held.CapacityBytes, volumeAvailable: one.Held.AvailableBytes, volumeUsed: one.Held.UsedBytes,
			volumeInodes: one.Held.Inodes, volumeInodesFree: one.Held.InodesFree, volumeInodesUsed: one.Held.InodesUsed,
		} {
			if value != nil {
				ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(*value), c.namespace, c.name)
			}
		}
	}
}
