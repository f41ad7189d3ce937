package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// story is what happens in a namespace.
type story struct {
	config    *rest.Config
	scheme    *runtime.Scheme
	env       *envtest.Environment
	namespace string
	client    client.WithWatch // without a cache
	leads     chan string      // names of managers that lead now

	mu struct {
		sync.Mutex
		warnings []string
	}
}

// HandleWarningHeader notes a warning.
func (s *story) HandleWarningHeader(_ int, _, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.warnings = append(s.mu.warnings, text)
}

// patience is how long what must come is waited for.
const patience = 20 * time.Second

// eventually asks until there is no error.
func eventually(ctx context.Context, what string, ask func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, err)
		case <-tick.C:
		}
	}
}

func (s *story) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: s.namespace, Name: name}
}

func (s *story) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: s.namespace, Name: name}
}

// tell goes through it all.
func (s *story) tell(ctx context.Context) (err error) {
	direct := rest.CopyConfig(s.config)
	direct.QPS, direct.WarningHandler = -1, s
	if s.client, err = client.NewWithWatch(direct, client.Options{Scheme: s.scheme}); err != nil {
		return err
	}
	hooks, err := s.startWebhooks(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, hooks()) }()
	first, err := s.startController(ctx, "first")
	if err != nil {
		return err
	}
	stopped := false
	defer func() {
		if !stopped {
			err = errors.Join(err, first())
		}
	}()
	select {
	case <-s.leads:
	case <-time.After(patience):
		return errors.New("nobody leads")
	}
	for _, chapter := range []struct {
		name string
		told func(context.Context) error
	}{
		{"webhooks", s.webhooks}, {"versions", s.versions}, {"growth", s.growth}, {"tools", s.tools},
		{"fields", s.fields}, {"pages", s.pages}, {"status", s.status}, {"watches", s.watches},
	} {
		if err := chapter.told(ctx); err != nil {
			return fmt.Errorf("%s: %w", chapter.name, err)
		}
		fmt.Println(chapter.name)
	}
	second, err := s.startController(ctx, "second")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, second()) }()
	stopped = true
	if err := first(); err != nil {
		return fmt.Errorf("first manager: %w", err)
	}
	if err := s.succession(ctx); err != nil {
		return fmt.Errorf("succession: %w", err)
	}
	fmt.Println("succession")
	if err := s.end(ctx); err != nil {
		return fmt.Errorf("end: %w", err)
	}
	fmt.Println("end")
	return nil
}

// webhooks: what is refused, warned of and filled in.
func (s *story) webhooks(ctx context.Context) error {
	none := &Garden{ObjectMeta: s.meta("none")}
	// The server of the webhooks may not listen yet.
	if err := eventually(ctx, "create", func() error { return s.client.Create(ctx, none) }); err != nil {
		return err
	}
	if none.Spec.Owner == "" {
		return errors.New("no owner was filled in")
	}
	s.mu.Lock()
	warned := slices.Contains(s.mu.warnings, "a garden without beds")
	s.mu.Unlock()
	if !warned {
		return fmt.Errorf("no warning, but %q", s.mu.warnings)
	}
	err := s.client.Create(ctx, &Garden{ObjectMeta: s.meta("large"), Spec: GardenSpec{Beds: 21}})
	if !apierrors.IsForbidden(err) || err.Error() != `admission webhook "check.gardens.example.com" denied the request: spec.beds: 21 are more than 20` {
		return fmt.Errorf("a large garden: %w", err)
	}
	err = s.client.Create(ctx, &OldGarden{ObjectMeta: s.meta("large"), Spec: OldGardenSpec{Size: "22 beds"}})
	if !apierrors.IsForbidden(err) {
		return fmt.Errorf("a large garden of old: %w", err)
	}
	if err := s.client.Create(ctx, &Garden{ObjectMeta: s.meta("wrong"), Spec: GardenSpec{Beds: -1}}); !apierrors.IsInvalid(err) {
		return fmt.Errorf("a negative number: %w", err)
	}
	if err := s.client.Create(ctx, &Garden{ObjectMeta: s.meta("dry"), Spec: GardenSpec{Beds: 1}}, client.DryRunAll); err != nil {
		return fmt.Errorf("dry run: %w", err)
	}
	if err := s.client.Get(ctx, s.key("dry"), &Garden{}); !apierrors.IsNotFound(err) {
		return fmt.Errorf("after a dry run: %w", err)
	}
	return s.client.Delete(ctx, none)
}

// versions: each object is there in both.
func (s *story) versions(ctx context.Context) error {
	if err := s.client.Create(ctx, &OldGarden{ObjectMeta: s.meta("rose"), Spec: OldGardenSpec{Size: "3 beds", Owner: "ann"}}); err != nil {
		return err
	}
	var g Garden
	if err := s.client.Get(ctx, s.key("rose"), &g); err != nil {
		return err
	}
	if g.Spec != (GardenSpec{Beds: 3, Owner: "ann"}) {
		return fmt.Errorf("got %+v", g.Spec)
	}
	if err := s.client.Create(ctx, &OldGarden{ObjectMeta: s.meta("odd"), Spec: OldGardenSpec{Size: "many"}}); err == nil || !strings.Contains(err.Error(), "spec.size: strconv") {
		return fmt.Errorf("what cannot be converted: %w", err)
	}
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		var old OldGarden
		if err := s.client.Get(ctx, s.key("rose"), &old); err != nil {
			return err
		}
		old.Spec.Size = "2 beds"
		return s.client.Update(ctx, &old)
	})
}

// growth: what the controller makes of it, also through the scale.
func (s *story) growth(ctx context.Context) error {
	grown := func(beds int32) func() error {
		return func() error {
			var g Garden
			if err := s.client.Get(ctx, s.key("rose"), &g); err != nil {
				return err
			}
			if g.Status.Planted != beds || !meta.IsStatusConditionTrue(g.Status.Conditions, "Ready") || len(g.Finalizers) != 1 {
				return fmt.Errorf("got %+v, finalizers %q", g.Status, g.Finalizers)
			}
			return nil
		}
	}
	if err := eventually(ctx, "2 beds", grown(2)); err != nil {
		return err
	}
	g := &Garden{ObjectMeta: s.meta("rose")}
	var scale autoscalingv1.Scale
	if err := s.client.SubResource("scale").Get(ctx, g, &scale); err != nil {
		return err
	}
	if scale.Spec.Replicas != 2 || scale.Status.Replicas != 2 || scale.Status.Selector != "garden=rose" {
		return fmt.Errorf("scale: got %+v %+v", scale.Spec, scale.Status)
	}
	scale.Spec.Replicas, scale.ResourceVersion = 4, ""
	if err := s.client.SubResource("scale").Update(ctx, g, client.WithSubResourceBody(&scale)); err != nil {
		return err
	}
	if err := eventually(ctx, "4 beds", grown(4)); err != nil {
		return err
	}
	if err := eventually(ctx, "event", func() error {
		var all eventsv1.EventList
		if err := s.client.List(ctx, &all, client.InNamespace(s.namespace), client.MatchingFields{"reason": "Noted", "regarding.name": "rose"}); err != nil {
			return err
		}
		if len(all.Items) != 1 || all.Items[0].Action != "Note" || all.Items[0].Related == nil || all.Items[0].Related.Name != "rose-note" {
			return fmt.Errorf("got %+v", all.Items)
		}
		return nil
	}); err != nil {
		return err
	}
	// Metadata alone tell the controller that it is gone.
	if err := s.client.Delete(ctx, &corev1.ConfigMap{ObjectMeta: s.meta("rose-note")}); err != nil {
		return err
	}
	return eventually(ctx, "note", func() error { return s.client.Get(ctx, s.key("rose-note"), &corev1.ConfigMap{}) })
}

// tools: a cache with a selector sees what comes into it and goes out of it.
func (s *story) tools(ctx context.Context) error {
	counted := func(n string) error {
		return eventually(ctx, n+" tools", func() error {
			var note corev1.ConfigMap
			if err := s.client.Get(ctx, s.key("rose-note"), &note); err != nil {
				return err
			}
			if note.Data["tools"] != n {
				return fmt.Errorf("got %v", note.Data)
			}
			return nil
		})
	}
	spade := &corev1.Secret{ObjectMeta: s.meta("spade")}
	if err := s.client.Create(ctx, &corev1.Secret{ObjectMeta: s.meta("other")}); err != nil {
		return err
	}
	spade.Labels = map[string]string{toolLabel: "ann"}
	if err := s.client.Create(ctx, spade); err != nil {
		return err
	}
	if err := counted("1"); err != nil {
		return err
	}
	before := spade.DeepCopy()
	spade.Labels = nil
	if err := s.client.Patch(ctx, spade, client.StrategicMergeFrom(before)); err != nil {
		return err
	}
	return counted("0")
}

// fields: by those that a definition declares objects are selected, in every version.
func (s *story) fields(ctx context.Context) error {
	if err := s.client.Create(ctx, &Garden{ObjectMeta: s.meta("herb"), Spec: GardenSpec{Owner: "bob"}}); err != nil {
		return err
	}
	var all GardenList
	if err := s.client.List(ctx, &all, client.InNamespace(s.namespace), client.MatchingFields{ownerKey: "bob"}); err != nil {
		return err
	}
	var old OldGardenList
	if err := s.client.List(ctx, &old, client.InNamespace(s.namespace), client.MatchingFields{ownerKey: "bob"}); err != nil {
		return err
	}
	if len(all.Items) != 1 || len(old.Items) != 1 || old.Items[0].Spec.Size != "0 beds" {
		return fmt.Errorf("got %+v and %+v", all.Items, old.Items)
	}
	err := s.client.List(ctx, &all, client.InNamespace(s.namespace), client.MatchingFields{"spec.beds": "1"})
	if !apierrors.IsBadRequest(err) {
		return fmt.Errorf("by another field: %w", err)
	}
	return nil
}

// pages: of lists, of metadata too; and what is deleted at once.
func (s *story) pages(ctx context.Context) error {
	for i := range 7 {
		g := &Garden{ObjectMeta: s.meta(fmt.Sprintf("plot-%d", i))}
		g.Labels = map[string]string{"plots": "yes"}
		if err := s.client.Create(ctx, g); err != nil {
			return err
		}
	}
	where := []client.ListOption{client.InNamespace(s.namespace), client.MatchingLabels{"plots": "yes"}, client.Limit(3)}
	metadata := &metav1.PartialObjectMetadataList{}
	metadata.SetGroupVersionKind(v1.WithKind("GardenList"))
	for _, list := range []client.ObjectList{&GardenList{}, &OldGardenList{}, metadata} {
		n, pages := 0, 0
		for at := ""; pages == 0 || at != ""; pages++ {
			if err := s.client.List(ctx, list, append(where, client.Continue(at))...); err != nil {
				return err
			}
			n, at = n+meta.LenList(list), list.GetContinue()
		}
		if n != 7 || pages != 3 {
			return fmt.Errorf("%T: got %d objects on %d pages", list, n, pages)
		}
	}
	if err := s.client.DeleteAllOf(ctx, &Garden{}, client.InNamespace(s.namespace), client.MatchingLabels{"plots": "yes"}); err != nil {
		return err
	}
	return eventually(ctx, "plots gone", func() error {
		if err := s.client.List(ctx, metadata, where[:2]...); err != nil || len(metadata.Items) > 0 {
			return errors.Join(err, fmt.Errorf("%d are left", len(metadata.Items)))
		}
		return nil
	})
}

// status: is written apart, by apply too, and each part only by its way.
func (s *story) status(ctx context.Context) error {
	u := &unstructured.Unstructured{Object: map[string]any{
		"status": map[string]any{"conditions": []any{map[string]any{"type": "Seen", "status": "True", "reason": "Visit", "message": "", "lastTransitionTime": "2030-01-01T00:00:00Z"}}},
	}}
	u.SetGroupVersionKind(v1.WithKind("Garden"))
	u.SetName("rose")
	u.SetNamespace(s.namespace)
	if err := s.client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("visitor")); err != nil {
		return err
	}
	var g Garden
	if err := s.client.Get(ctx, s.key("rose"), &g); err != nil {
		return err
	}
	if len(g.Status.Conditions) != 2 || g.Status.Planted != 4 {
		return fmt.Errorf("got %+v", g.Status)
	}
	generation := g.Generation
	g.Status.Planted, g.Spec.Beds = 9, 5
	if err := s.client.Status().Update(ctx, &g); err != nil && !apierrors.IsConflict(err) {
		return err
	}
	if err := s.client.Get(ctx, s.key("rose"), &g); err != nil {
		return err
	}
	if g.Spec.Beds != 4 || g.Generation != generation {
		return fmt.Errorf("a write of the status: got %d beds, generation %d, want 4 and %d", g.Spec.Beds, g.Generation, generation)
	}
	stale := g.DeepCopyObject().(*Garden)
	stale.ResourceVersion = "1"
	if err := s.client.Update(ctx, stale); !apierrors.IsConflict(err) {
		return fmt.Errorf("a stale write: %w", err)
	}
	old := &Garden{ObjectMeta: s.meta("rose")}
	old.Labels = map[string]string{"a": "b"}
	err := s.client.Delete(ctx, old, client.Preconditions{UID: ptr.To(types.UID("other"))})
	if !apierrors.IsConflict(err) {
		return fmt.Errorf("a deletion of another: %w", err)
	}
	return nil
}

// watches: of the old version, from a cache of its own and without one.
func (s *story) watches(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	c, err := cache.New(s.config, cache.Options{Scheme: s.scheme, DefaultNamespaces: map[string]cache.Config{s.namespace: {}}})
	if err != nil {
		return err
	}
	wg.Go(func() { _ = c.Start(ctx) })
	var old OldGardenList
	w, err := s.client.Watch(ctx, &old, client.InNamespace(s.namespace), client.MatchingFields{ownerKey: "cid"})
	if err != nil {
		return err
	}
	defer w.Stop()
	if err := s.client.Create(ctx, &Garden{ObjectMeta: s.meta("cress"), Spec: GardenSpec{Beds: 1, Owner: "cid"}}); err != nil {
		return err
	}
	select {
	case e := <-w.ResultChan():
		if g, ok := e.Object.(*OldGarden); !ok || g.Name != "cress" || g.Spec.Size != "1 beds" || g.GroupVersionKind().Version == v1.Version {
			return fmt.Errorf("got %+v", e)
		}
	case <-time.After(patience):
		return errors.New("nothing came")
	}
	if err := eventually(ctx, "cached", func() error {
		var g OldGarden
		return c.Get(ctx, s.key("cress"), &g)
	}); err != nil {
		return err
	}
	return s.client.Delete(ctx, &Garden{ObjectMeta: s.meta("cress")})
}

// succession: who waits leads at once when the first has gone.
func (s *story) succession(ctx context.Context) error {
	select {
	case name := <-s.leads:
		if name != "second" {
			return fmt.Errorf("%s leads", name)
		}
	case <-time.After(patience):
		return errors.New("nobody leads")
	}
	return eventually(ctx, "note", func() error {
		var note corev1.ConfigMap
		if err := s.client.Get(ctx, s.key("rose-note"), &note); err != nil {
			return err
		}
		if note.Data["by"] != "second" {
			return fmt.Errorf("got %v", note.Data)
		}
		return nil
	})
}

// end: a finalizer's work is done, and what is owned goes too.
func (s *story) end(ctx context.Context) error {
	kept := &Garden{ObjectMeta: s.meta("rose")}
	if err := s.client.Patch(ctx, kept, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"keep":"yes"}}}`))); err != nil {
		return err
	}
	if err := s.client.Delete(ctx, kept); !apierrors.IsForbidden(err) {
		return fmt.Errorf("a garden that is kept: %w", err)
	}
	if err := s.client.Patch(ctx, kept, client.RawPatch("application/json-patch+json", []byte(`[{"op":"remove","path":"/metadata/labels/keep"}]`))); err != nil {
		return err
	}
	if err := s.client.Delete(ctx, kept, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		return err
	}
	for _, o := range []client.Object{&Garden{}, &appsv1.Deployment{}} {
		if err := eventually(ctx, "gone", func() error {
			if err := s.client.Get(ctx, s.key("rose"), o); !apierrors.IsNotFound(err) {
				return fmt.Errorf("%T is still there, %v", o, err)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return s.client.Get(ctx, s.key("rose-was"), &corev1.ConfigMap{})
}

// cleanUp takes away what the test environment leaves: gardens of an operator that has gone, and its webhooks.
func (s *story) cleanUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	errs := []error{
		client.IgnoreNotFound(s.client.Delete(ctx, mutating()[0])),
		client.IgnoreNotFound(s.client.Delete(ctx, validating()[0])),
	}
	var all GardenList
	if err := s.client.List(ctx, &all, client.InNamespace(s.namespace)); err != nil {
		return errors.Join(append(errs, err)...)
	}
	for i := range all.Items {
		errs = append(errs, client.IgnoreNotFound(s.client.Patch(ctx, &all.Items[i], client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))))
	}
	return errors.Join(errs...)
}
