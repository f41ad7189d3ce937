package controller_test

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/client/https"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/store/etcd"
	"github.com/kemudi/kemudi/test/wait"
)

// farBed is a bed on etcd whose controllers reach the API over HTTPS, on
// connections that can be cut.
type farBed struct {
	*bed
	line struct {
		sync.Mutex
		open []net.Conn
	}
}

func newFarBed(t *testing.T) *farBed {
	t.Helper()
	dir := t.TempDir()
	st, err := etcd.New(etcd.Options{Dir: dir, Name: "bed", Log: slog.New(slog.DiscardHandler), NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() { _ = st.Run(ctx) }) // what goes wrong shows in the requests
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	f := &farBed{bed: newBedOn(t, &st.Store)}
	p, err := pki.Ensure(pki.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.background("serve", func(ctx context.Context) error {
		return f.server.Serve(ctx, l, &tls.Config{GetCertificate: p.ServingCertificate})
	})
	f.remote, err = https.New(https.Options{
		Servers: []string{"https://" + l.Addr().String()}, CA: p.CA.CertPEM(), Dial: f.dial, Backoff: 2 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	f.background("transport", f.remote.Run)
	return f
}

func (f *farBed) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err == nil {
		f.line.Lock()
		defer f.line.Unlock()
		f.line.open = append(f.line.open, conn)
	}
	return conn, err
}

func (f *farBed) cut() {
	f.line.Lock()
	defer f.line.Unlock()
	for _, conn := range f.line.open {
		conn.Close()
	}
	f.line.open = nil
}

// eventually waits until ok, which has no event to wait for.
func (f *farBed) eventually(what string, ok func() bool) {
	f.t.Helper()
	deadline := time.After(wait.Patience)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			f.t.Fatalf("%s: not within %s", what, wait.Patience)
		}
	}
}

// shown waits until the controllers' cache shows an object as it was written.
func (f *farBed) shown(cm *corev1.ConfigMap) {
	f.t.Helper()
	rev, err := strconv.ParseInt(cm.ResourceVersion, 10, 64)
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(f.t.Context(), 30*time.Second)
	defer cancel()
	if err := f.remote.Cache(core.ConfigMaps.Def, "").WaitRev(ctx, rev); err != nil {
		f.t.Fatal(err)
	}
}

// all collects all that was noted, until it contains want, in this order.
func (f *farBed) all(seen *log, want ...string) {
	f.t.Helper()
	var got []string
	f.eventually("reconciles "+strings.Join(want, ", "), func() bool {
		got = append(got, seen.taken()...)
		rest := want
		for _, line := range got {
			if len(rest) > 0 && line == rest[0] {
				rest = rest[1:]
			}
		}
		return len(rest) == 0
	})
}

// TestRulesHoldOverHTTPSOnEtcd holds C1 to C9 where caches are fed from another
// process. Times are real: it waits for events, and for waits that must not end
// only as long as others take that must.
func TestRulesHoldOverHTTPSOnEtcd(t *testing.T) {
	for name, test := range map[string]func(t *testing.T, f *farBed){
		"C1 C2 A change during a reconcile is reconciled after it":   farChanges,
		"C3 A reconcile sees its own writes":                         farOwnWrites,
		"C3 A key that waits holds up no other":                      farWaits,
		"C4 Every change of an input wakes its keys, cut off or not": farWakes,
		"C5 C6 Writes are declared and carry revisions":              farWrites,
		"C7 Run returns when all has ended":                          farEnds,
		"C8 Conflicts and missing objects are not logged":            farLogs,
		"C9 Only the leader reconciles":                              farLeads,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newFarBed(t))
		})
	}
}

func farChanges(t *testing.T, f *farBed) {
	var seen log
	var busy atomic.Int32
	entered, leave := make(chan struct{}), make(chan struct{})
	f.run(controller.New(spec(func(*controller.Kit, controller.Client[*corev1.ConfigMap]) reconcileFunc {
		return func(ctx context.Context, cm *corev1.ConfigMap) (controller.Next, error) {
			if busy.Add(1) > 1 {
				t.Error("two workers have the key")
			}
			defer busy.Add(-1)
			seen.add("%s", cm.Data["v"])
			if cm.Data["v"] == "1" {
				close(entered)
				<-leave
			}
			return controller.Done, nil
		}
	})))
	f.put("a", map[string]string{"v": "1"})
	<-entered
	f.set("a", "v", "2")
	f.shown(f.set("a", "v", "3"))
	if got := seen.taken(); !slices.Equal(got, []string{"1"}) {
		t.Errorf("while it is reconciled: got %v", got)
	}
	close(leave)
	f.all(&seen, "3")
}

func farOwnWrites(t *testing.T, f *farBed) {
	f.store.lag.Store(int64(20 * time.Millisecond)) // the feed is later than the next look
	var seen log
	f.run(controller.New(counter(&seen, 6)))
	f.put("counter", nil)
	var got []string
	f.eventually("the counter counts", func() bool {
		got = append(got, seen.taken()...)
		return slices.Contains(got, "n=6 child=false")
	})
	want := []string{"n=0 child=false", "n=1 child=true", "n=2 child=false", "n=3 child=true", "n=4 child=false", "n=5 child=true", "n=6 child=false"}
	if got := slices.Compact(got); !slices.Equal(got, want) {
		t.Errorf("got reconciles %q, want %q", got, want)
	}
	farOnlyDeletes(t, f)
}

// farOnlyDeletes: a delete is seen by the next reconcile although the server
// answers it with a Status.
func farOnlyDeletes(t *testing.T, f *farBed) {
	f.store.lag.Store(0)
	f.put("owner", nil)
	f.shown(f.put("victim", nil))
	var deletes, looks atomic.Int32
	f.run(controller.New(spec(func(_ *controller.Kit, configMaps controller.Client[*corev1.ConfigMap]) reconcileFunc {
		return func(ctx context.Context, cm *corev1.ConfigMap) (controller.Next, error) {
			victim, ok := configMaps.Get("default", "victim")
			if cm.Name != "owner" {
				return controller.Done, nil
			}
			looks.Add(1)
			if !ok {
				return controller.Done, nil
			}
			f.store.lag.Store(int64(50 * time.Millisecond))
			deletes.Add(1)
			return controller.After(time.Millisecond), configMaps.Delete(ctx, victim)
		}
	}, controller.Delete(core.ConfigMaps.Def))))
	f.eventually("a look after the delete", func() bool { return looks.Load() >= 2 })
	if n := deletes.Load(); n != 1 {
		t.Errorf("got %d deletes, want 1: the next reconcile must not see what is gone", n)
	}
}

func farWaits(t *testing.T, f *farBed) {
	f.put("writer", nil)
	f.shown(f.put("reader", nil))
	var reads, writes atomic.Int32
	s := spec(func(_ *controller.Kit, configMaps controller.Client[*corev1.ConfigMap]) reconcileFunc {
		return func(ctx context.Context, cm *corev1.ConfigMap) (controller.Next, error) {
			if cm.Name == "reader" {
				if writes.Load() > 0 {
					reads.Add(1)
				}
				return controller.After(time.Millisecond), nil
			}
			f.store.lag.Store(int64(time.Hour))
			_, err := configMaps.MergePatch(ctx, cm, "", map[string]any{"data": map[string]any{"at": time.Now().String()}})
			writes.Add(1)
			return controller.After(time.Millisecond), err
		}
	}, controller.Patch(core.ConfigMaps.Def, ""))
	s.Workers = 1
	f.run(controller.New(s))
	f.eventually("the key that writes nothing is looked at", func() bool { return reads.Load() >= 50 })
	if n := writes.Load(); n != 1 {
		t.Errorf("got %d reconciles of the key that wrote, want 1: its write is not to be seen yet", n)
	}
}

func farWakes(t *testing.T, f *farBed) {
	var seen log
	secrets := client.For(f.local("test"), core.Secrets)
	f.put("a", nil)
	f.run(controller.New(followsSecrets(&seen)))
	f.all(&seen, "default/a")
	for round := range 5 {
		name := "s" + strconv.Itoa(round)
		f.set("a", "k", name)
		f.all(&seen, "default/a")
		f.cut()
		secret, err := secrets.Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"map": "a"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		f.all(&seen, "default/a")
		f.put("b", nil)
		f.cut()
		f.all(&seen, "default/b")
		secret = secret.DeepCopy()
		secret.Labels["map"] = "b"
		if _, err := secrets.Update(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		var got []string
		f.eventually("a watched object that moves", func() bool {
			got = append(got, seen.taken()...)
			return slices.Contains(got, "default/a") && slices.Contains(got, "default/b")
		})
		f.cut()
		if err := secrets.Delete(t.Context(), "default", name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		f.all(&seen, "default/b")
		f.remove("b")
		f.cut()
		f.all(&seen, "gone default/b")
	}
}

func farWrites(t *testing.T, f *farBed) {
	done := make(chan struct{})
	once := sync.OnceFunc(func() { close(done) })
	f.run(controller.New(spec(func(k *controller.Kit, configMaps controller.Client[*corev1.ConfigMap]) reconcileFunc {
		return func(ctx context.Context, old *corev1.ConfigMap) (controller.Next, error) {
			if old.Data["k"] != "" {
				return controller.Done, nil
			}
			defer once()
			if _, err := configMaps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "new"}}); err == nil || !strings.Contains(err.Error(), "is not declared in Writes") {
				t.Errorf("undeclared create: got %v", err)
			}
			f.set("a", "k", "by somebody else")
			if _, err := configMaps.Update(ctx, old.DeepCopy()); !apierrors.IsConflict(err) {
				t.Errorf("update of what has changed: got %v, want a conflict", err)
			}
			if err := configMaps.Delete(ctx, old); !apierrors.IsConflict(err) {
				t.Errorf("delete of what has changed: got %v, want a conflict", err)
			}
			return controller.Done, nil
		}
	}, controller.Update(core.ConfigMaps.Def), controller.Delete(core.ConfigMaps.Def))))
	f.put("a", nil)
	<-done
	if cm, err := f.maps().Get(t.Context(), "default", "a"); err != nil || cm.Data["k"] != "by somebody else" {
		t.Errorf("got %v, %v", cm, err)
	}
}

func farEnds(t *testing.T, f *farBed) {
	var busy atomic.Int32
	stop := f.run(controller.New(spec(func(*controller.Kit, controller.Client[*corev1.ConfigMap]) reconcileFunc {
		return func(ctx context.Context, _ *corev1.ConfigMap) (controller.Next, error) {
			busy.Add(1)
			defer busy.Add(-1)
			<-ctx.Done()
			return controller.After(time.Minute), ctx.Err()
		}
	})))
	for i := range 10 {
		f.put("m"+strconv.Itoa(i), nil)
	}
	f.eventually("four at once", func() bool { return busy.Load() == 4 })
	stop()
	if n := busy.Load(); n != 0 {
		t.Errorf("got %d reconciles that still run", n)
	}
	if log := f.log.String(); log != "" {
		t.Errorf("got errors of reconciles that had to end:\n%s", log)
	}
}

func farLogs(t *testing.T, f *farBed) {
	var tries atomic.Int32
	f.run(controller.New(spec(func(_ *controller.Kit, configMaps controller.Client[*corev1.ConfigMap]) reconcileFunc {
		return func(ctx context.Context, cm *corev1.ConfigMap) (controller.Next, error) {
			if tries.Add(1) > 3 {
				return controller.Done, nil
			}
			stale := cm.DeepCopy()
			stale.ResourceVersion = "1"
			if _, err := configMaps.Update(ctx, stale); tries.Load() == 1 {
				return controller.Done, err
			}
			_, err := configMaps.Live(ctx, "default", "missing")
			return controller.Done, err
		}
	}, controller.Update(core.ConfigMaps.Def))))
	f.put("a", nil)
	f.eventually("it is tried again", func() bool { return tries.Load() > 3 })
	if log := f.log.String(); log != "" {
		t.Errorf("got log:\n%s", log)
	}
}

func farLeads(t *testing.T, f *farBed) {
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
				return controller.Done, nil
			}
		}))
		env := f.env()
		env.Leadership = l.lead(lost)
		f.background(name, func(ctx context.Context) error { return c.Run(ctx, env) })
	}
	f.shown(f.put("a", nil))
	if got := seen.taken(); len(got) != 0 {
		t.Fatalf("got reconciles by %v while nobody leads", got)
	}
	l.has <- struct{}{}
	var got []string
	f.eventually("somebody leads", func() bool { got = append(got, seen.taken()...); return len(got) == 1 })
	lose[got[0]] <- struct{}{}
	f.eventually("somebody leads again", func() bool { got = append(got, seen.taken()...); return len(got) == 2 })
}
