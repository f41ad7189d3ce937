package storage

import (
	"slices"
	"strings"

	storagev1 "k8s.io/api/storage/v1"
	storagev1beta1 "k8s.io/api/storage/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/resource"
)

const maxNodeID = 256 // bytes

// CSINodes tell which CSI drivers a node has.
var CSINodes = resource.Define(resource.Spec[*storagev1.CSINode]{
	Names: resource.Names{Group: "storage.k8s.io", Version: "v1", Kind: "CSINode", Plural: "csinodes"}, Update: resource.UpdateNeedsRevision,
	Validate: validateCSINode,
	Columns: []resource.Column[*storagev1.CSINode]{
		{Name: "Drivers", Type: "integer", Description: "Drivers indicates the number of CSI drivers registered on the node", Value: func(n *storagev1.CSINode) any { return int64(len(n.Spec.Drivers)) }},
	},
	Versions: []resource.Version[*storagev1.CSINode]{resource.SameWire[*storagev1beta1.CSINode](resource.Version[*storagev1.CSINode]{
		Group: "storage.k8s.io", Version: "v1beta1",
		Deprecated: "storage.k8s.io/v1beta1 CSINode is deprecated in v1.17+, unavailable in v1.22+; use storage.k8s.io/v1 CSINode",
	})},
})

func validateCSINode(obj, old *storagev1.CSINode, errs *resource.Errors) {
	var seen []string
	for i := range obj.Spec.Drivers {
		d, at := &obj.Spec.Drivers[i], errs.At("spec.drivers[%d]", i)
		validateDriverName(d.Name, at.At("name"))
		if d.NodeID == "" {
			at.Required("nodeID", "")
		}
		if len(d.NodeID) > maxNodeID {
			at.Invalid("nodeID", d.NodeID, "must be 256 characters or less")
		}
		if d.Allocatable != nil {
			at.NonNegative("allocatable.count", int64(ptr.Deref(d.Allocatable.Count, 0)))
		}
		if slices.Contains(seen, d.Name) {
			at.Duplicate("name", d.Name)
		}
		seen = append(seen, d.Name)
		for j, key := range d.TopologyKeys {
			if key == "" {
				at.Required("", "")
			}
			if slices.Contains(d.TopologyKeys[:j], key) {
				at.Duplicate("", key)
			}
			at.Refuse("", key, validation.IsQualifiedName(key))
		}
	}
	if old != nil {
		validateSameDrivers(obj.Spec.Drivers, old.Spec.Drivers, errs)
	}
}

// validateSameDrivers lets drivers come and go, and those that stay change
// nothing but how many volumes they can take.
func validateSameDrivers(drivers, old []storagev1.CSINodeDriver, errs *resource.Errors) {
	for _, o := range old {
		for _, d := range drivers {
			if d.Name != o.Name {
				continue
			}
			o.Allocatable = d.Allocatable
			if !equality.Semantic.DeepEqual(d, o) {
				errs.Immutable("spec.drivers", d)
			}
		}
	}
}

// validateDriverName checks the name of a CSI driver; at is the name.
func validateDriverName(name string, at *resource.Errors) {
	if name == "" {
		at.Required("", "")
		return
	}
	if len(name) > 63 {
		at.TooLong("", 63)
	}
	at.Refuse("", name, validation.IsDNS1123Subdomain(strings.ToLower(name)))
}
