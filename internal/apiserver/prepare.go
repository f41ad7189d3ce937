package apiserver

import (
	"fmt"
	"reflect"
	"strconv"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kemudi/kemudi/internal/apiserver/refusal"
	"github.com/kemudi/kemudi/internal/patch"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/wire"
)

func mustGiveRevision() *field.Error {
	return field.Invalid(field.NewPath("metadata", "resourceVersion"), uint64(0), "must be specified for an update")
}

func uidMismatch(given, stored types.UID) error {
	return fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: %v", given, stored) //nolint:staticcheck // upstream's text
}

// triesCreate: a dry run of a create does not mind a revision, because people try
// objects that they have read.
func (w *attempt) triesCreate() bool { return w.c.dryRun && w.c.verb == "create" }

func (w *attempt) refuseRevisionOnCreate() error {
	if w.c.verb == "create" {
		return refusal.BadRequest("resourceVersion should not be set on objects to be created")
	}
	return w.c.notFound()
}

// trackFields records in managedFields who set what.
func (w *attempt) trackFields() {
	if w.c.res.Def.Untracked {
		if old := w.old(); old != nil {
			w.obj.SetManagedFields(old.GetManagedFields())
		}
		return
	}
	w.s.fields.Update(w.c.fieldWrite(), w.old(), w.obj)
}

func (c *call) fieldWrite() patch.Write {
	return patch.Write{
		Def: c.res.Def, GV: c.res.GVK.GroupVersion(), Sub: c.subName(),
		Manager: c.fieldManager(), Force: c.force != nil && *c.force,
	}
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
}

func (w *attempt) prepareNew() {
	obj := w.obj
	obj.SetDeletionTimestamp(nil)
	obj.SetDeletionGracePeriodSeconds(nil)
	obj.SetSelfLink("")
	obj.SetUID(types.UID(uuid.NewString()))
	obj.SetCreationTimestamp(metav1.NewTime(time.Now().UTC().Truncate(time.Second)))
	w.c.res.Prepare(obj, nil)
	if set := w.c.res.Def.Requester; set != nil {
		set(obj, w.c.user)
	}
	if w.c.res.Def.HasGeneration {
		obj.SetGeneration(1)
	}
}

func (w *attempt) prepareUpdate() {
	obj, old := w.obj, w.item.Object
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
	if w.c.sub == nil {
		w.c.res.Prepare(obj, old)
		if w.c.res.Def.HasGeneration && !sameDesired(obj, old) {
			obj.SetGeneration(old.GetGeneration() + 1)
		}
		return
	}
	if w.c.sub.Name != "status" && w.c.res.Def.HasGeneration && !sameDesired(obj, old) {
		obj.SetGeneration(old.GetGeneration() + 1)
	}
}

// sameDesired reports that two objects of one type agree in all but their
// types, metadata and status.
func sameDesired(a, b resource.Object) bool {
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
func (w *attempt) validate() error {
	if w.trusted {
		return nil
	}
	d, errs, old := w.c.res.Def, resource.NewErrors(), w.old()
	w.validateMeta(old, errs)
	check := d.Validate
	if w.c.res.Version != nil {
		check = w.c.res.Version.Validate
	}
	if w.c.sub != nil && w.c.sub.Validate != nil {
		check = w.c.sub.Validate
	}
	check(w.obj, old, errs)
	if errs.Len() > 0 {
		return w.c.invalid(errs.List()...)
	}
	if w.c.sub == nil {
		w.c.warnings = append(w.c.warnings, d.Warn(w.obj, old)...)
	}
	return nil
}

// validateMeta lends an update the resourceVersion that the library wants to see.
func (w *attempt) validateMeta(old resource.Object, errs *resource.Errors) {
	if old != nil {
		w.obj.SetResourceVersion(old.GetResourceVersion())
		defer w.obj.SetResourceVersion("")
	}
	resource.ValidateMeta(w.obj, old, w.c.res.Def, errs)
}

// parseRevision reads a resourceVersion.
func parseRevision(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	rev, err := strconv.ParseUint(s, 10, 63)
	if err != nil {
		return 0, refusal.BadRequest("resourceVersion: Invalid value: %q: %v", s, err)
	}
	return int64(rev), nil
}
