package named

import (
	"errors"
	"fmt"
	"os"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Dir is where the ip program looks for network namespaces.
const Dir = "/run/netns"

// Open makes the directory a mount of its own, as the ip program does before it makes the first namespace: if that
// came later, its mount would hide the namespaces of others, which could neither be entered nor removed then.
// Where there are some already, it is too late, and nothing is done. [Close] undoes it.
func Open() error {
	if err := os.MkdirAll(Dir, 0o755); err != nil {
		return fmt.Errorf("make the directory of network namespaces: %w", err)
	}
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(Dir))
	if err != nil {
		return fmt.Errorf("look at the directory of network namespaces: %w", err)
	}
	if len(mounts) > 0 {
		return nil
	}
	if err := unix.Mount(Dir, Dir, "none", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s: %w", Dir, err)
	}
	if err := unix.Mount("", Dir, "none", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("share the mount %s: %w", Dir, err)
	}
	return nil
}

// Close removes that mount, if there is no namespace.
func Close() error {
	if left, err := os.ReadDir(Dir); err != nil || len(left) > 0 {
		return nil //nolint:nilerr // there is no directory
	}
	if err := unix.Unmount(Dir, unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("unmount %s: %w", Dir, err)
	}
	return nil
}
