package volume

import (
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

// Placed reports whether the pod has its persistent volume already.
func (m *Manager) Placed(pod *v1.Pod, v *v1.Volume) bool { return m.Path(pod, v) != "" }

// Place gives the pod the persistent volume that one of its volumes stands for.
func (m *Manager) Place(pod *v1.Pod, v *v1.Volume, pv *v1.PersistentVolume) error {
	path, err := m.persistent(pod, pv)
	if err != nil {
		return &MountError{pv.Name, err}
	}
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
	return filepath.Join(m.PodDir(pod), "volumes", "kubernetes.io~persistent-volume", volume)
}

// persistent makes a persistent volume ready and returns where it lies.
func (m *Manager) persistent(pod *v1.Pod, pv *v1.PersistentVolume) (string, error) {
	s := &pv.Spec
	if s.VolumeMode != nil && *s.VolumeMode == v1.PersistentVolumeBlock {
		return "", errors.New("volumes of volumeMode Block are not supported by this node")
	}
	switch {
	case s.HostPath != nil:
		return s.HostPath.Path, checkHostPath(s.HostPath)
	case s.Local != nil:
		if _, err := os.Stat(s.Local.Path); errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("path %q does not exist", s.Local.Path)
		} else if err != nil {
			return "", fmt.Errorf("look at local volume: %w", err)
		}
		return s.Local.Path, giveTo(s.Local.Path, fsGroup(pod))
	case s.CSI != nil && s.CSI.Driver == claims.LocalDriver:
		path, err := m.own(s.CSI.VolumeHandle)
		if err != nil {
			return "", err
		}
		if err := makeShared(path, nil); err != nil {
			return "", err
		}
		return path, giveTo(path, fsGroup(pod))
	case s.CSI != nil:
		return "", fmt.Errorf("kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: driver name %s not found in the list of registered CSI drivers", s.CSI.Driver)
	}
	return "", errors.New("volumes of this kind are not supported by this node")
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

// giveTo gives a volume and all that is in it to a group, unless it is the group's
// already; nil: nobody wants it.
func giveTo(dir string, group *int64) error {
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
