package san

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// FC is a disk of a fibre channel: a number behind ports of the network, or what the disk itself is called all over the world.
type FC struct {
	Ports []string `json:"targetWWNs,omitempty"` // several: ways to the same disk (FC-003)
	LUN   int32    `json:"lun"`
	Names []string `json:"wwids,omitempty"`
}

func ofFC(s *v1.FCVolumeSource) *FC {
	d := &FC{Ports: s.TargetWWNs, Names: s.WWIDs}
	if s.Lun != nil {
		d.LUN = *s.Lun
	}
	return d
}

func (d *FC) name() string {
	if len(d.Names) > 0 {
		return strings.Join(d.Names, "-")
	}
	return strings.Join(d.Ports, "-") + "-lun-" + strconv.Itoa(int(d.LUN))
}

// patterns match the names that udev gives the paths to the disk.
func (m Machine) patterns(d *FC) (dir string, patterns []string) {
	for _, name := range d.Names {
		patterns = append(patterns, "scsi-"+strings.NewReplacer(" ", "_", "/", "_").Replace(name))
	}
	if len(patterns) > 0 {
		return "disk/by-id", patterns
	}
	for _, port := range d.Ports {
		patterns = append(patterns, fmt.Sprintf("*-fc-0x%s-lun-%d", port, d.LUN))
	}
	return "disk/by-path", patterns
}

// fcPaths are the paths to the disk that are there; none if it is nil.
func (m Machine) fcPaths(d *FC) (paths []string) {
	if d == nil {
		return nil
	}
	dir, patterns := m.patterns(d)
	for _, pattern := range patterns {
		found, err := filepath.Glob(m.path("dev", dir, pattern))
		if err != nil { // a name of which no device has one
			continue
		}
		paths = append(paths, found...)
	}
	return there(paths)
}

// attachFC finds the disk: the adapters see by themselves what the network shows them (FC-004), or once they are told to look.
func (m Machine) attachFC(ctx context.Context, d *FC) ([]string, error) {
	find := func() []string { return m.fcPaths(d) }
	if found := find(); len(found) > 0 {
		return found, nil
	}
	scans, _ := filepath.Glob(m.path("sys/class/scsi_host/*/scan")) // fails for bad patterns alone
	for _, scan := range scans {
		if err := write(scan, "- - -"); err != nil {
			return nil, fmt.Errorf("have %s look for disks: %w", filepath.Base(filepath.Dir(scan)), err)
		}
	}
	dir, _ := m.patterns(d)
	found, err := m.appear(ctx, dir, find)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, errors.New("no fc disk found")
	}
	return found, err
}
