package servers_test

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/kemudi/kemudi/internal/api/coordination"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/servers"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/store/mem"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/watchcache"
)

// line is a process's way to the store, which can be cut, and counts what is written by it.
type line struct {
	store.Store
	cut    atomic.Bool
	writes atomic.Int64
}

var errCut = errors.New("the store does not answer")

func (l *line) RenewLife(ctx context.Context, id store.Life) error {
	if l.cut.Load() {
		return errCut
	}
	return l.Store.RenewLife(ctx, id)
}

func (l *line) BeginLife(ctx context.Context, ttl time.Duration) (store.Life, error) {
	if l.cut.Load() {
		return 0, errCut
	}
	return l.Store.BeginLife(ctx, ttl)
}

func (l *line) Txn(ctx context.Context, t store.Txn) (store.TxnResult, error) {
	l.writes.Add(1)
	return l.Store.Txn(ctx, t)
}

// bed is a store, the leases in it as all see them, and servers that keep records.
type bed struct {
	*testing.T
	store  store.Store
	leases *cache.Cache
}

func newBed(t *testing.T) *bed {
	st := mem.New(mem.Options{})
	set, err := watchcache.New(watchcache.Options{Store: st, Defs: []*resource.Def{coordination.Leases.Def}})
	if err != nil {
		t.Fatal(err)
	}
	g := task.NewGroup(t.Context())
	g.Go("caches", set.Run)
	t.Cleanup(func() {
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
	<-set.Synced()
	return &bed{t, st, set.Cache(coordination.Leases.Def)}
}

// server keeps a record until stop.
func (b *bed) server(self servers.Self) (k *servers.Keeper, l *line, stop func()) {
	l = &line{Store: b.store}
	k = servers.NewKeeper(servers.Options{Self: self, Store: l, Leases: b.leases, Logger: slog.New(slog.DiscardHandler)})
	g := task.NewGroup(b.Context())
	g.Go("record", k.Run)
	<-k.Kept()
	synctest.Wait()
	return k, l, func() {
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			b.Error(err)
		}
		synctest.Wait()
	}
}

func (b *bed) living(want ...string) {
	b.Helper()
	synctest.Wait()
	var got []string
	for _, at := range servers.Living(b.leases) {
		got = append(got, at.String())
	}
	if !slices.Equal(got, want) {
		b.Errorf("living: got %v, want %v", got, want)
	}
}

func self(host, uid, address string) servers.Self {
	return servers.Self{Host: host, UID: uid, Address: netip.MustParseAddrPort(address), Node: host}
}

func TestRecordIsThereAsLongAsItsServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		_, quiet, stopA := b.server(self("a", "1", "10.0.0.1:6443"))
		k, cut, stopB := b.server(self("b", "2", "10.0.0.2:6443"))
		b.living("10.0.0.1:6443", "10.0.0.2:6443")
		// At rest it writes once in half an hour.
		before := quiet.writes.Load()
		time.Sleep(24*time.Hour + time.Minute)
		if got := quiet.writes.Load() - before; got != 47 && got != 48 {
			t.Errorf("%d writes in a day, want one each half hour", got)
		}
		b.living("10.0.0.1:6443", "10.0.0.2:6443")
		// One that is not heard of is out in five seconds, and knows it before.
		cut.cut.Store(true)
		since := time.Now()
		for time.Now().Before(k.Until()) {
			b.living("10.0.0.1:6443", "10.0.0.2:6443")
			time.Sleep(100 * time.Millisecond)
		}
		for len(servers.Living(b.leases)) == 2 && time.Since(since) < time.Minute {
			time.Sleep(10 * time.Millisecond)
		}
		if took := time.Since(since); took > 5*time.Second+20*time.Millisecond || took < 3*time.Second {
			t.Errorf("gone after %s, want 3.5 to 5 s", took)
		}
		if !servers.Lives(b.leases, self("a", "1", "10.0.0.1:6443").Identity()) || servers.Lives(b.leases, k.Identity()) {
			t.Error("want that a lives and b does not")
		}
		cut.cut.Store(false)
		time.Sleep(time.Second)
		b.living("10.0.0.1:6443", "10.0.0.2:6443")
		// One that ends is out at once.
		stopA()
		b.living("10.0.0.2:6443")
		stopB()
		b.living()
	})
}

func TestRecordIsUpstreamsAndIsKeptAsItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		me := self("a", "uid", "10.0.0.1:6443")
		k, l, stop := b.server(me)
		defer stop()
		record := func() *coordinationv1.Lease {
			t.Helper()
			it := b.leases.Get("kube-system/" + me.Name())
			if it == nil {
				t.Fatal("there is no record")
			}
			return it.Object.(*coordinationv1.Lease)
		}
		r := record()
		if r.Name != "apiserver-2tpgmlbwcz6wvzejdfn7mej2p4" || *r.Spec.HolderIdentity != r.Name+"_uid" || *r.Spec.LeaseDurationSeconds != 3600 ||
			r.Labels["apiserver.kubernetes.io/identity"] != "kube-apiserver" || r.Labels["kubernetes.io/hostname"] != "a" || servers.NodeOf(r) != "a" {
			t.Errorf("got %+v", r)
		}
		// The machine gets another address.
		k.Move(netip.MustParseAddrPort("10.0.0.9:6443"))
		time.Sleep(time.Millisecond)
		b.living("10.0.0.9:6443")
		// Somebody changes or deletes it.
		key := coordination.Leases.Def.Key("kube-system", me.Name())
		for _, value := range [][]byte{[]byte(`{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"` + me.Name() + `"}}`), nil} {
			if _, err := b.store.Txn(t.Context(), store.Txn{Ops: []store.Op{{Key: key, Value: value}}}); err != nil {
				t.Fatal(err)
			}
			b.living()
			time.Sleep(2 * time.Second)
			b.living("10.0.0.9:6443")
		}
		// And then it is gone with the server all the same.
		l.cut.Store(true)
		time.Sleep(5 * time.Second)
		b.living()
		l.cut.Store(false)
	})
}

func TestRecordsThatCameAsCopiesAreRemovedByWhoIsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		_, _, stop := b.server(self("a", "1", "10.0.0.1:6443"))
		key := coordination.Leases.Def.Key("kube-system", self("a", "1", "10.0.0.1:6443").Name())
		kv, _, err := b.store.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		stop()
		foreign := []byte(`{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"namespace":"kube-system","name":"apiserver-x","labels":{"apiserver.kubernetes.io/identity":"kube-apiserver"}}}`)
		if _, err := b.store.Txn(t.Context(), store.Txn{Ops: []store.Op{
			{Key: key, Value: kv.Value}, {Key: coordination.Leases.Def.Key("kube-system", "apiserver-x"), Value: foreign},
		}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		b.living("10.0.0.1:6443")
		k := servers.NewKeeper(servers.Options{Self: self("b", "2", "10.0.0.2:6443"), Store: b.store, Leases: b.leases, Logger: slog.New(slog.DiscardHandler)})
		for range 2 {
			if err := k.Clear(t.Context()); err != nil {
				t.Fatal(err)
			}
			b.living()
		}
		if b.leases.Get("kube-system/apiserver-x") == nil {
			t.Error("the record of another Kubernetes is gone")
		}
	})
}

func TestProcessesAreKnownByTheirIdentities(t *testing.T) {
	a := servers.Self{Host: "a_b", UID: "1"}
	for _, c := range []struct {
		one, other string
		same       bool
	}{
		{a.Identity(), "a_b_1", true}, {a.Identity(), "a_b_2", false}, {"", "", false}, {"a_", "b_", false}, {"a", "a", false},
	} {
		if got := servers.SameProcess(c.one, c.other); got != c.same {
			t.Errorf("%q and %q: got %t, want %t", c.one, c.other, got, c.same)
		}
	}
}
