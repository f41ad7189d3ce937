package core

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/resource"
)

// Namespaces is a partition of the names of all namespaced kinds.
//
// A namespace stays until its spec.finalizers are empty, which they become
// through the subresource finalize when all it holds is gone.
var Namespaces = resource.Define(resource.Spec[*corev1.Namespace]{
	Names:   resource.Names{Version: "v1", Kind: "Namespace", Plural: "namespaces", Short: []string{"ns"}, NameRule: resource.DNS1123Label, IsNamespace: true},
	Verbs:   resource.AllVerbs &^ resource.DeleteCollection,
	Default: defaultNamespace, Prepare: prepareNamespace, Validate: validateNamespace,
	Deletion: resource.Deletion[*corev1.Namespace]{
		PendingDelete: func(ns *corev1.Namespace) bool { return len(ns.Spec.Finalizers) > 0 },
		Terminate:     func(ns *corev1.Namespace) { ns.Status.Phase = corev1.NamespaceTerminating },
	},
	Columns: []resource.Column[*corev1.Namespace]{{
		Name: "Status", Description: "The status of the namespace",
		Value: func(ns *corev1.Namespace) any { return string(ns.Status.Phase) },
	}},
	Fields: map[string]func(*corev1.Namespace) string{
		"name":         func(ns *corev1.Namespace) string { return ns.Name },
		"status.phase": func(ns *corev1.Namespace) string { return string(ns.Status.Phase) },
	},
	Sub: []resource.Sub[*corev1.Namespace]{
		{Name: "status", Merge: func(ns, old *corev1.Namespace) { ns.Spec = old.Spec }, Validate: validateNamespaceStatus},
		{
			Name: "finalize", Verbs: resource.Update, Handler: resource.HandleFinalize,
			Merge:    func(ns, old *corev1.Namespace) { ns.Status = old.Status },
			Validate: validateFinalizers,
		},
	},
})

func defaultNamespace(ns *corev1.Namespace) {
	if ns.Name != "" && ns.Labels[corev1.LabelMetadataName] != ns.Name {
		if ns.Labels == nil {
			ns.Labels = map[string]string{}
		}
		ns.Labels[corev1.LabelMetadataName] = ns.Name
	}
	check.SetIfZero(&ns.Status.Phase, corev1.NamespaceActive)
}

func prepareNamespace(ns, old *corev1.Namespace) {
	if old != nil {
		ns.Spec.Finalizers, ns.Status = old.Spec.Finalizers, old.Status
		return
	}
	ns.Status = corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
	defaultNamespace(ns) // its name may have been generated
	if !slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes) {
		ns.Spec.Finalizers = append(ns.Spec.Finalizers, corev1.FinalizerKubernetes)
	}
}

func validateNamespace(ns, old *corev1.Namespace, errs *resource.Errors) {
	if old == nil {
		validateFinalizers(ns, old, errs)
	}
}

func validateFinalizers(ns, _ *corev1.Namespace, errs *resource.Errors) {
	for i, name := range ns.Spec.Finalizers {
		at := errs.At("spec.finalizers[%d]", i)
		errs.Add(validation.ValidateFinalizerName(string(name), at.Path(""))...)
		if name != corev1.FinalizerKubernetes && !isQualified(string(name)) {
			at.Invalid("", name, "name is neither a standard finalizer name nor is it fully qualified")
		}
	}
}

func validateNamespaceStatus(ns, _ *corev1.Namespace, errs *resource.Errors) {
	switch phase := ns.Status.Phase; {
	case ns.DeletionTimestamp.IsZero() && phase != corev1.NamespaceActive:
		errs.Invalid("status.Phase", phase, "may only be 'Active' if `deletionTimestamp` is empty")
	case !ns.DeletionTimestamp.IsZero() && phase != corev1.NamespaceTerminating:
		errs.Invalid("status.Phase", phase, "may only be 'Terminating' if `deletionTimestamp` is not empty")
	}
}

// isQualified reports whether a name has a domain, or is one of those that need
// none.
func isQualified(name string) bool {
	return strings.Contains(name, "/") || name == metav1.FinalizerOrphanDependents || name == metav1.FinalizerDeleteDependents
}
