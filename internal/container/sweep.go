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

	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containernetworking/cni/libcni"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// keepHome makes the libraries use our directories for temporary files, not those that all
// programs share. It removes what a process that was killed has left there, above all the
// mounts through which it unpacked an image.
func keepHome(o Options) error {
	removed, err := unmountBelow(o.tempDir())
	for _, path := range removed {
		o.Logger.Warn("removed a mount that was left over", "path", path)
	}
	if err == nil { // or else this would remove what is mounted
		err = os.RemoveAll(o.tempDir())
	}
	if err == nil {
		err = mount.SetTempMountLocation(o.tempDir())
	}
	if err == nil && o.OwnTemp {
		err = os.Setenv("TMPDIR", o.tempDir())
	}
	if err != nil {
		return fmt.Errorf("prepare directory for temporary files: %w", err)
	}
	libcni.CacheDir = o.cniDir()
	return nil
}

// sweepLeases ends the leases that were to end by themselves. They kept what an
// earlier process was pulling or importing when it was killed, which the garbage
// collector, whose first round follows the start, may have now. The leases of
// sandboxes have no end. It must run before anybody can make a new one.
func sweepLeases(ctx context.Context, p *plugged) error {
	instance, err := p.instance(plugins.LeasePlugin, "manager")
	if err != nil {
		return err
	}
	manager, ok := instance.(leases.Manager)
	if !ok {
		return fmt.Errorf("containerd's lease plugin is a %T and manages no leases", instance)
	}
	ctx = namespaces.WithNamespace(ctx, Namespace)
	list, err := manager.List(ctx)
	if err != nil {
		return fmt.Errorf("list leases: %w", err)
	}
	for _, lease := range list {
		if _, ends := lease.Labels["containerd.io/gc.expire"]; !ends {
			continue
		}
		if err := manager.Delete(ctx, lease); err != nil {
			return fmt.Errorf("end lease %s: %w", lease.ID, err)
		}
	}
	return nil
}

// sweep ends what an earlier process was starting when it was killed and what
// containerd, which has just looked for its containers, does not know: shims
// without a bundle or with nothing but sandboxes that were not started, those
// sandboxes, runc's state of their containers, sockets without a shim. It runs
// before anything new can be started. What it cannot remove it logs.
func sweep(ctx context.Context, o Options) {
	known := names(o.bundles())
	for _, id := range names(filepath.Join(o.runcRoot(), Namespace)) {
		if slices.Contains(known, id) {
			continue
		}
		if err := deleteContainer(ctx, o, id); err != nil {
			o.Logger.Error("cannot remove a container that was left over", "container", id, "err", err)
			continue
		}
		o.Logger.Warn("removed a container that was left over", "container", id)
	}
	halves, whole := halfStarted(o, known)
	// A shim that is just being started may turn up after it was looked for.
	for again := true; again; {
		again = false
		for _, pid := range processes() {
			name, ours := shimOf(o, pid)
			if !ours || whole[name] || deleting(pid) && slices.Contains(known, name) {
				continue
			}
			if err := kill(ctx, pid); err != nil {
				o.Logger.Error("cannot end a shim that was left over", "shim", name, "pid", pid, "err", err)
				continue
			}
			again = true
			o.Logger.Warn("ended a shim that was left over", "shim", name, "pid", pid)
		}
	}
	for _, id := range halves {
		if err := endHalf(ctx, o, id); err != nil {
			o.Logger.Error("cannot remove a sandbox that was not started", "container", id, "err", err)
		}
	}
	removeDeadSockets(o.shimSockets()) // also of those who have ended by themselves
}

// halfStarted returns the sandboxes that were not started, unless somebody cleans
// up behind them already, and the shims that have others.
func halfStarted(o Options, known []string) (halves []string, whole map[string]bool) {
	whole = map[string]bool{}
	var cleaned []string
	for _, pid := range processes() {
		if id, ours := shimOf(o, pid); ours && deleting(pid) {
			cleaned = append(cleaned, id)
		}
	}
	for _, id := range known {
		switch joined := sandboxOf(o, id) != ""; {
		case joined || started(o, id):
			whole[shimOfBundle(o, id)] = true
		case !slices.Contains(cleaned, id):
			halves = append(halves, id)
		}
	}
	return halves, whole
}

// sandboxOf is the sandbox that a container joined; empty for a sandbox itself.
func sandboxOf(o Options, id string) string {
	data, err := os.ReadFile(filepath.Join(o.bundles(), id, "sandbox"))
	if err != nil {
		return ""
	}
	return filepath.Base(strings.TrimSpace(string(data)))
}

// started reports whether a sandbox was started, or others are in its shim. runc
// has a pipe in its state of what is created alone; a shim whose caller died
// meanwhile may not even know of that.
func started(o Options, id string) bool {
	dir := filepath.Join(o.runcRoot(), Namespace, id)
	_, err := os.Lstat(dir)
	_, pipe := os.Lstat(filepath.Join(dir, "exec.fifo"))
	if err == nil && errors.Is(pipe, os.ErrNotExist) {
		return true
	}
	return slices.ContainsFunc(names(o.bundles()), func(other string) bool { return sandboxOf(o, other) == id })
}

// deleting reports whether a shim is there only to clean up behind one that ended.
func deleting(pid int) bool {
	cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return slices.Contains(strings.Split(string(cmdline), "\x00"), "delete")
}

// endHalf ends what a shim that is gone was creating: the runc at work, and what
// it made. Containerd removes the bundle when it loses the shim.
func endHalf(ctx context.Context, o Options, id string) error {
	for _, pid := range processes() {
		cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		args := strings.Split(string(cmdline), "\x00")
		if args[0] == filepath.Join(o.binDir(), "runc") && slices.Contains(args, id) {
			if err := kill(ctx, pid); err != nil {
				return err
			}
		}
	}
	return deleteContainer(ctx, o, id)
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

// shimOf reports whether a process is one of our shims, and its name: its group's,
// or the container's that it was started for or cleans up behind.
func shimOf(o Options, pid int) (name string, ours bool) {
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil || strings.TrimSuffix(exe, " (deleted)") != o.shim() {
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
		}
		if errors.Is(err, unix.ECONNREFUSED) { // else somebody may listen who is busy
			os.Remove(path)
		}
	}
}
