package csi

import (
	"context"
	"errors"
	"maps"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/kemudi/kemudi/internal/task"
)

// Follow tells what the cluster knows of a driver (nil: nothing), now and whenever that changes, until ctx ends.
type Follow func(ctx context.Context, driver string, tell func(*storagev1.CSIDriver)) error

// counted are the registrations of drivers that are asked anew how many volumes they take, by the channels that say when
// those are over.
type counted map[<-chan struct{}]bool

// count has drivers that have come asked anew (KEP-4876).
func (d *Drivers) count(g *task.Group, has counted, follow Follow) {
	d.mu.Lock()
	defer d.mu.Unlock()
	there := counted{}
	for _, one := range d.mu.drivers {
		there[one.gone] = true
		if !has[one.gone] {
			has[one.gone] = true
			g.Go("count volumes", func(ctx context.Context) error { return d.keepCounting(ctx, one, follow) })
		}
	}
	maps.DeleteFunc(has, func(gone <-chan struct{}, _ bool) bool { return !there[gone] })
}

// errGone is why a driver is not asked any more.
var errGone = errors.New("the driver is gone")

// keepCounting asks a driver how many volumes it takes, as often as its CSIDriver says, until it is gone. While the
// CSIDriver says nothing of that, it is not asked.
func (d *Drivers) keepCounting(ctx context.Context, one driver, follow Follow) error {
	g := task.NewGroup(ctx)
	periods := make(chan time.Duration)
	g.Go("follow CSIDriver", func(ctx context.Context) error {
		return follow(ctx, one.Name, func(about *storagev1.CSIDriver) {
			select {
			case periods <- countingPeriod(about):
			case <-ctx.Done():
			}
		})
	})
	g.Go("count volumes", func(ctx context.Context) error {
		var period time.Duration
		for {
			var due <-chan time.Time
			if period > 0 {
				due = time.After(period)
			}
			select {
			case period = <-periods:
				continue
			case <-due:
			case <-one.recount:
			case <-one.gone:
				g.Cancel(errGone)
				return nil
			case <-ctx.Done():
				return nil
			}
			if err := d.countOnce(ctx, one); err != nil && ctx.Err() == nil {
				d.log.Warn("ask a driver how many volumes it takes", "driver", one.Name, "err", err)
			}
		}
	})
	return g.Wait()
}

// countOnce has the API show what a driver says now.
func (d *Drivers) countOnce(ctx context.Context, one driver) error {
	is, err := ask(ctx, d.client(one.Plugin), one.Name)
	if err != nil {
		return err
	}
	leave, err := d.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	select {
	case <-one.gone: // and is to be shown no more
		return nil
	default:
	}
	return d.show(ctx, is)
}

// countingPeriod is how often a driver is to be asked how many volumes it takes; 0: it is not.
func countingPeriod(about *storagev1.CSIDriver) time.Duration {
	if about == nil || about.Spec.NodeAllocatableUpdatePeriodSeconds == nil {
		return 0
	}
	return time.Duration(*about.Spec.NodeAllocatableUpdatePeriodSeconds) * time.Second
}

// Recount has the driver of a request asked at once how many volumes it takes: it took no more. It is false if the
// cluster does not want such drivers to be asked anew.
func (s *Volumes) Recount(r *Request) bool {
	if countingPeriod(r.About) == 0 {
		return false
	}
	d := s.o.Drivers
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case d.mu.drivers[r.Driver()].recount <- struct{}{}:
	default: // it is not there, or will be asked anyway
	}
	return true
}
