package main

import (
	"context"
	"fmt"
	"os"
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
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/emptypb"
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
			instance, err := ic.GetByID(plugins.InternalPlugin, "shutdown")
			if err != nil {
				return nil, err
			}
			end := instance.(shutdown.Service)
			ctx := canceled(ic.Context)
			t := &tasks{outputs: outputs{held: map[string][]*output{}}, pods: pods{
				of: map[string]*pod{},
				service: func() (taskapi.TTRPCTaskService, error) {
					return runctask.NewTaskService(ctx, publisher.(shim.Publisher), end)
				},
				end: ending(end),
			}}
			if _, err := t.pods.begin(); err != nil {
				return nil, fmt.Errorf("create task service: %w", err)
			}
			// The working directory is the bundle of the pod that this was started for, and goes with it.
			if err := os.Chdir("/"); err != nil {
				return nil, err
			}
			return t, nil
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

// listener is the descriptor of the socket that a shim is started with.
const listener = 3

// ending returns what ends the process. The socket goes first, so that who asks
// for a shim of this group afterwards starts another one; if it is still this one's.
func ending(end shutdown.Service) func() {
	path, own := "", os.FileInfo(nil)
	if address, err := unix.Getsockname(listener); err == nil {
		if address, ok := address.(*unix.SockaddrUnix); ok {
			path = address.Name
			own, _ = os.Stat(path)
		}
	}
	return func() {
		if now, err := os.Stat(path); err == nil && own != nil && os.SameFile(own, now) {
			_ = os.Remove(path)
		}
		end.Shutdown()
	}
}

// tasks is containerd's task service, once for each pod, with two differences for
// containers that end while kemudi is away: their exit code and their last output
// are kept.
type tasks struct {
	pods    pods
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
	service := t.pods.serving(r.ID)
	res, err := service.Pids(ctx, r)
	if err == nil && len(res.Processes) > 0 {
		return res, nil
	}
	state, serr := service.State(ctx, &taskapi.StateRequest{ID: r.ID})
	if serr != nil || state.Status != task.Status_STOPPED || state.Pid == 0 {
		return res, err
	}
	return &taskapi.PidsResponse{Processes: []*task.ProcessInfo{{Pid: state.Pid}}}, nil
}

// outputPatience is how long a reader has to take a container's last output.
const outputPatience = 5 * time.Second

func (t *tasks) Create(ctx context.Context, r *taskapi.CreateTaskRequest) (*taskapi.CreateTaskResponse, error) {
	service, err := t.pods.add(r.ID, r.Bundle)
	if err != nil {
		return nil, err
	}
	res, err := service.Create(ctx, r)
	if err != nil {
		t.pods.remove(r.ID)
		return nil, err
	}
	t.outputs.hold(r.ID, r.Stdout, r.Stderr)
	return res, nil
}

func (t *tasks) State(ctx context.Context, r *taskapi.StateRequest) (*taskapi.StateResponse, error) {
	res, err := t.pods.serving(r.ID).State(ctx, r)
	if err == nil && r.ExecID == "" && res.Status == task.Status_STOPPED {
		t.outputs.offer(r.ID, outputPatience)
	}
	return res, err
}

func (t *tasks) Delete(ctx context.Context, r *taskapi.DeleteRequest) (*taskapi.DeleteResponse, error) {
	res, err := t.pods.serving(r.ID).Delete(ctx, r)
	if err == nil && r.ExecID == "" {
		t.outputs.release(r.ID)
		t.pods.remove(r.ID)
	}
	return res, err
}

// Shutdown is what containerd calls after each container that it deletes.
func (t *tasks) Shutdown(context.Context, *taskapi.ShutdownRequest) (*emptypb.Empty, error) {
	t.pods.endSoon()
	return &emptypb.Empty{}, nil
}

func (t *tasks) Start(ctx context.Context, r *taskapi.StartRequest) (*taskapi.StartResponse, error) {
	return t.pods.serving(r.ID).Start(ctx, r)
}

func (t *tasks) Pause(ctx context.Context, r *taskapi.PauseRequest) (*emptypb.Empty, error) {
	return t.pods.serving(r.ID).Pause(ctx, r)
}

func (t *tasks) Resume(ctx context.Context, r *taskapi.ResumeRequest) (*emptypb.Empty, error) {
	return t.pods.serving(r.ID).Resume(ctx, r)
}

func (t *tasks) Checkpoint(ctx context.Context, r *taskapi.CheckpointTaskRequest) (*emptypb.Empty, error) {
	return t.pods.serving(r.ID).Checkpoint(ctx, r)
}

func (t *tasks) Kill(ctx context.Context, r *taskapi.KillRequest) (*emptypb.Empty, error) {
	return t.pods.serving(r.ID).Kill(ctx, r)
}

func (t *tasks) Exec(ctx context.Context, r *taskapi.ExecProcessRequest) (*emptypb.Empty, error) {
	return t.pods.serving(r.ID).Exec(ctx, r)
}

func (t *tasks) ResizePty(ctx context.Context, r *taskapi.ResizePtyRequest) (*emptypb.Empty, error) {
	return t.pods.serving(r.ID).ResizePty(ctx, r)
}

func (t *tasks) CloseIO(ctx context.Context, r *taskapi.CloseIORequest) (*emptypb.Empty, error) {
	return t.pods.serving(r.ID).CloseIO(ctx, r)
}

func (t *tasks) Update(ctx context.Context, r *taskapi.UpdateTaskRequest) (*emptypb.Empty, error) {
	return t.pods.serving(r.ID).Update(ctx, r)
}

func (t *tasks) Wait(ctx context.Context, r *taskapi.WaitRequest) (*taskapi.WaitResponse, error) {
	return t.pods.serving(r.ID).Wait(ctx, r)
}

func (t *tasks) Stats(ctx context.Context, r *taskapi.StatsRequest) (*taskapi.StatsResponse, error) {
	return t.pods.serving(r.ID).Stats(ctx, r)
}

func (t *tasks) Connect(ctx context.Context, r *taskapi.ConnectRequest) (*taskapi.ConnectResponse, error) {
	return t.pods.serving(r.ID).Connect(ctx, r)
}
