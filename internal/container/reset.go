package container

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Reset removes from this machine everything that an embedded runtime with
// these options left on it: containers, shims, mounts, cgroups and files. It
// fails with ErrInUse while the runtime runs, and needs nothing of it to be
// whole. removed says what was there, one line each, also with an error. To
// call it again is harmless.
func Reset(ctx context.Context, o Options) (removed []string, err error) {
	if o, err = o.complete(); err != nil {
		return nil, err
	}
	r := &resetter{o: o}
	if _, err := os.Stat(o.rootDir()); err == nil {
		lock, err := lockDir(ctx, o.lockFile())
		if err != nil {
			return nil, fmt.Errorf("reset: %w", err)
		}
		defer lock.Close()
	}
	r.step(r.processes(ctx))
	r.step(r.mounts())
	r.step(r.cgroups(ctx))
	r.step(r.files())
	if err := errors.Join(r.errs...); err != nil {
		return r.removed, fmt.Errorf("reset container runtime: %w", err)
	}
	return r.removed, nil
}

// resetter goes on after an error: what can be removed is removed.
type resetter struct {
	o       Options
	removed []string
	errs    []error
}

func (r *resetter) step(err error) {
	if err != nil {
		r.errs = append(r.errs, err)
	}
}

func (r *resetter) did(format string, args ...any) {
	r.removed = append(r.removed, fmt.Sprintf(format, args...))
}

// names lists a folder, which may not exist.
func names(dir string) (list []string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

// passes bounds how often processes are looked for.
const passes = 20

// processes ends what runs. A killed server may leave programs that are just
// starting others, which turn up after they were looked for: so it looks again
// until there is nothing any more. Only what goes wrong at last is an error.
func (r *resetter) processes(ctx context.Context) (err error) {
	for range passes {
		before := len(r.removed)
		err = errors.Join(r.containers(ctx), r.shims(ctx), r.strays(ctx))
		if len(r.removed) == before || ctx.Err() != nil {
			break
		}
	}
	return err
}

// containers has runc kill and delete what its state says it runs. Where it
// cannot, because the state is damaged or runc is gone, the later steps do.
func (r *resetter) containers(ctx context.Context) error {
	for _, id := range names(filepath.Join(r.o.runcRoot(), Namespace)) {
		if err := deleteContainer(ctx, r.o, id); err != nil {
			r.o.Logger.Debug("runc cannot delete a container", "container", id, "err", err)
			continue
		}
		r.did("container %s", id)
	}
	return ctx.Err()
}

// shims ends every process that runs a program of our bin directory, also one
// that was replaced there since.
func (r *resetter) shims(ctx context.Context) error {
	var errs []error
	for _, pid := range processes() {
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if err != nil || !within(strings.TrimSuffix(exe, " (deleted)"), r.o.binDir()) || pid == os.Getpid() {
			continue
		}
		name := filepath.Base(strings.TrimSuffix(exe, " (deleted)"))
		if err := kill(ctx, pid); err != nil {
			errs = append(errs, fmt.Errorf("end %s, process %d: %w", name, pid, err))
			continue
		}
		r.did("process %d (%s)", pid, name)
	}
	return errors.Join(errs...)
}

// strays ends what is left in our cgroups: containers that runc had no state of.
func (r *resetter) strays(ctx context.Context) error {
	var errs []error
	for _, pid := range cgroupProcesses(r.o.CgroupParent) {
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if err := kill(ctx, pid); err != nil {
			errs = append(errs, fmt.Errorf("end process %d in cgroup %s: %w", pid, r.o.CgroupParent, err))
			continue
		}
		r.did("process %d (%s)", pid, strings.TrimSpace(string(name)))
	}
	return errors.Join(errs...)
}

// kill ends a process and waits until it is gone.
func kill(ctx context.Context, pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	} else if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	deadline := time.Now().Add(5 * time.Second)
	for time.Now().Before(deadline) && ctx.Err() == nil {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 100)
		if n > 0 {
			return nil
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
	}
	return errors.New("it does not end")
}

// ownDirs are the directories in which everything is ours.
func (r *resetter) ownDirs() []string {
	return []string{r.o.stateDir(), r.o.runcRoot(), r.o.shimSockets(), r.o.rootDir(), r.o.binDir(), filepath.Join(r.o.cniDir(), "results")}
}

// mounts takes down every mount in our directories.
func (r *resetter) mounts() error {
	removed, err := unmountBelow(r.ownDirs()...)
	for _, path := range removed {
		r.did("mount %s", path)
	}
	return err
}

// unmountBelow takes down what is mounted in the directories, the youngest first,
// and returns where it was.
func unmountBelow(dirs ...string) (removed []string, err error) {
	list, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		return !slices.ContainsFunc(dirs, func(dir string) bool { return within(m.Mountpoint, dir) }), false
	})
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	var errs []error
	for _, m := range slices.Backward(list) {
		err := unix.Unmount(m.Mountpoint, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("unmount %s: %w", m.Mountpoint, err))
			continue
		}
		removed = append(removed, m.Mountpoint)
	}
	return removed, errors.Join(errs...)
}

func (r *resetter) cgroups(ctx context.Context) error {
	n, err := removeCgroups(ctx, r.o.CgroupParent)
	if n > 0 {
		r.did("cgroup %s (%d groups)", r.o.CgroupParent, n)
	}
	return err
}

// removeAll removes a directory from which others may be removing something, too: containerd, whose
// shims have just been killed, renames what it removes, so that a directory which has been
// emptied is not empty.
func removeAll(path string) (err error) {
	for range passes {
		if err = os.RemoveAll(path); !errors.Is(err, unix.ENOTEMPTY) {
			break
		}
	}
	return err
}

// files removes our directories and sockets, and the directories above them if
// nobody else has anything there.
func (r *resetter) files() error {
	socket := r.o.Socket()
	var errs []error
	for _, path := range append(r.ownDirs(), socket, socket+".ttrpc") {
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := removeAll(path); err != nil {
			errs = append(errs, fmt.Errorf("remove %s: %w", path, err))
			continue
		}
		r.did("file %s", path)
	}
	for _, dir := range []string{r.o.RunDir, r.o.cniDir(), r.o.DataDir} {
		if os.Remove(dir) == nil { // fails where it is not empty
			r.did("file %s", dir)
		}
	}
	return errors.Join(errs...)
}
