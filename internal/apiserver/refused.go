package apiserver

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// notFound says that the call's object is not there.
func (c *call) notFound() error {
	return apierrors.NewNotFound(c.res.GroupResource(), c.name)
}

// conflict says that the call's object is not as the call expects it.
func (c *call) conflict(why error) error {
	return apierrors.NewConflict(c.res.GroupResource(), c.name, why)
}

// alreadyExists says that the call's name is taken.
func (c *call) alreadyExists() error {
	return apierrors.NewAlreadyExists(c.res.GroupResource(), c.name)
}

// invalid says what is wrong with the call's object.
func (c *call) invalid(errs ...*field.Error) error {
	kind := schema.GroupKind{Group: c.res.GVK.Group, Kind: c.res.GVK.Kind}
	return apierrors.NewInvalid(kind, c.name, field.ErrorList(errs))
}

// errModified is the conflict that every client knows by heart.
var errModified = errors.New("the object has been modified; please apply your changes to the latest version and try again")
