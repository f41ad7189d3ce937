// Command containerd-shim-runc-v2 is the process that stays beside the
// containers of some pods, so that kemudi itself can be restarted under them. It
// is containerd's shim without tracing and profiling, which looks after several
// pods apart from each other, and with two answers of our own; keep its imports
// few: it is started once a pod, if only to hand on to the one that is there, and
// its start-up is part of every pod's.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

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

// Start begins a shim for the container whose bundle is the working directory, or
// finds the one of its group. A shim is named after its group, not after the
// container that it happened to be started for and may outlive.
func (s starter) Start(ctx context.Context, params *bootapi.BootstrapParams) (*bootapi.BootstrapResult, error) {
	group, err := groupOf("config.json")
	if err != nil {
		return nil, err
	}
	if group != "" {
		params.InstanceID = group
	}
	res, err := s.Shim.Start(ctx, params)
	if err != nil {
		return nil, err
	}
	return res, res.AddExtension(&types.MountCapabilities{})
}

// groupOf is the group that the specification of a container names, or "".
func groupOf(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	var spec struct {
		Annotations struct {
			Group string `json:"io.containerd.runc.v2.group"`
		} `json:"annotations"`
	}
	if err := json.Unmarshal(data, &spec); err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return spec.Annotations.Group, nil
}
