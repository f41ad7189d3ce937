package storage

import (
	"maps"
	"slices"

	storagev1 "k8s.io/api/storage/v1"
	storagev1beta1 "k8s.io/api/storage/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"

	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/api/core/podspec"
	"github.com/kemudi/kemudi/internal/resource"
)

// CSIStorageCapacities tell how much a CSI driver can still provision of a storage
// class, for nodes of a part of the cluster.
var CSIStorageCapacities = resource.Define(resource.Spec[*storagev1.CSIStorageCapacity]{
	Names:    resource.Names{Group: "storage.k8s.io", Version: "v1", Kind: "CSIStorageCapacity", Plural: "csistoragecapacities", Namespaced: true},
	Update:   resource.UpdateNeedsRevision,
	Validate: validateStorageCapacity,
	Warn:     warnStorageCapacity,
	Ageless:  true,
	Columns: []resource.Column[*storagev1.CSIStorageCapacity]{
		{Name: "StorageClassName", Description: storagev1.CSIStorageCapacity{}.SwaggerDoc()["storageClassName"], Value: func(c *storagev1.CSIStorageCapacity) any { return c.StorageClassName }},
		{Name: "Capacity", Description: storagev1.CSIStorageCapacity{}.SwaggerDoc()["capacity"], Value: func(c *storagev1.CSIStorageCapacity) any {
			if c.Capacity == nil {
				return "<unset>"
			}
			return c.Capacity.String()
		}},
	},
	Versions: []resource.Version[*storagev1.CSIStorageCapacity]{resource.SameWire[*storagev1beta1.CSIStorageCapacity](resource.Version[*storagev1.CSIStorageCapacity]{
		Group: "storage.k8s.io", Version: "v1beta1",
		Deprecated: "storage.k8s.io/v1beta1 CSIStorageCapacity is deprecated in v1.24+, unavailable in v1.27+; use storage.k8s.io/v1 CSIStorageCapacity",
	})},
})

func validateStorageCapacity(c, old *storagev1.CSIStorageCapacity, errs *resource.Errors) {
	errs.Add(metavalidation.ValidateLabelSelector(c.NodeTopology, metavalidation.LabelSelectorValidationOptions{}, errs.Path("nodeTopology"))...)
	errs.Refuse("storageClassName", c.StorageClassName, resource.DNS1123Subdomain(c.StorageClassName, false))
	if q := c.Capacity; q != nil && q.Sign() < 0 {
		errs.Invalid("capacity", q.String(), "must be greater than or equal to 0")
	}
	if old == nil {
		return
	}
	if !equality.Semantic.DeepEqual(c.NodeTopology, old.NodeTopology) {
		errs.Immutable("nodeTopology", c.NodeTopology)
	}
	if c.StorageClassName != old.StorageClassName {
		errs.Immutable("storageClassName", c.StorageClassName)
	}
}

// warnStorageCapacity says which labels that are asked of nodes have other names now.
func warnStorageCapacity(c, _ *storagev1.CSIStorageCapacity) []string {
	var w check.Warnings
	if c.NodeTopology == nil {
		return nil
	}
	for i, e := range c.NodeTopology.MatchExpressions {
		if detail, is := podspec.OldNodeLabel(e.Key); is {
			w.Add("nodeTopology.matchExpressions[%d].key: %s is %s", i, e.Key, detail)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(c.NodeTopology.MatchLabels)) {
		if detail, is := podspec.OldNodeLabel(key); is {
			w.Add("nodeTopology.matchLabels.%s: %s", key, detail)
		}
	}
	return w
}
