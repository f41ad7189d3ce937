package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

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

// FullError is a volume that the node cannot take any more, as many as it has.
type FullError struct{ AttachError }

func (e *FullError) Error() string {
	return fmt.Sprintf("Node has reached its volume attachment limit, rejecting pod. unmounted volumes=[%[1]s], unattached volumes=[%[1]s], failed to process volumes=[]: %[2]v", e.Volume, e.Err)
}

// Placed reports whether the pod has its persistent volume already.
func (m *Manager) Placed(pod *v1.Pod, v *v1.Volume) bool {
	path := m.Path(pod, v)
	if kind, _ := m.sharedKind(path); path == "" || filepath.Dir(path) != m.volumeDir(pod.UID, "nfs", "") && kind == "" {
		return path != ""
	}
	ready, err := m.isReady(path) // no more after a reboot
	return err == nil && ready
}

// Place gives the pod the persistent volume that one of its volumes stands for.
func (m *Manager) Place(ctx context.Context, src Sources, pod *v1.Pod, v *v1.Volume, pv *v1.PersistentVolume) error {
	err := m.place(ctx, src, pod, v, pv)
	if said := (*MountError)(nil); err == nil || errors.As(err, &said) {
		return err
	}
	device := isDevice(pv)
	step := ""
	if device {
		step = "MapVolume.MapPodDevice"
	}
	return &MountError{Step: step, Volume: pv.Name, Device: device, Err: err}
}

func (m *Manager) place(ctx context.Context, src Sources, pod *v1.Pod, v *v1.Volume, pv *v1.PersistentVolume) error {
	path, err := m.persistent(pod, pv)
	if err != nil {
		return err
	}
	s, others := &pv.Spec, false
	link := func() error { return m.Link(pod, v, path) }
	shares, bare := m.sharedKind(path)
	if s.Local != nil || Alone(pv) {
		if others, err = m.elsewhere(pod.UID, path); err != nil {
			return err
		}
	}
	switch {
	case others && Alone(pv):
		return ErrInUse
	case s.NFS != nil:
		e := export{NFSVolumeSource: s.NFS, readOnly: ReadOnly(v), options: s.MountOptions}
		err = e.mount(ctx, path)
	case shares != "" && s.Local != nil:
		err = m.share(ctx, localDevice(pv, path), link)
	case shares != "":
		err = m.share(ctx, m.diskOf(pod, pv, path, src), link)
	case s.CSI != nil:
		err = makeShared(path, nil)
	}
	files := s.CSI != nil || s.Local != nil && !isDevice(pv) || shares != "" && !bare
	switch {
	case err != nil || !files:
	case s.Local != nil && others: // whoever has it first says whose it is
		tellOfGroup(src, pod, pv, path)
	case !ReadOnly(v) && !isReadOnlyDisk(pv):
		g := Giving{Pod: pod, Tell: src, Log: m.log}
		err = g.Give(path, FSGroup(pod))
	}
	if err != nil {
		return err
	}
	return link()
}

// tellOfGroup warns people if a pod may not get at what is in a volume because it belongs to the group of others that have it already.
func tellOfGroup(to Teller, pod *v1.Pod, pv *v1.PersistentVolume, path string) {
	group := FSGroup(pod)
	info, err := os.Stat(path)
	if group == nil || err != nil {
		return
	}
	if has := groupIn(info); has != *group {
		to.TellOf(pod, "AlreadyMountedVolume", fmt.Sprintf("The requested fsGroup is %d, but the volume %s has GID %d. The volume may not be shareable.", *group, pv.Name, has))
	}
}

// ErrInUse is why a pod has to wait for a volume that only one may have.
var ErrInUse = errors.New("volume uses the ReadWriteOncePod access mode and is already in use by another pod")

// Alone reports whether only one pod may have a volume.
func Alone(pv *v1.PersistentVolume) bool {
	return len(pv.Spec.AccessModes) == 1 && pv.Spec.AccessModes[0] == v1.ReadWriteOncePod
}

// elsewhere reports whether another pod has what lies at a path.
func (m *Manager) elsewhere(pod types.UID, path string) (bool, error) {
	links, err := filepath.Glob(m.link("*", "*"))
	if err != nil {
		return false, fmt.Errorf("look for other pods with the volume: %w", err)
	}
	mine := m.PodDir(pod) + "/"
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && to == path && !strings.HasPrefix(link, mine) {
			return true, nil
		}
	}
	return false, nil
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

// persistent is where a persistent volume lies, or will be mounted.
func (m *Manager) persistent(pod *v1.Pod, pv *v1.PersistentVolume) (string, error) {
	s := &pv.Spec
	switch {
	case isDevice(pv) && s.Local != nil:
		return s.Local.Path, checkDevice(s.Local.Path)
	case s.ISCSI != nil, s.FC != nil:
		return m.diskPlace(pv), nil
	case isDevice(pv):
		return "", errors.New("volumes of volumeMode Block are not supported by this node")
	case s.HostPath != nil:
		return s.HostPath.Path, checkHostPath(s.HostPath)
	case s.Local != nil:
		return m.local(pv)
	case s.NFS != nil:
		return m.volumeDir(pod.UID, "nfs", pv.Name), nil
	case s.CSI != nil && s.CSI.Driver == claims.LocalDriver:
		return m.own(s.CSI.VolumeHandle)
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
	return filepath.Join(m.ownDir(), handle), nil
}

func (m *Manager) ownDir() string { return filepath.Join(filepath.Dir(m.root), "volumes") }

// OnDisk reports whether what lies at a path is a volume of the node's own, or a device that it has mounted.
func (m *Manager) OnDisk(path string) bool {
	kind, bare := m.sharedKind(path)
	return filepath.Dir(path) == m.ownDir() || kind != "" && !bare
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
