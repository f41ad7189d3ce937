package container

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/plugins"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// sweep ends what an earlier process was starting when it was killed and what
// containerd, which has just looked for its containers, does not know: shims
// without a bundle, runc's state of their containers, sockets without a shim.
// It runs before anything new can be started. What it cannot remove it logs.
func sweep(ctx context.Context, o Options) {
	known := names(filepath.Join(o.stateDir(), string(plugins.RuntimePluginV2)+".task", Namespace))
	found := false
	for _, id := range names(filepath.Join(o.runcRoot(), Namespace)) {
		if slices.Contains(known, id) {
			continue
		}
		found = true
		if err := deleteContainer(ctx, o, id); err != nil {
			o.Logger.Error("cannot remove a container that was left over", "container", id, "err", err)
			continue
		}
		o.Logger.Warn("removed a container that was left over", "container", id)
	}
	// A shim that is just being started may turn up after it was looked for.
	for again := true; again; {
		again = false
		for _, pid := range processes() {
			id, ours := shimOf(o, pid)
			if !ours || slices.Contains(known, id) {
				continue
			}
			found = true
			if err := kill(ctx, pid); err != nil {
				o.Logger.Error("cannot end a shim that was left over", "container", id, "pid", pid, "err", err)
				continue
			}
			again = true
			o.Logger.Warn("ended a shim that was left over", "container", id, "pid", pid)
		}
	}
	if found {
		removeDeadSockets(o.shimSockets())
	}
}

// sweepNetworks removes the network namespaces that no sandbox has: the
// earlier process was killed after it made one and before it noted whose it is.
func sweepNetworks(ctx context.Context, o Options, cri *CRI) error {
	dir := o.NetNSDir()
	found := names(dir)
	if len(found) == 0 {
		return nil
	}
	list, err := cri.Runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return fmt.Errorf("look for network namespaces that were left over: %w", err)
	}
	used := map[string]bool{}
	for _, sb := range list.Items {
		res, err := cri.Runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: sb.Id, Verbose: true})
		if err != nil {
			return fmt.Errorf("look for network namespaces that were left over: %w", err)
		}
		for _, name := range found {
			used[name] = used[name] || strings.Contains(res.Info["info"], filepath.Join(dir, name))
		}
	}
	for _, name := range found {
		if used[name] {
			continue
		}
		path := filepath.Join(dir, name)
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			o.Logger.Error("cannot remove a network namespace that was left over", "path", path, "err", err)
			continue
		}
		if err := os.Remove(path); err != nil {
			o.Logger.Error("cannot remove a network namespace that was left over", "path", path, "err", err)
			continue
		}
		o.Logger.Warn("removed a network namespace that was left over", "path", path)
	}
	return nil
}

// deleteContainer has runc kill and forget a container.
func deleteContainer(ctx context.Context, o Options, id string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(o.binDir(), "runc"), "--root", filepath.Join(o.runcRoot(), Namespace), "delete", "--force", id)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// shimOf reports whether a process is one of our shims, and for which
// container it was started.
func shimOf(o Options, pid int) (id string, ours bool) {
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil || strings.TrimSuffix(exe, " (deleted)") != filepath.Join(o.binDir(), "containerd-shim-runc-v2") {
		return "", false
	}
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return "", false
	}
	args := strings.Split(string(cmdline), "\x00")
	if i := slices.Index(args, "-id"); i >= 0 && i+1 < len(args) {
		return args[i+1], true
	}
	return "", false // asked for its version or features
}

// removeDeadSockets removes the sockets that nobody listens on.
func removeDeadSockets(dir string) {
	for _, name := range names(dir) {
		path := filepath.Join(dir, name)
		c, err := net.DialTimeout("unix", path, time.Second)
		if err == nil {
			c.Close()
			continue
		}
		if errors.Is(err, os.ErrPermission) {
			continue
		}
		os.Remove(path)
	}
}
