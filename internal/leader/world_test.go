package leader_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/api"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/watchcache"
)

// world is what the store shows, revision by revision, whoever wrote it.
type world struct {
	*testing.T
	subjects []subject
	defs     map[string]*resource.Def   // by what their keys begin with
	objects  map[string]resource.Object // by key
	rev      int64
	broken   int
}

func newWorld(t *testing.T, subjects []subject) *world {
	w := &world{T: t, subjects: subjects, defs: map[string]*resource.Def{}, objects: map[string]resource.Object{}}
	for _, def := range api.All() {
		if def.Stored() && def != core.Events.Def {
			w.defs[def.Key("", "")] = def
		}
	}
	return w
}

// def is the resource of a key; nil: one that nobody asks about.
func (w *world) def(key string) *resource.Def {
	dir := strings.TrimPrefix(key, "/registry/")
	for end := range dir {
		if dir[end] != '/' {
			continue
		}
		if def := w.defs["/registry/"+dir[:end+1]]; def != nil {
			return def
		}
	}
	return nil
}

// follow looks at every change until ctx ends.
func (w *world) follow(ctx context.Context, st store.Store) error {
	err := st.Watch(ctx, "/registry/", 0, func(changes []store.Change, _ int64) error {
		for i, c := range changes {
			if err := w.change(c); err != nil {
				return err
			}
			if i+1 == len(changes) || changes[i+1].Rev != c.Rev {
				for _, s := range w.subjects {
					s.hold(w)
				}
			}
		}
		return nil
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (w *world) change(c store.Change) error {
	def := w.def(c.Key)
	if def == nil {
		return nil
	}
	was, now := w.objects[c.Key], resource.Object(nil)
	if c.Value != nil {
		var err error
		if now, err = watchcache.Decode(def, c.Value, c.Rev); err != nil {
			return fmt.Errorf("read %s: %w", c.Key, err)
		}
		w.objects[c.Key] = now
	} else {
		delete(w.objects, c.Key)
	}
	w.rev = c.Rev
	for _, s := range w.subjects {
		s.see(w, was, now)
	}
	return nil
}

// breaks says that something does not hold, and after some of that no more.
func (w *world) breaks(format string, args ...any) {
	w.Helper()
	if w.broken++; w.broken < 10 {
		w.Errorf("revision %d, %s: %s", w.rev, time.Now().Format("15:04:05.000"), fmt.Sprintf(format, args...))
	}
}

// orphans are the objects of which no owner is there, in the end.
func (w *world) orphans() {
	there := map[types.UID]bool{}
	for _, obj := range w.objects {
		there[obj.GetUID()] = true
	}
	for key, obj := range w.objects {
		refs := obj.GetOwnerReferences()
		if len(refs) > 0 && !slices.ContainsFunc(refs, func(ref metav1.OwnerReference) bool { return there[ref.UID] }) {
			w.Errorf("%s is left, and nothing of its owners %v is", key, refs)
		}
		if obj.GetDeletionTimestamp() != nil {
			w.Errorf("%s is still being deleted, for %v", key, obj.GetFinalizers())
		}
	}
}

// all are the objects of a kind that there are.
func all[T resource.Object](w *world, is func(T) bool) (found []T) {
	for _, obj := range w.objects {
		if x, ok := obj.(T); ok && is(x) {
			found = append(found, x)
		}
	}
	slices.SortFunc(found, func(a, b T) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return found
}

// of says which application a pod is of.
func of(pod *corev1.Pod) string { return pod.Labels["of"] }

func podsOf(w *world, app string) []*corev1.Pod {
	return all(w, func(p *corev1.Pod) bool { return of(p) == app })
}

// event is what one change is to a pod.
type event struct {
	made, marked, gone bool // it is new; it is to go; it is not there any more
}

// podChange is the change of a pod of an application, if it is one.
func podChange(was, now resource.Object, app string) (pod *corev1.Pod, e event) {
	before, ok1 := was.(*corev1.Pod)
	after, ok2 := now.(*corev1.Pod)
	pod = after
	if !ok2 {
		pod = before
	}
	if pod == nil || of(pod) != app {
		return nil, event{}
	}
	return pod, event{
		made:   !ok1,
		marked: ok1 && ok2 && before.DeletionTimestamp == nil && after.DeletionTimestamp != nil,
		gone:   !ok2,
	}
}

// active says that a pod is neither over nor to go, healthy that it serves besides.
func active(p *corev1.Pod) bool  { return p.DeletionTimestamp == nil && !core.PodTerminal(p) }
func healthy(p *corev1.Pod) bool { return active(p) && core.PodReady(p) }

func count(pods []*corev1.Pod, is func(*corev1.Pod) bool) (n int) {
	for _, p := range pods {
		if is(p) {
			n++
		}
	}
	return n
}

// late is by how much who leads may act on an old state: a leader that was frozen leads
// on if it thaws before its lease has run out.
const late = 20 * time.Second

// window is what a number was of late.
type window struct{ was []moment }

type moment struct {
	n     int
	until time.Time // zero: it is that now
}

func (w *window) set(n int) {
	now := time.Now()
	if last := len(w.was) - 1; last >= 0 {
		w.was[last].until = now
	}
	w.was = append(w.was, moment{n: n})
}

// span is between what the number was.
func (w *window) span() (least, most int) {
	now := time.Now()
	w.was = slices.DeleteFunc(w.was, func(m moment) bool { return !m.until.IsZero() && now.Sub(m.until) > late })
	if len(w.was) == 0 {
		return 0, 0
	}
	least, most = w.was[0].n, w.was[0].n
	for _, m := range w.was {
		least, most = min(least, m.n), max(most, m.n)
	}
	return least, most
}
