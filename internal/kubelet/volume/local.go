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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// Local volumes with a file system that are devices are mounted each once, for all pods:
//
//	<root>/../plugins/kubernetes.io/local-volume/mounts/<name>
//
// A pod has its link before the device is mounted, until it is unmounted: whoever finds the link knows of the mount (V3).

func (m *Manager) mountedDevices() string {
	return filepath.Join(filepath.Dir(m.root), "plugins/kubernetes.io/local-volume/mounts")
}

// isMountedDevice reports whether a path is where a device is mounted, or will be.
func (m *Manager) isMountedDevice(path string) bool { return filepath.Dir(path) == m.mountedDevices() }

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
	return filepath.Join(m.mountedDevices(), pv.Name), nil
}

// enterDevices waits for the turn to mount devices, or to unmount them; leave gives it up.
func (m *Manager) enterDevices(ctx context.Context) (leave func(), err error) {
	select {
	case <-m.devices:
		return func() { m.devices <- struct{}{} }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// mountDevice mounts the device of a local volume, unless it is; before that it is formatted if nothing is on it. link gives the pod its link.
func (m *Manager) mountDevice(ctx context.Context, pv *v1.PersistentVolume, at string, link func() error) error {
	leave, err := m.enterDevices(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if err := link(); err != nil {
		return err
	}
	if mounted, err := IsMounted(at); err != nil || mounted {
		return err
	}
	if err := os.MkdirAll(at, 0o750); err != nil {
		return fmt.Errorf("make mount point: %w", err)
	}
	fsType := ptr.Deref(pv.Spec.Local.FSType, "")
	if fsType == "" {
		fsType = "ext4"
	}
	if err := format(ctx, pv.Spec.Local.Path, fsType); err != nil {
		return err
	}
	return mountBy(ctx, fsType, pv.Spec.MountOptions, pv.Spec.Local.Path, at)
}

// format makes a file system on a device on which there is nothing.
func format(ctx context.Context, device, fsType string) error {
	ctx, cancel := context.WithTimeout(ctx, mountDeadline)
	defer cancel()
	out, err := exec.CommandContext(ctx, "blkid", "-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export", device).Output()
	var exit *exec.ExitError
	switch {
	case err == nil && strings.Contains(string(out), "TYPE="): // of a file system, or of a table of partitions: what is there stays
		return nil
	case err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 2): // which is that nothing was found
		return fmt.Errorf("look what is on %s: %w", device, err)
	}
	args := []string{device}
	switch fsType {
	case "ext3", "ext4":
		args = []string{"-F", "-m0", device}
	case "xfs":
		args = []string{"-f", device}
	}
	if out, err := exec.CommandContext(ctx, "mkfs."+fsType, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("failed to format the volume as %q: %w\nOutput: %s", fsType, err, out)
	}
	return nil
}

// MayGrow reports whether what lies at a path may have to fill a size that it has by now.
func (m *Manager) MayGrow(path string) bool { return m.isMountedDevice(path) }

// Grow has the file system of a local volume fill its device, which is larger now. Directories, and devices without a file
// system, have no size of their own.
func (m *Manager) Grow(ctx context.Context, pv *v1.PersistentVolume) error {
	at := filepath.Join(m.mountedDevices(), pv.Name)
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

// releaseDevices unmounts the devices of a pod's local volumes, unless other pods have them, and removes the pod's links.
func (m *Manager) releaseDevices(ctx context.Context, uid types.UID) error {
	links, err := filepath.Glob(m.link(uid, "*"))
	if err != nil {
		return fmt.Errorf("look for devices of the pod: %w", err)
	}
	for _, link := range links {
		at, err := os.Readlink(link)
		if err != nil || !m.isMountedDevice(at) {
			continue
		}
		if err := m.releaseDevice(ctx, uid, link, at); err != nil {
			return err
		}
	}
	return nil
}

func (m *Manager) releaseDevice(ctx context.Context, uid types.UID, link, at string) error {
	leave, err := m.enterDevices(ctx)
	if err != nil {
		return err
	}
	defer leave()
	others, err := m.elsewhere(uid, at)
	if err != nil {
		return err
	}
	if !others {
		if err := unmountBelow(at); err != nil {
			return err
		}
		if err := os.Remove(at); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove mount point: %w", err)
		}
	}
	if err := os.Remove(link); err != nil {
		return fmt.Errorf("remove link to a mounted device: %w", err)
	}
	return nil
}
