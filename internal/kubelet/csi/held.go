package csi

import (
	"context"
	"path/filepath"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/apimachinery/pkg/types"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// measureAgain is how old what is known of what a volume holds may be, measureDeadline how long a driver has to say.
const (
	measureAgain    = time.Minute
	measureDeadline = 10 * time.Second
)

// held is what a volume has been found to hold; nil: its driver does not say.
type held struct {
	stats *stats.FsStats
	at    time.Time
}

// Held is what a volume holds that is published to a pod at a path, not long ago; ok is false if its driver does not say.
func (s *Volumes) Held(ctx context.Context, uid types.UID, path string) (_ stats.FsStats, ok bool, err error) {
	s.mu.Lock()
	h, known := s.mu.held[path]
	s.mu.Unlock()
	if !known || time.Since(h.at) > measureAgain {
		if h.stats, err = s.measure(ctx, uid, path); err != nil {
			return stats.FsStats{}, false, err
		}
		h.at = time.Now()
		s.mu.Lock()
		if _, published := s.mu.published[path]; published { // it has not gone meanwhile
			s.mu.held[path] = h
		}
		s.mu.Unlock()
	}
	if h.stats == nil {
		return stats.FsStats{}, false, nil
	}
	return *h.stats, true, nil
}

// measure asks the driver.
func (s *Volumes) measure(ctx context.Context, uid types.UID, path string) (*stats.FsStats, error) {
	ctx, cancel := context.WithTimeout(ctx, measureDeadline)
	defer cancel()
	at := filepath.Dir(path)
	if filepath.Base(path) == string(uid) { // a device
		at = s.at.deviceLink(uid, filepath.Base(at))
	}
	r, err := s.recordOf(at)
	if err != nil {
		return nil, err
	}
	c, err := s.o.Drivers.find(r.Driver)
	if err != nil {
		return nil, err
	}
	can, err := c.abilities(ctx)
	if err != nil || !can.stats() {
		return nil, err
	}
	in := &csipb.NodeGetVolumeStatsRequest{VolumeId: r.Handle, VolumePath: s.at.told(path)}
	if dir := s.dirOf(at, r); can.stage() && dir != at {
		in.StagingTargetPath = s.at.told(s.at.staging(dir))
	}
	resp, err := call(ctx, c, csipb.NodeClient.NodeGetVolumeStats, in)
	if err != nil {
		return nil, err
	}
	out := &stats.FsStats{}
	out.Time.Time = time.Now()
	for _, u := range resp.Usage {
		switch u.Unit {
		case csipb.VolumeUsage_BYTES:
			out.CapacityBytes, out.UsedBytes, out.AvailableBytes = size(u.Total), size(u.Used), size(u.Available)
		case csipb.VolumeUsage_INODES:
			out.Inodes, out.InodesUsed, out.InodesFree = size(u.Total), size(u.Used), size(u.Available)
		}
	}
	return out, nil
}

// size is a number that a driver has said, which is never negative.
func size(n int64) *uint64 {
	u := uint64(max(n, 0))
	return &u
}
