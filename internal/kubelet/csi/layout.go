package csi

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/kubelet/plugin"
	vol "github.com/kemudi/kemudi/internal/kubelet/volume"
	"github.com/kemudi/kemudi/internal/wholefile"
)

// Names of upstream's directories and files.
const (
	kind       = "kubernetes.io~csi"
	devices    = "volumeDevices"
	recordFile = "vol_data.json"
	mountDir   = "mount"
	globalDir  = "globalmount"
)

// layout says where everything lies, in a root directory that drivers know by another name.
type layout struct{ root, seen string }

// told is a path as drivers see it.
func (l layout) told(path string) string {
	if below, ok := strings.CutPrefix(path, l.root); ok {
		return l.seen + below
	}
	return path
}

func (l layout) podDir(uid types.UID) string { return filepath.Join(l.root, "pods", string(uid)) }

// volumeDir is the pod's directory of a volume, with its record.
func (l layout) volumeDir(uid types.UID, name string) string {
	return filepath.Join(l.podDir(uid), "volumes", kind, name)
}

// deviceLink is the pod's link to a device.
func (l layout) deviceLink(uid types.UID, name string) string {
	return filepath.Join(l.podDir(uid), devices, kind, name)
}

// isLink reports whether a path is that of a pod's link to a device.
func isLink(path string) bool {
	dir := filepath.Dir(path)
	return filepath.Base(dir) == kind && filepath.Base(filepath.Dir(dir)) == devices
}

func (l layout) plugins() string { return filepath.Join(l.root, plugin.Dir, "kubernetes.io", "csi") }

// stageDir is the directory of a volume with a file system, with its record.
func (l layout) stageDir(driver, handle string) string {
	return filepath.Join(l.plugins(), driver, fmt.Sprintf("%x", sha256.Sum256([]byte(handle))))
}

// deviceDir is the directory of a volume that is a device, with its record.
func (l layout) deviceDir(name string) string {
	return filepath.Join(l.plugins(), devices, name, "data")
}

// devicePath is where a device is published to a pod.
func (l layout) devicePath(uid types.UID, name string) string {
	return filepath.Join(l.plugins(), devices, "publish", name, string(uid))
}

// staging is where the volume of a record is staged: dir is that of its record.
func (l layout) staging(dir string) string {
	if name, ok := l.deviceOf(dir); ok {
		return filepath.Join(l.plugins(), devices, "staging", name)
	}
	return filepath.Join(dir, globalDir)
}

// deviceOf is the name of the device whose record lies in dir; ok is false if it is none of a device.
func (l layout) deviceOf(dir string) (name string, ok bool) {
	above := filepath.Dir(dir)
	return filepath.Base(above), filepath.Dir(above) == filepath.Join(l.plugins(), devices)
}

// checkName refuses the name of a volume that is more than one part of a path, or that stands for
// something else (S4).
func checkName(name string) error {
	if name == "" || name == "." || name == ".." || filepath.Base(name) != name || name == "staging" || name == "publish" {
		return fmt.Errorf("bad name of a volume: %q", name)
	}
	return nil
}

// record is what is on disk of a volume, in upstream's words.
type record struct {
	Name       string `json:"specVolID,omitempty"`
	Handle     string `json:"volumeHandle"`
	Driver     string `json:"driverName"`
	Node       string `json:"nodeName,omitempty"`
	Attachment string `json:"attachmentID,omitempty"` // empty: it is not attached
	Mode       string `json:"volumeLifecycleMode,omitempty"`
}

// errRecord is why a record says nothing.
var errRecord = errors.New("the record of a volume cannot be read")

// read reads the record in dir. The error is fs.ErrNotExist if there is none.
func read(dir string) (record, error) {
	var r record
	data, err := os.ReadFile(filepath.Join(dir, recordFile))
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("%w: %s: %w", errRecord, dir, err)
	}
	if err := checkDriver(r.Driver); err != nil || r.Handle == "" {
		return r, fmt.Errorf("%w: %s: it names no volume of a driver", errRecord, dir)
	}
	return r, nil
}

// write makes a record (S1), unless it is there already.
func write(dir string, r record) error {
	if there, err := read(dir); err == nil {
		switch {
		case there == r:
			return nil
		case there.Driver != r.Driver || there.Handle != r.Handle:
			return fmt.Errorf("%s is of volume %s of driver %s", dir, there.Handle, there.Driver)
		}
	}
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("write record of volume: %w", err)
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("write record of volume: %w", err)
	}
	if err := wholefile.Private(filepath.Join(dir, recordFile), data); err != nil {
		return fmt.Errorf("write record of volume: %w", err)
	}
	return nil
}

// mounted reports whether something is mounted at a path.
func mounted(path string) bool {
	yes, err := vol.IsMounted(path)
	return err == nil && yes
}

// removePoint removes the point at which a driver has mounted something, which it has unmounted.
func removePoint(path string) error {
	if mounted(path) {
		return fmt.Errorf("%s is still mounted", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove mount point: %w", err)
	}
	return nil
}

// removeRecord removes a directory that holds a record, which goes last, and nothing else any more.
func removeRecord(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove record of volume: %w", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "."+recordFile+".") { // left by one that was killed
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return fmt.Errorf("remove record of volume: %w", err)
			}
		} else if e.Name() != recordFile {
			return fmt.Errorf("remove record of volume: %s holds %s", dir, e.Name())
		}
	}
	for _, path := range []string{filepath.Join(dir, recordFile), dir} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove record of volume: %w", err)
		}
	}
	return nil
}
