package snapshot

import (
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
)

// storage is what is known of classes and drivers.
type storage struct {
	classes  map[string]*storagev1.StorageClass
	measured map[string]bool              // drivers that tell how much they have left
	needed   map[string]bool              // drivers without which no pod with a volume of theirs goes to a node
	spaces   map[string]map[string]*space // by class, and namespace/name
	limits   map[string]map[string]int32  // how many volumes of a driver a node takes, by node and driver
	drivers  map[string][]string          // that a node has
	attached map[string]attachments       // to nodes, by node
}

func newStorage() storage {
	return storage{
		classes: map[string]*storagev1.StorageClass{}, measured: map[string]bool{}, needed: map[string]bool{}, drivers: map[string][]string{},
		spaces: map[string]map[string]*space{}, limits: map[string]map[string]int32{}, attached: map[string]attachments{},
	}
}

// space is what a driver has left of a class, for some nodes.
type space struct {
	nodes labels.Selector
	max   *apiresource.Quantity // of one volume; nil: the driver did not say
	left  int64                 // in all
}

// SetStorageClass takes in a storage class.
func (s *Snapshot) SetStorageClass(sc *storagev1.StorageClass) { s.volumes.classes[sc.Name] = sc }

// RemoveStorageClass forgets a storage class.
func (s *Snapshot) RemoveStorageClass(name string) { delete(s.volumes.classes, name) }

// StorageClass returns a storage class, or nil.
func (s *Snapshot) StorageClass(name string) *storagev1.StorageClass { return s.volumes.classes[name] }

// Waits reports whether the claims of a class wait for a pod.
func (s *Snapshot) Waits(class string) bool {
	sc := s.volumes.classes[class]
	return sc != nil && ptr.Deref(sc.VolumeBindingMode, storagev1.VolumeBindingImmediate) == storagev1.VolumeBindingWaitForFirstConsumer
}

// SetDriver takes in what a CSI driver can do.
func (s *Snapshot) SetDriver(d *storagev1.CSIDriver) {
	s.volumes.measured[d.Name] = ptr.Deref(d.Spec.StorageCapacity, false)
	s.volumes.needed[d.Name] = ptr.Deref(d.Spec.PreventPodSchedulingIfMissing, false)
}

// RemoveDriver forgets a CSI driver.
func (s *Snapshot) RemoveDriver(name string) {
	delete(s.volumes.measured, name)
	delete(s.volumes.needed, name)
}

// Lacks reports whether a node does not have a driver that says that it must be there.
func (s *Snapshot) Lacks(node, driver string) bool {
	return s.volumes.needed[driver] && !slices.Contains(s.volumes.drivers[node], driver)
}

// SetCapacity takes in how much is left of a class for some nodes. Of which class
// it is does not change.
func (s *Snapshot) SetCapacity(c *storagev1.CSIStorageCapacity) {
	x := &space{nodes: labels.Nothing(), max: c.Capacity}
	if c.Capacity != nil {
		x.left = c.Capacity.Value()
	}
	if c.MaximumVolumeSize != nil {
		x.max = c.MaximumVolumeSize
	}
	if selector, err := metav1.LabelSelectorAsSelector(c.NodeTopology); err == nil {
		x.nodes = selector
	}
	if s.volumes.spaces[c.StorageClassName] == nil {
		s.volumes.spaces[c.StorageClassName] = map[string]*space{}
	}
	s.volumes.spaces[c.StorageClassName][c.Namespace+"/"+c.Name] = x
}

// RemoveCapacity forgets how much is left.
func (s *Snapshot) RemoveCapacity(c *storagev1.CSIStorageCapacity) {
	delete(s.volumes.spaces[c.StorageClassName], c.Namespace+"/"+c.Name)
}

// Measured reports whether the driver of a class tells how much it has left.
func (s *Snapshot) Measured(sc *storagev1.StorageClass) bool {
	return s.volumes.measured[sc.Provisioner]
}

// Space is how much is left of a class where a volume of the size can be made for a
// node, as far as a driver that is [Snapshot.Measured] tells; the most, if it tells of
// several such places. ok is false if there is none.
func (s *Snapshot) Space(sc *storagev1.StorageClass, size apiresource.Quantity, n *Node) (left int64, ok bool) {
	for _, x := range s.volumes.spaces[sc.Name] {
		if x.max != nil && x.max.Cmp(size) >= 0 && x.nodes.Matches(labels.Set(n.Obj.Labels)) {
			left, ok = max(left, x.left), true
		}
	}
	return left, ok
}

// SetCSINode takes in which drivers a node has, and how many volumes of theirs it takes.
func (s *Snapshot) SetCSINode(n *storagev1.CSINode) {
	limits, drivers := map[string]int32{}, make([]string, len(n.Spec.Drivers))
	for i := range n.Spec.Drivers {
		d := &n.Spec.Drivers[i]
		drivers[i] = d.Name
		if d.Allocatable != nil && d.Allocatable.Count != nil {
			limits[d.Name] = *d.Allocatable.Count
		}
	}
	s.volumes.limits[n.Name], s.volumes.drivers[n.Name] = limits, drivers
}

// RemoveCSINode forgets which drivers a node has.
func (s *Snapshot) RemoveCSINode(name string) {
	delete(s.volumes.limits, name)
	delete(s.volumes.drivers, name)
}

// VolumeLimits is how many volumes a node takes, by driver; drivers that are not
// there have no limit.
func (s *Snapshot) VolumeLimits(node string) map[string]int32 { return s.volumes.limits[node] }

// attachments are volumes that are attached to a node, or are about to be, by name.
type attachments map[string]*storagev1.VolumeAttachment

// SetAttachment takes in that a volume is attached to a node; that cannot change.
func (s *Snapshot) SetAttachment(a *storagev1.VolumeAttachment) {
	on := s.volumes.attached[a.Spec.NodeName]
	if on == nil {
		on = attachments{}
		s.volumes.attached[a.Spec.NodeName] = on
	}
	on[a.Name] = a
}

// RemoveAttachment forgets an attachment.
func (s *Snapshot) RemoveAttachment(a *storagev1.VolumeAttachment) {
	on := s.volumes.attached[a.Spec.NodeName]
	if delete(on, a.Name); len(on) == 0 {
		delete(s.volumes.attached, a.Spec.NodeName)
	}
}

// Attached is the persistent volumes that are attached to a node, with the driver that attaches
// them: as long as they are, whether a pod uses them or not.
func (s *Snapshot) Attached(node string) iter.Seq2[string, *Volume] {
	return func(yield func(string, *Volume) bool) {
		for _, a := range s.volumes.attached[node] {
			if name := a.Spec.Source.PersistentVolumeName; name != nil && s.volumes.volumes[*name] != nil && !yield(a.Spec.Attacher, s.volumes.volumes[*name]) {
				return
			}
		}
	}
}

// InTopology reports whether a node is where volumes of a class may be.
func InTopology(sc *storagev1.StorageClass, n *Node) bool {
	if len(sc.AllowedTopologies) == 0 {
		return true
	}
	for i := range sc.AllowedTopologies {
		if matches(&sc.AllowedTopologies[i], n.Obj) {
			return true
		}
	}
	return false
}

func matches(term *corev1.TopologySelectorTerm, n *corev1.Node) bool {
	for _, e := range term.MatchLabelExpressions {
		value, ok := n.Labels[e.Key]
		if !ok || !slices.Contains(e.Values, value) {
			return false
		}
	}
	return len(term.MatchLabelExpressions) > 0
}
