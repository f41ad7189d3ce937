package cri

import (
	"maps"
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Devices is what a container is started with for the devices that it has. Nil: it has none.
type Devices struct {
	Envs        []*runtimeapi.KeyValue
	Mounts      []*runtimeapi.Mount
	Nodes       []*runtimeapi.Device // device files
	Annotations map[string]string
	CDI         []*runtimeapi.CDIDevice
}

// AddCDI adds a device of the Container Device Interface, once.
func (d *Devices) AddCDI(name string) {
	if !slices.ContainsFunc(d.CDI, func(o *runtimeapi.CDIDevice) bool { return o.Name == name }) {
		d.CDI = append(d.CDI, &runtimeapi.CDIDevice{Name: name})
	}
}

// addTo puts all but the mounts into the configuration of a container. What the pod says of itself comes
// after it, and so is stronger.
func (d *Devices) addTo(c *runtimeapi.ContainerConfig) {
	if d == nil {
		return
	}
	c.Envs = slices.Concat(d.Envs, c.Envs)
	c.Devices = slices.Concat(d.Nodes, c.Devices)
	c.CDIDevices = d.CDI
	annotations := maps.Clone(d.Annotations)
	if annotations == nil {
		return
	}
	maps.Copy(annotations, c.Annotations)
	c.Annotations = annotations
}
