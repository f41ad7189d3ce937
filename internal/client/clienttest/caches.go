package clienttest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
)

func number(rev string) int64 {
	n, err := strconv.ParseInt(rev, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// reaches waits until the cache shows a revision.
func (b *bed) reaches(c *cache.Cache, rev string) {
	b.Helper()
	if err := c.WaitRev(b.ctx, number(rev)); err != nil {
		b.Fatalf("cache of %s, which is at %d, does not reach %s: %v", c.Def, c.Rev(), rev, err)
	}
}

func caches(b *bed) {
	old := b.put("a")
	c := client.Cached(b, core.ConfigMaps, "")
	if other := b.Cache(core.ConfigMaps.Def, ""); other != c.Cache {
		b.Error("a second cache of the same resource")
	}
	b.synced(c.Cache)
	b.reaches(c.Cache, old.ResourceVersion)
	if cm, ok := c.Get("default", "a"); !ok || cm.Kind != "" {
		b.Errorf("what was there: got %v, %t", cm, ok)
	}
	made := b.put("b", "team", "red")
	b.reaches(c.Cache, made.ResourceVersion)
	if got, ok := c.Get("default", "b"); !ok || got.UID != made.UID || got.ResourceVersion != made.ResourceVersion {
		b.Errorf("added: got %v", got)
	}
	changed := made.DeepCopy()
	changed.Data = map[string]string{"k": "v"}
	changed, err := b.maps().Update(b.ctx, changed)
	b.must(err)
	b.reaches(c.Cache, changed.ResourceVersion)
	if got, ok := c.Get("default", "b"); !ok || got.Data["k"] != "v" {
		b.Errorf("changed: got %v", got)
	}
	gone, err := b.Do(b.ctx, &client.Request{Verb: "delete", Def: core.ConfigMaps.Def, Namespace: "default", Name: "b"})
	b.must(err)
	b.reaches(c.Cache, gone.(metav1.Object).GetResourceVersion())
	if got, ok := c.Get("default", "b"); ok {
		b.Errorf("deleted: got %v", got)
	}
	nodes := client.Cached(b, core.Nodes, "")
	b.synced(nodes.Cache)
	if got := nodes.List("", nil); len(got) != 0 {
		b.Errorf("cache of nothing: got %v", got)
	}
}

func scopes(b *bed) {
	node := client.Cached(b, core.Pods, "spec.nodeName=n1")
	one := client.Cached(b, core.ConfigMaps, "metadata.namespace=default,metadata.name=a")
	b.synced(node.Cache)
	b.synced(one.Cache)
	b.pod("elsewhere", "n2")
	here := b.pod("here", "n1")
	b.reaches(node.Cache, here.ResourceVersion)
	names := func() (list []string) {
		for _, pod := range node.ByIndex("spec.nodeName", "n1") {
			list = append(list, pod.Name)
		}
		return list
	}
	if got := names(); !slices.Equal(got, []string{"here"}) {
		b.Errorf("pods of the node: got %v", got)
	}
	b.pod("late", "")
	_, err := client.For(b, core.Pods).Post(b.ctx, "default", "late", "binding", &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "late"}, Target: corev1.ObjectReference{Kind: "Node", Name: "n1"}})
	b.must(err)
	late, err := client.For(b, core.Pods).Get(b.ctx, "default", "late")
	b.must(err)
	b.reaches(node.Cache, late.ResourceVersion)
	if got := names(); len(got) != 2 {
		b.Errorf("pods of the node after a binding: got %v", got)
	}
	b.put("b")
	made := b.put("a")
	b.reaches(one.Cache, made.ResourceVersion)
	if got, ok := one.Get("default", "a"); !ok || got.UID != made.UID {
		b.Errorf("single object: got %v", got)
	}
}

// holds: who holds a scope sees it, whoever else has let it go, and again when all had.
func holds(b *bed) {
	const scope = "metadata.namespace=default,metadata.name=a"
	first, release := b.Hold(core.ConfigMaps.Def, scope)
	second, releaseToo := b.Hold(core.ConfigMaps.Def, scope)
	if first != second {
		b.Error("a second cache of the same scope")
	}
	b.synced(first)
	release()
	release() // once is enough for both
	made := b.put("a")
	b.reaches(second, made.ResourceVersion)
	if it := second.Get("default/a"); it == nil || it.Object.GetUID() != made.UID {
		b.Errorf("after another one's release: got %v", it)
	}
	releaseToo()
	third, releaseLast := b.Hold(core.ConfigMaps.Def, scope)
	defer releaseLast()
	b.synced(third)
	changed := made.DeepCopy()
	changed.Data = map[string]string{"k": "v"}
	changed, err := b.maps().Update(b.ctx, changed)
	b.must(err)
	b.reaches(third, changed.ResourceVersion)
	if it := third.Get("default/a"); it == nil || it.Object.GetResourceVersion() != changed.ResourceVersion {
		b.Errorf("held again: got %v", it)
	}
	kept := b.Cache(core.ConfigMaps.Def, scope) // for as long as the transport lives
	releaseLast()
	b.must(b.maps().Delete(b.ctx, "default", "a", metav1.DeleteOptions{}))
	b.reaches(kept, b.put("a").ResourceVersion)
	if it := kept.Get("default/a"); it == nil || it.Object.GetUID() == made.UID {
		b.Errorf("kept: got %v", it)
	}
}

// barrier is what controllers rely on: who has written waits for the revision
// of the write, and then sees it.
func barrier(b *bed) {
	c := client.Cached(b, core.ConfigMaps, "")
	b.synced(c.Cache)
	name := "a"
	for i := range 30 {
		made := b.put(name)
		b.reaches(c.Cache, made.ResourceVersion)
		if _, ok := c.Get("default", name); !ok {
			b.Fatalf("round %d: the object made at %s is not shown at %d", i, made.ResourceVersion, c.Rev())
		}
		gone, err := b.Do(b.ctx, &client.Request{Verb: "delete", Def: core.ConfigMaps.Def, Namespace: "default", Name: name})
		b.must(err)
		b.reaches(c.Cache, gone.(metav1.Object).GetResourceVersion())
		if _, ok := c.Get("default", name); ok {
			b.Fatalf("round %d: the object that is gone is shown at %d", i, c.Rev())
		}
	}
}

// Replay follows a cache until it has seen the object called last, holds every
// event against what was seen before, and returns the state that the events
// make: revisions by key.
func Replay(ctx context.Context, c *cache.Cache, last string) (map[string]int64, error) {
	select {
	case <-c.Synced():
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	cu, err := c.Cursor(cache.CursorOptions{FromNow: true})
	if err != nil {
		return nil, err
	}
	defer cu.Close()
	state, rev := map[string]int64{}, int64(0)
	for {
		select {
		case <-cu.Ready():
		case <-ctx.Done():
			return state, context.Cause(ctx)
		}
		events, err := cu.Next()
		if err != nil {
			return state, err
		}
		for i := range events {
			if err := replay(state, &events[i], rev); err != nil {
				return state, err
			}
			rev = max(rev, events[i].Rev())
		}
		if slices.ContainsFunc(events, func(e cache.Event) bool { return e.Item.Object.GetName() == last }) {
			return state, nil
		}
	}
}

// replay takes one event into a state that was at rev before.
func replay(state map[string]int64, e *cache.Event, rev int64) error {
	_, had := state[e.Item.Key]
	if had == (e.Type == cache.Added) {
		return fmt.Errorf("%s of %s at %d, which it has: %t", e.Type, e.Item.Key, e.Rev(), had)
	}
	if had && e.Rev() <= state[e.Item.Key] {
		return fmt.Errorf("%s of %s at %d, after %d", e.Type, e.Item.Key, e.Rev(), state[e.Item.Key])
	}
	if e.Prev != nil && e.Rev() < rev {
		return fmt.Errorf("%s of %s at %d, after a change at %d", e.Type, e.Item.Key, e.Rev(), rev)
	}
	if e.Type == cache.Deleted {
		delete(state, e.Item.Key)
	} else {
		state[e.Item.Key] = e.Rev()
	}
	return nil
}

// Churn makes, changes and deletes config maps at random, and at last makes one
// called last. prefix keeps several of them apart.
func Churn(ctx context.Context, t client.Transport, prefix string, steps int) error {
	maps := client.For(t, core.ConfigMaps)
	for i := range steps {
		name := prefix + strconv.Itoa(rand.IntN(10))
		var err error
		switch rand.IntN(3) {
		case 0:
			_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
		case 1:
			_, err = maps.Update(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"i": strconv.Itoa(i)}})
		case 2:
			err = maps.Delete(ctx, "default", name, metav1.DeleteOptions{})
		}
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	return nil
}

// Compare holds a state that events made against what the API says.
func Compare(ctx context.Context, t client.Transport, state map[string]int64) error {
	list, err := client.For(t, core.ConfigMaps).List(ctx, "", metav1.ListOptions{})
	if err != nil {
		return err
	}
	var wrong []string
	for _, cm := range list {
		if got, want := state[cache.Key(cm.Namespace, cm.Name)], number(cm.ResourceVersion); got != want {
			wrong = append(wrong, fmt.Sprintf("%s: got revision %d, want %d", cm.Name, got, want))
		}
	}
	if len(state) != len(list) {
		wrong = append(wrong, fmt.Sprintf("got %d objects, want %d", len(state), len(list)))
	}
	if len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "; "))
	}
	return nil
}

func followers(b *bed) {
	c := b.synced(b.Cache(core.ConfigMaps.Def, ""))
	var wg sync.WaitGroup
	states := make([]map[string]int64, 3)
	for i := range states {
		wg.Go(func() {
			var err error
			if states[i], err = Replay(b.ctx, c, "last"); err != nil {
				b.Errorf("follower %d: %v", i, err)
			}
		})
	}
	var writers sync.WaitGroup
	for _, prefix := range []string{"x", "y", "z"} {
		writers.Go(func() {
			if err := Churn(b.ctx, b, prefix, 100); err != nil {
				b.Error(err)
			}
		})
	}
	writers.Wait()
	b.put("last")
	wg.Wait()
	for i, state := range states {
		if err := Compare(b.ctx, b, state); err != nil {
			b.Errorf("follower %d: %v", i, err)
		}
	}
}

func counters(b *bed) {
	b.put("n")
	var wg sync.WaitGroup
	const workers, steps = 4, 10
	for range workers {
		wg.Go(func() {
			for range steps {
				for {
					old, err := b.maps().Get(b.ctx, "default", "n")
					if err != nil {
						b.Error(err)
						return
					}
					next := old.DeepCopy()
					n, _ := strconv.Atoi(old.Data["n"])
					next.Data = map[string]string{"n": strconv.Itoa(n + 1)}
					if _, err = b.maps().Update(b.ctx, next); err == nil {
						break
					}
					if !apierrors.IsConflict(err) {
						b.Error(err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	cm, err := b.maps().Get(b.ctx, "default", "n")
	if want := strconv.Itoa(workers * steps); err != nil || cm.Data["n"] != want {
		b.Errorf("got %v, %v, want %s", cm, err, want)
	}
}
