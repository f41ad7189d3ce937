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
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	bootapi "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/manager"
	"github.com/containerd/containerd/v2/pkg/shim"
	"github.com/containerd/containerd/v2/pkg/sys/reaper"
	"github.com/containerd/go-runc"
	"golang.org/x/sys/unix"
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
		release, err := alone(params.GetSocketDir())
		if err != nil {
			return nil, err
		}
		defer release()
	}
	res, err := running(ctx, params)
	if err == nil && res == nil {
		res, err = s.Shim.Start(ctx, params)
	}
	if err != nil {
		return nil, err
	}
	return res, res.AddExtension(&types.MountCapabilities{})
}

// alone waits until no other shim is being started: a socket that is bound but does
// not listen yet looks like a dead shim's.
func alone(dir string) (release func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return func() { f.Close() }, nil
}

// answering is how long a shim that is there may take to be connected to.
const answering = 10 * time.Second

// running finds the shim of that name; nil: there is none. containerd takes one for
// dead that it cannot connect to within 100 ms, as can be on a machine with much to
// do. Its pods would be without a socket then.
func running(ctx context.Context, params *bootapi.BootstrapParams) (*bootapi.BootstrapResult, error) {
	address, err := shim.CreateSocketAddress(ctx, params.GetSocketDir(), params.GetContainerdGrpcAddress(), params.GetInstanceID(), false)
	if err != nil {
		return nil, err
	}
	conn, err := net.DialTimeout("unix", strings.TrimPrefix(address, "unix://"), answering)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ECONNREFUSED):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("connect to the shim of the group: %w", err)
	}
	conn.Close()
	return &bootapi.BootstrapResult{Version: 3, Protocol: "ttrpc", Address: address}, nil
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
