package extend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/apiextensions"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/task"
)

// slowAfter is how long the objects of a definition may take to go before its condition says that
// they do.
const slowAfter = time.Minute

// empty begins to delete the objects of a definition that is being deleted, and lets it go when they are gone.
func (f *Follower) empty(crd *apiextensionsv1.CustomResourceDefinition) {
	if f.emptied[crd.Name] != nil {
		return
	}
	e := &emptying{f: f, name: crd.Name, uid: string(crd.UID)}
	if s := f.served[crd.Name]; s != nil {
		e.def = s.def
	}
	e.established = apiextensions.IsTrue(crd, apiextensionsv1.Established)
	ctx, stop := context.WithCancel(f.work.Context())
	f.emptied[crd.Name] = stop
	f.work.Go("empty "+crd.Name, func(context.Context) error {
		defer stop()
		pace := task.Backoff{Initial: 100 * time.Millisecond, Max: 30 * time.Second, Jitter: 0.1}
		for {
			err := e.run(ctx)
			if err == nil || errors.Is(err, errGone) || ctx.Err() != nil {
				return nil
			}
			f.o.Logger.Warn("objects of a custom resource definition are not deleted", "crd", e.name, "err", err)
			if task.Sleep(ctx, pace.Next()) != nil {
				return nil
			}
		}
	})
}

// emptying is the deletion of a definition's objects.
type emptying struct {
	f           *Follower
	name, uid   string
	def         *resource.Def // nil: it is not served
	established bool
}

func (e *emptying) run(ctx context.Context) error {
	c := apiextensionsv1.CustomResourceDefinitionCondition{
		Type: apiextensionsv1.Terminating, Status: apiextensionsv1.ConditionTrue, Reason: "InstanceDeletionInProgress", Message: "CustomResource deletion is in progress",
	}
	if err := e.tell(ctx, c, false); err != nil {
		return err
	}
	c.Status = apiextensionsv1.ConditionFalse
	switch {
	case !e.established:
		c.Reason, c.Message = "NeverEstablished", "resource was never established"
	case e.def == nil:
		c.Reason, c.Message = "OverlappingBuiltInResource", "instances overlap with built-in resources in storage"
	default:
		if err := e.objects(ctx); err != nil {
			return err
		}
		c.Reason, c.Message = "InstanceDeletionCompleted", "removed all instances"
	}
	return e.tell(ctx, c, true)
}

// tell writes the condition, with done also that the definition may go.
func (e *emptying) tell(ctx context.Context, c apiextensionsv1.CustomResourceDefinitionCondition, done bool) error {
	for {
		crd, err := e.f.crds.Get(ctx, "", e.name)
		if apierrors.IsNotFound(err) || err == nil && string(crd.UID) != e.uid {
			return errGone
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", e.name, err)
		}
		crd = crd.DeepCopy()
		apiextensions.SetCondition(crd, c)
		if done {
			crd.Finalizers = slices.DeleteFunc(crd.Finalizers, func(name string) bool { return name == apiextensionsv1.CustomResourceCleanupFinalizer })
		}
		if _, err = e.f.crds.UpdateStatus(ctx, crd); apierrors.IsConflict(err) {
			continue
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("write status of %s: %w", e.name, err)
		}
		return nil
	}
}

// objects deletes all objects and waits until they are gone, which finalizers may put off.
func (e *emptying) objects(ctx context.Context) error {
	all := e.f.o.Transport.Cache(e.def.Base(), "")
	if all == nil {
		return errGone
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	e.f.work.Go("tell that "+e.name+" is slow to go", func(context.Context) error {
		if task.Sleep(ctx, slowAfter) == nil {
			// Whoever looks is told why it takes so long; it is no fault if that cannot be written.
			_ = e.tell(ctx, apiextensionsv1.CustomResourceDefinitionCondition{
				Type: apiextensionsv1.Terminating, Status: apiextensionsv1.ConditionTrue, Reason: "InstanceDeletionCheck",
				Message: "could not confirm zero CustomResources remaining: timed out waiting for the condition",
			}, false)
		}
		return nil
	})
	return e.failed(ctx, all.Each(ctx, cache.FollowOptions{}, func([]cache.Delta) error {
		if all.Len() == 0 {
			return errEmpty
		}
		return e.delete(ctx, all)
	}))
}

// errEmpty ends the wait for objects to go.
var errEmpty = errors.New("no objects are left")

// failed tells of what is in the way of a deletion.
func (e *emptying) failed(ctx context.Context, err error) error {
	if errors.Is(err, errEmpty) {
		return nil
	}
	if ctx.Err() == nil {
		c := apiextensionsv1.CustomResourceDefinitionCondition{
			Type: apiextensionsv1.Terminating, Status: apiextensionsv1.ConditionTrue, Reason: "InstanceDeletionFailed",
			Message: fmt.Sprintf("could not issue all deletes: %v", err),
		}
		err = errors.Join(err, e.tell(ctx, c, false))
	}
	return err
}

// delete asks for the deletion of all objects that are not being deleted, namespace by namespace.
func (e *emptying) delete(ctx context.Context, all *cache.Cache) error {
	seen := map[string]bool{}
	var failed []error
	for _, it := range all.List("", nil) {
		ns := it.Object.GetNamespace()
		if seen[ns] || it.Object.GetDeletionTimestamp() != nil {
			continue
		}
		seen[ns] = true
		_, err := e.f.o.Transport.Do(ctx, &client.Request{
			Verb: "deletecollection", Def: e.def, Namespace: ns, Delete: metav1.DeleteOptions{},
		})
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}
