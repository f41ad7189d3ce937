package container

import (
	"fmt"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/kubelet/volume"
)

// blockDevices lists the volumes that the container has as bare devices.
func (c *Container) blockDevices() (out []*runtimeapi.Device, _ error) {
	if c.Runner.Disk == nil {
		return nil, nil
	}
	for _, d := range c.Spec.VolumeDevices {
		if !filepath.IsAbs(d.DevicePath) {
			return nil, fmt.Errorf("error DevicePath `%s` must be an absolute path", d.DevicePath)
		}
		n := slices.IndexFunc(c.Pod.Spec.Volumes, func(v v1.Volume) bool { return v.Name == d.Name })
		path := ""
		if n >= 0 {
			path = c.Runner.Disk.Volumes.Path(c.Pod, &c.Pod.Spec.Volumes[n])
		}
		if path == "" {
			return nil, fmt.Errorf("cannot find volume %q to pass into container %q", d.Name, c.Spec.Name)
		}
		permissions := "mrw"
		if volume.ReadOnly(&c.Pod.Spec.Volumes[n]) {
			permissions = "r"
		}
		out = append(out, &runtimeapi.Device{HostPath: path, ContainerPath: d.DevicePath, Permissions: permissions})
	}
	return out, nil
}
