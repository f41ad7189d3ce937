package server

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/kubelet/csi"
	"github.com/kemudi/kemudi/internal/kubelet/disk"
	"github.com/kemudi/kemudi/internal/kubelet/evict"
	"github.com/kemudi/kemudi/internal/kubelet/machine"
	"github.com/kemudi/kemudi/internal/kubelet/pod"
	"github.com/kemudi/kemudi/internal/kubelet/usage"
)

// measured is what a pod holds on the node's disk. All but done is to be read when that is closed.
type measured struct {
	done chan struct{}
	at   time.Time
	held disk.Held
}

// local is what pods hold on the node's disk: by volumes that the node makes, and beside them. It is as it was when somebody
// asked before, if that is not long ago: files are counted one by one. What cannot be had now is left out.
func (s *Server) local(ctx context.Context) (volumes []usage.Volume, stored map[string]usage.Stored) {
	on := s.o.Pods.Runner.Disk
	if on == nil {
		return nil, nil
	}
	root, err := machine.FileSystemOf(s.o.RootDir)
	if err != nil {
		s.o.Log.Warn("look at what pods hold", "err", err)
		return nil, nil
	}
	stored, known := map[string]usage.Stored{}, map[types.UID]bool{}
	for _, p := range s.o.Cached.ByIndex("spec.nodeName", s.o.NodeName) {
		running := *p
		running.UID = pod.RunningUID(p)
		known[running.UID] = true
		m := s.measure(ctx, on, &running)
		if m == nil {
			break // who asked is gone
		}
		stored[string(running.UID)] = usage.Stored{At: m.at, Disk: &root, Logs: m.held.Logs, Other: m.held.Other}
		for i := range running.Spec.Volumes {
			v := &running.Spec.Volumes[i]
			files, ok := m.held.Volumes[v.Name]
			if !ok {
				continue
			}
			if fs, err := machine.FileSystemOf(on.Volumes.Path(&running, v)); err == nil { // it may have gone
				volumes = append(volumes, usage.Volume{
					Pod: running.UID, Namespace: p.Namespace, Name: v.Name, Local: evict.LocalVolume(v), Held: usage.HeldFiles(&fs, files, m.at),
				})
			}
		}
	}
	if ctx.Err() == nil {
		s.forget(known)
	}
	return volumes, stored
}

// measure counts what a pod holds, unless that has been done not long ago, or another does; nil: ctx has ended.
func (s *Server) measure(ctx context.Context, on *disk.Disk, p *v1.Pod) *measured {
	if ctx.Err() != nil {
		return nil
	}
	s.mu.Lock()
	m := s.mu.held[p.UID]
	mine := m == nil || !m.at.IsZero() && time.Since(m.at) >= csi.MeasureAgain
	if mine {
		m = &measured{done: make(chan struct{})}
		s.mu.held[p.UID] = m
	}
	s.mu.Unlock()
	if mine {
		held := on.Measure(p)
		s.mu.Lock()
		m.held, m.at = held, time.Now()
		s.mu.Unlock()
		close(m.done)
		return m
	}
	select {
	case <-m.done:
		return m
	case <-ctx.Done():
		return nil
	}
}

// forget drops what was measured of other pods.
func (s *Server) forget(known map[types.UID]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid := range s.mu.held {
		if !known[uid] {
			delete(s.mu.held, uid)
		}
	}
}
