package storagemigration

import (
	"strings"

	migrationv1 "k8s.io/api/storagemigration/v1"
	migrationv1beta1 "k8s.io/api/storagemigration/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kemudi/kemudi/internal/resource"
)

// Manager is the field manager of who migrates: what it writes is stored although nothing has changed.
const Manager = "storage-version-migrator"

// StorageVersionMigrations ask for all objects of a resource to be written anew, in the
// form in which they are stored today.
var StorageVersionMigrations = resource.Define(resource.Spec[*migrationv1.StorageVersionMigration]{
	Names:  resource.Names{Group: "storagemigration.k8s.io", Version: "v1", Kind: "StorageVersionMigration", Plural: "storageversionmigrations"},
	Update: resource.UpdateNeedsRevision,
	Prepare: func(obj, old *migrationv1.StorageVersionMigration) {
		if old == nil {
			obj.Status = migrationv1.StorageVersionMigrationStatus{}
			return
		}
		obj.Status = old.Status
	},
	Validate: func(obj, old *migrationv1.StorageVersionMigration, errs *resource.Errors) {
		r := obj.Spec.Resource
		if r.Resource == "" {
			errs.Required("spec.resource.resource", "resource is required to be set")
		} else if wrong := validation.IsDNS1035Label(r.Resource); len(wrong) > 0 {
			errs.Invalid("spec.resource.resource", r.Resource, strings.Join(wrong, ","))
		}
		if r.Group != "" {
			if wrong := validation.IsDNS1123Subdomain(r.Group); len(wrong) > 0 {
				errs.Invalid("spec.resource.group", r.Group, strings.Join(wrong, ","))
			}
		}
		if old != nil && !equality.Semantic.DeepEqual(obj.Spec, old.Spec) {
			errs.Immutable("spec", obj.Spec)
		}
	},
	Columns: []resource.Column[*migrationv1.StorageVersionMigration]{{
		Name: "Resource", Description: migrationv1.StorageVersionMigrationSpec{}.SwaggerDoc()["resource"],
		Value: func(m *migrationv1.StorageVersionMigration) any {
			if m.Spec.Resource.Group == "" {
				return m.Spec.Resource.Resource
			}
			return m.Spec.Resource.Resource + "." + m.Spec.Resource.Group
		},
	}},
	Sub: []resource.Sub[*migrationv1.StorageVersionMigration]{{
		Name: "status", Keeps: resource.KeepsMetadata,
		Merge:    func(obj, old *migrationv1.StorageVersionMigration) { obj.Spec = old.Spec },
		Validate: validateStatus,
	}},
	Versions: []resource.Version[*migrationv1.StorageVersionMigration]{resource.SameWire[*migrationv1beta1.StorageVersionMigration](resource.Version[*migrationv1.StorageVersionMigration]{
		Group: "storagemigration.k8s.io", Version: "v1beta1",
		Deprecated: "storagemigration.k8s.io/v1beta1 StorageVersionMigration is deprecated in v1.37+, unavailable in v1.40+; use storagemigration.k8s.io/v1 StorageVersionMigration",
	})},
})

// Is reports whether a condition of a migration is true.
func Is(m *migrationv1.StorageVersionMigration, t migrationv1.MigrationConditionType) bool {
	return meta.IsStatusConditionTrue(m.Status.Conditions, string(t))
}

// Ended reports that a migration has done what it can.
func Ended(m *migrationv1.StorageVersionMigration) bool {
	return Is(m, migrationv1.MigrationSucceeded) || Is(m, migrationv1.MigrationFailed)
}

// validateStatus: a migration ends once, one way or the other.
func validateStatus(obj, old *migrationv1.StorageVersionMigration, errs *resource.Errors) {
	s := &obj.Status
	if s.ResourceVersion != "" || old.Status.ResourceVersion != "" {
		if _, err := resourceversion.CompareResourceVersion(s.ResourceVersion, s.ResourceVersion); err != nil {
			errs.Invalid("status.resourceVersion", s.ResourceVersion, err.Error())
		}
	}
	errs.Add(metavalidation.ValidateConditions(s.Conditions, errs.Path("status.conditions"))...)
	if old.Status.ResourceVersion != "" && s.ResourceVersion != old.Status.ResourceVersion {
		errs.Immutable("status.resourceVersion", s.ResourceVersion)
	}
	refuse := func(when bool, detail string) {
		if when {
			errs.Invalid("status.conditions", s.Conditions, detail)
		}
	}
	done, failed := Is(obj, migrationv1.MigrationSucceeded), Is(obj, migrationv1.MigrationFailed)
	refuse(done && failed, "Both success and failed conditions cannot be true at the same time")
	refuse(Is(old, migrationv1.MigrationSucceeded) && !done, "Success condition cannot be set to false once it is true")
	refuse(Is(old, migrationv1.MigrationFailed) && !failed, "Failed condition cannot be set to false once it is true")
}
