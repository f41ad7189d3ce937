package call

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// NotFound says that the call's object is not there.
func (c *Call) NotFound() error {
	return apierrors.NewNotFound(c.Resource.GroupResource(), c.Name)
}

// Conflict says that the call's object is not as the call expects it.
func (c *Call) Conflict(why error) error {
	return apierrors.NewConflict(c.Resource.GroupResource(), c.Name, why)
}

// Unmet says that the call's object is not what a deletion expects: upstream names the kind then.
func (c *Call) Unmet(why error) error {
	gvk := c.Resource.GVK
	return apierrors.NewConflict(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, c.Name, why)
}

// AlreadyExists says that the call's name is taken, by an object that goes.
func (c *Call) AlreadyExists(going bool) error {
	err := apierrors.NewAlreadyExists(c.Resource.GroupResource(), c.Name)
	if going {
		err.ErrStatus.Message = "object is being deleted: " + err.ErrStatus.Message
	}
	return err
}

// Invalid says what is wrong with the call's object.
func (c *Call) Invalid(errs ...*field.Error) error {
	kind := schema.GroupKind{Group: c.Resource.GVK.Group, Kind: c.Resource.GVK.Kind}
	return apierrors.NewInvalid(kind, c.Name, field.ErrorList(errs))
}

// ErrModified is the conflict that every client knows by heart.
var ErrModified = errors.New("the object has been modified; please apply your changes to the latest version and try again")
