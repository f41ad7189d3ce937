package write

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kemudi/kemudi/internal/apiserver/call"
	"github.com/kemudi/kemudi/internal/apiserver/refusal"
	"github.com/kemudi/kemudi/internal/patch"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/wire"
)

// mustGiveRevision names the resource instead of its kind, as upstream does here.
func (w *attempt) mustGiveRevision() error {
	of := w.c.Resource.GroupResource()
	return apierrors.NewInvalid(schema.GroupKind{Group: of.Group, Kind: of.Resource}, w.c.Name, field.ErrorList{
		field.Invalid(field.NewPath("metadata", "resourceVersion"), uint64(0), "must be specified for an update"),
	})
}

// uidMismatch is in the words of upstream's store, by which clients know it.
func uidMismatch(key string, given, stored types.UID) error {
	return fmt.Errorf("StorageError: invalid object, Code: 4, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: %v, UID in object meta: %v", key, given, stored) //nolint:staticcheck // upstream's text
}

func revisionMismatch(key, given, stored string) error {
	return fmt.Errorf("StorageError: invalid object, Code: 4, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: ResourceVersion in precondition: %v, ResourceVersion in object meta: %v", key, given, stored) //nolint:staticcheck // upstream's text
}

// triesCreate: a dry run of a create does not mind a revision, because people try
// objects that they have read.
func (w *attempt) triesCreate() bool { return w.c.DryRun && w.c.Verb == "create" }

func (w *attempt) refuseRevisionOnCreate() error {
	if w.c.Verb == "create" {
		return refusal.BadRequest("resourceVersion should not be set on objects to be created")
	}
	return w.c.NotFound()
}

// trackFields records in managedFields who set what.
func (w *attempt) trackFields(ctx context.Context) {
	if w.c.Resource.Def.Untracked {
		if old := w.old(); old != nil {
			w.obj.SetManagedFields(old.GetManagedFields())
		}
		return
	}
	w.p.fields.Update(fieldWrite(ctx, w.c), w.old(), w.obj)
}

func fieldWrite(ctx context.Context, c *call.Call) patch.Write {
	w := patch.Write{
		Def: c.Resource.Def, GV: c.Resource.GVK.GroupVersion(), Sub: c.SubName(),
		Manager: c.FieldManager(), Force: c.Force != nil && *c.Force,
	}
	if d := w.Def.Dynamic; d != nil {
		w.Convert = func(obj resource.Object, to string) (resource.Object, error) {
			out, err := d.Convert(ctx, []resource.Object{obj}, to)
			if err != nil {
				return nil, err
			}
			return out[0], nil
		}
	}
	return w
}

// prepare makes the object what the server will have it be. Last it gets the form
// that it would have if it had been stored and read: what is compared from here on,
// and what the cache shows, is what clients read and send back.
func (w *attempt) prepare() {
	if w.item == nil {
		w.prepareNew()
	} else {
		w.prepareUpdate()
	}
	wire.Canonical(w.obj)
	if w.c.Resource.Def.Dynamic != nil {
		if a, ok := w.obj.(metav1.ObjectMetaAccessor); ok {
			wire.Canonical(a.GetObjectMeta())
		}
	}
}

func (w *attempt) prepareNew() {
	obj := w.obj
	obj.SetDeletionTimestamp(nil) // which an update may bring that creates
	obj.SetDeletionGracePeriodSeconds(nil)
	obj.SetSelfLink("")
	obj.SetUID(types.UID(uuid.NewString()))
	obj.SetCreationTimestamp(metav1.NewTime(time.Now().UTC().Truncate(time.Second)))
	w.c.Resource.Prepare(obj, nil)
	w.dropNeedless()
	if set := w.c.Resource.Def.Requester; set != nil {
		set(obj, w.c.User)
	}
	if w.c.Resource.Def.HasGeneration {
		obj.SetGeneration(1)
	}
}

func (w *attempt) prepareUpdate() {
	obj, old := w.obj, w.old()
	obj.SetGeneration(old.GetGeneration())
	obj.SetSelfLink("")
	if obj.GetUID() == "" {
		obj.SetUID(old.GetUID())
	}
	obj.SetCreationTimestamp(old.GetCreationTimestamp())
	if t := old.GetDeletionTimestamp(); t != nil {
		obj.SetDeletionTimestamp(t)
	}
	if g := old.GetDeletionGracePeriodSeconds(); g != nil && obj.GetDeletionGracePeriodSeconds() == nil {
		obj.SetDeletionGracePeriodSeconds(g)
	}
	if w.trusted {
		return
	}
	if w.c.Sub == nil {
		w.c.Resource.Prepare(obj, old)
		w.dropNeedless()
		if w.c.Resource.Def.HasGeneration && !w.sameDesired(obj, old) {
			obj.SetGeneration(old.GetGeneration() + 1)
		}
		return
	}
	if w.c.Sub.Name != "status" && w.c.Resource.Def.HasGeneration && !w.sameDesired(obj, old) {
		obj.SetGeneration(old.GetGeneration() + 1)
	}
}

// dropNeedless takes away what means nothing without a resource that is not served.
func (w *attempt) dropNeedless() {
	for _, need := range w.c.Resource.Def.Needs {
		if serves := w.p.o.Serves; serves != nil && !serves(need.Served) {
			need.Drop(w.obj, w.old())
		}
	}
}

// sameDesired reports that two objects of one type agree in all but their
// types, metadata and status.
func (w *attempt) sameDesired(a, b resource.Object) bool {
	if d := w.c.Resource.Def.Dynamic; d != nil {
		return d.SameDesired(a, b)
	}
	x, y := reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem()
	if x.Kind() != reflect.Struct {
		return equality.Semantic.DeepEqual(a, b)
	}
	for i := range x.NumField() {
		switch x.Type().Field(i).Name {
		case "TypeMeta", "ObjectMeta", "Status":
			continue
		}
		if !equality.Semantic.DeepEqual(x.Field(i).Interface(), y.Field(i).Interface()) {
			return false
		}
	}
	return true
}

// validate refuses bad objects with all that is wrong with them.
func (w *attempt) validate(ctx context.Context) error {
	if w.trusted {
		return nil
	}
	d, errs, old := w.c.Resource.Def, resource.NewErrors(), w.old()
	w.validateMeta(old, errs)
	check := d.Validate
	if w.c.Resource.Version != nil {
		check = w.c.Resource.Version.Validate
	}
	if w.c.Sub != nil && w.c.Sub.Validate != nil {
		check = w.c.Sub.Validate
	}
	if v := w.c.Resource.Version; v != nil && v.Live != nil {
		check = func(obj, old resource.Object, errs *resource.Errors) {
			v.Live.Validate(ctx, obj, old, w.c.SubName(), errs)
		}
	}
	check(w.obj, old, errs)
	if errs.Len() > 0 {
		return w.c.Invalid(errs.List()...)
	}
	if w.c.Sub == nil {
		w.c.Warnings = append(w.c.Warnings, d.Warn(w.obj, old)...)
	}
	return nil
}

// validateMeta lends an update the resourceVersion that the library wants to see.
func (w *attempt) validateMeta(old resource.Object, errs *resource.Errors) {
	if old != nil {
		w.obj.SetResourceVersion(old.GetResourceVersion())
		defer w.obj.SetResourceVersion("")
	}
	resource.ValidateMeta(w.obj, old, w.c.Resource.Def, errs)
}
