package fakecri

import (
	"context"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// What every running container uses.
const (
	statsCPU    = 1_500_000_000 // nanoseconds of a core since its start
	statsMemory = 4 << 20
)

// ListContainerStats says that every running container has used 1.5 s of a core
// and has a working set of 4 MiB.
func (r *Runtime) ListContainerStats(context.Context, *runtimeapi.ListContainerStatsRequest, ...grpc.CallOption) (*runtimeapi.ListContainerStatsResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := &runtimeapi.ListContainerStatsResponse{}
	now := time.Now().UnixNano()
	for _, id := range slices.Sorted(maps.Keys(r.mu.containers)) {
		c := r.mu.containers[id]
		if c.state != runtimeapi.ContainerState_CONTAINER_RUNNING {
			continue
		}
		out.Stats = append(out.Stats, &runtimeapi.ContainerStats{
			Attributes: &runtimeapi.ContainerAttributes{Id: c.id, Metadata: c.config.Metadata, Labels: c.config.Labels},
			Cpu:        &runtimeapi.CpuUsage{Timestamp: now, UsageCoreNanoSeconds: &runtimeapi.UInt64Value{Value: statsCPU}},
			Memory:     &runtimeapi.MemoryUsage{Timestamp: now, WorkingSetBytes: &runtimeapi.UInt64Value{Value: statsMemory}},
		})
	}
	return out, nil
}
