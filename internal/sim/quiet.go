package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/task"
)

const (
	// How long after the last command all must have come to rest: time-outs that
	// scripts leave running, such as how long a lost node's pods are tolerated, are shorter.
	settleTime = 15 * time.Minute
	quietTime  = time.Minute
	// How many reconciles a node's heartbeats may cause in quietTime, and how many
	// there may be besides.
	reconcilesPerNode, reconcilesAtRest = 30, 10
)

// Restless says what still happens some time after a script or a test, when nobody asks for
// anything any more: writes other than heartbeats, and controllers that reconcile without end.
func (c *Cluster) Restless(ctx context.Context) (busy []string, err error) {
	if err := task.Sleep(ctx, settleTime); err != nil {
		return nil, err
	}
	rev, err := c.options.Store.Rev(ctx)
	if err != nil {
		return nil, err
	}
	before, err := c.reconciles()
	if err != nil {
		return nil, err
	}
	quiet, cancel := context.WithTimeout(ctx, quietTime)
	defer cancel()
	told := map[string]bool{}
	err = c.options.Store.Watch(quiet, "/registry/", rev, func(changes []store.Change, _ int64) error {
		for _, ch := range changes {
			switch {
			case strings.HasPrefix(ch.Key, "/registry/leases/"), strings.HasPrefix(ch.Key, "/registry/minions/"):
			case strings.HasPrefix(ch.Key, "/registry/events/") && (ch.Value == nil || !told[ch.Key]):
				told[ch.Key] = true // the scheduler tries pods that fit nowhere every five minutes
			default:
				busy = append(busy, "write of "+ch.Key)
			}
		}
		return nil
	})
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return nil, err
	}
	after, err := c.reconciles()
	if err != nil {
		return nil, err
	}
	for name, n := range after {
		if n -= before[name]; n > uint64(reconcilesPerNode*len(c.nodes)+reconcilesAtRest) {
			busy = append(busy, fmt.Sprintf("%d reconciles by %s", n, name))
		}
	}
	slices.Sort(busy)
	return slices.Compact(busy), nil
}

// reconciles is how often each controller has reconciled, in all control planes together.
func (c *Cluster) reconciles() (map[string]uint64, error) {
	sources := prometheus.Gatherers{c.options.Registry}
	for _, p := range c.planes {
		sources = append(sources, p.metrics)
	}
	counts := map[string]uint64{}
	for _, source := range sources {
		if err := countReconciles(source, counts); err != nil {
			return nil, err
		}
	}
	if len(counts) == 0 {
		return nil, errors.New("no controller counts its reconciles")
	}
	return counts, nil
}

// countReconciles adds what one control plane counts.
func countReconciles(of prometheus.Gatherer, counts map[string]uint64) error {
	families, err := of.Gather()
	if err != nil {
		return fmt.Errorf("read metrics: %w", err)
	}
	for _, f := range families {
		if f.GetName() != "workqueue_work_duration_seconds" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				counts[l.GetValue()] += m.GetHistogram().GetSampleCount()
			}
		}
	}
	return nil
}
