package workload

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/resource"
)

// History keeps the revisions of workloads of one kind as ControllerRevisions, one
// for each template that a workload has had. Its controller reads them and may
// create, update, patch and delete them.
type History[O resource.Object] struct {
	Revisions controller.Client[*appsv1.ControllerRevision]
	Owners    controller.Client[O]
	HashLabel string // carries the hash of the template
}

// Revised is a workload as its history looks at it.
type Revised[O resource.Object] struct {
	Owner      O
	Selector   labels.Selector
	Template   *corev1.PodTemplateSpec
	Collisions *int32 // status.collisionCount
}

// Revisions are the revisions of one workload.
type Revisions struct {
	Present *appsv1.ControllerRevision   // of the template as it is now
	Old     []*appsv1.ControllerRevision // all others, oldest first
	Twins   []*appsv1.ControllerRevision // those of Old that hold the same as Present, with a hash of their own
	// Collisions is what status.collisionCount must become.
	Collisions *int32
}

// Sync returns the revisions of a workload, which it adopts. The one of its
// present template is made if there is none; one that has that template already
// keeps its name and becomes the newest again.
func (h History[O]) Sync(ctx context.Context, w Revised[O]) (Revisions, error) {
	all, err := controller.Claimer[*appsv1.ControllerRevision, O]{Children: h.Revisions, Owners: h.Owners}.Claim(ctx, w.Owner, w.Selector)
	if err != nil {
		return Revisions{}, err
	}
	data, err := patchOf(w.Template)
	if err != nil {
		return Revisions{}, err
	}
	r := arrange(all, func(rev *appsv1.ControllerRevision) bool {
		return rev.Labels[h.HashLabel] != "" && sameData(rev, data, w.Template) // without its hash it is of no use
	})
	for _, rev := range r.Old {
		if rev.Labels[h.HashLabel] != "" && bytes.Equal(rev.Data.Raw, data) {
			r.Twins = append(r.Twins, rev)
		}
	}
	r.Collisions = w.Collisions
	next := int64(1)
	if n := len(r.Old); n > 0 {
		next = r.Old[n-1].Revision + 1
	}
	switch {
	case r.Present == nil:
		return h.add(ctx, w, r, &appsv1.ControllerRevision{Data: runtime.RawExtension{Raw: data}, Revision: next})
	case r.Present.Revision < next:
		rev := r.Present.DeepCopy()
		rev.Revision = next
		if r.Present, err = h.Revisions.Update(ctx, rev); err != nil {
			return Revisions{}, fmt.Errorf("number revision %s: %w", rev.Name, err)
		}
	}
	return r, nil
}

// add makes rev, which has data and number, the present revision. A name that
// something else has makes the next try use another one.
func (h History[O]) add(ctx context.Context, w Revised[O], r Revisions, rev *appsv1.ControllerRevision) (Revisions, error) {
	for {
		hash, err := TemplateHash(w.Template, r.Collisions)
		if err != nil {
			return Revisions{}, err
		}
		named := rev.DeepCopy()
		named.ObjectMeta = metav1.ObjectMeta{
			Namespace: w.Owner.GetNamespace(), Name: revisionName(w.Owner.GetName(), hash),
			Labels: maps.Clone(w.Template.Labels), Annotations: maps.Clone(w.Owner.GetAnnotations()),
			OwnerReferences: []metav1.OwnerReference{*controller.ControllerRef(w.Owner, h.Owners.Def)},
		}
		if named.Labels == nil {
			named.Labels = map[string]string{}
		}
		named.Labels[h.HashLabel] = hash
		name := named.Name
		r.Present, err = h.Revisions.Create(ctx, named)
		if err == nil {
			return r, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return Revisions{}, fmt.Errorf("create revision %s: %w", name, err)
		}
		has, err := h.Revisions.Live(ctx, w.Owner.GetNamespace(), name)
		if err != nil {
			return Revisions{}, err
		}
		if metav1.IsControlledBy(has, w.Owner) && sameData(has, rev.Data.Raw, w.Template) {
			r.Present, err = h.labelled(ctx, has, hash) // the cache does not show it yet, or not with its hash
			return r, err
		}
		r.Collisions = ptr.To(ptr.Deref(r.Collisions, 0) + 1)
	}
}

// labelled is a revision with its hash, which somebody may have taken from it.
func (h History[O]) labelled(ctx context.Context, rev *appsv1.ControllerRevision, hash string) (*appsv1.ControllerRevision, error) {
	if rev.Labels[h.HashLabel] != "" {
		return rev, nil
	}
	rev = rev.DeepCopy()
	if rev.Labels == nil {
		rev.Labels = map[string]string{}
	}
	rev.Labels[h.HashLabel] = hash
	rev, err := h.Revisions.Update(ctx, rev)
	if err != nil {
		return nil, fmt.Errorf("label revision: %w", err)
	}
	return rev, nil
}

// longestPrefix is how much of a workload's name goes into the names of its
// revisions.
const longestPrefix = 223

func revisionName(owner, hash string) string {
	return owner[:min(len(owner), longestPrefix)] + "-" + hash
}

// arrange sorts revisions into the present one, the newest if there are several,
// and the others. Number and age order them.
func arrange(all []*appsv1.ControllerRevision, present func(*appsv1.ControllerRevision) bool) Revisions {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b *appsv1.ControllerRevision) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	r := Revisions{Old: all}
	for i := len(all) - 1; i >= 0; i-- {
		if present(all[i]) {
			r.Present = all[i]
			r.Old = slices.Delete(all, i, i+1)
			break
		}
	}
	return r
}

// sameData says that a revision is of the template, whose patch is data.
func sameData(rev *appsv1.ControllerRevision, data []byte, template *corev1.PodTemplateSpec) bool {
	if bytes.Equal(rev.Data.Raw, data) {
		return true
	}
	t, err := TemplateOf(rev)
	return err == nil && equality.Semantic.DeepEqual(t, template)
}

// patchOf is a template as revisions hold it: the strategic merge patch that puts
// it in the place of the one that a workload has. Clients roll back with it.
func patchOf(t *corev1.PodTemplateSpec) ([]byte, error) {
	data, err := json.Marshal(t)
	if err != nil {
		return nil, fmt.Errorf("encode template: %w", err)
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, fmt.Errorf("encode template: %w", err)
	}
	fields["$patch"] = "replace"
	data, err = json.Marshal(map[string]any{"spec": map[string]any{"template": fields}})
	if err != nil {
		return nil, fmt.Errorf("encode template: %w", err)
	}
	return data, nil
}

// TemplateOf is the template that a revision holds.
func TemplateOf(rev *appsv1.ControllerRevision) (*corev1.PodTemplateSpec, error) {
	var patch struct {
		Spec struct {
			Template corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(rev.Data.Raw, &patch); err != nil {
		return nil, fmt.Errorf("template of revision %s: %w", rev.Name, err)
	}
	return &patch.Spec.Template, nil
}

// Truncate deletes the oldest revisions, so that limit of those are left that
// are neither of the present template nor live: of pods that are there.
func (h History[O]) Truncate(ctx context.Context, r Revisions, limit int32, live func(*appsv1.ControllerRevision) bool) error {
	for _, rev := range expired(r.Old, limit, live) {
		if err := h.Revisions.Delete(ctx, rev); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete old revision %s: %w", rev.Name, err)
		}
	}
	return nil
}

func expired(old []*appsv1.ControllerRevision, limit int32, live func(*appsv1.ControllerRevision) bool) []*appsv1.ControllerRevision {
	idle := slices.DeleteFunc(slices.Clone(old), live)
	return idle[:max(0, len(idle)-int(limit))]
}
