package csi

import (
	"context"
	"path/filepath"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/apimachinery/pkg/types"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// MeasureAgain is how long counts what a driver has said of a volume, or that it could not.
const MeasureAgain = time.Minute

const (
	measureDeadline = 10 * time.Second // that it has to say
	patience        = time.Second      // of who looks, for drivers that were in time when they were asked last
	longAgo         = 5 * time.Minute  // what was said then is not shown any more
)

// Published is a volume as a pod has it.
type Published struct {
	Pod  types.UID
	Path string
}

// held is what is known of what a volume holds. All but of is guarded by the lock of Volumes.
type held struct {
	of    Published
	stats *stats.FsStats // nil: the driver does not say, or could not, or has not been asked yet
	at    time.Time      // when it was asked last, and was done
	asked chan struct{}  // closed when it is done; nil: it is not asked
	late  bool           // it was not done in time: nobody waits for it the next time
}

// Held is what volumes hold, by their paths, as it was not long ago; those are left out whose drivers do not say. All drivers
// are asked together and beside: none of them holds up who looks for longer than a moment, nor more than once in a row.
func (s *Volumes) Held(ctx context.Context, of []Published) map[string]stats.FsStats {
	waiting := s.ask(of)
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, h := range waiting {
		select {
		case <-h.asked:
		case <-limited.Done():
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range waiting {
		if h := w.held; h.asked == w.asked && ctx.Err() == nil {
			h.late = true
		}
	}
	out := map[string]stats.FsStats{}
	for _, v := range of {
		if h := s.mu.held[v.Path]; h != nil && h.stats != nil && time.Since(h.at) < longAgo {
			out[v.Path] = *h.stats
		}
	}
	return out
}

// asking is a driver that is asked what a volume holds.
type asking struct {
	held  *held
	asked chan struct{}
}

// ask begins to ask the drivers of the volumes for which there is no measurement, or an old one, and returns the
// questions to wait for.
func (s *Volumes) ask(of []Published) (waiting []asking) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, v := range of {
		if _, ok := s.mu.published[v.Path]; !ok { // nor is there anything to measure
			continue
		}
		h := s.mu.held[v.Path]
		if h == nil {
			h = &held{of: v}
			s.mu.held[v.Path] = h
		}
		if h.asked == nil && now.Sub(h.at) > MeasureAgain {
			h.asked = make(chan struct{})
			s.mu.asked = append(s.mu.asked, h)
		}
		if h.asked != nil && !h.late {
			waiting = append(waiting, asking{h, h.asked})
		}
	}
	if len(s.mu.asked) > 0 {
		s.poke()
	}
	return waiting
}

// takeAsked are those that somebody wants to know of and that nobody measures yet.
func (s *Volumes) takeAsked() []*held {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := s.mu.asked
	s.mu.asked = nil
	return asked
}

// weigh asks the driver what a volume holds, and notes it. That it could not say counts as well: it is not asked
// again and again.
func (s *Volumes) weigh(ctx context.Context, h *held) {
	var found *stats.FsStats
	began := time.Now()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		h.stats, h.at, h.late = found, time.Now(), time.Since(began) > patience
		close(h.asked)
		h.asked = nil
	}()
	var err error
	if found, err = s.measure(ctx, h.of.Pod, h.of.Path); err != nil {
		s.o.Log.DebugContext(ctx, "ask what a volume holds", "path", h.of.Path, "err", err)
	}
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
