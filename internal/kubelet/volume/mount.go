package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/internal/kubelet/san"
)

// ensureTmpfs mounts a file system in memory at dir, unless one is there. size
// is in bytes; 0 is the kernel's default.
func ensureTmpfs(dir string, size int64, group *int64) error {
	options := sharedOptions(group)
	if size > 0 {
		options += fmt.Sprintf(",size=%d", size)
	}
	if StaysInMemory() {
		options += ",noswap"
	}
	return ensureMount(dir, "tmpfs", options)
}

// StaysInMemory reports whether the kernel keeps volumes in memory from being swapped to disk: since 6.4 it does, but not
// for who has only a user namespace of its own. It is asked by options of a mount that is never made, of which its log says nothing.
func StaysInMemory() bool { return staysInMemory() }

var staysInMemory = sync.OnceValue(func() bool {
	fd, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return unix.FsconfigSetFlag(fd, "noswap") == nil
})

// sharedOptions make the root of a file system writable for all, or the group's.
func sharedOptions(group *int64) string {
	if group == nil {
		return "mode=0777"
	}
	return fmt.Sprintf("mode=2777,gid=%d", *group)
}

func ensureMount(dir, fstype, options string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make mount point: %w", err)
	}
	mounted, err := mountinfo.Mounted(dir)
	if err != nil {
		return fmt.Errorf("look at mount point: %w", err)
	}
	if mounted {
		return nil
	}
	if err := unix.Mount(fstype, dir, fstype, 0, options); err != nil {
		return fmt.Errorf("mount %s at %s: %w", fstype, dir, err)
	}
	return nil
}

// Reset takes away every mount below the root directory of a node agent that is gone, and the disks
// of networks that it had for its pods, and says what there was. To call it again is harmless.
func Reset(ctx context.Context, root string) (removed []string, _ error) {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(root))
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	for _, m := range mounts {
		removed = append(removed, "mount "+m.Mountpoint)
	}
	if err := unmountBelow(root); err != nil {
		return removed, err
	}
	disks, err := detachAll(ctx, root, san.Machine{Root: "/"})
	return append(removed, disks...), err
}

// Share has mounts below a directory seen by containers that ask for that, and theirs by the machine and by others
// (mountPropagation): unless it lies in a shared mount, as on most machines, it becomes one. [Unshare] undoes that.
func Share(dir string) error {
	at, err := mountOf(dir)
	if err != nil {
		return err
	}
	if at != nil && strings.Contains(at.Optional, "shared:") {
		return nil
	}
	below, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		return fmt.Errorf("list mounts: %w", err)
	}
	if at == nil || at.Mountpoint != dir {
		if len(below) > 0 { // which would be hidden
			return fmt.Errorf("share %s: something is mounted at %s", dir, below[0].Mountpoint)
		}
		if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("share %s: %w", dir, err)
		}
	}
	if err := unix.Mount("", dir, "", unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share %s: %w", dir, err)
	}
	return nil
}

// Unshare undoes Share, if that has mounted something and nothing uses it.
func Unshare(dir string) error {
	at, err := mountOf(dir)
	if err != nil || at == nil || at.Mountpoint != dir || at.Root == "/" {
		return err
	}
	if err := unix.Unmount(dir, unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("unmount %s: %w", dir, err)
	}
	return nil
}

// mountOf is the mount that a directory lies in.
func mountOf(dir string) (*mountinfo.Info, error) {
	mounts, err := mountinfo.GetMounts(mountinfo.ParentsFilter(dir))
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	var at *mountinfo.Info
	for _, m := range mounts { // the later ones cover the earlier
		if at == nil || len(m.Mountpoint) >= len(at.Mountpoint) {
			at = m
		}
	}
	return at, nil
}

// IsMounted reports whether something is mounted at a path, without a look at that: its server may be away.
func IsMounted(path string) (bool, error) {
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at mount point: %w", err)
	}
	mounts, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(filepath.Join(dir, filepath.Base(path))))
	if err != nil {
		return false, fmt.Errorf("list mounts: %w", err)
	}
	return len(mounts) > 0, nil
}

// Unmount takes away every mount at or below a path.
func Unmount(path string) error { return unmountBelow(path) }

// unmountBelow takes away every mount at or below dir, the latest first (V2).
func unmountBelow(dir string) error {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	list := func() ([]*mountinfo.Info, error) { return mountinfo.GetMounts(mountinfo.PrefixFilter(dir)) }
	mounts, err := list()
	if err != nil {
		return fmt.Errorf("list mounts: %w", err)
	}
	slices.SortFunc(mounts, func(a, b *mountinfo.Info) int { return strings.Compare(b.Mountpoint, a.Mountpoint) })
	for _, m := range mounts {
		if err := unix.Unmount(m.Mountpoint, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("unmount %s: %w", m.Mountpoint, err)
		}
	}
	if mounts, err = list(); err != nil {
		return fmt.Errorf("list mounts: %w", err)
	}
	if len(mounts) > 0 {
		return fmt.Errorf("%s is still mounted", mounts[0].Mountpoint)
	}
	return nil
}
