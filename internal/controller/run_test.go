package controller_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/controller"
)

// log collects what reconciles saw.
type log struct {
	mu    sync.Mutex
	lines []string
}

func (l *log) add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

// taken returns what was collected, and begins anew.
func (l *log) taken() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := l.lines
	l.lines = nil
	return lines
}

func TestChangeDuringAReconcileIsReconciledAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // C1, C2
		b := newBed(t)
		var seen log
		var busy atomic.Int32
		b.run(controller.New(spec(func(*controller.Kit, controller.Client[*corev1.ConfigMap]) reconcileFunc {
			return func(ctx context.Context, cm *corev1.ConfigMap) (controller.Next, error) {
				if busy.Add(1) > 1 {
					t.Error("two workers have the key")
				}
				defer busy.Add(-1)
				seen.add("%s", cm.Data["v"])
				time.Sleep(time.Second)
				return controller.Done, nil
			}
		})))
		b.put("a", map[string]string{"v": "1"})
		time.Sleep(500 * time.Millisecond)
		b.set("a", "v", "2")
		b.set("a", "v", "3")
		time.Sleep(5 * time.Second)
		if got, want := seen.taken(), []string{"1", "3"}; !slices.Equal(got, want) {
			t.Errorf("got reconciles of %v, want %v", got, want)
		}
	})
}

// TestReconcileSeesItsOwnWrites counts a number up by a create, an update, a
// patch and a delete each round: whoever reads an old state repeats itself.
func TestReconcileSeesItsOwnWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // C3
		b := newBed(t)
		b.store.lag.Store(int64(time.Second))
		var seen log
		b.run(controller.New(counter(&seen, 4)))
		b.put("counter", nil)
		time.Sleep(time.Minute)
		want := []string{"n=0 child=false", "n=1 child=true", "n=2 child=false", "n=3 child=true", "n=4 child=false"}
		if got := seen.taken(); !slices.Equal(slices.Compact(got), want) {
			t.Errorf("got reconciles %q, want %q", got, want)
		}
		if log := b.log.String(); log != "" {
			t.Errorf("got errors:\n%s", log)
		}
	})
}

func TestDeleteIsSeenByTheNextReconcile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // C3: only a delete, nothing else
		b := newBed(t)
		b.put("owner", nil)
		b.put("child", nil)
		synctest.Wait()
		b.store.lag.Store(int64(time.Second))
		var seen log
		b.run(controller.New(spec(func(_ *controller.Kit, configMaps controller.Client[*corev1.ConfigMap]) reconcileFunc {
			return func(ctx context.Context, cm *corev1.ConfigMap) (controller.Next, error) {
				child, ok := configMaps.Get("default", "child")
				if cm.Name != "owner" || !ok {
					return controller.Done, nil
				}
				seen.add("delete")
				return controller.After(time.Millisecond), configMaps.Delete(ctx, child)
			}
		}, controller.Delete(core.ConfigMaps.Def))))
		time.Sleep(time.Minute)
		if got := seen.taken(); len(got) != 1 {
			t.Errorf("got %d deletes, want 1: the second reconcile must not see the child any more", len(got))
		}
	})
}

func TestKeyThatWaitsForItsWriteHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // C3
		b := newBed(t)
		b.put("writer", nil)
		b.put("reader", nil)
		synctest.Wait()
		b.store.lag.Store(int64(time.Hour))
		var reads, writes atomic.Int32
		s := spec(func(_ *controller.Kit, configMaps controller.Client[*corev1.ConfigMap]) reconcileFunc {
			return func(ctx context.Context, cm *corev1.ConfigMap) (controller.Next, error) {
				if cm.Name == "reader" {
					reads.Add(1)
					return controller.After(time.Second), nil
				}
				writes.Add(1)
				_, err := configMaps.MergePatch(ctx, cm, "", map[string]any{"data": map[string]any{"at": time.Now().String()}})
				return controller.After(time.Second), err
			}
		}, controller.Patch(core.ConfigMaps.Def, ""))
		s.Workers = 1
		b.run(controller.New(s))
		time.Sleep(time.Minute)
		if n := reads.Load(); n < 50 {
			t.Errorf("got %d reconciles of the key that writes nothing, want one a second", n)
		}
		if n := writes.Load(); n != 1 {
			t.Errorf("got %d reconciles of the key that wrote, want 1: its write is not to be seen yet", n)
		}
	})
}

func TestEveryChangeOfAnInputWakesItsKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // C4
		b := newBed(t)
		var seen log
		secrets := client.For(b.as("test"), core.Secrets)
		b.put("a", nil)
		b.run(controller.New(followsSecrets(&seen)))
		expect := func(step string, want ...string) {
			t.Helper()
			synctest.Wait()
			if got := seen.taken(); !slices.Equal(slices.Compact(got), want) {
				t.Errorf("%s: got %v, want %v", step, got, want)
			}
		}
		expect("what is there at the start", "default/a")
		b.set("a", "k", "v")
		expect("an update", "default/a")
		secret, err := secrets.Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s", Labels: map[string]string{"map": "a"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		expect("a watched object", "default/a")
		b.put("b", nil)
		expect("another object", "default/b")
		secret = secret.DeepCopy()
		secret.Labels["map"] = "b"
		if _, err := secrets.Update(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := seen.taken(); !slices.Contains(got, "default/a") || !slices.Contains(got, "default/b") {
			t.Errorf("a watched object that moves: got %v, want the keys of before and after", got)
		}
		if err := secrets.Delete(t.Context(), "default", "s", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		expect("a watched object goes", "default/b")
		b.remove("a")
		expect("an object goes", "gone default/a")
	})
}

func TestWhatIsNewWakesNobodyWhereOnlyChangesMatter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		var seen log
		secrets := client.For(b.as("test"), core.Secrets)
		make := func(name string) {
			t.Helper()
			labels := map[string]string{"map": "a"}
			if _, err := secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: labels}}); err != nil {
				t.Fatal(err)
			}
		}
		make("before")
		s := followsSecrets(&seen)
		s.Watches[0].SkipNew = true
		b.run(controller.New(s))
		make("s")
		synctest.Wait()
		if got := seen.taken(); len(got) > 0 {
			t.Errorf("what is new: got %v, want nothing", got)
		}
		for _, name := range []string{"before", "s"} {
			if err := secrets.Delete(t.Context(), "default", name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if got := seen.taken(); !slices.Equal(got, []string{"gone default/a"}) {
				t.Errorf("%s goes: got %v, want its key", name, got)
			}
		}
	})
}

// TestChangesAreNotLostByAFollowerThatFellBehind holds the follower up until
// the cache has forgotten changes that it has not read.
func TestChangesAreNotLostByAFollowerThatFellBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // C4
		b := newBed(t)
		b.put("goes", nil)
		b.put("stays", nil)
		var seen log
		hold := make(chan struct{})
		var held atomic.Bool
		s := controller.Keyed{
			Name: "test-controller",
			Watches: []controller.Watch{controller.Mapped(core.ConfigMaps, func(_ *controller.Kit, cm *corev1.ConfigMap) []string {
				if held.Load() {
					<-hold
				}
				return []string{cm.Name + " " + cm.Data["group"]}
			})},
			Setup: func(*controller.Kit) func(context.Context, string) (controller.Next, error) {
				return func(_ context.Context, key string) (controller.Next, error) {
					seen.add("%s", key)
					return controller.Done, nil
				}
			},
		}
		b.run(controller.NewKeyed(s))
		synctest.Wait()
		held.Store(true)
		rev, _ := strconv.ParseInt(b.set("stays", "group", "2").ResourceVersion, 10, 64)
		synctest.Wait() // the follower is in our hands now
		b.remove("goes")
		b.set("stays", "group", "3")
		for i := range 9000 { // more than a cache remembers
			b.set("stays", "n", strconv.Itoa(i))
		}
		b.put("comes", nil)
		synctest.Wait()
		seen.taken()
		held.Store(false)
		close(hold)
		synctest.Wait()
		got := seen.taken()
		slices.Sort(got)
		if want := []string{"comes ", "goes ", "stays ", "stays 2", "stays 3"}; !slices.Equal(slices.Compact(got), want) {
			t.Errorf("got keys %q, want %q", got, want)
		}
		if _, err := b.as("test").Cache(core.ConfigMaps.Def, "").Cursor(cache.CursorOptions{After: rev}); !errors.Is(err, cache.ErrTooOld) {
			t.Errorf("got %v of a cursor that starts there: the follower did not fall behind, this proves nothing", err)
		}
	})
}

func TestWriteThatIsNotDeclaredFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // C5
		b := newBed(t)
		done := make(chan struct{})
		b.run(controller.New(spec(func(k *controller.Kit, configMaps controller.Client[*corev1.ConfigMap]) reconcileFunc {
			return func(ctx context.Context, cm *corev1.ConfigMap) (controller.Next, error) {
				defer close(done)
				_, create := configMaps.Create(ctx, cm.DeepCopy())
				_, update := configMaps.Update(ctx, cm.DeepCopy())
				_, status := configMaps.UpdateStatus(ctx, cm.DeepCopy())
				_, patch := configMaps.StrategicPatch(ctx, cm, "scale", map[string]any{})
				_, secret := controller.Writer(k, core.Secrets).Create(ctx, &corev1.Secret{})
				_, collection := k.Transport().Do(ctx, &client.Request{Verb: "deletecollection", Def: core.ConfigMaps.Def, Namespace: "default"})
				for what, err := range map[string]error{
					"create of configmaps": create, "update of configmaps": update, "update of configmaps/status": status,
					"patch of configmaps/scale": patch, "delete of configmaps": configMaps.Delete(ctx, cm),
					"create of secrets": secret, "deletecollection of configmaps": collection,
				} {
					want := "controller test-controller: " + what + " is not declared in Writes"
					if err == nil || err.Error() != want {
						t.Errorf("got %v, want %s", err, want)
					}
				}
				return controller.Done, nil
			}
		}, controller.Patch(core.ConfigMaps.Def, ""))))
		b.put("a", nil)
		<-done
		if _, err := b.maps().Get(t.Context(), "default", "a"); err != nil {
			t.Errorf("the object was touched: %v", err)
		}
	})
}

func TestReadThatIsNotDeclaredPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // C5
		b := newBed(t)
		c := controller.New(spec(func(k *controller.Kit, _ controller.Client[*corev1.ConfigMap]) reconcileFunc {
			defer func() {
				if got, want := fmt.Sprint(recover()), "controller test-controller: secrets is not declared as an input"; got != want {
					t.Errorf("got %q, want %q", got, want)
				}
			}()
			controller.For(k, core.Secrets)
			return nil
		}))
		b.run(c)
		synctest.Wait()
	})
}

func TestWritesCarryTheRevisionThatWasRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // C6
		b := newBed(t)
		done := make(chan struct{})
		b.run(controller.New(spec(func(k *controller.Kit, configMaps controller.Client[*corev1.ConfigMap]) reconcileFunc {
			return func(ctx context.Context, old *corev1.ConfigMap) (controller.Next, error) {
				if old.Data != nil {
					return controller.Done, nil // the second time
				}
				defer close(done)
				b.set("a", "k", "by somebody else")
				if err := configMaps.Delete(ctx, old); !apierrors.IsConflict(err) {
					t.Errorf("delete of what has changed: got %v, want a conflict", err)
				}
				if _, err := configMaps.Update(ctx, old.DeepCopy()); !apierrors.IsConflict(err) {
					t.Errorf("update of what has changed: got %v, want a conflict", err)
				}
				blind := old.DeepCopy()
				blind.ResourceVersion = ""
				if _, err := configMaps.Update(ctx, blind); err == nil || !strings.Contains(err.Error(), "carries no revision") {
					t.Errorf("update without a revision: got %v, want it refused", err)
				}
				if err := controller.Writer(k, core.ConfigMaps).Delete(ctx, "default", "a", metav1.DeleteOptions{}); err == nil || !strings.Contains(err.Error(), "carries no revision") {
					t.Errorf("delete without a revision: got %v, want it refused", err)
				}
				other := old.DeepCopy()
				other.UID = types.UID("another")
				if _, err := configMaps.MergePatch(ctx, other, "", map[string]any{"data": nil}); !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) {
					t.Errorf("patch of another object of the name: got %v, want it refused", err)
				}
				if _, err := configMaps.MergePatch(ctx, old, "", map[string]any{"data": map[string]any{"p": "1"}}); err != nil {
					t.Errorf("patch of what has changed: got %v, want no error: it names what it changes", err)
				}
				return controller.Done, nil
			}
		}, controller.Update(core.ConfigMaps.Def), controller.Delete(core.ConfigMaps.Def), controller.Patch(core.ConfigMaps.Def, ""))))
		b.put("a", nil)
		<-done
		cm, err := b.maps().Get(t.Context(), "default", "a")
		if want := map[string]string{"k": "by somebody else", "p": "1"}; err != nil || !maps.Equal(cm.Data, want) {
			t.Errorf("got %v, %v, want data %v", cm, err, want)
		}
	})
}

func TestRunReturnsWhenAllItStartedHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // C7
		b := newBed(t)
		var busy atomic.Int32
		c := controller.New(spec(func(*controller.Kit, controller.Client[*corev1.ConfigMap]) reconcileFunc {
			return func(ctx context.Context, _ *corev1.ConfigMap) (controller.Next, error) {
				busy.Add(1)
				defer busy.Add(-1)
				<-ctx.Done()
				time.Sleep(time.Second) // it takes its time to end
				return controller.After(time.Minute), ctx.Err()
			}
		}))
		for i := range 10 {
			b.put(fmt.Sprint("m", i), nil)
		}
		stop := b.run(c)
		synctest.Wait()
		if n := busy.Load(); n != 4 {
			t.Errorf("got %d reconciles at once, want 4 by default", n)
		}
		stop() // returns with Run
		if n := busy.Load(); n != 0 {
			t.Errorf("got %d reconciles that still run", n)
		}
		if log := b.log.String(); log != "" {
			t.Errorf("got errors of reconciles that had to end:\n%s", log)
		}
	})
}

func TestErrorIsLoggedOnceWithItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // C8
		b := newBed(t)
		var tries atomic.Int32
		errs := map[string]error{
			"broken":   errors.New("out of order"),
			"conflict": fmt.Errorf("update: %w", apierrors.NewConflict(core.ConfigMaps.Def.GroupResource(), "x", errors.New("changed"))),
			"gone":     apierrors.NewNotFound(core.ConfigMaps.Def.GroupResource(), "x"),
			"refused":  fmt.Errorf("create: %w", apierrors.NewForbidden(core.Pods.Def.GroupResource(), "x", errors.New("exceeded quota: q"))),
		}
		b.run(controller.New(spec(func(*controller.Kit, controller.Client[*corev1.ConfigMap]) reconcileFunc {
			failed := sync.Map{}
			return func(_ context.Context, cm *corev1.ConfigMap) (controller.Next, error) {
				tries.Add(1)
				if _, again := failed.LoadOrStore(cm.Name, true); again {
					return controller.Done, nil
				}
				if cm.Name == "panics" {
					panic("what was not thought of")
				}
				return controller.Done, errs[cm.Name]
			}
		})))
		for name := range errs {
			b.put(name, nil)
		}
		b.put("panics", nil)
		time.Sleep(time.Minute)
		if n := tries.Load(); n != 10 {
			t.Errorf("got %d reconciles, want each key twice", n)
		}
		lines := strings.Split(strings.TrimSpace(b.log.String()), "\n")
		slices.SortFunc(lines, func(x, y string) int { return len(x) - len(y) })
		if len(lines) != 3 {
			t.Fatalf("got %d log lines, want 3:\n%s", len(lines), b.log.String())
		}
		if want := `level=ERROR msg=reconcile controller=test-controller key=default/broken err="out of order"`; !strings.HasSuffix(lines[0], want) {
			t.Errorf("got %s, want %s", lines[0], want)
		}
		if want := `level=INFO msg=reconcile controller=test-controller key=default/refused err="create: pods \"x\" is forbidden: exceeded quota: q"`; !strings.HasSuffix(lines[1], want) {
			t.Errorf("got %s, want %s", lines[1], want)
		}
		if want := `key=default/panics err="panic: what was not thought of`; !strings.Contains(lines[2], want) {
			t.Errorf("got %s, want %s", lines[2], want)
		}
	})
}

func TestReconcileThatHangsIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		began := time.Now()
		var took atomic.Int64
		b.run(controller.New(spec(func(*controller.Kit, controller.Client[*corev1.ConfigMap]) reconcileFunc {
			return func(ctx context.Context, _ *corev1.ConfigMap) (controller.Next, error) {
				<-ctx.Done()
				took.CompareAndSwap(0, int64(time.Since(began)))
				return controller.Done, nil
			}
		})))
		b.put("a", nil)
		time.Sleep(time.Hour)
		if got := time.Duration(took.Load()); got != 2*time.Minute {
			t.Errorf("got a context that ended after %s, want 2m", got)
		}
	})
}

// baton is a leadership that the test passes from one process to the other.
type baton struct {
	has chan struct{} // holds the baton while nobody leads
}

func (l *baton) lead(lost <-chan struct{}) controller.Leadership { return leader{l, lost} }

type leader struct {
	baton *baton
	lost  <-chan struct{} // yields when this process is to lose it
}

func (l leader) Lead(ctx context.Context, run func(ctx context.Context) error) error {
	for {
		select {
		case <-l.baton.has:
		case <-ctx.Done():
			return nil
		}
		led, cancel := context.WithCancel(ctx)
		ended := make(chan error, 1)
		var wg sync.WaitGroup
		wg.Go(func() { ended <- run(led) })
		select {
		case <-l.lost:
		case <-ctx.Done():
		}
		cancel()
		wg.Wait()
		l.baton.has <- struct{}{}
		if err := <-ended; err != nil {
			return err
		}
	}
}

func TestOnlyTheLeaderReconciles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // C9
		b := newBed(t)
		var seen log
		var leading atomic.Int32
		l := &baton{has: make(chan struct{}, 1)}
		lose := map[string]chan struct{}{"one": make(chan struct{}), "two": make(chan struct{})}
		for name, lost := range lose {
			c := controller.New(spec(func(*controller.Kit, controller.Client[*corev1.ConfigMap]) reconcileFunc {
				return func(ctx context.Context, cm *corev1.ConfigMap) (controller.Next, error) {
					if leading.Add(1) > 1 {
						t.Error("two processes lead")
					}
					defer leading.Add(-1)
					seen.add("%s", name)
					<-ctx.Done() // only the loss of leadership ends it
					time.Sleep(time.Second)
					return controller.Done, nil
				}
			}))
			env := b.env()
			env.Leadership = l.lead(lost)
			b.background(name, func(ctx context.Context) error { return c.Run(ctx, env) })
		}
		b.put("a", nil)
		synctest.Wait()
		if got := seen.taken(); len(got) != 0 {
			t.Fatalf("got reconciles by %v while nobody leads", got)
		}
		l.has <- struct{}{}
		synctest.Wait()
		first := seen.taken()
		if len(first) != 1 {
			t.Fatalf("got reconciles by %v, want one process", first)
		}
		lose[first[0]] <- struct{}{}
		time.Sleep(2 * time.Second)
		if got := seen.taken(); len(got) != 1 {
			t.Errorf("got reconciles by %v after the loss, want one process", got)
		}
	})
}

// turns leads one controller with each token, until it is told to end.
type turns struct {
	token chan struct{}
	lose  chan struct{}
}

func (l turns) Lead(ctx context.Context, run func(ctx context.Context) error) error {
	for {
		select {
		case <-l.token:
		case <-ctx.Done():
			return nil
		}
		led, cancel := context.WithCancel(ctx)
		var wg sync.WaitGroup
		wg.Go(func() { _ = run(led) })
		select {
		case <-l.lose:
		case <-ctx.Done():
		}
		cancel()
		wg.Wait()
	}
}

func TestControllerThatBeginsToLeadIsToldWhatThereIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // C4, C9
		b := newBed(t)
		var seen log
		var all []*controller.Controller
		for _, name := range []string{"one", "two"} {
			s := spec(func(*controller.Kit, controller.Client[*corev1.ConfigMap]) reconcileFunc {
				return func(_ context.Context, cm *corev1.ConfigMap) (controller.Next, error) {
					seen.add("%s", cm.Name)
					return controller.Done, nil
				}
			})
			s.Name = name
			all = append(all, controller.New(s))
		}
		l := turns{make(chan struct{}), make(chan struct{})}
		env := b.env()
		env.Leadership = l
		b.background("controllers", func(ctx context.Context) error { return controller.RunAll(ctx, all, env) })
		b.put("a", nil)
		for _, step := range []struct {
			name string
			do   func()
			want string
		}{
			{"nobody leads", func() {}, ""},
			{"one leads", func() { l.token <- struct{}{} }, "a"},
			{"an object comes", func() { b.put("b", nil) }, "b"},
			{"the other leads, too", func() { l.token <- struct{}{} }, "a b"},
			{"an object changes", func() { b.set("a", "k", "v") }, "a a"},
			{"one leads no more", func() { l.lose <- struct{}{} }, ""},
			{"an object comes", func() { b.put("c", nil) }, "c"},
			{"it leads again", func() { l.token <- struct{}{} }, "a b c"},
			{"both end", func() { l.lose <- struct{}{}; l.lose <- struct{}{}; b.remove("a") }, ""},
			{"both begin", func() { l.token <- struct{}{}; l.token <- struct{}{} }, "b b c c"},
		} {
			step.do()
			synctest.Wait()
			got := seen.taken()
			slices.Sort(got)
			if got := strings.Join(got, " "); got != step.want {
				t.Errorf("%s: got reconciles of %q, want %q", step.name, got, step.want)
			}
		}
	})
}

func TestOwnedObjectWakesItsController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		var seen log
		s := spec(nil)
		s.Watches = []controller.Watch{controller.Owned(core.Secrets.Def, "ConfigMap")}
		s.Setup = func(*controller.Kit) controller.Reconciler[*corev1.ConfigMap] { return goner{&seen} }
		b.run(controller.New(s))
		cm := b.put("a", nil)
		synctest.Wait()
		seen.taken()
		secrets := client.For(b.as("test"), core.Secrets)
		for name, refs := range map[string][]metav1.OwnerReference{
			"owned":  {*controller.ControllerRef(cm, core.ConfigMaps.Def)},
			"shared": {{APIVersion: "v1", Kind: "ConfigMap", Name: "a", UID: cm.UID}}, // not its controller
			"other":  {{APIVersion: "v1", Kind: "Pod", Name: "a", UID: "1", Controller: new(true)}},
		} {
			if _, err := secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, OwnerReferences: refs}}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			want := 0
			if name == "owned" {
				want = 1
			}
			if got := seen.taken(); len(got) != want {
				t.Errorf("%s: got reconciles %v, want %d", name, got, want)
			}
		}
	})
}
