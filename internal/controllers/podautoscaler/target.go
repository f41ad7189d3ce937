package podautoscaler

import (
	"context"
	"fmt"
	"slices"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/resource"
)

// targets reads and writes the scale of what autoscalers refer to, of whatever kind.
type targets struct {
	kinds controller.Kinds
	api   client.Transport
}

// target is what an autoscaler scales, as it was read.
type target struct {
	def   *resource.Def
	scale *autoscalingv1.Scale
}

// kind is the kind that an object is named by. The version does not matter: whoever has
// moved on is the same object.
func (t *targets) kind(apiVersion, kind string) (*resource.Def, error) {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return nil, specError{err}
	}
	defs, _ := t.kinds.Defs()
	i := slices.IndexFunc(defs, func(d *resource.Def) bool {
		return d.Kind == kind && d.Stored() && (d.Group == gv.Group || slices.ContainsFunc(d.Versions, func(v resource.VersionDef) bool { return v.Group == gv.Group }))
	})
	if i < 0 {
		return nil, specError{&meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: gv.Group, Kind: kind}}}
	}
	return defs[i], nil
}

// read reads the scale of an autoscaler's target.
func (t *targets) read(ctx context.Context, a *autoscalingv2.HorizontalPodAutoscaler) (target, error) {
	ref := &a.Spec.ScaleTargetRef
	def, err := t.kind(ref.APIVersion, ref.Kind)
	if err != nil {
		return target{}, err
	}
	obj, err := t.api.Do(ctx, &client.Request{Verb: "get", Def: def, Sub: "scale", Namespace: a.Namespace, Name: ref.Name})
	if err != nil {
		return target{}, err
	}
	scale, ok := obj.(*autoscalingv1.Scale)
	if !ok {
		return target{}, fmt.Errorf("scale of %s %s: got a %T", def, ref.Name, obj)
	}
	return target{def, scale.DeepCopy()}, nil
}

// set sets how many pods a target is to have, unless it has changed since it was read.
func (t *targets) set(ctx context.Context, to target, replicas int32) error {
	to.scale.Spec.Replicas = replicas
	_, err := t.api.Do(ctx, &client.Request{
		Verb: "update", Def: to.def, Sub: "scale", Namespace: to.scale.Namespace, Name: to.scale.Name, Object: to.scale,
	})
	return err
}
