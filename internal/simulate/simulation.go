package simulate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/dra"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/scheduler"
	"github.com/kemudi/kemudi/internal/scheduler/devices"
	"github.com/kemudi/kemudi/internal/simnode"
	"github.com/kemudi/kemudi/internal/task"
)

// Options say what to simulate. All are required.
type Options struct {
	Pools     []Pool
	Transport client.Transport // may do everything
	Logger    *slog.Logger
}

// Simulation runs the nodes of pools, and has pools grow and shrink.
type Simulation struct {
	o     Options
	log   *slog.Logger
	nodes client.Client[*corev1.Node]
	seen  client.Reader[*corev1.Node]
	pods  client.Reader[*corev1.Pod]
	// What devices there may be, and who asks for them.
	classes client.Reader[*resourcev1.DeviceClass]
	claims  client.Reader[*resourcev1.ResourceClaim]

	// What follows belongs to the goroutine of Run.
	g       *task.Group
	pools   map[string]*Pool
	sizes   map[string]int // nodes of each pool, those that are on their way with them
	last    map[string]int // number of the newest node of each pool
	numbers int            // of all nodes that there were: their addresses follow from it
	running map[string]*running
	coming  []*arrival
	waiting map[string]*corev1.Pod // that fit nowhere, by key
	tried   map[string]time.Time   // until when pods for which a node comes are left alone
	onNode  map[string]int         // how many pods that work each node has
	emptied bool                   // a node has lost its last pod since this was looked at
}

// running is a node that runs.
type running struct {
	pool   *Pool // nil: of none
	cancel context.CancelFunc
	idle   time.Time // since when it has no pods; zero: it has some
}

// arrival is a node that is on its way.
type arrival struct {
	*coming
	at time.Time
}

const (
	// settle is how long it is waited for further changes before a pool grows.
	settle = time.Second
	// patience is how long a pod is given to get onto the node that came for it.
	patience = 30 * time.Second
)

// New returns a simulation that does not run yet.
func New(o Options) *Simulation {
	s := &Simulation{
		o: o, log: o.Logger.With("part", "simulation"), nodes: client.For(o.Transport, core.Nodes),
		seen: client.Cached(o.Transport, core.Nodes, ""), pods: client.Cached(o.Transport, core.Pods, ""),
		classes: client.Cached(o.Transport, dra.DeviceClasses, ""), claims: client.Cached(o.Transport, dra.ResourceClaims, ""),
		pools: map[string]*Pool{}, sizes: map[string]int{}, last: map[string]int{}, running: map[string]*running{},
		waiting: map[string]*corev1.Pod{}, tried: map[string]time.Time{}, onNode: map[string]int{},
	}
	for i := range o.Pools {
		s.pools[o.Pools[i].Name] = &o.Pools[i]
	}
	return s
}

// Run runs the nodes that the cluster has and those that the pools are to begin with, until
// ctx ends.
func (s *Simulation) Run(ctx context.Context) error {
	for _, c := range []*cache.Cache{s.seen.Cache, s.pods.Cache, s.classes.Cache, s.claims.Cache} {
		select {
		case <-c.Synced():
		case <-ctx.Done():
			return nil
		}
	}
	s.g = task.NewGroup(ctx)
	for _, n := range s.seen.List("", nil) {
		s.resume(n)
	}
	for i := range s.o.Pools {
		pool := &s.o.Pools[i]
		for s.sizes[pool.Name] < pool.Count {
			s.sizes[pool.Name]++
			s.start(pool)
		}
	}
	s.g.Go("pools", s.follow)
	return s.g.Wait()
}

// resume runs a node that the cluster has already: of a pool, or as it says of itself.
func (s *Simulation) resume(n *corev1.Node) {
	pool := s.pools[n.Labels[PoolLabel]]
	if pool == nil {
		s.run(simnode.Options{Name: n.Name, Labels: n.Labels, Resources: n.Status.Allocatable}, nil)
		return
	}
	s.sizes[pool.Name]++
	if i, err := strconv.Atoi(strings.TrimPrefix(n.Name, pool.Name+"-")); err == nil {
		s.last[pool.Name] = max(s.last[pool.Name], i)
	}
	s.run(pool.node(n.Name), pool)
}

// start runs a new node of a pool.
func (s *Simulation) start(pool *Pool) {
	s.last[pool.Name]++
	s.run(pool.node(fmt.Sprintf("%s-%d", pool.Name, s.last[pool.Name])), pool)
}

func (s *Simulation) run(o simnode.Options, pool *Pool) {
	ctx, cancel := context.WithCancel(s.g.Context())
	s.running[o.Name] = &running{pool: pool, cancel: cancel, idle: time.Now()}
	n := simnode.New(o, &simnode.Addresses{Node: s.numbers, Small: true}, s.o.Transport, s.log)
	s.numbers = (s.numbers + 1) % simnode.MaxSmallNodes
	s.g.Go("node "+o.Name, func(context.Context) error {
		defer cancel()
		again := task.Backoff{Initial: time.Second, Max: time.Minute, Jitter: 0.5}
		for ctx.Err() == nil {
			if err := n.Run(ctx); err != nil && ctx.Err() == nil {
				s.log.Warn("run a simulated node", "node", o.Name, "err", err)
				if task.Sleep(ctx, again.Next()) != nil {
					return nil
				}
			}
		}
		return nil
	})
}

// follow has the pools grow and shrink with the pods that there are.
func (s *Simulation) follow(ctx context.Context) error {
	f := s.pods.Follow(cache.FollowOptions{})
	defer f.Close()
	due := time.NewTimer(settle)
	defer due.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.Ready():
			for _, d := range f.Next() {
				s.take(d)
			}
			if len(s.waiting) > 0 || s.emptied {
				s.emptied = false
				due.Reset(settle)
			}
			continue
		case <-due.C:
		}
		s.arrive()
		s.grow(ctx)
		due.Reset(min(s.shrink(ctx), s.next()))
	}
}

// take notes a change of a pod.
func (s *Simulation) take(d cache.Delta) {
	if d.Prev != nil {
		s.count(d.Prev.Object.(*corev1.Pod), -1)
	}
	key := d.Last().Key
	delete(s.waiting, key)
	if d.Now == nil {
		delete(s.tried, key)
		return
	}
	pod := d.Now.Object.(*corev1.Pod)
	s.count(pod, 1)
	if unschedulable(pod) {
		s.waiting[key] = pod
	} else {
		delete(s.tried, key)
	}
}

// count counts the pods that keep a node busy: not those that are over, or that each node has.
func (s *Simulation) count(pod *corev1.Pod, by int) {
	name := pod.Spec.NodeName
	if owner := metav1.GetControllerOfNoCopy(pod); name == "" || core.PodTerminal(pod) || owner != nil && owner.Kind == "DaemonSet" {
		return
	}
	s.onNode[name] += by
	n := s.running[name]
	if s.onNode[name] == 0 {
		delete(s.onNode, name)
		if n != nil {
			n.idle, s.emptied = time.Now(), true
		}
	} else if n != nil {
		n.idle = time.Time{}
	}
}

// unschedulable says that the scheduler has found no node for a pod.
func unschedulable(pod *corev1.Pod) bool {
	if pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil {
		return false
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled {
			return c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
		}
	}
	return false
}

// arrive starts the nodes whose time has come.
func (s *Simulation) arrive() {
	var left []*arrival
	for _, a := range s.coming {
		if time.Until(a.at) > 0 {
			left = append(left, a)
			continue
		}
		s.start(a.pool)
		for _, key := range a.pods {
			s.tried[key] = time.Now().Add(patience)
		}
	}
	s.coming = left
}

// grow orders nodes for the pods that fit nowhere.
func (s *Simulation) grow(ctx context.Context) {
	var pods []*corev1.Pod
	for key, pod := range s.waiting {
		if time.Until(s.tried[key]) <= 0 {
			pods = append(pods, pod)
		}
	}
	if len(pods) == 0 {
		return
	}
	onTheWay := make([]*coming, len(s.coming))
	for i, a := range s.coming { // anew: pods may have gone meanwhile
		a.room, a.pods, a.node = a.pool.room(), nil, nil
		onTheWay[i] = a.coming
	}
	g := &growth{pools: s.o.Pools, sizes: s.sizes, claims: s.open, inventory: devices.New(scheduler.Expressions(ctx)), given: map[types.UID]*coming{}}
	for _, class := range s.classes.List("", nil) {
		g.inventory.SetClass(class)
	}
	for _, c := range g.run(onTheWay, pods) {
		s.coming = append(s.coming, &arrival{c, time.Now().Add(c.pool.ProvisionAfter.Duration)})
		s.log.Info("a pool grows", "pool", c.pool.Name, "nodes", s.sizes[c.pool.Name], "for", len(c.pods))
	}
}

// open are the claims of a pod that devices have to be found for. A new node is of no use to
// a pod whose claims have devices elsewhere.
func (s *Simulation) open(pod *corev1.Pod) (claims []*resourcev1.ResourceClaim, ok bool) {
	for _, name := range core.ResourceClaimNames(pod) {
		claim, there := s.claims.Get(pod.Namespace, name)
		if !there || claim.Status.Allocation != nil {
			return nil, false
		}
		claims = append(claims, claim)
	}
	return claims, true
}

// shrink takes away nodes that have had nothing to do for long, and says when to look again.
func (s *Simulation) shrink(ctx context.Context) time.Duration {
	next := time.Hour
	for name, n := range s.running {
		if n.pool == nil || n.idle.IsZero() || s.sizes[n.pool.Name] <= *n.pool.Min {
			continue
		}
		if left := time.Until(n.idle.Add(n.pool.IdleAfter.Duration)); left > 0 {
			next = min(next, left)
			continue
		}
		if err := s.remove(ctx, name); err != nil {
			s.log.Warn("take away an idle node", "node", name, "err", err)
			next = min(next, patience)
			continue
		}
		s.sizes[n.pool.Name]--
		s.log.Info("a pool shrinks", "pool", n.pool.Name, "nodes", s.sizes[n.pool.Name])
	}
	return next
}

// errBusy says that a node has got a pod after all.
var errBusy = errors.New("the node has a pod again")

// remove takes a node away, once nothing new can come to it.
func (s *Simulation) remove(ctx context.Context, name string) error {
	node, err := s.nodes.Get(ctx, "", name)
	if err == nil {
		node = node.DeepCopy()
		node.Spec.Unschedulable = true
		if _, err = s.nodes.Update(ctx, node); err == nil && s.busy(name) {
			return errors.Join(errBusy, s.uncordon(ctx, name))
		}
	}
	if err == nil {
		err = s.nodes.Delete(ctx, "", name, metav1.DeleteOptions{})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	s.running[name].cancel()
	delete(s.running, name)
	return nil
}

func (s *Simulation) uncordon(ctx context.Context, name string) error {
	_, err := s.nodes.Patch(ctx, "", name, "", client.Patch{Type: types.MergePatchType, Data: []byte(`{"spec":{"unschedulable":null}}`)})
	return err
}

// busy says that a node has pods that work.
func (s *Simulation) busy(name string) bool {
	for _, pod := range s.pods.ByIndex("spec.nodeName", name) {
		if owner := metav1.GetControllerOfNoCopy(pod); !core.PodTerminal(pod) && (owner == nil || owner.Kind != "DaemonSet") {
			return true
		}
	}
	return false
}

// next is how long until a node arrives, or a pod may have another one come.
func (s *Simulation) next() time.Duration {
	next := time.Hour
	for _, a := range s.coming {
		next = min(next, time.Until(a.at))
	}
	for key := range s.waiting {
		if until, ok := s.tried[key]; ok {
			next = min(next, time.Until(until))
		}
	}
	return max(next, time.Millisecond)
}
