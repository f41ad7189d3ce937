package apps

import (
	"fmt"
	"maps"
	"math"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	appsv1beta1 "k8s.io/api/apps/v1beta1"
	appsv1beta2 "k8s.io/api/apps/v1beta2"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/resource"
)

// deploymentVersions are the versions before apps/v1. All have its wire form,
// but the two oldest also have spec.rollbackTo, which apps/v1 holds in an
// annotation, a selector that can be changed and left out, and rollback.
var deploymentVersions = []resource.Version[*appsv1.Deployment]{
	resource.SameWire[*appsv1beta2.Deployment](resource.Version[*appsv1.Deployment]{
		Group: "apps", Version: "v1beta2",
		Deprecated:         "apps/v1beta2 Deployment is deprecated in v1.9+, unavailable in v1.16+; use apps/v1 Deployment",
		DefaultPropagation: metav1.DeletePropagationOrphan,
		Sub:                []resource.Sub[*appsv1.Deployment]{scaleV1beta2(deployments)},
	}),
	withRollbackTo(resource.SameWire[*appsv1beta1.Deployment](resource.Version[*appsv1.Deployment]{
		Group: "apps", Version: "v1beta1",
		Deprecated:         "apps/v1beta1 Deployment is deprecated in v1.8+, unavailable in v1.16+; use apps/v1 Deployment",
		Default:            func(obj resource.Object) { defaultDeploymentV1beta1(obj.(*appsv1beta1.Deployment)) },
		Validate:           func(obj, _ *appsv1.Deployment, errs *resource.Errors) { validateDeploymentSpec(obj, errs) },
		DefaultPropagation: metav1.DeletePropagationOrphan,
		Sub: []resource.Sub[*appsv1.Deployment]{
			scaleV1beta1(deployments),
			rollbackSub("apps", func() runtime.Object { return &appsv1beta1.DeploymentRollback{} }),
		},
	})),
	withRollbackTo(resource.SameWire[*extensionsv1beta1.Deployment](resource.Version[*appsv1.Deployment]{
		Group: "extensions", Version: "v1beta1",
		Deprecated:         "extensions/v1beta1 Deployment is deprecated in v1.8+, unavailable in v1.16+; use apps/v1 Deployment",
		Default:            func(obj resource.Object) { defaultDeploymentExtensions(obj.(*extensionsv1beta1.Deployment)) },
		Validate:           func(obj, _ *appsv1.Deployment, errs *resource.Errors) { validateDeploymentSpec(obj, errs) },
		DefaultPropagation: metav1.DeletePropagationOrphan,
		Sub: []resource.Sub[*appsv1.Deployment]{
			scaleExtensions(deployments),
			rollbackSub("extensions", func() runtime.Object { return &extensionsv1beta1.DeploymentRollback{} }),
		},
	})),
}

// defaultDeploymentV1beta1 sets what apps/v1beta1 sets otherwise than apps/v1.
func defaultDeploymentV1beta1(d *appsv1beta1.Deployment) {
	defaultSelector(&d.ObjectMeta, &d.Spec.Selector, &d.Spec.Template)
	if d.Spec.RevisionHistoryLimit == nil {
		d.Spec.RevisionHistoryLimit = ptr.To[int32](2)
	}
}

// defaultDeploymentExtensions sets what extensions/v1beta1 sets otherwise than
// apps/v1: one pod at a time, no end to the history, no deadline.
func defaultDeploymentExtensions(d *extensionsv1beta1.Deployment) {
	s := &d.Spec
	defaultSelector(&d.ObjectMeta, &s.Selector, &s.Template)
	if s.Strategy.Type == "" {
		s.Strategy.Type = extensionsv1beta1.RollingUpdateDeploymentStrategyType
	}
	if s.Strategy.Type == extensionsv1beta1.RollingUpdateDeploymentStrategyType {
		if s.Strategy.RollingUpdate == nil {
			s.Strategy.RollingUpdate = &extensionsv1beta1.RollingUpdateDeployment{}
		}
		if s.Strategy.RollingUpdate.MaxUnavailable == nil {
			s.Strategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromInt32(1))
		}
		if s.Strategy.RollingUpdate.MaxSurge == nil {
			s.Strategy.RollingUpdate.MaxSurge = ptr.To(intstr.FromInt32(1))
		}
	}
	if s.RevisionHistoryLimit == nil {
		s.RevisionHistoryLimit = ptr.To[int32](math.MaxInt32)
	}
	if s.ProgressDeadlineSeconds == nil {
		s.ProgressDeadlineSeconds = ptr.To[int32](math.MaxInt32)
	}
}

// withRollbackTo keeps spec.rollbackTo, which apps/v1 has no field for, in the
// annotation that upstream keeps it in.
func withRollbackTo(v resource.Version[*appsv1.Deployment]) resource.Version[*appsv1.Deployment] {
	to, from := v.To, v.From
	v.To = func(obj resource.Object) (*appsv1.Deployment, error) {
		d, err := to(obj)
		if err != nil {
			return nil, err
		}
		// The annotation is not the client's in this version, the field is.
		delete(d.Annotations, appsv1.DeprecatedRollbackTo)
		if revision := rollbackTo(obj); revision != nil {
			setRollbackTo(d, *revision)
		}
		return d, nil
	}
	v.From = func(d *appsv1.Deployment) (resource.Object, error) {
		out, err := from(d)
		if err != nil {
			return nil, err
		}
		text, ok := d.Annotations[appsv1.DeprecatedRollbackTo]
		if !ok {
			return out, nil
		}
		revision, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("parse annotation %s of deployment %s/%s: %w", appsv1.DeprecatedRollbackTo, d.Namespace, d.Name, err)
		}
		annotations := maps.Clone(d.Annotations)
		delete(annotations, appsv1.DeprecatedRollbackTo)
		out.SetAnnotations(annotations)
		switch o := out.(type) {
		case *appsv1beta1.Deployment:
			o.Spec.RollbackTo = &appsv1beta1.RollbackConfig{Revision: revision}
		case *extensionsv1beta1.Deployment:
			o.Spec.RollbackTo = &extensionsv1beta1.RollbackConfig{Revision: revision}
		}
		return out, nil
	}
	return v
}

// rollbackTo is the revision in spec.rollbackTo; nil: the field is not set.
func rollbackTo(obj resource.Object) *int64 {
	switch o := obj.(type) {
	case *appsv1beta1.Deployment:
		if o.Spec.RollbackTo != nil {
			return &o.Spec.RollbackTo.Revision
		}
	case *extensionsv1beta1.Deployment:
		if o.Spec.RollbackTo != nil {
			return &o.Spec.RollbackTo.Revision
		}
	}
	return nil
}

func setRollbackTo(d *appsv1.Deployment, revision int64) {
	if d.Annotations == nil {
		d.Annotations = map[string]string{}
	}
	d.Annotations[appsv1.DeprecatedRollbackTo] = strconv.FormatInt(revision, 10)
}

// rollbackSub is the subresource that asks for a rollback: a DeploymentRollback
// is posted, the Deployment gets the annotations in it and the revision to go
// back to, and the answer says that the request was taken.
func rollbackSub(group string, body func() runtime.Object) resource.Sub[*appsv1.Deployment] {
	return resource.Sub[*appsv1.Deployment]{
		Name: "rollback", Verbs: resource.Create,
		Body: &resource.Body{Group: group, Version: "v1beta1", Kind: "DeploymentRollback", New: body},
		Set: func(d *appsv1.Deployment, body runtime.Object) error {
			name, annotations, revision := "", map[string]string(nil), int64(0)
			switch b := body.(type) {
			case *appsv1beta1.DeploymentRollback:
				name, annotations, revision = b.Name, b.UpdatedAnnotations, b.RollbackTo.Revision
			case *extensionsv1beta1.DeploymentRollback:
				name, annotations, revision = b.Name, b.UpdatedAnnotations, b.RollbackTo.Revision
			}
			errs := resource.NewErrors()
			errs.Add(apivalidation.ValidateAnnotations(annotations, errs.Path("updatedAnnotations"))...)
			if name == "" {
				errs.Required("name", "")
			}
			errs.NonNegative("rollback.version", revision)
			if errs.Len() > 0 {
				return apierrors.NewInvalid(schema.GroupKind{Group: group, Kind: "DeploymentRollback"}, name, errs.List())
			}
			if name != d.Name {
				return apierrors.NewBadRequest("name in URL does not match name in DeploymentRollback object")
			}
			setRollbackTo(d, revision)
			maps.Copy(d.Annotations, annotations)
			return nil
		},
		Get: func(d *appsv1.Deployment) runtime.Object {
			return &metav1.Status{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
				Status:   metav1.StatusSuccess, Code: 200,
				Message: fmt.Sprintf("rollback request for deployment %q succeeded", d.Name),
			}
		},
	}
}
