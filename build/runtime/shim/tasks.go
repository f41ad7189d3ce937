package main

import (
	"context"
	"fmt"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/api/types/task"
	runctask "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/task"
	"github.com/containerd/containerd/v2/pkg/shim"
	"github.com/containerd/containerd/v2/pkg/shutdown"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"
	"github.com/containerd/ttrpc"
)

// registerTasks registers what the shim serves: containerd's task service.
func registerTasks() {
	registry.Register(&plugin.Registration{
		Type:     plugins.TTRPCPlugin,
		ID:       "task",
		Requires: []plugin.Type{plugins.EventPlugin, plugins.InternalPlugin},
		InitFn: func(ic *plugin.InitContext) (any, error) {
			publisher, err := ic.GetByID(plugins.EventPlugin, "publisher")
			if err != nil {
				return nil, err
			}
			end, err := ic.GetByID(plugins.InternalPlugin, "shutdown")
			if err != nil {
				return nil, err
			}
			s, err := runctask.NewTaskService(canceled(ic.Context), publisher.(shim.Publisher), end.(shutdown.Service))
			if err != nil {
				return nil, fmt.Errorf("create task service: %w", err)
			}
			return &tasks{TTRPCTaskService: s, outputs: outputs{held: map[string][]*output{}}}, nil
		},
	})
}

// canceled returns a context that ends when the shim's does, and as any other
// would. The shim's own ends with an error that containerd's watcher of cgroups v1
// does not know: it would go round, log an error each time, and close what is not
// its own any more, until the process has ended.
func canceled(ctx context.Context) context.Context {
	c, cancel := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, cancel)
	return c
}

// tasks is containerd's task service with two differences, both for containers
// that end while kemudi is away: their exit code and their last output are kept.
type tasks struct {
	taskapi.TTRPCTaskService
	outputs outputs
}

func (t *tasks) RegisterTTRPC(server *ttrpc.Server) error {
	taskapi.RegisterTTRPCTaskService(server, t)
	return nil
}

// Pids lists the processes of a container. One that has ended, but that nobody
// has asked about yet, still has its first process.
//
// containerd asks when it starts and drops containers without a process, as
// left from a failed start. Had the container ended while containerd was away,
// its exit code would be lost: a job that succeeded would count as failed.
func (t *tasks) Pids(ctx context.Context, r *taskapi.PidsRequest) (*taskapi.PidsResponse, error) {
	res, err := t.TTRPCTaskService.Pids(ctx, r)
	if err == nil && len(res.Processes) > 0 {
		return res, nil
	}
	state, serr := t.TTRPCTaskService.State(ctx, &taskapi.StateRequest{ID: r.ID})
	if serr != nil || state.Status != task.Status_STOPPED || state.Pid == 0 {
		return res, err
	}
	return &taskapi.PidsResponse{Processes: []*task.ProcessInfo{{Pid: state.Pid}}}, nil
}

// outputPatience is how long a reader has to take a container's last output.
const outputPatience = 5 * time.Second

func (t *tasks) Create(ctx context.Context, r *taskapi.CreateTaskRequest) (*taskapi.CreateTaskResponse, error) {
	res, err := t.TTRPCTaskService.Create(ctx, r)
	if err == nil {
		t.outputs.hold(r.ID, r.Stdout, r.Stderr)
	}
	return res, err
}

func (t *tasks) State(ctx context.Context, r *taskapi.StateRequest) (*taskapi.StateResponse, error) {
	res, err := t.TTRPCTaskService.State(ctx, r)
	if err == nil && r.ExecID == "" && res.Status == task.Status_STOPPED {
		t.outputs.offer(r.ID, outputPatience)
	}
	return res, err
}

func (t *tasks) Delete(ctx context.Context, r *taskapi.DeleteRequest) (*taskapi.DeleteResponse, error) {
	res, err := t.TTRPCTaskService.Delete(ctx, r)
	if err == nil && r.ExecID == "" {
		t.outputs.release(r.ID)
	}
	return res, err
}
