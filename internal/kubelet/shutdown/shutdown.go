package shutdown

import (
	"context"
	"errors"
	"log/slog"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/kubelet/podstep"
	"github.com/kemudi/kemudi/internal/task"
)

// reasonDown is that of events about the machine.
const reasonDown = "Shutdown"

// message is what is said of a pod that ends for a shutdown.
const message = "Pod was terminated in response to imminent node shutdown."

// Watch ends the pods of one node before its machine goes down. All fields but Bus are required.
type Watch struct {
	Groups  []Group
	Bus     string // address of the bus; empty: the machine's
	ConfDir string // of systemd-logind, for a time that it does not allow otherwise

	Pods func() []*v1.Pod // of the node that have not ended
	// End ends a pod. The channel is closed when it has ended; nil: there is no such pod.
	End func(types.UID, podstep.Eviction) <-chan struct{}
	// Down is told that the machine goes down, or that it does not.
	Down    func(bool)
	Event   func(kind, reason, message string) // about the node
	Metrics Metrics
	Log     *slog.Logger
}

// Run follows the machine's shutdowns until ctx ends, and begins anew when it has lost what tells of them.
func (w *Watch) Run(ctx context.Context) error {
	again := task.Backoff{Initial: time.Second, Max: time.Minute}
	for {
		err := w.follow(ctx, again.Reset)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		w.Log.Error("the machine's shutdown does not wait for pods", "err", err)
		if err := task.Sleep(ctx, again.Next()); err != nil {
			return err
		}
	}
}

// follow holds up each shutdown, and has the pods end meanwhile; held is called when it can.
func (w *Watch) follow(ctx context.Context, held func()) error {
	l, err := connect(ctx, w.Bus)
	if err != nil {
		return err
	}
	defer l.conn.Close()
	if err := l.allow(ctx, total(w.Groups), w.ConfDir); err != nil {
		return err
	}
	release, err := l.inhibit(ctx)
	if err != nil {
		return err
	}
	defer func() { release() }()
	held()
	w.Log.Info("the machine's shutdown waits for pods", "most", total(w.Groups))
	for {
		select {
		case s, ok := <-l.signals:
			if !ok {
				return errors.New("the connection to D-Bus has ended")
			}
			down, ok := first(s.Body)
			if !ok {
				continue
			}
			w.Down(down)
			if !down {
				w.Event(v1.EventTypeNormal, reasonDown, "Shutdown manager detected shutdown cancellation")
				next, err := l.inhibit(ctx)
				if err != nil {
					return err
				}
				release = next
				continue
			}
			w.Event(v1.EventTypeNormal, reasonDown, "Shutdown manager detected shutdown event")
			w.Metrics.Began.SetToCurrentTime()
			w.endPods(ctx)
			w.Metrics.Ended.SetToCurrentTime()
			release()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// first is the one value that the signal has.
func first(body []any) (down, ok bool) {
	if len(body) == 0 {
		return false, false
	}
	down, ok = body[0].(bool)
	return down, ok
}

// endPods ends all pods, one group after the other.
func (w *Watch) endPods(ctx context.Context) {
	for i, group := range share(w.Groups, w.Pods()) {
		if len(group) > 0 {
			w.endGroup(ctx, group, w.Groups[i].Period)
		}
	}
}

// endGroup ends pods together, and waits until they have ended, for a while.
func (w *Watch) endGroup(ctx context.Context, pods []*v1.Pod, period time.Duration) {
	w.Log.Info("the machine goes down: end pods", "pods", len(pods), "time", period)
	var ends []<-chan struct{}
	for _, pod := range pods {
		most := int64(period / time.Second)
		grace := min(most, ptr.Deref(pod.Spec.TerminationGracePeriodSeconds, most))
		if ended := w.End(pod.UID, podstep.Eviction{Reason: podstep.ReasonTerminated, Message: message, Grace: &grace}); ended != nil {
			ends = append(ends, ended)
		}
	}
	late := time.NewTimer(period)
	defer late.Stop()
	for _, ended := range ends {
		select {
		case <-ended:
		case <-late.C:
			w.Log.Warn("the machine goes down before all pods have ended", "time", period)
			return
		case <-ctx.Done():
			return
		}
	}
}
