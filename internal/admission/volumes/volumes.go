package volumes

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/core/claims"
	"github.com/kemudi/kemudi/internal/api/storage"
	"github.com/kemudi/kemudi/internal/resource"
)

// NewDefaultClass gives new claims that say nothing of a class the default one, if
// there is one. Those made before there was get it by the controller that binds.
func NewDefaultClass(o *admission.Options) admission.Plugin {
	classes := admission.Reader(o, storage.StorageClasses)
	return admission.Plugin{Name: "DefaultStorageClass", Mutate: func(_ context.Context, a *admission.Attributes) error {
		c, ok := a.Object.(*corev1.PersistentVolumeClaim)
		if !ok || !a.Is(core.PersistentVolumeClaims.Def, "", admission.Create) || claims.SaysClass(c) {
			return nil
		}
		if sc := storage.DefaultClass(classes.List("", nil)); sc != nil {
			c.Spec.StorageClassName = ptr.To(sc.Name)
		}
		return nil
	}}
}

// NewProtection gives new claims, volumes and classes of attributes the finalizers that keep them as long
// as they are used.
func NewProtection() admission.Plugin {
	return admission.Plugin{Name: "StorageObjectInUseProtection", Mutate: func(_ context.Context, a *admission.Attributes) error {
		obj, ok := a.Object.(resource.Object)
		switch {
		case !ok:
		case a.Is(core.PersistentVolumeClaims.Def, "", admission.Create):
			protect(obj, claims.ProtectClaim)
		case a.Is(core.PersistentVolumes.Def, "", admission.Create):
			protect(obj, claims.ProtectVolume)
		case a.Is(storage.VolumeAttributesClasses.Def, "", admission.Create):
			protect(obj, claims.ProtectAttributes)
		}
		return nil
	}}
}

func protect(obj resource.Object, finalizer string) {
	if all := obj.GetFinalizers(); !slices.Contains(all, finalizer) {
		obj.SetFinalizers(append(all, finalizer))
	}
}

// NewResize refuses that claims grow which are not bound, or whose class does not
// allow it.
func NewResize(o *admission.Options) admission.Plugin {
	classes := admission.Reader(o, storage.StorageClasses)
	return admission.Plugin{Name: "PersistentVolumeClaimResize", Validate: func(ctx context.Context, a *admission.Attributes) error {
		if !a.Is(core.PersistentVolumeClaims.Def, "", admission.Update) {
			return nil
		}
		c, ok := a.Object.(*corev1.PersistentVolumeClaim)
		old, was := a.Old.(*corev1.PersistentVolumeClaim)
		if !ok || !was {
			return nil
		}
		size, before := c.Spec.Resources.Requests[corev1.ResourceStorage], old.Spec.Resources.Requests[corev1.ResourceStorage]
		if size.Cmp(before) <= 0 {
			return nil
		}
		if old.Status.Phase != corev1.ClaimBound {
			return a.Forbid("Only bound persistent volume claims can be expanded")
		}
		if class := claims.Class(c); class != "" && class == claims.Class(old) {
			sc, ok, err := admission.Find(ctx, o, classes, "", class)
			if err != nil {
				return err
			}
			if ok && ptr.Deref(sc.AllowVolumeExpansion, false) {
				return nil
			}
		}
		return a.Forbid("only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize")
	}}
}
