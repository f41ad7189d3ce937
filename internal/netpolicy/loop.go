package netpolicy

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/kemudi/kemudi/internal/podnet/nft"
	"github.com/kemudi/kemudi/internal/podnet/nft/table"
	"github.com/kemudi/kemudi/internal/task"
)

// minInterval is the least time between two transactions, so that a burst of changes becomes
// one; the first change after a pause does not wait, nor does a pod that is to begin.
const minInterval = 5 * time.Millisecond

// foreignInterval is the least time between two full rewrites that changes of our tables by
// another program call for.
const foreignInterval = time.Second

// roundInterval is the least time between two looks at all connections of the machine.
const roundInterval = time.Second

// kernel is what the agent has of the kernel of one network namespace.
type kernel struct {
	rules *table.Kernel
	watch *nft.Watch
	flows *flows
}

// openKernel works on the network namespace of the calling thread.
func openKernel() (*kernel, error) {
	rules, err := table.Open()
	if err != nil {
		return nil, err
	}
	k := &kernel{rules: rules}
	if k.watch, err = rules.Watch(); err == nil {
		k.flows, err = openFlows()
	}
	if err != nil {
		k.close()
		return nil, err
	}
	return k, nil
}

func (k *kernel) close() {
	k.rules.Close()
	if k.watch != nil {
		k.watch.Close()
	}
	if k.flows != nil {
		k.flows.close()
	}
}

// loop is what there is while policies are in force.
type loop struct {
	a       *Agent
	k       *kernel
	feed    *feed
	rounds  chan uint64   // holds at most one: connections are to be looked through
	foreign chan struct{} // holds one token: another program has changed our tables

	mu struct {
		sync.Mutex
		model *Model // changed by run alone
	}
}

func newLoop(a *Agent, k *kernel, f *feed) *loop {
	l := &loop{a: a, k: k, feed: f, rounds: make(chan uint64, 1), foreign: make(chan struct{}, 1)}
	l.mu.model = NewModel(a.o.NodeName)
	return l
}

// watchTables notices when another program changes our rules.
func (l *loop) watchTables(ctx context.Context) error {
	for {
		if err := l.k.watch.Next(ctx, tables()...); err != nil {
			return err
		}
		select {
		case l.foreign <- struct{}{}:
		default: // that is known already
		}
		if err := task.Sleep(ctx, foreignInterval); err != nil {
			return err
		}
	}
}

// endFlows ends what the rules forbid of the connections that are known, and then has the
// addresses concerned taken off @recheck.
func (l *loop) endFlows(ctx context.Context) error {
	for {
		var round uint64
		select {
		case round = <-l.rounds:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		n, err := l.k.flows.end(func(f Flow) bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return !l.mu.model.Allows(f)
		})
		l.a.metrics.ended.Add(float64(n))
		if err != nil {
			l.a.o.Log.Warn("cannot end connections that policies forbid: they are checked packet by packet", "err", err)
		}
		l.feed.put("", func(m *Model) {
			if err == nil {
				m.Rechecked(round)
			}
		})
		if err := task.Sleep(ctx, roundInterval); err != nil {
			return err
		}
	}
}

// run waits for changes, takes in all there are, and brings them into force.
func (l *loop) run(ctx context.Context) error {
	var (
		full    = true // all rules are to be written
		last    time.Time
		retry   <-chan time.Time
		waiting []waiting
		back    = task.Backoff{Initial: 100 * time.Millisecond, Max: 30 * time.Second, Jitter: 0.2}
	)
	defer func() {
		for _, w := range waiting {
			w.done <- errOver
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-l.feed.ready:
			if err := l.feed.pause(ctx, last.Add(minInterval)); err != nil {
				return err
			}
		case <-retry:
		case <-l.foreign:
			if last.IsZero() {
				continue
			}
			l.a.o.Log.Warn("rules of network policies were changed by another program: writing them again", "table", tableName)
			l.a.metrics.overwritten.Inc()
			full = true
		}
		in, ok := l.feed.take()
		if !ok {
			continue
		}
		retry, waiting = nil, append(waiting, in.waiting...)
		err := l.sync(ctx, in, full)
		last = time.Now()
		if errors.Is(err, errNone) || ctx.Err() != nil {
			return err
		}
		waiting = l.release(waiting, err == nil)
		if err != nil {
			wait := back.Next()
			l.a.o.Log.Error("cannot bring network policies into force", "err", err, "retry", wait)
			full, retry = true, time.After(wait)
			continue
		}
		full = false
		back.Reset()
	}
}

// release tells those who need not wait any longer, and returns the others.
func (l *loop) release(list []waiting, applied bool) (left []waiting) {
	for _, w := range list {
		if applied || !l.mu.model.Isolated(w.pod) {
			w.done <- nil
		} else {
			left = append(left, w)
		}
	}
	return left
}

// sync takes changes into the model and brings the outcome into force.
func (l *loop) sync(ctx context.Context, in intake, full bool) error {
	start := time.Now()
	l.mu.Lock()
	for _, change := range in.changes {
		change(l.mu.model)
	}
	changes := l.mu.model.Commit()
	if full {
		changes = l.mu.model.Full()
	}
	none := l.mu.model.Policies() == 0
	round, due := l.mu.model.Round()
	l.mu.Unlock()
	if none {
		if _, err := l.k.rules.Remove(ctx, tables()...); err != nil {
			return err
		}
		l.measure(0)
		return errNone
	}
	if err := l.k.rules.Apply(ctx, changes...); err != nil {
		l.a.metrics.failures.Inc()
		return err
	}
	if due {
		select {
		case <-l.rounds: // an earlier one that has not begun
		default:
		}
		l.rounds <- round
	}
	l.measure(time.Since(start))
	return nil
}

func (l *loop) measure(took time.Duration) {
	m := l.a.metrics
	if took > 0 {
		m.sync.Observe(took.Seconds())
	}
	m.policies.Set(float64(l.mu.model.Policies()))
	n := l.mu.model.Isolations()
	m.isolated.WithLabelValues("ingress").Set(float64(n[ingress]))
	m.isolated.WithLabelValues("egress").Set(float64(n[egress]))
}
