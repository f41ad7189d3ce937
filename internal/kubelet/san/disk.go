package san

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

	v1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/inotify"
)

// patience is how long a disk may take to appear once the machine was told to look for it.
const patience = 10 * time.Second

// Disk is one disk, in a form that can be written down: one of its fields is set. It holds no secrets.
type Disk struct {
	ISCSI *ISCSI `json:"iscsi,omitempty"`
	FC    *FC    `json:"fc,omitempty"`
}

// Of is the disk that a volume stands for; nil if it stands for none of a storage network.
func Of(v *v1.PersistentVolume) *Disk {
	switch {
	case v.Spec.ISCSI != nil:
		return &Disk{ISCSI: ofISCSI(v.Name, v.Spec.ISCSI)}
	case v.Spec.FC != nil:
		return &Disk{FC: ofFC(v.Spec.FC)}
	}
	return nil
}

// Valid reports whether it names a disk, as what was written down may not.
func (d *Disk) Valid() bool {
	if d.ISCSI != nil {
		return d.FC == nil && len(d.ISCSI.Portals) > 0 && d.ISCSI.IQN != "" && d.ISCSI.Interface != ""
	}
	return d.FC != nil && len(d.FC.Ports)+len(d.FC.Names) > 0
}

// Name is a path that names the disk on the machine, the kind of its network first.
func (d *Disk) Name() string {
	if d.ISCSI != nil {
		return filepath.Join("iscsi", "iface-"+plain(d.ISCSI.Interface), plain(d.ISCSI.name()))
	}
	return filepath.Join("fc", plain(d.FC.name()))
}

// plain is a name as one part of a path.
func plain(name string) string {
	name = strings.NewReplacer("/", "_", "\x00", "_").Replace(name)
	if strings.Trim(name, ".") == "" {
		return "_" + name
	}
	return name
}

// Target is what disks have in common that are attached and detached together: while that is done to one of them, none of the
// others may change.
func (d *Disk) Target() string {
	if d.ISCSI != nil {
		return d.ISCSI.IQN
	}
	return d.Name()
}

// Machine is one with disks of storage networks. Calls for disks of different targets may be made concurrently.
type Machine struct {
	Root string // of its file system; tests have another than "/"
}

// Attach brings a disk to the machine, unless it is there, and returns its device: of several paths to it the one that stands
// for all. secrets are what it may have to show for that, by the names of the iSCSI tools' settings.
func (m Machine) Attach(ctx context.Context, d *Disk, secrets map[string]string) (device string, err error) {
	var paths []string
	if d.ISCSI != nil {
		paths, err = m.attachISCSI(ctx, d.ISCSI, secrets)
	} else {
		paths, err = m.attachFC(ctx, d.FC)
	}
	if err != nil {
		return "", err
	}
	return m.whole(ctx, paths)
}

// Detach takes a disk away from the machine; that it is not there is no error. others are the disks that are to stay.
func (m Machine) Detach(ctx context.Context, d *Disk, others []*Disk) error {
	if slices.ContainsFunc(others, func(other *Disk) bool { return other.Name() == d.Name() }) {
		return nil
	}
	paths := m.fcPaths(d.FC)
	if d.ISCSI != nil {
		paths = m.iscsiPaths(d.ISCSI)
	}
	if err := m.flush(ctx, paths); err != nil {
		return err
	}
	if d.ISCSI == nil {
		return m.remove(paths)
	}
	return m.detachISCSI(ctx, d.ISCSI, others)
}

func (m Machine) path(of ...string) string { return filepath.Join(append([]string{m.Root}, of...)...) }

// appear waits for paths that find finds to appear below /dev, for as long as patience.
func (m Machine) appear(ctx context.Context, below string, find func() []string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	dev := m.path("dev")
	w, err := inotify.Watch(dev, inotify.Written|inotify.Moved)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	for {
		for dir := dev; ; { // each of them may not be there yet
			if err := w.Add(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			rest, err := filepath.Rel(dir, filepath.Join(dev, below))
			if err != nil || rest == "." {
				break
			}
			next, _, _ := strings.Cut(rest, "/")
			dir = filepath.Join(dir, next)
		}
		if found := find(); len(found) > 0 {
			return found, nil
		}
		select {
		case <-w.Changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// there are those of the paths that lead to something.
func there(paths []string) []string {
	return slices.DeleteFunc(paths, func(path string) bool {
		_, err := os.Stat(path)
		return err != nil
	})
}

// whole is the device that stands for all paths to a disk: with several of them that of multipathd, if it comes in time.
func (m Machine) whole(ctx context.Context, paths []string) (string, error) {
	find := func() []string { return m.multipaths(paths) }
	found := find()
	if len(found) == 0 && len(paths) > 1 {
		var err error
		if found, err = m.appear(ctx, "", find); err != nil && ctx.Err() != nil {
			return "", err
		}
	}
	return slices.Concat(found, paths)[0], nil
}

// multipaths are the devices of multipathd that consist of any of the paths.
func (m Machine) multipaths(paths []string) (devices []string) {
	uuids, _ := filepath.Glob(m.path("sys/block/dm-*/dm/uuid")) // fails for bad patterns alone
	for _, uuid := range uuids {
		if data, err := os.ReadFile(uuid); err != nil || !strings.HasPrefix(string(data), "mpath-") {
			continue
		}
		block := filepath.Dir(filepath.Dir(uuid))
		if slices.ContainsFunc(paths, func(path string) bool {
			_, err := os.Lstat(filepath.Join(block, "slaves", kernelName(path)))
			return err == nil
		}) {
			devices = append(devices, m.path("dev", filepath.Base(block)))
		}
	}
	return devices
}

// kernelName is what the kernel calls the device behind a path.
func kernelName(path string) string {
	if device, err := filepath.EvalSymlinks(path); err == nil {
		path = device
	}
	return filepath.Base(path)
}

// flush has what is not written yet written, and multipathd let go of the paths.
func (m Machine) flush(ctx context.Context, paths []string) error {
	for _, device := range m.multipaths(paths) {
		if _, err := m.tool(ctx, "multipath", "-f", device); err != nil {
			return err
		}
	}
	for _, path := range paths {
		if _, err := m.tool(ctx, "blockdev", "--flushbufs", path); err != nil {
			return err
		}
	}
	return nil
}

// remove has the kernel forget the devices behind paths.
func (m Machine) remove(paths []string) error {
	for _, path := range paths {
		if err := write(m.path("sys/block", kernelName(path), "device/delete"), "1"); err != nil {
			return fmt.Errorf("remove disk: %w", err)
		}
	}
	return nil
}

// write tells the kernel something by a file; one that is not there (any more) needs not be told.
func write(file, text string) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
