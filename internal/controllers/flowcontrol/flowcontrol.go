// Package flowcontrol keeps the flow schemas and priority levels that every cluster has, and
// says of each schema whether its level is there. What the API server does by them is in
// internal/apiserver/flow.
package flowcontrol

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kemudi/kemudi/internal/api/flowcontrol"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/resource"
)

// What keys begin with.
const (
	aSchema = "schema/"
	aLevel  = "level/"
)

// Controller is the controller. Its keys are the names of schemas and of levels.
var Controller = controller.NewKeyed(controller.Keyed{
	Name: "flow-control-controller",
	Watches: []controller.Watch{
		controller.Mapped(flowcontrol.FlowSchemas, func(_ *controller.Kit, fs *flowcontrolv1.FlowSchema) []string {
			return []string{aSchema + fs.Name}
		}),
		controller.Mapped(flowcontrol.PriorityLevels, func(k *controller.Kit, pl *flowcontrolv1.PriorityLevelConfiguration) []string {
			keys := []string{aLevel + pl.Name}
			for _, fs := range controller.For(k, flowcontrol.FlowSchemas).List("", labels.Everything()) {
				if fs.Spec.PriorityLevelConfiguration.Name == pl.Name {
					keys = append(keys, aSchema+fs.Name)
				}
			}
			return keys
		}),
	},
	Writes: []controller.Permission{
		controller.Create(flowcontrol.FlowSchemas.Def), controller.Update(flowcontrol.FlowSchemas.Def), controller.UpdateStatus(flowcontrol.FlowSchemas.Def),
		controller.Create(flowcontrol.PriorityLevels.Def), controller.Update(flowcontrol.PriorityLevels.Def),
	},
	Setup: func(k *controller.Kit) func(context.Context, string) (controller.Next, error) {
		r := &reconciler{controller.For(k, flowcontrol.FlowSchemas), controller.For(k, flowcontrol.PriorityLevels)}
		return r.reconcile
	},
})

type reconciler struct {
	schemas controller.Client[*flowcontrolv1.FlowSchema]
	levels  controller.Client[*flowcontrolv1.PriorityLevelConfiguration]
}

func (r *reconciler) reconcile(ctx context.Context, key string) (controller.Next, error) {
	if name, ok := strings.CutPrefix(key, aLevel); ok {
		return controller.Done, r.level(ctx, name)
	}
	return controller.Done, r.schema(ctx, strings.TrimPrefix(key, aSchema))
}

// schema keeps a schema that was given as it was, and then says whether it dangles.
func (r *reconciler) schema(ctx context.Context, name string) error {
	fs, ok := r.schemas.Get("", name)
	given, fixed := given(name, func(g flowcontrol.Given) []*flowcontrolv1.FlowSchema { return g.Schemas })
	switch {
	case !ok && given == nil:
		return nil
	case !ok:
		_, err := r.schemas.Create(ctx, given.DeepCopy())
		return existing(err)
	case fs.DeletionTimestamp != nil:
		return nil
	case given != nil:
		if mark, ours := follow(fs, fixed); mark != fs.Annotations[flowcontrolv1.AutoUpdateAnnotationKey] || ours && !flowcontrol.SameSchema(fs, given) {
			now := fs.DeepCopy()
			metav1.SetMetaDataAnnotation(&now.ObjectMeta, flowcontrolv1.AutoUpdateAnnotationKey, mark)
			if ours {
				now.Spec = *given.Spec.DeepCopy()
			}
			_, err := r.schemas.Update(ctx, now)
			return err // it is looked at again when that is seen
		}
	}
	return r.tell(ctx, fs)
}

// level keeps a level that was given as it was.
func (r *reconciler) level(ctx context.Context, name string) error {
	given, fixed := given(name, func(g flowcontrol.Given) []*flowcontrolv1.PriorityLevelConfiguration { return g.Levels })
	if given == nil {
		return nil
	}
	pl, ok := r.levels.Get("", name)
	if !ok {
		_, err := r.levels.Create(ctx, given.DeepCopy())
		return existing(err)
	}
	mark, ours := follow(pl, fixed)
	if pl.DeletionTimestamp != nil || mark == pl.Annotations[flowcontrolv1.AutoUpdateAnnotationKey] && (!ours || flowcontrol.SameLevel(pl, given)) {
		return nil
	}
	now := pl.DeepCopy()
	metav1.SetMetaDataAnnotation(&now.ObjectMeta, flowcontrolv1.AutoUpdateAnnotationKey, mark)
	if ours && !flowcontrol.SameLevel(pl, given) {
		now.Spec = *given.Spec.DeepCopy()
	}
	_, err := r.levels.Update(ctx, now)
	return err
}

// given is the object of a name that a server brings along, and whether it stays as it is whoever
// wants it otherwise.
func given[T resource.Object](name string, of func(flowcontrol.Given) []T) (obj T, fixed bool) {
	for i, g := range []flowcontrol.Given{flowcontrol.Mandatory(), flowcontrol.Suggested()} {
		for _, o := range of(g) {
			if o.GetName() == name {
				return o, i == 0
			}
		}
	}
	return obj, false
}

// follow is whether an object is kept as it was given, and the annotation that says so: people may
// say what becomes of one that is not fixed, and it is theirs once they have changed it.
func follow(obj resource.Object, fixed bool) (mark string, ours bool) {
	mark, said := obj.GetAnnotations()[flowcontrolv1.AutoUpdateAnnotationKey]
	if fixed {
		return "true", true
	}
	if !said {
		ours = obj.GetGeneration() == 1
		return strconv.FormatBool(ours), ours
	}
	ours, err := strconv.ParseBool(mark)
	if err != nil {
		ours = obj.GetGeneration() == 1
		return strconv.FormatBool(ours), ours
	}
	return mark, ours
}

// tell says in the status whether the level is there.
func (r *reconciler) tell(ctx context.Context, fs *flowcontrolv1.FlowSchema) error {
	level := fs.Spec.PriorityLevelConfiguration.Name
	is := flowcontrolv1.FlowSchemaCondition{
		Type: flowcontrolv1.FlowSchemaConditionDangling, Status: flowcontrolv1.ConditionFalse, Reason: "Found",
		Message: fmt.Sprintf("This FlowSchema references the PriorityLevelConfiguration object named %q and it exists", level),
	}
	if _, ok := r.levels.Get("", level); !ok {
		is.Status, is.Reason = flowcontrolv1.ConditionTrue, "NotFound"
		is.Message = fmt.Sprintf("This FlowSchema references the PriorityLevelConfiguration object named %q but there is no such object", level)
	}
	i := slices.IndexFunc(fs.Status.Conditions, func(c flowcontrolv1.FlowSchemaCondition) bool { return c.Type == is.Type })
	if i >= 0 {
		was := fs.Status.Conditions[i]
		if was.Status == is.Status && was.Reason == is.Reason && was.Message == is.Message {
			return nil
		}
	}
	now := fs.DeepCopy()
	is.LastTransitionTime = metav1.Now()
	if i < 0 {
		now.Status.Conditions = append(now.Status.Conditions, is)
	} else {
		if now.Status.Conditions[i].Status == is.Status {
			is.LastTransitionTime = now.Status.Conditions[i].LastTransitionTime
		}
		now.Status.Conditions[i] = is
	}
	_, err := r.schemas.UpdateStatus(ctx, now)
	return err
}

// existing: another server was faster.
func existing(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
