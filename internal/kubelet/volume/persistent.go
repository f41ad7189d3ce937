package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/api/core/claims"
)

// Persistent volumes lie elsewhere on the machine and outlive the pod, which has a
// link to them:
//
//	volumes/kubernetes.io~persistent-volume/<name> -> /data/postgres

// ClaimError is a volume whose claim gives none.
type ClaimError struct {
	Volume, Namespace, Claim string
	Err                      error
}

func (e *ClaimError) Error() string {
	return fmt.Sprintf("Unable to attach or mount volumes: unmounted volumes=[%[1]s], unattached volumes=[], failed to process volumes=[%[1]s]: error processing PVC %[2]s/%[3]s: %[4]v",
		e.Volume, e.Namespace, e.Claim, e.Err)
}

func (e *ClaimError) Unwrap() error { return e.Err }

// AttachError is a volume that was not attached in time.
type AttachError struct {
	Volume string
	Err    error
}

func (e *AttachError) Error() string {
	return fmt.Sprintf("Unable to attach or mount volumes: unmounted volumes=[%[1]s], unattached volumes=[%[1]s], failed to process volumes=[]: %[2]v", e.Volume, e.Err)
}

func (e *AttachError) Unwrap() error { return e.Err }

// Placed reports whether the pod has its persistent volume already.
func (m *Manager) Placed(pod *v1.Pod, v *v1.Volume) bool {
	path := m.Path(pod, v)
	if path == "" || filepath.Dir(path) != m.volumeDir(pod.UID, "nfs", "") {
		return path != ""
	}
	mounted, err := IsMounted(path) // no more after a reboot
	return err == nil && mounted
}

// Place gives the pod the persistent volume that one of its volumes stands for.
func (m *Manager) Place(ctx context.Context, pod *v1.Pod, v *v1.Volume, pv *v1.PersistentVolume) error {
	path, err := m.persistent(pod, pv)
	if err == nil && pv.Spec.NFS != nil {
		e := export{NFSVolumeSource: pv.Spec.NFS, readOnly: ReadOnly(v), options: pv.Spec.MountOptions}
		err = e.mount(ctx, path)
	}
	if err != nil {
		device := isDevice(pv)
		step := ""
		if device {
			step = "MapVolume.MapPodDevice"
		}
		return &MountError{Step: step, Volume: pv.Name, Device: device, Err: err}
	}
	return m.Link(pod, v, path)
}

// Link gives the pod a volume that lies at a path.
func (m *Manager) Link(pod *v1.Pod, v *v1.Volume, path string) error {
	link := m.link(pod.UID, v.Name)
	if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
		return fmt.Errorf("make volume directory: %w", err)
	}
	if err := os.Symlink(path, link); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("link volume: %w", err)
	}
	return nil
}

func (m *Manager) link(pod types.UID, volume string) string {
	return m.volumeDir(pod, "persistent-volume", volume)
}

// persistent makes a persistent volume ready and returns where it lies.
func (m *Manager) persistent(pod *v1.Pod, pv *v1.PersistentVolume) (string, error) {
	s := &pv.Spec
	switch {
	case isDevice(pv) && s.Local != nil:
		return s.Local.Path, checkDevice(s.Local.Path)
	case isDevice(pv):
		return "", errors.New("volumes of volumeMode Block are not supported by this node")
	case s.HostPath != nil:
		return s.HostPath.Path, checkHostPath(s.HostPath)
	case s.Local != nil:
		if _, err := os.Stat(s.Local.Path); errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("path %q does not exist", s.Local.Path)
		} else if err != nil {
			return "", fmt.Errorf("look at local volume: %w", err)
		}
		return s.Local.Path, GiveTo(s.Local.Path, FSGroup(pod))
	case s.NFS != nil:
		return m.volumeDir(pod.UID, "nfs", pv.Name), nil
	case s.CSI != nil && s.CSI.Driver == claims.LocalDriver:
		path, err := m.own(s.CSI.VolumeHandle)
		if err != nil {
			return "", err
		}
		if err := makeShared(path, nil); err != nil {
			return "", err
		}
		return path, GiveTo(path, FSGroup(pod))
	}
	return "", errors.New("volumes of this kind are not supported by this node")
}

// isDevice reports whether a volume is used as a bare device.
func isDevice(pv *v1.PersistentVolume) bool {
	return pv.Spec.VolumeMode != nil && *pv.Spec.VolumeMode == v1.PersistentVolumeBlock
}

func checkDevice(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("path %q does not exist", path)
	case err != nil:
		return fmt.Errorf("look at local volume: %w", err)
	case info.Mode()&fs.ModeDevice == 0 || info.Mode()&fs.ModeCharDevice != 0:
		return fmt.Errorf("%s is not a block device", path)
	}
	return nil
}

// own is where a volume of the node's own lies.
func (m *Manager) own(handle string) (string, error) {
	if handle == "" || handle == "." || handle == ".." || filepath.Base(handle) != handle {
		return "", fmt.Errorf("bad volume handle %q", handle)
	}
	return filepath.Join(filepath.Dir(m.root), "volumes", handle), nil
}

// Erase removes a volume of the node's own with all that is in it (V2).
func (m *Manager) Erase(handle string) error {
	path, err := m.own(handle)
	if err != nil {
		return err
	}
	if err := unmountBelow(path); err != nil {
		return fmt.Errorf("erase volume: %w", err)
	}
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("erase volume: %w", err)
	}
	return nil
}

// GiveTo gives a volume and all that is in it to a group, unless it is the group's
// already; nil: nobody wants it.
func GiveTo(dir string, group *int64) error {
	if group == nil {
		return nil
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("give volume to group: %w", err)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && int64(stat.Gid) == *group && info.Mode()&fs.ModeSetgid != 0 {
		return nil
	}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir || d.Type()&fs.ModeSymlink != 0 {
			return err
		}
		return shareFile(path, d, *group)
	})
	if err != nil {
		return fmt.Errorf("give volume to group: %w", err)
	}
	return shareAll(dir, *group) // last: it says that all the rest is done
}

func shareFile(path string, d fs.DirEntry, group int64) error {
	if d.IsDir() {
		return shareAll(path, group)
	}
	info, err := d.Info()
	if err != nil {
		return err
	}
	if err := os.Lchown(path, -1, int(group)); err != nil {
		return err
	}
	return os.Chmod(path, info.Mode().Perm()|0o660)
}

// shareAll gives a directory to a group that may write there.
func shareAll(dir string, group int64) error {
	if err := shareWith(dir, group); err != nil {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("give volume to group: %w", err)
	}
	return os.Chmod(dir, info.Mode().Perm()|0o770|fs.ModeSetgid)
}
