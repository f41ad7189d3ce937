package plane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/coordination"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/store/mem"
	"github.com/kemudi/kemudi/internal/task"
)

// begin runs a control plane until stop, and at the latest until the test ends.
func begin(t *testing.T, o Options) (p *Plane, g *task.Group, stop func()) {
	t.Helper()
	o.Logger = slog.New(slog.DiscardHandler)
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	g = task.NewGroup(t.Context())
	g.Go("control plane", p.Run)
	stop = func() {
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return p, g, stop
}

// start does the same, and returns when it is ready.
func start(t *testing.T, o Options) (p *Plane, stop func()) {
	t.Helper()
	p, g, stop := begin(t, o)
	select {
	case <-p.Ready():
	case <-g.Context().Done():
		t.Fatal(g.Wait())
	}
	return p, stop
}

// holder is who holds a lease of kube-system; empty: nobody.
func holder(t *testing.T, p *Plane, lease string) string {
	t.Helper()
	l, err := client.For(p.Admin(), coordination.Leases).Get(t.Context(), metav1.NamespaceSystem, lease)
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	if err != nil {
		return ""
	}
	return ptr.Deref(l.Spec.HolderIdentity, "")
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
}

func TestWhoIsAloneRunsOnWhenOthersCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := mem.New(mem.Options{})
		p, stop := start(t, Options{Store: st, Host: "a"})
		// What runs as the controllers do, from before Share to the end.
		write, wrote, ended := make(chan string), make(chan error), make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		g := task.NewGroup(ctx)
		begun := 0
		g.Go("controller", func(ctx context.Context) error {
			defer close(ended)
			return p.lead.controllers.Lead(ctx, func(ctx context.Context) error {
				begun++
				for {
					select {
					case name := <-write:
						_, err := client.For(p.Admin(), core.ConfigMaps).Create(ctx, configMap(name))
						wrote <- err
					case <-ctx.Done():
						return nil
					}
				}
			})
		})
		try := func(name string) error {
			write <- name
			return <-wrote
		}
		if err := try("alone"); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		_, rev, _ := st.Get(t.Context(), "/registry/leases/")
		time.Sleep(time.Hour)
		if _, now, _ := st.Get(t.Context(), "/registry/leases/"); now != rev || holder(t, p, "kube-controller-manager") != "" {
			t.Errorf("who is alone has made %d writes in an hour, and its lease is held by %q", now-rev, holder(t, p, "kube-controller-manager"))
		}
		for range 2 {
			if err := p.Share(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for _, lease := range []string{"kube-controller-manager", "kube-scheduler"} {
			if got := holder(t, p, lease); !strings.HasPrefix(got, "a_") {
				t.Errorf("lease %s is held by %q, want the process that was alone", lease, got)
			}
		}
		time.Sleep(time.Hour)
		if err := try("shared"); err != nil || begun != 1 {
			t.Errorf("after Share: got %v, and what runs has begun %d times", err, begun)
		}
		// Another one takes the lease: nothing is written any more.
		leases := client.For(p.Admin(), coordination.Leases)
		take := func() error {
			l, err := leases.Get(t.Context(), metav1.NamespaceSystem, "kube-controller-manager")
			if err != nil {
				return err
			}
			l = l.DeepCopy()
			l.Spec.HolderIdentity = ptr.To("b")
			_, err = leases.Update(t.Context(), l)
			return err
		}
		err := take()
		for apierrors.IsConflict(err) { // it was renewed in this instant
			err = take()
		}
		if err != nil {
			t.Fatal(err)
		}
		select {
		case write <- "lost":
			if err := <-wrote; err == nil {
				t.Error("after the lease was lost something was written")
			}
		case <-time.After(time.Minute): // it has heard of it before
		}
		if _, err := client.For(p.Admin(), core.ConfigMaps).Get(t.Context(), "default", "lost"); !apierrors.IsNotFound(err) {
			t.Errorf("what was written after the lease was lost: got %v", err)
		}
		stop()
		cancel()
		<-ended
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
}

// small is a network with few addresses and ports for services.
func small() Network {
	return Network{
		ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/29")}, NodePorts: PortRange{30000, 30001}, ClusterDNS: netip.MustParseAddr("10.96.0.6"),
	}
}

func nodePort(name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 80}}},
	}
}

func TestServersOfOneStoreAreOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := mem.New(mem.Options{})
		first, _ := start(t, Options{Store: lagging{st}, Host: "a", Network: small()})
		services := client.For(first.Admin(), core.Services)
		for _, name := range []string{"one", "two"} {
			if _, err := services.Create(t.Context(), nodePort(name)); err != nil {
				t.Fatal(err)
			}
		}
		if err := first.Share(t.Context()); err != nil {
			t.Fatal(err)
		}
		other, _ := start(t, Options{Store: lagging{st}, Shared: true, Host: "b", Network: small()})
		planes := []*Plane{first, other}
		// What one has answered is what all show.
		for i := range 40 {
			by, seen := planes[i%2], planes[1-i%2]
			name := fmt.Sprint("m", i)
			made, err := client.For(by.Admin(), core.ConfigMaps).Create(t.Context(), configMap(name))
			if err != nil {
				t.Fatal(err)
			}
			got, err := client.For(seen.Admin(), core.ConfigMaps).Get(t.Context(), "default", name)
			if err != nil || got.ResourceVersion != made.ResourceVersion {
				t.Errorf("%s: got %v, %v, want it as it was made", name, got, err)
			}
		}
		// What one has released the other gives, without trying.
		for i := range 20 {
			by, to := planes[i%2], planes[1-i%2]
			if _, err := client.For(to.Admin(), core.Services).Create(t.Context(), nodePort("more")); !apierrors.IsInvalid(err) && !apierrors.IsInternalError(err) {
				t.Errorf("round %d: both ports are taken, got %v", i, err)
			}
			if err := client.For(by.Admin(), core.Services).Delete(t.Context(), "default", "two", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			if _, err := client.For(to.Admin(), core.Services).Create(t.Context(), nodePort("two")); err != nil {
				t.Errorf("round %d: one port and address is free, got %v", i, err)
			}
		}
	})
}

// cut is the way of one process to the store, until it is cut.
type cut struct {
	store.Store
	over chan struct{}
}

func (c cut) dead() error {
	select {
	case <-c.over:
		return errors.New("killed")
	default:
		return nil
	}
}

func (c cut) Txn(ctx context.Context, t store.Txn) (store.TxnResult, error) {
	if err := c.dead(); err != nil {
		return store.TxnResult{}, err
	}
	return c.Store.Txn(ctx, t)
}

func (c cut) RenewLife(ctx context.Context, l store.Life) error {
	if err := c.dead(); err != nil {
		return err
	}
	return c.Store.RenewLife(ctx, l)
}

func (c cut) EndLife(ctx context.Context, l store.Life) error {
	if err := c.dead(); err != nil {
		return err
	}
	return c.Store.EndLife(ctx, l)
}

func TestAnotherLeadsWhenWhoWasAloneEnds(t *testing.T) {
	for name, kill := range map[string]bool{"in order": false, "killed": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := mem.New(mem.Options{})
				line := cut{st, make(chan struct{})}
				first, stop := start(t, Options{Store: line, Host: "a"})
				if err := first.Share(t.Context()); err != nil {
					t.Fatal(err)
				}
				other, _ := start(t, Options{Store: st, Shared: true, Host: "b"})
				time.Sleep(time.Minute)
				if kill {
					close(line.over)
				}
				stop()
				since := time.Now()
				for !strings.HasPrefix(holder(t, other, "kube-controller-manager"), "b_") && time.Since(since) < time.Minute {
					time.Sleep(10 * time.Millisecond)
				}
				took := time.Since(since)
				t.Logf("another leads after %s", took)
				if bar := map[bool]time.Duration{false: 100 * time.Millisecond, true: 5500 * time.Millisecond}[kill]; took > bar {
					t.Errorf("another leads after %s, want %s at most", took, bar)
				}
			})
		})
	}
}
