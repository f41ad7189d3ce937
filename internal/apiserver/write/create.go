package write

import (
	"context"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/kemudi/kemudi/internal/apiserver/call"
	"github.com/kemudi/kemudi/internal/resource"
)

// Names made from generateName: as much of the prefix as fits before the random
// part, and how often another is tried when it is taken.
const (
	maxNameLength   = 63
	randomLength    = 5
	maxGenerateTrys = 8
)

// Create stores the new object that the call sends.
func (p *Pipeline) Create(ctx context.Context, c *call.Call) (call.Result, error) {
	if c.Sub != nil && c.Sub.Body != nil { // a rollback, which changes its Deployment
		return p.updateBody(ctx, c)
	}
	obj := c.Body.(resource.Object)
	if err := c.FitNamespace(obj); err != nil {
		return call.Result{}, err
	}
	obj.SetDeletionTimestamp(nil) // what clients say of the system's own is not heard, nor anybody's
	obj.SetDeletionGracePeriodSeconds(nil)
	generate := obj.GetName() == "" && obj.GetGenerateName() != ""
	for try := 1; ; try++ {
		c.Name = obj.GetName()
		item, err := p.Write(ctx, c, Change{create: true, Make: func(context.Context, resource.Object) (resource.Object, error) {
			if generate {
				return obj.DeepCopyObject().(resource.Object), nil
			}
			return obj, nil
		}})
		if !generate || !apierrors.IsAlreadyExists(err) {
			return call.Result{Item: item, Code: http.StatusCreated}, err
		}
		if try == maxGenerateTrys {
			return call.Result{}, apierrors.NewGenerateNameConflict(c.Resource.GroupResource(), c.Name, 1)
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
	other = w.c.Name != w.obj.GetName()
	w.c.Name = w.obj.GetName()
	return other
}

func generateName(prefix string) string {
	if len(prefix) > maxNameLength-randomLength {
		prefix = prefix[:maxNameLength-randomLength]
	}
	return prefix + rand.String(randomLength)
}
