package plane_test

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/apiserver"
	"github.com/kemudi/kemudi/internal/features"
	"github.com/kemudi/kemudi/internal/plane"
	"github.com/kemudi/kemudi/internal/sim"
	"github.com/kemudi/kemudi/internal/watchcache"
)

// pipes is a listener whose connections are pipes: they are within a bubble.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case p.conns <- far:
		return near, nil
	case <-p.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// coordinated is a control plane, and upstream's client of its API.
func coordinated(t *testing.T, gates features.Gates) *kubernetes.Clientset {
	t.Helper()
	p := sim.Plane(t, plane.Options{Features: gates, Serving: func(o *apiserver.Options, _ *watchcache.Set) error {
		o.RuntimeConfig = map[string]bool{"coordination.k8s.io/v1beta1": true}
		o.Authenticator = authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
			return &authenticator.Response{User: &user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup}}}, true, nil
		})
		return nil
	}})
	l := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	server := &http.Server{Handler: p.Server().Handler()}
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(l) })
	transport := &http.Transport{DialContext: l.dial}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		_ = server.Close()
		wg.Wait()
	})
	api, err := kubernetes.NewForConfig(&rest.Config{Host: "http://api", Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	return api
}

// stand has a process stand for the lease "lock", as upstream's parts do, until stop. leads is closed when it has been elected, and over
// when it leads no more.
func stand(t *testing.T, api *kubernetes.Clientset, name, emulated string) (leads, over chan struct{}, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	candidate, _, err := leaderelection.NewCandidate(api, "kube-system", name, "lock", "1.37.0", emulated, coordinationv1.OldestEmulationVersion)
	if err != nil {
		t.Fatal(err)
	}
	leads, over = make(chan struct{}), make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "lock"}, Client: api.CoordinationV1(), LockConfig: resourcelock.ResourceLockConfig{Identity: name},
		},
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second, Coordinated: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(leads) },
			OnStoppedLeading: func() { close(over) },
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	wg.Go(func() { candidate.Run(ctx) })
	wg.Go(func() { elector.Run(ctx) })
	stop = func() {
		cancel()
		wg.Wait()
	}
	t.Cleanup(stop)
	return leads, over, stop
}

// within waits until something is done.
func within(t *testing.T, d time.Duration, done chan struct{}, what string) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(d):
		t.Fatalf("%s: not within %v", what, d)
	}
}

func TestOldestOfThoseWhoStandLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := coordinated(t, features.Gates{features.CoordinatedLeaderElection: true})
		newer, newerOver, stopNewer := stand(t, api, "newer", "1.37.0")
		within(t, 10*time.Second, newer, "the only one that stands")
		l := lock(t, api)
		if ptr.Deref(l.Spec.Strategy, "") != coordinationv1.OldestEmulationVersion || ptr.Deref(l.Spec.HolderIdentity, "") != "newer" {
			t.Errorf("got %+v, want the lease held by newer, by the strategy that it was elected by", l.Spec)
		}
		time.Sleep(time.Hour) // it is asked, and answers
		if got := candidates(t, api); got != "newer" {
			t.Errorf("after an hour: got candidates %s", got)
		}
		select {
		case <-newerOver:
			t.Fatal("the leader is gone after an hour without others")
		default:
		}

		older, _, stopOlder := stand(t, api, "older", "1.36.0")
		within(t, time.Minute, newerOver, "the end of who acts as a newer release")
		if l := lock(t, api); ptr.Deref(l.Spec.PreferredHolder, "") != "older" {
			t.Errorf("got %+v, want a lease that says who is to have it", l.Spec)
		}
		within(t, time.Minute, older, "the turn of who acts as the oldest release")
		if l := lock(t, api); l.Spec.PreferredHolder != nil {
			t.Errorf("got %+v, want nobody to be preferred any more", l.Spec)
		}
		stopNewer()

		again, _, _ := stand(t, api, "again", "1.37.0")
		time.Sleep(time.Minute)
		select {
		case <-again:
			t.Fatal("leads beside one that acts as an older release")
		default:
		}
		stopOlder() // gives nothing back
		within(t, time.Minute, again, "the turn of who is left")
		time.Sleep(31 * time.Minute)
		if got := candidates(t, api); got != "again" {
			t.Errorf("got candidates %s, want those gone that have been silent for half an hour", got)
		}
	})
}

func TestNobodyElectsByCandidatesUnlessToldTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := coordinated(t, nil)
		stand(t, api, "a", "1.37.0")
		time.Sleep(time.Minute)
		if _, err := api.CoordinationV1().Leases("kube-system").Get(t.Context(), "lock", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("got %v, want no lease", err)
		}
	})
}

func lock(t *testing.T, api *kubernetes.Clientset) *coordinationv1.Lease {
	t.Helper()
	l, err := api.CoordinationV1().Leases("kube-system").Get(t.Context(), "lock", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func candidates(t *testing.T, api *kubernetes.Clientset) string {
	t.Helper()
	list, err := api.CoordinationV1beta1().LeaseCandidates("kube-system").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}
