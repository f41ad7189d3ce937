package volume

import (
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/utils/ptr"
)

// Use is what the containers of a pod have a volume as.
type Use struct{ Mounted, Mapped bool }

// Uses are the volumes that containers of a pod use, of whatever kind these are, by name. The others are not made: what they
// stand for need not be there.
func Uses(pod *v1.Pod) map[string]Use {
	out := map[string]Use{}
	add := func(mounts []v1.VolumeMount, devices []v1.VolumeDevice) {
		for i := range mounts {
			out[mounts[i].Name] = Use{Mounted: true, Mapped: out[mounts[i].Name].Mapped}
		}
		for i := range devices {
			out[devices[i].Name] = Use{Mounted: out[devices[i].Name].Mounted, Mapped: true}
		}
	}
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			add(list[i].VolumeMounts, list[i].VolumeDevices)
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		add(pod.Spec.EphemeralContainers[i].VolumeMounts, pod.Spec.EphemeralContainers[i].VolumeDevices)
	}
	return out
}

// ModeError is a volume that containers have as what it is not.
type ModeError struct {
	Volume string
	Mode   v1.PersistentVolumeMode
	Field  string // of containers, that says otherwise
}

func (e *ModeError) Error() string {
	return fmt.Sprintf("Unable to attach or mount volumes: unmounted volumes=[%[1]s], unattached volumes=[], failed to process volumes=[%[1]s]: volume %[1]s has volumeMode %[2]s, but is specified in %[3]s",
		e.Volume, e.Mode, e.Field)
}

// Check refuses the persistent volume that a pod's volume stands for if containers use it as what it is not, or the node
// (nil: nothing is known of it) cannot have it.
func Check(pod *v1.Pod, v *v1.Volume, pv *v1.PersistentVolume, node *v1.Node) error {
	mode, use := ptr.Deref(pv.Spec.VolumeMode, v1.PersistentVolumeFilesystem), Uses(pod)[v.Name]
	switch {
	case use.Mounted && mode != v1.PersistentVolumeFilesystem:
		return &ModeError{v.Name, mode, "volumeMounts"}
	case use.Mapped && mode != v1.PersistentVolumeBlock:
		return &ModeError{v.Name, mode, "volumeDevices"}
	}
	if a := pv.Spec.NodeAffinity; node == nil || a == nil || a.Required == nil {
		return nil
	}
	selector, err := nodeaffinity.NewNodeSelector(pv.Spec.NodeAffinity.Required)
	if err == nil && !selector.Match(&v1.Node{ObjectMeta: node.ObjectMeta}) {
		err = errors.New("no matching NodeSelectorTerms")
	}
	if err == nil {
		return nil
	}
	step := "MountVolume.NodeAffinity check"
	if isDevice(pv) {
		step = "MapVolume.NodeAffinity check"
	}
	return &MountError{Step: step, Volume: pv.Name, Err: err} // people are told that as of a file system, either way
}
