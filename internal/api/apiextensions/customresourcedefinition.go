package apiextensions

import (
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/resource"
)

// CustomResourceDefinitions each make a kind, of the group that it names.
//
// A definition that is deleted stays, with the finalizer
// customresourcecleanup.apiextensions.k8s.io, until its objects are gone.
var CustomResourceDefinitions = resource.Define(resource.Spec[*apiextensionsv1.CustomResourceDefinition]{
	Names: resource.Names{
		Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition", Plural: "customresourcedefinitions",
		Short: []string{"crd", "crds"}, Categories: []string{"api-extensions"},
		StoragePrefix: "apiextensions.k8s.io/customresourcedefinitions", NameRule: anyName,
	},
	HasGeneration: true,
	Update:        resource.UpdateNeedsRevision,
	Default:       apiextensionsv1.SetObjectDefaults_CustomResourceDefinition,
	Prepare:       prepare,
	Validate:      validate,
	Warn:          warn,
	Deletion: resource.Deletion[*apiextensionsv1.CustomResourceDefinition]{
		PendingDelete: func(crd *apiextensionsv1.CustomResourceDefinition) bool { return crd.DeletionTimestamp == nil },
		Terminate:     terminate,
	},
	Columns: []resource.Column[*apiextensionsv1.CustomResourceDefinition]{
		{Name: "Scope", Description: "Cluster/Namespaced", Value: func(crd *apiextensionsv1.CustomResourceDefinition) any { return string(crd.Spec.Scope) }},
		{Name: "Versions", Description: "Served versions", Value: func(crd *apiextensionsv1.CustomResourceDefinition) any { return servedVersions(crd) }},
		{Name: "Created At", Type: "date", Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"], Value: func(crd *apiextensionsv1.CustomResourceDefinition) any {
			return crd.CreationTimestamp.UTC().Format(time.RFC3339)
		}},
		{Name: "Group", Priority: 1, Description: "API group", Value: func(crd *apiextensionsv1.CustomResourceDefinition) any { return crd.Spec.Group }},
		{Name: "Kind", Priority: 1, Description: "CustomResource kind", Value: func(crd *apiextensionsv1.CustomResourceDefinition) any { return crd.Spec.Names.Kind }},
		{Name: "ShortNames", Priority: 1, Description: "Short names", Value: func(crd *apiextensionsv1.CustomResourceDefinition) any {
			return strings.Join(crd.Spec.Names.ShortNames, ",")
		}},
		{Name: "Established", Type: "boolean", Priority: 1, Description: "Established status", Value: func(crd *apiextensionsv1.CustomResourceDefinition) any {
			return IsTrue(crd, apiextensionsv1.Established)
		}},
	},
	Ageless: true,
	Sub: []resource.Sub[*apiextensionsv1.CustomResourceDefinition]{{
		Name: "status", Validate: validateStatus,
		Merge: func(crd, old *apiextensionsv1.CustomResourceDefinition) { crd.Spec = old.Spec },
	}},
	Versions: []resource.Version[*apiextensionsv1.CustomResourceDefinition]{v1beta1},
})

// anyName leaves names to validate, which knows the one name that is right.
func anyName(string, bool) []string { return nil }

// servedVersions are the names of the served versions, in order, with a mark on the stored one.
func servedVersions(crd *apiextensionsv1.CustomResourceDefinition) string {
	var list []string
	for _, v := range crd.Spec.Versions {
		switch {
		case v.Served && v.Storage:
			list = append(list, v.Name+"(storage)")
		case v.Served:
			list = append(list, v.Name)
		}
	}
	slices.Sort(list)
	return strings.Join(list, ",")
}

// prepare keeps the status, and lists the storage version among those in which objects are stored.
func prepare(crd, old *apiextensionsv1.CustomResourceDefinition) {
	crd.Status = apiextensionsv1.CustomResourceDefinitionStatus{}
	if old != nil {
		crd.Status = *old.Status.DeepCopy()
	}
	if v := StorageVersion(crd); v != "" && !slices.Contains(crd.Status.StoredVersions, v) {
		crd.Status.StoredVersions = append(crd.Status.StoredVersions, v)
	}
}

// StorageVersion is the version in which a definition's objects are stored, "" if it says none.
func StorageVersion(crd *apiextensionsv1.CustomResourceDefinition) string {
	for _, v := range crd.Spec.Versions {
		if v.Storage {
			return v.Name
		}
	}
	return ""
}

// terminate shows that objects are to go, and keeps the definition until they have.
func terminate(crd *apiextensionsv1.CustomResourceDefinition) {
	if !slices.Contains(crd.Finalizers, apiextensionsv1.CustomResourceCleanupFinalizer) {
		crd.Finalizers = append(slices.Clip(crd.Finalizers), apiextensionsv1.CustomResourceCleanupFinalizer)
	}
	crd.Status.Conditions = slices.Clone(crd.Status.Conditions)
	SetCondition(crd, apiextensionsv1.CustomResourceDefinitionCondition{
		Type: apiextensionsv1.Terminating, Status: apiextensionsv1.ConditionTrue, Reason: "InstanceDeletionPending",
		Message: "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
	})
}
