package nodepool

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cloud/call"
	"github.com/kemudi/kemudi/internal/cloud/scale"
	"github.com/kemudi/kemudi/internal/scheduler/devices"
)

// grow has machines come for the pods that fit nowhere, and says when to look again.
func (s *Scaler) grow(ctx context.Context) time.Duration {
	pods := s.demand.open()
	if len(pods) == 0 {
		return longest
	}
	g := &growth{
		pools: s.pools, sizes: s.sizes(), failed: map[string]bool{}, claims: s.open, refused: s.refused,
		inventory: devices.New(devices.Expressions(ctx)), given: map[types.UID]*coming{},
	}
	for pool, f := range s.failed {
		g.failed[pool] = time.Until(f.until) > 0
	}
	for _, class := range s.classes.List("", nil) {
		g.inventory.SetClass(class)
	}
	var anyway []*coming
	for _, name := range slices.Sorted(maps.Keys(s.machines)) {
		m := s.machines[name]
		if _, leaves := m.leaves(); m.comes() || leaves && m.State == scale.On && !m.stops() {
			anyway = append(anyway, &coming{pool: m.pool, name: name, room: maps.Clone(m.pool.Resources)})
		}
	}
	more, next := g.run(anyway, pods), longest
	for _, c := range anyway {
		m := s.machines[c.name]
		m.pods = c.pods
		if _, leaves := m.leaves(); leaves && len(c.pods) > 0 {
			next = min(next, s.retry("keep a machine that pods need", m, s.stay(ctx, m)))
			s.demand.came(c.pods)
		}
	}
	for _, c := range more {
		if time.Until(s.failed[c.pool.Name].until) > 0 { // one of those before could not be started
			s.refusedAll(c.pods)
			continue
		}
		s.start(ctx, c)
	}
	return next
}

// sizes is how many machines the pools have.
func (s *Scaler) sizes() map[string]int {
	sizes := map[string]int{}
	for _, m := range s.machines {
		if m.State != scale.Off {
			sizes[m.Pool]++
		}
	}
	return sizes
}

// open are the claims of a pod that devices have to be found for. A new node is of no use to
// a pod whose claims have devices elsewhere.
func (s *Scaler) open(pod *corev1.Pod) (claims []*resourcev1.ResourceClaim, ok bool) {
	for _, name := range core.ResourceClaimNames(pod) {
		claim, there := s.claims.Get(pod.Namespace, name)
		if !there || claim.Status.Allocation != nil {
			return nil, false
		}
		claims = append(claims, claim)
	}
	return claims, true
}

// refused tells of a pod why no machine comes for it, when that is new.
func (s *Scaler) refused(pod *corev1.Pod, why string) {
	if key := podKey(pod); s.demand.told[key] != why {
		s.demand.told[key] = why
		s.o.Events.Event(pod, corev1.EventTypeNormal, "NotTriggerScaleUp", "pod didn't trigger scale-up: "+why)
	}
}

// refusedAll tells pods that the pool which would take them has failed.
func (s *Scaler) refusedAll(pods []*corev1.Pod) {
	for _, pod := range pods {
		s.refused(pod, "1 "+poolHasError)
	}
}

// start has one machine come.
func (s *Scaler) start(ctx context.Context, c *coming) {
	was := s.sizes()[c.pool.Name]
	started, err := call.Get(ctx, "Start", func(ctx context.Context) (scale.Machine, error) { return s.o.Cloud.Start(ctx, c.pool.Name) })
	if err != nil {
		reason := "cloudProviderError"
		if errors.Is(err, scale.ErrNone) {
			reason = "outOfResources"
		}
		s.fails(c.pool.Name, reason)
		s.log.Error("start a machine", "pool", c.pool.Name, "err", err)
		s.refusedAll(c.pods)
		return
	}
	m := &machine{Machine: started, pool: c.pool, ours: true, since: time.Now(), pods: c.pods}
	m.State = scale.On
	m.node, _ = s.seen.Get("", m.Node)
	s.machines[m.Node] = m
	s.o.Metrics.up.Inc()
	s.log.Info("a pool grows", "pool", c.pool.Name, "node", m.Node, "nodes", was+1, "for", len(c.pods))
	for _, pod := range c.pods {
		delete(s.demand.told, podKey(pod))
		s.o.Events.Event(pod, corev1.EventTypeNormal, "TriggeredScaleUp", fmt.Sprintf("pod triggered scale-up: [{%s %d->%d (max: %d)}]", c.pool.Name, was, was+1, c.pool.Max))
	}
	if _, leaves := m.leaves(); leaves { // it was switched off
		s.retry("open a machine to pods", m, s.stay(ctx, m))
	}
}
