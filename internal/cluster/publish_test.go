package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/discovery"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/plane"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/store/mem"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/worker/settings"
)

// killable is the way of one server to the store, which ends with its machine.
type killable struct {
	store.Store
	dead atomic.Bool
}

var errDead = errors.New("the machine has no power")

func (k *killable) Txn(ctx context.Context, t store.Txn) (store.TxnResult, error) {
	if k.dead.Load() {
		return store.TxnResult{}, errDead
	}
	return k.Store.Txn(ctx, t)
}

func (k *killable) RenewLife(ctx context.Context, l store.Life) error {
	if k.dead.Load() {
		return errDead
	}
	return k.Store.RenewLife(ctx, l)
}

func (k *killable) EndLife(ctx context.Context, l store.Life) error {
	if k.dead.Load() {
		return errDead
	}
	return k.Store.EndLife(ctx, l)
}

// publisher is a server as far as it publishes where it is.
type publisher struct {
	*server
	t    *testing.T
	line *killable
	stop func()
}

// newPublisher starts one, the first of a cluster or a further one. It ends with the test.
func newPublisher(t *testing.T, st store.Store, address string, first *publisher) *publisher {
	t.Helper()
	o, err := Options{Machine: Machine{DataDir: t.TempDir(), NodeName: "n-" + address, Logger: slog.New(slog.DiscardHandler)}}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	p := &publisher{t: t, server: newServer(o, addresses{}), line: &killable{Store: st}}
	p.at.set(addresses{first: netip.MustParseAddr(address), advertise: netip.MustParseAddr(address)})
	if first != nil {
		p.pki = first.pki
	} else if err := p.keys(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.plane, err = plane.New(plane.Options{
		Store: p.line, Shared: first != nil, Logger: o.Logger, Network: o.Network.Network, Host: o.NodeName, Address: p.own(), Node: o.NodeName,
	})
	if err != nil {
		t.Fatal(err)
	}
	under, over := task.NewGroup(t.Context()), task.NewGroup(t.Context())
	under.Go("control plane", p.plane.Run)
	<-p.plane.Ready()
	p.stop = func() {
		p.plane.Leave()
		for _, g := range []*task.Group{over, under} {
			g.Cancel(context.Canceled)
			if err := g.Wait(); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(p.stop)
	over.Go("other servers", p.attend)
	over.Go("what is published", p.keep)
	return p
}

// shows says what the cluster shows of its servers: endpoints, slice, and cluster-info.
func (p *publisher) shows() string {
	p.t.Helper()
	api := p.plane.Admin()
	e, err := client.For(api, core.Endpoints).Get(p.t.Context(), "default", "kubernetes")
	if err != nil {
		p.t.Fatal(err)
	}
	var text []string
	for _, s := range e.Subsets {
		for _, a := range s.Addresses {
			text = append(text, fmt.Sprintf("%s:%d", a.IP, s.Ports[0].Port))
		}
	}
	slice, err := client.For(api, discovery.EndpointSlices).Get(p.t.Context(), "default", "kubernetes")
	if err != nil {
		p.t.Fatal(err)
	}
	var ends []string
	for _, e := range slice.Endpoints {
		ends = append(ends, fmt.Sprintf("%s:%d", e.Addresses[0], *slice.Ports[0].Port))
	}
	info, err := client.For(api, core.ConfigMaps).Get(p.t.Context(), "kube-public", "cluster-info")
	if err != nil {
		p.t.Fatal(err)
	}
	if one, other := strings.Join(text, " "), strings.Join(ends, " "); one != other {
		return "endpoints " + one + ", slice " + other // which is written after them
	}
	_, at, _ := strings.Cut(info.Data["kubeconfig"], "server: https://")
	at, _, _ = strings.Cut(at, "\n")
	return strings.Join(text, " ") + ", joined at " + at
}

// soon waits until the cluster shows that, and says after how long.
func (p *publisher) soon(want string) time.Duration {
	p.t.Helper()
	since := time.Now()
	for p.shows() != want {
		if time.Since(since) > time.Minute {
			p.t.Fatalf("got %s, want %s", p.shows(), want)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(since)
}

func TestServersThatLiveAreTheEndpointsOfTheAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := mem.New(mem.Options{})
		a := newPublisher(t, st, "10.0.0.1", nil)
		publish := func(p *publisher) {
			t.Helper()
			if err := p.publish(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		publish(a)
		a.soon("10.0.0.1:6443, joined at 10.0.0.1:6443")
		// Who is alone writes nothing.
		time.Sleep(2 * time.Hour)
		before, _ := st.Rev(t.Context())
		time.Sleep(24 * time.Hour)
		publish(a)
		if now, _ := st.Rev(t.Context()); now != before {
			t.Errorf("%d writes by a server that is alone", now-before)
		}
		if err := a.plane.Share(t.Context()); err != nil {
			t.Fatal(err)
		}
		b := newPublisher(t, st, "10.0.0.2", a)
		publish(b)
		c := newPublisher(t, st, "10.0.0.3", a)
		publish(c)
		all := "10.0.0.1:6443 10.0.0.2:6443 10.0.0.3:6443, joined at 10.0.0.1:6443"
		for _, p := range []*publisher{a, b, c} {
			p.soon(all)
		}
		// At rest nobody writes any of it again.
		e, err := client.For(a.plane.Admin(), core.Endpoints).Get(t.Context(), "default", "kubernetes")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		publish(b)
		again, err := client.For(a.plane.Admin(), core.Endpoints).Get(t.Context(), "default", "kubernetes")
		if err != nil || again.ResourceVersion != e.ResourceVersion {
			t.Errorf("the endpoints were written at rest: %v, %v", again, err)
		}
		// One that is killed is out within 15 s, one that stops at once.
		c.line.dead.Store(true)
		c.stop()
		if took := a.soon("10.0.0.1:6443 10.0.0.2:6443, joined at 10.0.0.1:6443"); took > 6*time.Second {
			t.Errorf("a server that was killed is out after %s", took)
		}
		a.stop()
		if took := b.soon("10.0.0.2:6443, joined at 10.0.0.2:6443"); took > 100*time.Millisecond {
			t.Errorf("a server that stops is out after %s", took)
		}
		// A machine that gets another address.
		b.at.set(addresses{first: netip.MustParseAddr("10.0.0.9"), advertise: netip.MustParseAddr("10.0.0.9")})
		b.plane.Move(b.own())
		publish(b)
		b.soon("10.0.0.9:6443, joined at 10.0.0.9:6443")
	})
}

func TestServerWithOtherSettingsThanTheOthersDoesNotStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := mem.New(mem.Options{})
		a := newPublisher(t, st, "10.0.0.1", nil)
		if err := errors.Join(a.publish(t.Context()), a.plane.Share(t.Context())); err != nil {
			t.Fatal(err)
		}
		maps := client.For(a.plane.Admin(), core.ConfigMaps)
		said, err := maps.Get(t.Context(), metav1.NamespaceSystem, "kemudi-cluster")
		if err != nil {
			t.Fatal(err)
		}
		b := newPublisher(t, st, "10.0.0.2", a)
		b.o.Network.ClusterDomain = "other.example"
		err = b.publish(t.Context())
		if err == nil || !strings.Contains(err.Error(), "--cluster-domain other.example: the cluster has cluster.local") {
			t.Errorf("got %v, want that the domain is another", err)
		}
		if now, err := maps.Get(t.Context(), metav1.NamespaceSystem, "kemudi-cluster"); err != nil || now.ResourceVersion != said.ResourceVersion {
			t.Errorf("the settings were written: %v, %v", now, err)
		}
		// One that finds itself alone is the owner of the settings.
		a.stop()
		time.Sleep(time.Second)
		if err := b.publish(t.Context()); err != nil {
			t.Errorf("when it is alone: %v", err)
		}
	})
}

func TestWhatPodsFindTheAPIByComesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPublisher(t, mem.New(mem.Options{}), "10.0.0.1", nil)
		if err := p.publish(t.Context()); err != nil {
			t.Fatal(err)
		}
		const want = "10.0.0.1:6443, joined at 10.0.0.1:6443"
		p.soon(want)
		api := p.plane.Admin()
		services := client.For(api, core.Services)
		was, err := services.Get(t.Context(), "default", "kubernetes")
		if err != nil {
			t.Fatal(err)
		}
		maps := client.For(api, core.ConfigMaps)
		for _, q := range []struct {
			what, namespace, name string
			remove                func(ctx context.Context, namespace, name string, o metav1.DeleteOptions) error
		}{
			{"service", "default", "kubernetes", services.Delete},
			{"endpoints", "default", "kubernetes", client.For(api, core.Endpoints).Delete},
			{"slice", "default", "kubernetes", client.For(api, discovery.EndpointSlices).Delete},
			{"information", "kube-public", "cluster-info", maps.Delete},
			{"settings", "kube-system", settings.ConfigMap, maps.Delete},
		} {
			if err := q.remove(t.Context(), q.namespace, q.name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // no time passes
			if got := p.shows(); got != want {
				t.Errorf("after the %s went: got %s, want %s", q.what, got, want)
			}
		}
		if _, err := maps.Get(t.Context(), "kube-system", settings.ConfigMap); err != nil {
			t.Error(err)
		}
		is, err := services.Get(t.Context(), "default", "kubernetes")
		if err != nil || is.UID == was.UID || is.Spec.ClusterIP != was.Spec.ClusterIP {
			t.Errorf("got service %+v, %v, want another one at the address %s", is, err, was.Spec.ClusterIP)
		}
	})
}
