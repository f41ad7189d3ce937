package dra

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	healthpb "k8s.io/kubelet/pkg/apis/dra-health/v1"
	healthalpha "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"

	"github.com/kemudi/kemudi/internal/task"
)

// How long what a driver has said of a device is believed, unless it says, and how long it is left alone
// after the connection by which it tells has ended.
const (
	healthBelieved = 30 * time.Second
	healthPause    = 5 * time.Second
)

// place is a device among those of a driver.
type place struct{ pool, device string }

// health is what a driver has said of a device.
type health struct {
	status  v1.ResourceHealthStatus
	message string
	until   time.Time // it is believed
}

// healthClient returns how a driver with these services tells of the health of its devices; nil: it does not.
func healthClient(conn *grpc.ClientConn, has []string) healthpb.DRAResourceHealthClient {
	switch {
	case slices.Contains(has, healthpb.DRAResourceHealthService):
		return healthpb.NewDRAResourceHealthClient(conn)
	case slices.Contains(has, healthalpha.DRAResourceHealthService):
		return healthpb.V1Alpha1ClientWrapper{Client: healthalpha.NewDRAResourceHealthClient(conn)}
	}
	return nil
}

// watchHealth takes in how the devices of a driver are for as long as it is there.
func (m *Manager) watchHealth(d *driver) error {
	for d.ended.Err() == nil {
		err := m.followHealth(d)
		m.noteHealth(d.name, func(now map[place]health) { clear(now) })
		if status.Code(err) == codes.Unimplemented {
			return nil
		}
		if task.Sleep(d.ended, healthPause) != nil {
			break
		}
	}
	return nil
}

// followHealth takes in one stream of reports.
func (m *Manager) followHealth(d *driver) error {
	ctx, cancel := context.WithCancel(d.ended)
	defer cancel()
	stream, err := d.health.NodeWatchResources(ctx, &healthpb.NodeWatchResourcesRequest{})
	if err != nil {
		return err
	}
	reports := make(chan []*healthpb.DeviceHealth)
	var broken error // set before reports is closed
	var reader sync.WaitGroup
	defer reader.Wait()
	defer cancel()
	reader.Go(func() {
		defer close(reports)
		for {
			resp, err := stream.Recv()
			if err != nil {
				broken = err
				return
			}
			select {
			case reports <- resp.Devices:
			case <-ctx.Done():
				return
			}
		}
	})
	stale := time.NewTimer(time.Hour)
	defer stale.Stop()
	for {
		select {
		case list, ok := <-reports:
			if !ok {
				return broken
			}
			m.noteHealth(d.name, func(now map[place]health) { report(now, list) })
		case <-stale.C:
			m.noteHealth(d.name, func(map[place]health) {})
		}
		stale.Reset(m.staleIn(d.name))
	}
}

// report puts what a driver says into what it has said.
func report(now map[place]health, list []*healthpb.DeviceHealth) {
	for _, r := range list {
		h := health{v1.ResourceHealthStatusUnknown, r.GetMessage(), time.Now().Add(healthBelieved)}
		if seconds := r.GetHealthCheckTimeoutSeconds(); seconds > 0 {
			h.until = time.Now().Add(time.Duration(min(seconds, 1<<31)) * time.Second)
		}
		if len(h.message) > v1.ResourceHealthMessageMaxLength {
			h.message = h.message[:v1.ResourceHealthMessageMaxLength-3] + "..."
		}
		switch r.GetHealth() {
		case healthpb.HealthStatus_HEALTHY:
			h.status = v1.ResourceHealthStatusHealthy
		case healthpb.HealthStatus_UNHEALTHY:
			h.status = v1.ResourceHealthStatusUnhealthy
		}
		now[place{r.GetDevice().GetPoolName(), r.GetDevice().GetDeviceName()}] = h
	}
}

// noteHealth changes what is known of a driver's devices, drops what is believed no longer, and tells the
// pods that use a device of which something else is known then.
func (m *Manager) noteHealth(driver string, change func(map[place]health)) {
	m.mu.Lock()
	before := m.mu.health[driver]
	now := maps.Clone(before)
	if now == nil {
		now = map[place]health{}
	}
	change(now)
	maps.DeleteFunc(now, func(_ place, h health) bool { return time.Now().After(h.until) })
	m.mu.health[driver] = now
	if len(now) == 0 {
		delete(m.mu.health, driver)
	}
	differs := func(d device) bool {
		at := place{d.PoolName, d.DeviceName}
		return before[at].status != now[at].status || before[at].message != now[at].message
	}
	pods := map[types.UID]bool{}
	for _, c := range m.mu.claims {
		if s := c.DriverState[driver]; s != nil && slices.ContainsFunc(s.Devices, differs) {
			for uid := range c.PodUIDs {
				pods[uid] = true
			}
		}
	}
	m.mu.Unlock()
	if len(pods) > 0 {
		m.o.Pods(slices.Sorted(maps.Keys(pods)))
	}
}

// staleIn is when the first of what a driver has said is believed no longer.
func (m *Manager) staleIn(driver string) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	wait := time.Hour
	for _, h := range m.mu.health[driver] {
		wait = min(wait, time.Until(h.until))
	}
	return max(wait, 0) + time.Millisecond
}

// healthLocked is how a device is.
func (m *Manager) healthLocked(driver string, d *device) v1.ResourceHealth {
	out := v1.ResourceHealth{ResourceID: v1.ResourceID(driver + "/" + d.PoolName + "/" + d.DeviceName), Health: v1.ResourceHealthStatusUnknown}
	if len(d.CDIDeviceIDs) > 0 {
		out.ResourceID = v1.ResourceID(d.CDIDeviceIDs[0])
	}
	if h, ok := m.mu.health[driver][place{d.PoolName, d.DeviceName}]; ok && time.Now().Before(h.until) {
		out.Health = h.status
		if h.message != "" {
			out.Message = &h.message
		}
	}
	return out
}
