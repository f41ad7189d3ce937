package container

import (
	"fmt"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/kubelet/volume"
)

// placeWithin makes a place for what is mounted within a volume that the node writes: it is read-only, so that the
// runtime, which makes missing ones, cannot. The first mounts of the list are those of the container's volumes.
func (c *Container) placeWithin(list []*runtimeapi.Mount) error {
	for _, m := range list {
		n := around(list, m.ContainerPath)
		if n < 0 || n >= len(c.Spec.VolumeMounts) {
			continue
		}
		name := c.Spec.VolumeMounts[n].Name
		if !slices.ContainsFunc(c.Pod.Spec.Volumes, func(v v1.Volume) bool { return v.Name == name && volume.Written(&v) }) {
			continue
		}
		at := strings.TrimPrefix(path.Clean(m.ContainerPath), path.Clean(list[n].ContainerPath)+"/")
		if err := volume.MakePlace(list[n].HostPath, at, m.HostPath); err != nil {
			return fmt.Errorf("make a place for %s in volume %q: %w", m.ContainerPath, name, err)
		}
	}
	return nil
}

// around is the number of the innermost mount that a path is within; -1: none.
func around(list []*runtimeapi.Mount, within string) int {
	found, depth := -1, 0
	for i, m := range list {
		outer := path.Clean(m.ContainerPath) + "/"
		if strings.HasPrefix(path.Clean(within), outer) && len(outer) > depth {
			found, depth = i, len(outer)
		}
	}
	return found
}
