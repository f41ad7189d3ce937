package usage

import (
	"time"

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
	Local           bool   // it counts as local storage of the pod
	Held            stats.FsStats
}

// Stored is what a pod has on the node's disk beside its volumes.
type Stored struct {
	At    time.Time                // when that was so
	Disk  *machine.FileSystem      // that it is on
	Logs  map[string]machine.Files // by the names of containers
	Other machine.Files
}

// Held is what a volume holds that is as full as its file system.
func Held(fs *machine.FileSystem) stats.FsStats { return *fileSystem(fs, metav1.Now()) }

// HeldFiles is what some of the files of a file system hold.
func HeldFiles(fs *machine.FileSystem, files machine.Files, at time.Time) stats.FsStats {
	out := fileSystem(fs, metav1.NewTime(at))
	out.UsedBytes, out.InodesUsed = number(float64(files.Bytes)), number(float64(files.Inodes))
	return *out
}

// AddStored adds logs to the containers of a summary that has volumes already, and to its pods all local storage: logs,
// writable layers, local volumes and what else there is. stored is by the UIDs of pods.
func AddStored(s *stats.Summary, stored map[string]Stored, volumes []Volume) {
	local := map[string][]stats.FsStats{}
	for i := range volumes {
		if v := &volumes[i]; v.Local {
			local[string(v.Pod)] = append(local[string(v.Pod)], v.Held)
		}
	}
	for i := range s.Pods {
		p := &s.Pods[i]
		of, ok := stored[p.PodRef.UID]
		if !ok {
			continue
		}
		all := HeldFiles(of.Disk, of.Other, of.At)
		sum := func(f *stats.FsStats) {
			all.UsedBytes, all.InodesUsed = add(all.UsedBytes, f.UsedBytes), add(all.InodesUsed, f.InodesUsed)
			if f.Time.After(all.Time.Time) {
				all.Time = f.Time
			}
		}
		for k := range p.Containers {
			c := &p.Containers[k]
			logs := HeldFiles(of.Disk, of.Logs[c.Name], of.At)
			c.Logs = &logs
			sum(c.Logs)
			if c.Rootfs != nil {
				sum(c.Rootfs)
			}
		}
		for k := range local[p.PodRef.UID] {
			sum(&local[p.PodRef.UID][k])
		}
		p.EphemeralStorage = &all
	}
}

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
