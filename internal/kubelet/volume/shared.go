package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Devices are mounted each once, for all pods:
//
//	<root>/../plugins/kubernetes.io/local-volume/mounts/<name>
//	<root>/../plugins/kubernetes.io/{iscsi/<interface>,fc}/<disk>
//	<root>/../plugins/kubernetes.io/{iscsi,fc}/volumeDevices/[<interface>/]<disk> -> /dev/sdb
//
// The last ones are those that pods have as they are. Beside disks of networks stands what was attached (".json").
// A pod has its link before the device is attached and mounted, until it is detached: whoever finds the link knows of it (V3).

// sharedAt is a path of those.
func (m *Manager) sharedAt(parts ...string) string {
	return filepath.Join(append([]string{pluginsOf(filepath.Dir(m.root))}, parts...)...)
}

// pluginsOf is where an agent's own kinds of volumes have what is not of one pod, below its root directory.
func pluginsOf(root string) string { return filepath.Join(root, "plugins/kubernetes.io") }

// sharedKind is the kind of volume, as directories name it, whose device is at a path for all pods, or will be; empty: none.
// bare: it is there without a mount.
func (m *Manager) sharedKind(path string) (kind string, bare bool) {
	below, ok := strings.CutPrefix(path, m.sharedAt()+"/")
	kind, rest, _ := strings.Cut(below, "/")
	switch {
	case ok && kind == "local-volume", ok && kind == "iscsi", ok && kind == "fc":
		return kind, strings.HasPrefix(rest, bareDir+"/")
	}
	return "", false
}

const bareDir = "volumeDevices"

// isReady reports whether a device is at such a path.
func (m *Manager) isReady(path string) (bool, error) {
	if _, bare := m.sharedKind(path); bare {
		_, err := os.Stat(path)
		return err == nil, nil
	}
	return IsMounted(path)
}

// shared is a device that all pods that want it have by one place.
type shared struct {
	at       string // the place
	target   string // of which only one may change at a time
	fsType   string // empty: ext4
	options  []string
	readOnly bool
	attach   func(ctx context.Context) (device string, err error)
}

// share puts the device at its place, unless it is there; before it is mounted it is formatted if nothing is on it. link gives
// the pod its link.
func (m *Manager) share(ctx context.Context, s *shared, link func() error) error {
	leave, err := m.turns.enter(ctx, s.target)
	if err != nil {
		return err
	}
	defer leave()
	if err := link(); err != nil {
		return err
	}
	if ready, err := m.isReady(s.at); err != nil || ready {
		return err
	}
	device, err := s.attach(ctx)
	if err != nil {
		return err
	}
	if _, bare := m.sharedKind(s.at); bare {
		return relink(device, s.at)
	}
	if err := os.MkdirAll(s.at, 0o750); err != nil {
		return fmt.Errorf("make mount point: %w", err)
	}
	fsType, had, options := s.fsType, "", s.options
	if fsType == "" {
		fsType = "ext4"
	}
	if s.readOnly {
		options = append([]string{"ro"}, options...)
	} else if had, err = format(ctx, device, fsType); err != nil {
		return err
	}
	err = mountBy(ctx, fsType, options, device, s.at)
	if err != nil && had != "" && had != fsType {
		return &FormatError{err}
	}
	return err
}

// FormatError is a device that cannot be mounted, and on which there is another file system than it is said to have.
type FormatError struct{ Err error }

func (e *FormatError) Error() string { return e.Err.Error() }
func (e *FormatError) Unwrap() error { return e.Err }

// relink has a link lead to a device, wherever it led.
func relink(device, link string) error {
	if err := os.MkdirAll(filepath.Dir(link), 0o750); err != nil {
		return fmt.Errorf("make directory of devices: %w", err)
	}
	if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("link device: %w", err)
	}
	if err := os.Symlink(device, link); err != nil {
		return fmt.Errorf("link device: %w", err)
	}
	return nil
}

// releaseShared takes the devices away that the pod has and no other one, and removes the pod's links.
func (m *Manager) releaseShared(ctx context.Context, uid types.UID) error {
	links, err := filepath.Glob(m.link(uid, "*"))
	if err != nil {
		return fmt.Errorf("look for devices of the pod: %w", err)
	}
	for _, link := range links {
		at, err := os.Readlink(link)
		if err != nil {
			continue
		}
		if kind, _ := m.sharedKind(at); kind == "" {
			continue
		}
		if err := m.releaseOne(ctx, uid, link, at); err != nil {
			return err
		}
	}
	return nil
}

func (m *Manager) releaseOne(ctx context.Context, uid types.UID, link, at string) error {
	disk, err := diskAt(at)
	if err != nil {
		return err
	}
	target := at
	if disk != nil {
		target = disk.Target()
	}
	leave, err := m.turns.enter(ctx, target)
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
		if disk != nil {
			if err := m.detach(ctx, disk, at); err != nil {
				return err
			}
		}
	}
	if err := os.Remove(link); err != nil {
		return fmt.Errorf("remove link to a device: %w", err)
	}
	return nil
}
