package plugins

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/api/authorization"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
)

// immortal are the namespaces that the system itself lives in.
var immortal = map[string]bool{
	metav1.NamespaceDefault: true, metav1.NamespaceSystem: true, metav1.NamespacePublic: true, corev1.NamespaceNodeLease: true,
}

// namespaceLifecycle refuses objects in namespaces that are not there or
// going, and keeps the system's own namespaces.
func namespaceLifecycle(o *admission.Options) admission.Plugin {
	namespaces := admission.Reader(o, core.Namespaces)
	look := func(ctx context.Context, a *admission.Attributes) error {
		if a.Def == core.Namespaces.Def {
			if a.Operation == admission.Delete && a.Sub == "" && immortal[a.Name] {
				return a.Forbid("this namespace may not be deleted")
			}
			return nil
		}
		if a.Namespace == "" || a.Operation == admission.Delete || a.Operation == admission.Connect || a.Def == authorization.LocalSubjectAccessReviews.Def {
			return nil
		}
		ns, ok, err := admission.Find(ctx, o, namespaces, "", a.Namespace)
		switch {
		case err != nil:
			return fmt.Errorf("look up namespace %s: %w", a.Namespace, err)
		case !ok:
			return apierrors.NewNotFound(corev1.Resource("namespaces"), a.Namespace)
		case a.Operation == admission.Create && ns.Status.Phase == corev1.NamespaceTerminating:
			return terminating(a)
		}
		if a.Operation == admission.Create {
			a.Rely(core.Namespaces.Def, ns)
		}
		return nil
	}
	return admission.Plugin{Name: "NamespaceLifecycle", Mutate: look, Recheck: look}
}

// namespaceExists refuses everything in namespaces that are not there; what
// namespaceLifecycle refuses is less.
func namespaceExists(o *admission.Options) admission.Plugin {
	namespaces := admission.Reader(o, core.Namespaces)
	return admission.Plugin{Name: "NamespaceExists", Validate: func(ctx context.Context, a *admission.Attributes) error {
		if a.Namespace == "" || a.Def == core.Namespaces.Def {
			return nil
		}
		_, ok, err := admission.Find(ctx, o, namespaces, "", a.Namespace)
		if err == nil && !ok {
			err = apierrors.NewNotFound(corev1.Resource("namespaces"), a.Namespace)
		}
		return err
	}}
}

// namespaceAutoProvision makes the namespace of an object that is made before it.
func namespaceAutoProvision(o *admission.Options) admission.Plugin {
	namespaces := admission.Reader(o, core.Namespaces)
	return admission.Plugin{Name: "NamespaceAutoProvision", Mutate: func(ctx context.Context, a *admission.Attributes) error {
		if a.DryRun || a.Operation != admission.Create || a.Namespace == "" || a.Def == core.Namespaces.Def || a.Def == authorization.LocalSubjectAccessReviews.Def {
			return nil
		}
		if _, ok, err := admission.Find(ctx, o, namespaces, "", a.Namespace); ok || err != nil || o.API == nil {
			return err
		}
		_, err := client.For(o.API(), core.Namespaces).Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: a.Namespace}})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return a.Forbid("%w", err)
		}
		return nil
	}}
}

func terminating(a *admission.Attributes) error {
	err := a.Forbid("unable to create new content in namespace %s because it is being terminated", a.Namespace)
	var status *apierrors.StatusError
	if errors.As(err, &status) {
		status.ErrStatus.Details.Causes = append(status.ErrStatus.Details.Causes, metav1.StatusCause{
			Type: corev1.NamespaceTerminatingCause, Message: fmt.Sprintf("namespace %s is being terminated", a.Namespace), Field: "metadata.namespace",
		})
	}
	return err
}
