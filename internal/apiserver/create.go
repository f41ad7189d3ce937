package apiserver

import (
	"context"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/kemudi/kemudi/internal/apiserver/refusal"
	"github.com/kemudi/kemudi/internal/resource"
)

// Names made from generateName: as much of the prefix as fits before the random
// part, and how often another is tried when it is taken.
const (
	maxNameLength   = 63
	randomLength    = 5
	maxGenerateTrys = 8
)

// create stores the new object that the call sends.
func (s *Server) create(ctx context.Context, c *call) (answer, error) {
	if c.sub != nil && c.sub.Body != nil { // a rollback, which changes its Deployment
		return s.updateBody(ctx, c)
	}
	obj := c.body.(resource.Object)
	if err := c.fitNamespace(obj); err != nil {
		return answer{}, err
	}
	generate := obj.GetName() == "" && obj.GetGenerateName() != ""
	for try := 1; ; try++ {
		c.name = obj.GetName()
		item, err := s.write(ctx, c, change{create: true, make: func(context.Context, resource.Object) (resource.Object, error) {
			if generate {
				return obj.DeepCopyObject().(resource.Object), nil
			}
			return obj, nil
		}})
		if !generate || !apierrors.IsAlreadyExists(err) {
			return answer{item: item, code: http.StatusCreated}, err
		}
		if try == maxGenerateTrys {
			return answer{}, apierrors.NewGenerateNameConflict(c.res.GroupResource(), c.name, 1)
		}
	}
}

// name settles what a new object is called, after mutating admission: that sees
// no generated name, and may give another. It reports whether the name is not
// the one that was looked for.
func (w *attempt) name() (other bool) {
	if w.obj.GetName() == "" && w.obj.GetGenerateName() != "" {
		w.obj.SetName(generateName(w.obj.GetGenerateName()))
	}
	other = w.c.name != w.obj.GetName()
	w.c.name = w.obj.GetName()
	return other
}

func generateName(prefix string) string {
	if len(prefix) > maxNameLength-randomLength {
		prefix = prefix[:maxNameLength-randomLength]
	}
	return prefix + rand.String(randomLength)
}

// fitNamespace puts a new object into the namespace of the request, or refuses
// one that names another.
func (c *call) fitNamespace(obj metav1.Object) error {
	if !c.res.Def.Namespaced {
		if obj.GetNamespace() != "" && c.namespace == "" {
			obj.SetNamespace("")
		}
		return nil
	}
	switch obj.GetNamespace() {
	case "":
		obj.SetNamespace(c.namespace)
	case c.namespace:
	default:
		return refusal.BadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	return nil
}

// fitName refuses an object that is not the one the request names, and fills
// in what it leaves open.
func (c *call) fitName(obj metav1.Object) error {
	if c.res.Def.Namespaced {
		if err := c.fitNamespace(obj); err != nil {
			return err
		}
	}
	switch name := obj.GetName(); name {
	case "":
		obj.SetName(c.name)
	case c.name:
	default:
		return refusal.BadRequest("the name of the object (%s) does not match the name on the URL (%s)", name, c.name)
	}
	return nil
}
