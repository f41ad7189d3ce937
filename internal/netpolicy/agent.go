package netpolicy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/networking"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/podnet/nft/table"
	"github.com/kemudi/kemudi/internal/task"
)

// Options say whose pods are looked after.
type Options struct {
	// NodeName is the name of the Node this is. Required.
	NodeName string
	// Transport is where policies are read from, and, while there are any, all pods and
	// namespaces. Required.
	Transport client.Transport
	// Attached lists the pods of this machine that are in the pod network already. Optional.
	Attached func() ([]Pod, error)
	// Log defaults to no log.
	Log *slog.Logger
	// Metrics is where the metrics are registered; default: nowhere.
	Metrics prometheus.Registerer
}

// Pod is a pod of this machine in the pod network.
type Pod struct {
	Key   types.NamespacedName
	UID   types.UID
	Addrs []netip.Addr
}

// Agent has the kernel of a node obey the policies.
type Agent struct {
	o        Options
	policies *cache.Cache
	metrics  *metrics
	open     func() (*kernel, error)

	mu struct {
		sync.Mutex
		feed    *feed         // nil: there is no policy, or that is not known yet
		changed chan struct{} // closed when feed changes
	}
}

// New returns an agent. Nothing is done before Run.
func New(o Options) (*Agent, error) {
	if o.NodeName == "" || o.Transport == nil {
		return nil, errors.New("network policies: NodeName and Transport must be set")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Attached == nil {
		o.Attached = func() ([]Pod, error) { return nil, nil }
	}
	a := &Agent{o: o, policies: o.Transport.Cache(networking.NetworkPolicies.Def, ""), metrics: newMetrics(o.Metrics), open: openKernel}
	a.mu.changed = make(chan struct{})
	return a, nil
}

// errSome and errNone say that the first policy has come, and that the last one has gone.
var (
	errSome = errors.New("there is a policy")
	errNone = errors.New("there is no policy")
)

// errOver says that nobody brings rules into force for a while.
var errOver = errors.New("no rules are brought into force")

// Run keeps the rules in step with the cluster until ctx ends. They stay in force when it
// returns. It may be called once.
func (a *Agent) Run(ctx context.Context) error {
	back := task.Backoff{Initial: 100 * time.Millisecond, Max: 30 * time.Second, Jitter: 0.2}
	for {
		err := a.rest(ctx)
		if err == nil {
			err = a.enforce(ctx)
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, errNone):
			back.Reset()
		default:
			wait := back.Next()
			a.o.Log.Error("cannot bring network policies into force", "err", err, "retry", wait)
			if err := task.Sleep(ctx, wait); err != nil {
				return err
			}
		}
	}
}

// rest waits until there is a policy. Once it is known that there is none, what an earlier
// process has left is taken away.
func (a *Agent) rest(ctx context.Context) error {
	err := a.policies.Each(ctx, cache.FollowOptions{}, func([]cache.Delta) error {
		if a.policies.Len() > 0 {
			return errSome
		}
		return a.remove(ctx)
	})
	if errors.Is(err, errSome) {
		return nil
	}
	return err
}

func (a *Agent) remove(ctx context.Context) error {
	k, err := a.open()
	if err != nil {
		return err
	}
	defer k.close()
	_, err = k.rules.Remove(ctx, tables()...)
	return err
}

// enforce brings policies into force until there is none any more.
func (a *Agent) enforce(ctx context.Context) error {
	k, err := a.open()
	if err != nil {
		return err
	}
	defer k.close()
	namespaces, release := a.o.Transport.Hold(core.Namespaces.Def, "")
	defer release()
	pods, release := a.o.Transport.Hold(core.Pods.Def, "")
	defer release()
	f := newFeed()
	a.setFeed(f)
	// Who is connected from here on tells the feed; the others are on the list.
	attached, err := a.o.Attached()
	if err != nil {
		a.o.Log.Warn("cannot tell which pods are in the pod network: their status has to say it", "err", err)
	}
	l := newLoop(a, k, f)
	for _, p := range attached {
		l.mu.model.Attach(p.Key, p.UID, p.Addrs)
	}
	g := task.NewGroup(ctx)
	g.Go("follow policies", f.follow("policy", a.policies, changePolicy))
	g.Go("follow namespaces", f.follow("namespace", namespaces, changeNamespace))
	g.Go("follow pods", f.follow("pod", pods, changePod))
	g.Go("watch tables of policies", l.watchTables)
	g.Go("end forbidden connections", l.endFlows)
	g.Go("rules of policies", l.run)
	err = g.Wait()
	a.setFeed(nil)
	f.end(errOver)
	return err
}

func (a *Agent) setFeed(f *feed) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.feed = f
	close(a.mu.changed)
	a.mu.changed = make(chan struct{})
}

// Connected is told of a pod that has got its network, before its first container starts, and
// returns when the rules for its addresses are in force (N3).
func (a *Agent) Connected(ctx context.Context, pod *corev1.Pod, addrs []netip.Addr) error {
	key := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	late := func() error {
		return fmt.Errorf("wait for the network policies of pod %s to be in force: %w", key, context.Cause(ctx))
	}
	select {
	case <-a.policies.Synced():
	case <-ctx.Done():
		return late()
	}
	for a.policies.Len() > 0 {
		a.mu.Lock()
		f, changed := a.mu.feed, a.mu.changed
		a.mu.Unlock()
		var done <-chan error
		if f != nil {
			changed = nil
			done = f.await(key, func(m *Model) {
				m.Attach(key, pod.UID, addrs)
				m.SetPod(here(pod, a.o.NodeName))
			})
		}
		select {
		case err := <-done:
			if !errors.Is(err, errOver) {
				return err
			}
		case <-changed:
		case <-ctx.Done():
			return late()
		}
	}
	return nil
}

// here is a pod as one of this node that has begun.
func here(pod *corev1.Pod, node string) *corev1.Pod {
	if pod.Spec.NodeName == node {
		return pod
	}
	pod = pod.DeepCopy()
	pod.Spec.NodeName = node
	return pod
}

// Reset removes the tables from the network namespace of the calling thread. It returns what
// it removed, for people. Nothing else is on the host from this package.
func Reset(ctx context.Context) (removed []string, err error) {
	k, err := table.Open()
	if err != nil {
		return nil, err
	}
	defer k.Close()
	return k.Remove(ctx, tables()...)
}
