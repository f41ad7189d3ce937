package nodepool

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/dra"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/cloud/call"
	"github.com/kemudi/kemudi/internal/cloud/scale"
	"github.com/kemudi/kemudi/internal/task"
)

// Options say what to scale. All but Events are required.
type Options struct {
	Cloud scale.Cloud
	// Transport reads pods, nodes, claims of devices and their classes, updates and deletes nodes.
	Transport client.Transport
	Events    client.EventSink // nil: none are written
	Metrics   *Metrics
	Logger    *slog.Logger
}

// Scaler has the pools of a cloud grow and shrink.
type Scaler struct {
	o     Options
	log   *slog.Logger
	nodes client.Client[*corev1.Node]
	seen  client.Reader[*corev1.Node]
	pods  client.Reader[*corev1.Pod]
	// What devices there may be, and who asks for them.
	classes client.Reader[*resourcev1.DeviceClass]
	claims  client.Reader[*resourcev1.ResourceClaim]

	// What follows belongs to the goroutine of Run.
	demand   *demand
	pools    []scale.Pool
	machines map[string]*machine // by the names of their nodes
	failed   map[string]failure  // by pool
	silent   task.Backoff        // of asking a cloud that fails
	rest     time.Time           // until when it is left alone
}

// machine is what the loop knows of a machine of a pool.
type machine struct {
	scale.Machine
	pool  *scale.Pool
	node  *corev1.Node  // nil: it is none
	ours  bool          // this loop has started it
	since time.Time     // when it was first seen to run
	ready time.Time     // when it was first seen to be a node that is ready; zero: it was not yet
	pods  []*corev1.Pod // that it comes for
	// told is when it was told to stop: until it is off it is nobody's.
	told time.Time
	vain int       // how often that has failed
	calm time.Time // until when it is not told again since
}

// failure is how a pool fares that has failed.
type failure struct {
	times int
	until time.Time // when it is asked again
}

const (
	// settle is how long it is waited for further changes before the cloud is asked.
	settle = time.Second
	// rests is how many times as long as it took to ask the cloud it is then left alone, but for no longer than
	// mostRest: hooks that take seconds do not run all the time.
	rests, mostRest = 9, time.Minute
	// closed is how long a machine is closed to pods before it is stopped (N1): pods that were on their
	// way to it have come by then.
	closed = 5 * time.Second
	// stopping is how long a machine may take to be off, until it is told again.
	stopping = 5 * time.Minute
	// longest is how long nothing is looked at though nothing happens.
	longest = time.Hour
)

// A pool that has failed is left alone, as upstream's autoscaler does.
const firstFailure, lastFailure = 5 * time.Minute, 30 * time.Minute

// stays is upstream's annotation of nodes that are not to be taken away.
const stays = "cluster-autoscaler.kubernetes.io/scale-down-disabled"

// New returns a scaler that does not run yet.
func New(o Options) *Scaler {
	if o.Events == nil {
		o.Events = client.NoEvents
	}
	return &Scaler{
		o: o, log: o.Logger, nodes: client.For(o.Transport, core.Nodes),
		seen: client.Cached(o.Transport, core.Nodes, ""), pods: client.Cached(o.Transport, core.Pods, ""),
		classes: client.Cached(o.Transport, dra.DeviceClasses, ""), claims: client.Cached(o.Transport, dra.ResourceClaims, ""),
		demand: newDemand(), machines: map[string]*machine{}, failed: map[string]failure{},
		silent: task.Backoff{Initial: 5 * time.Second, Max: 5 * time.Minute, Jitter: 0.2},
	}
}

// Run has the pools grow and shrink until ctx ends.
func (s *Scaler) Run(ctx context.Context) error {
	for _, c := range []*cache.Cache{s.seen.Cache, s.pods.Cache, s.classes.Cache, s.claims.Cache} {
		select {
		case <-c.Synced():
		case <-ctx.Done():
			return nil
		}
	}
	pods, nodes := s.pods.Follow(cache.FollowOptions{}), s.seen.Follow(cache.FollowOptions{})
	defer pods.Close()
	defer nodes.Close()
	due, next := time.NewTimer(settle), time.Now().Add(settle)
	defer due.Stop()
	for {
		matters := false
		select {
		case <-ctx.Done():
			return nil
		case <-pods.Ready():
			for _, d := range pods.Next() {
				matters = s.demand.take(d) || matters
			}
		case <-nodes.Ready():
			for _, d := range nodes.Next() {
				matters = s.matters(d) || matters
			}
		case <-due.C:
			next = time.Now().Add(max(s.look(ctx), time.Millisecond))
			due.Reset(time.Until(next))
			continue
		}
		// Changes that keep coming do not put off the look for which the first is due.
		if soon := time.Now().Add(max(settle, time.Until(s.rest))); matters && soon.Before(next) {
			next = soon
			due.Reset(time.Until(next))
		}
	}
}

// matters says that a change of a node may be one for its pool.
func (s *Scaler) matters(d cache.Delta) bool {
	if d.Prev == nil || d.Now == nil {
		return true
	}
	before, now := d.Prev.Object.(*corev1.Node), d.Now.Object.(*corev1.Node)
	return core.NodeIsReady(before) != core.NodeIsReady(now) || before.Annotations[stays] != now.Annotations[stays]
}

// look asks the cloud, does what is to be done, and says when to look again at the latest.
func (s *Scaler) look(ctx context.Context) time.Duration {
	began := time.Now()
	err := s.ask(ctx)
	s.rest = time.Now().Add(min(rests*time.Since(began), mostRest))
	if err != nil { // N3
		if ctx.Err() == nil {
			s.log.Error("ask the cloud for its pools", "err", err)
		}
		again := s.silent.Next()
		s.rest = time.Now().Add(again)
		return again
	}
	s.silent.Reset()
	s.o.Metrics.waiting.Set(float64(len(s.demand.waiting)))
	s.note()
	again := s.giveUp(ctx)
	again = min(again, s.grow(ctx))
	again = min(again, s.shrink(ctx))
	return min(again, s.demand.next(), s.next())
}

// ask learns which pools and machines there are.
func (s *Scaler) ask(ctx context.Context) error {
	pools, err := call.Get(ctx, "Pools", s.o.Cloud.Pools)
	if err != nil {
		return err
	}
	list, err := call.Get(ctx, "Machines", s.o.Cloud.Machines)
	if err != nil {
		return err
	}
	s.pools = pools
	there := map[string]bool{}
	for _, m := range list {
		at := slices.IndexFunc(pools, func(p scale.Pool) bool { return p.Name == m.Pool })
		if at < 0 || m.Node == "" || there[m.Node] { // such a machine is nobody's
			continue
		}
		there[m.Node] = true
		known := s.machines[m.Node]
		if known == nil {
			known = &machine{}
			s.machines[m.Node] = known
		}
		known.Machine, known.pool = m, &pools[at]
	}
	for name := range s.machines {
		if !there[name] {
			delete(s.machines, name)
		}
	}
	return nil
}

// note notes how far machines have come.
func (s *Scaler) note() {
	now := time.Now()
	for name, m := range s.machines {
		m.node, _ = s.seen.Get("", name)
		switch {
		case m.State != scale.On:
			*m = machine{Machine: m.Machine, pool: m.pool, node: m.node, ours: m.ours}
			continue
		case m.since.IsZero():
			m.since = now
		}
		if !m.ready.IsZero() || m.node == nil || !core.NodeIsReady(m.node) {
			continue
		}
		m.ready = now
		s.demand.came(m.pods)
		m.pods = nil
		if m.ours {
			delete(s.failed, m.Pool)
		}
	}
}

// next is how long until a machine has not come in time, or a pool that has failed is asked again.
func (s *Scaler) next() time.Duration {
	next := longest
	for _, m := range s.machines {
		if m.comes() {
			next = min(next, time.Until(m.late()))
		}
	}
	for _, f := range s.failed {
		if left := time.Until(f.until); left > 0 {
			next = min(next, left)
		}
	}
	return next
}

// late is when a machine that is no node yet has not come in time.
func (m *machine) late() time.Time { return m.since.Add(m.pool.ComeWithin.Duration) }

// stops says that a machine was told to stop, and may not have yet.
func (m *machine) stops() bool { return !m.told.IsZero() && time.Since(m.told) < stopping }

// comes says that a machine is on its way.
func (m *machine) comes() bool {
	return m.State == scale.On && !m.stops() && m.ready.IsZero() && time.Until(m.late()) > 0
}

// leaves is since when a machine's node is closed to pods since it is to be taken away.
func (m *machine) leaves() (since time.Time, ok bool) {
	if m.node == nil {
		return since, false
	}
	i := slices.IndexFunc(m.node.Spec.Taints, isLeaving)
	if i < 0 {
		return since, false
	}
	if seconds, err := strconv.ParseInt(m.node.Spec.Taints[i].Value, 10, 64); err == nil {
		since = time.Unix(seconds, 0)
	}
	return since, true
}

func isLeaving(t corev1.Taint) bool { return t.Key == core.TaintLeaving }

// fails has a pool left alone for a while.
func (s *Scaler) fails(pool, reason string) {
	f := s.failed[pool]
	f.until = time.Now().Add(min(firstFailure<<min(f.times, 10), lastFailure))
	f.times++
	s.failed[pool] = f
	s.o.Metrics.failed.WithLabelValues(reason).Inc()
}
