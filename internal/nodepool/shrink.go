package nodepool

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cloud/call"
	"github.com/kemudi/kemudi/internal/cloud/scale"
)

// shrink takes away machines that have had nothing to do for long, and says when to look again.
func (s *Scaler) shrink(ctx context.Context) time.Duration {
	next, stay := longest, map[string]int{}
	for _, m := range s.machines {
		if _, leaves := m.leaves(); m.State != scale.Off && !leaves {
			stay[m.Pool]++
		}
	}
	for _, m := range s.idlest() {
		since, leaves := m.leaves()
		switch {
		case m.State != scale.On || m.stops() || m.ready.IsZero():
		case m.node == nil:
			if !m.Kept {
				next = min(next, s.stop(ctx, m))
			}
		case leaves && (s.busy(m) || m.node.Annotations[stays] == "true"):
			next = min(next, s.retry("keep a machine that has a pod again", m, s.stay(ctx, m)))
		case leaves && time.Since(since) < closed:
			next = min(next, closed-time.Since(since))
		case leaves:
			next = min(next, s.stop(ctx, m))
		case s.busy(m) || m.node.Annotations[stays] == "true" || stay[m.Pool] <= m.pool.Min:
		case time.Until(s.idle(m)) > 0:
			next = min(next, time.Until(s.idle(m)))
		default:
			stay[m.Pool]--
			next = min(next, closed, s.retry("close a machine to pods", m, s.leave(ctx, m)))
		}
	}
	return next
}

// idlest are the machines, those first that have been idle for the longest time.
func (s *Scaler) idlest() []*machine {
	return slices.SortedFunc(maps.Values(s.machines), func(a, b *machine) int {
		return cmp.Or(s.idle(a).Compare(s.idle(b)), cmp.Compare(b.Node, a.Node))
	})
}

// idle is when a machine that gets no pod has been idle for long enough.
func (s *Scaler) idle(m *machine) time.Time {
	since := m.ready
	if at := s.demand.idle[m.Node]; at.After(since) {
		since = at
	}
	return since.Add(m.pool.IdleAfter.Duration)
}

// busy says that a machine has pods that work.
func (s *Scaler) busy(m *machine) bool {
	return slices.ContainsFunc(s.pods.ByIndex("spec.nodeName", m.Node), works)
}

// leave closes a machine to pods.
func (s *Scaler) leave(ctx context.Context, m *machine) error {
	node := m.node.DeepCopy()
	node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: core.TaintLeaving, Value: strconv.FormatInt(time.Now().Unix(), 10), Effect: corev1.TaintEffectNoSchedule})
	if _, err := s.nodes.Update(ctx, node); err != nil {
		return err
	}
	s.o.Events.Event(m.node, corev1.EventTypeNormal, "ScaleDown", "marked the node as toBeDeleted/unschedulable")
	return nil
}

// stay opens a machine to pods again.
func (s *Scaler) stay(ctx context.Context, m *machine) error {
	node := m.node.DeepCopy()
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, isLeaving)
	_, err := s.nodes.Update(ctx, node)
	return err
}

// stop stops a machine that has been closed for a while, and has no pods (N1), and says when to look again. Its node
// goes first, where it goes: nothing new can come to it then.
func (s *Scaler) stop(ctx context.Context, m *machine) time.Duration {
	if left := time.Until(m.calm); left > 0 {
		return left
	}
	if err := s.remove(ctx, m); err != nil {
		if m.node != nil {
			s.o.Events.Event(m.node, corev1.EventTypeWarning, "ScaleDownFailed", "failed to delete empty node: "+err.Error())
		}
		return s.retry("stop a machine", m, err)
	}
	if m.node != nil {
		s.o.Events.Event(m.node, corev1.EventTypeNormal, "ScaleDown", "node removed by cluster autoscaler")
	}
	s.o.Metrics.down.Inc()
	delete(s.demand.idle, m.Node)
	s.log.Info("a pool shrinks", "pool", m.Pool, "node", m.Node, "nodes", s.sizes()[m.Pool]-1)
	return longest
}

func (s *Scaler) remove(ctx context.Context, m *machine) error {
	if m.node != nil && !m.Kept {
		err := s.nodes.Delete(ctx, "", m.Node, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &m.node.UID, ResourceVersion: &m.node.ResourceVersion}})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	m.told = time.Now()
	err := call.Do(ctx, "Stop", func(ctx context.Context) error { return s.o.Cloud.Stop(ctx, m.Machine) })
	if err != nil { // one that does not stop is not to keep the cloud from the others
		m.told, m.calm = time.Time{}, time.Now().Add(min(patience<<min(m.vain, 10), lastPatience))
		m.vain++
	}
	return err
}

// giveUp stops machines that have not become nodes in time, and says when to look again. Those that others have
// switched on may be in the hands of somebody.
func (s *Scaler) giveUp(ctx context.Context) time.Duration {
	next := longest
	for _, m := range s.machines {
		if m.State != scale.On || m.comes() || m.stops() || !m.ready.IsZero() || !m.ours && m.Kept {
			continue
		}
		if left := time.Until(m.calm); left > 0 {
			next = min(next, left)
			continue
		}
		s.fails(m.Pool, "timeout")
		s.log.Error("a machine has not become a node that is ready", "pool", m.Pool, "node", m.Node, "within", m.pool.ComeWithin.Duration)
		m.ours = false // once
		next = min(next, s.retry("stop a machine that has not come", m, s.remove(ctx, m)))
	}
	return next
}

// retry says when to look again after err, which it logs unless the cache was old.
func (s *Scaler) retry(what string, m *machine, err error) time.Duration {
	if err == nil {
		return longest
	}
	if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && !errors.Is(err, context.Canceled) {
		s.log.Error(what, "pool", m.Pool, "node", m.Node, "err", err)
	}
	return patience
}
