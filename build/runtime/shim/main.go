// Command containerd-shim-runc-v2 is the process that stays beside the
// containers of one pod, so that kemudi itself can be restarted under them. It
// is containerd's shim without tracing and profiling, and with two answers of
// our own; keep its imports few: it is started once a pod and its start-up is
// part of every pod's.
package main

import (
	"context"

	bootapi "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/manager"
	"github.com/containerd/containerd/v2/pkg/shim"
	"github.com/containerd/containerd/v2/pkg/sys/reaper"
	"github.com/containerd/go-runc"
)

func main() {
	// Whatever the shim is started for, containerd reaps its children in one place;
	// but only where it serves does it also tell those who wait for runc. Elsewhere
	// they would find their child gone and report that it failed.
	runc.Monitor = reaper.Default
	registerTasks()
	shim.RunShim(context.Background(), starter{manager.NewShimManager("io.containerd.runc.v2")})
}

// starter says at the start which mounts the shim makes itself, which is none.
// Told nothing, containerd would run the shim a second time to ask.
type starter struct{ shim.Shim }

func (s starter) Start(ctx context.Context, params *bootapi.BootstrapParams) (*bootapi.BootstrapResult, error) {
	res, err := s.Shim.Start(ctx, params)
	if err != nil {
		return nil, err
	}
	return res, res.AddExtension(&types.MountCapabilities{})
}
