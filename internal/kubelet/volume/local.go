package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// local is where a local volume lies, or will be mounted.
func (m *Manager) local(pv *v1.PersistentVolume) (string, error) {
	path := pv.Spec.Local.Path
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", &MountError{Step: "MountVolume.NewMounter initialization", Volume: pv.Name, Err: fmt.Errorf("path %q does not exist", path)}
	case err != nil:
		return "", fmt.Errorf("look at local volume: %w", err)
	case info.Mode()&fs.ModeDevice == 0 || info.Mode()&fs.ModeCharDevice != 0:
		return path, nil
	case filepath.Base(pv.Name) != pv.Name:
		return "", fmt.Errorf("bad name of a volume: %q", pv.Name)
	}
	return m.localAt(pv.Name), nil
}

// localDevice is the device of a local volume, to be mounted at a path.
func localDevice(pv *v1.PersistentVolume, at string) *shared {
	return &shared{
		at: at, target: at, fsType: ptr.Deref(pv.Spec.Local.FSType, ""), options: pv.Spec.MountOptions,
		attach: func(context.Context) (string, error) { return pv.Spec.Local.Path, nil },
	}
}

// format makes a file system on a device on which there is nothing. It returns the kind of that which there was; empty: there was none.
func format(ctx context.Context, device, fsType string) (had string, _ error) {
	ctx, cancel := context.WithTimeout(ctx, mountDeadline)
	defer cancel()
	out, err := exec.CommandContext(ctx, "blkid", "-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export", device).Output()
	var exit *exec.ExitError
	switch {
	case err == nil && strings.Contains(string(out), "TYPE="): // of a file system, or of a table of partitions: what is there stays
		for line := range strings.Lines(string(out)) {
			if kind, ok := strings.CutPrefix(strings.TrimSpace(line), "TYPE="); ok {
				had = kind
			}
		}
		return had, nil
	case err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 2): // which is that nothing was found
		return "", fmt.Errorf("look what is on %s: %w", device, err)
	}
	args := []string{device}
	switch fsType {
	case "ext3", "ext4":
		args = []string{"-F", "-m0", device}
	case "xfs":
		args = []string{"-f", device}
	}
	if out, err := exec.CommandContext(ctx, "mkfs."+fsType, args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("failed to format the volume as %q: %w\nOutput: %s", fsType, err, out)
	}
	return "", nil
}

// localAt is where the device of the local volume of a name is mounted.
func (m *Manager) localAt(name string) string {
	return m.sharedAt("local-volume/mounts", name)
}

// MayGrow reports whether what lies at a path may have to fill a size that it has by now.
func (m *Manager) MayGrow(path string) bool { return path == m.localAt(filepath.Base(path)) }

// Grow has the file system of a local volume fill its device, which is larger now. Directories, and devices without a file
// system, have no size of their own.
func (m *Manager) Grow(ctx context.Context, pv *v1.PersistentVolume) error {
	at := m.localAt(pv.Name)
	mounts, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(at))
	if err != nil {
		return fmt.Errorf("list mounts: %w", err)
	}
	if len(mounts) == 0 || isDevice(pv) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, mountDeadline)
	defer cancel()
	var cmd *exec.Cmd
	switch device := pv.Spec.Local.Path; mounts[0].FSType {
	case "ext2", "ext3", "ext4":
		cmd = exec.CommandContext(ctx, "resize2fs", device)
	case "xfs":
		cmd = exec.CommandContext(ctx, "xfs_growfs", "-d", at)
	case "btrfs":
		cmd = exec.CommandContext(ctx, "btrfs", "filesystem", "resize", "max", at)
	default:
		return fmt.Errorf("resize of format %s is not supported for device %s mounted at %s", mounts[0].FSType, device, at)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("resize of %s: %w\nOutput: %s", at, err, out)
	}
	return nil
}
