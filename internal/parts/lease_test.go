package parts

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kemudi/kemudi/internal/api/coordination"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/leader"
	"github.com/kemudi/kemudi/internal/plane"
	"github.com/kemudi/kemudi/internal/sim"
	"github.com/kemudi/kemudi/internal/task"
)

// stand stands for election as the scheduler's user does, who may do no more with leases than
// upstream's role says. What is returned ends it; led is sent the name when it leads.
func stand(t *testing.T, p *plane.Plane, name string, led chan<- string) (stop func()) {
	t.Helper()
	as := p.Server().As(&user.DefaultInfo{Name: user.KubeScheduler, Groups: []string{user.AllAuthenticated}}, SchedulerName)
	s := leader.Settings{Names: []string{SchedulerName}}.WithDefaults()
	b := newBallot(as, s, slog.New(slog.DiscardHandler))
	e := leader.New(leader.Options{Settings: s, Name: s.Lease(0), Identity: name, Transport: b, Logger: slog.New(slog.DiscardHandler)})
	g := task.NewGroup(t.Context())
	g.Go("lease", b.run)
	g.Go("election", e.Run)
	g.Go("work", func(ctx context.Context) error {
		return e.Lead(ctx, func(ctx context.Context) error {
			led <- name
			<-ctx.Done()
			return nil
		})
	})
	return func() {
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	}
}

func TestPartsElectByTheirOwnLeaseAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := sim.Plane(t, plane.Options{Alone: true})
		led := make(chan string, 10)
		first := stand(t, p, "first", led)
		if got := <-led; got != "first" {
			t.Errorf("got %s, want first", got)
		}
		second := stand(t, p, "second", led)
		time.Sleep(time.Minute)
		select {
		case got := <-led:
			t.Errorf("%s leads beside the first", got)
		default:
		}
		began := time.Now()
		first()
		if got := <-led; got != "second" || time.Since(began) > leader.Defaults().RetryPeriod {
			t.Errorf("after a clean stop: got %s after %s, want second at its next look", got, time.Since(began))
		}
		lease, err := client.For(p.Admin(), coordination.Leases).Get(t.Context(), "kube-system", SchedulerName)
		if err != nil || *lease.Spec.HolderIdentity != "second" {
			t.Errorf("got %+v, %v", lease, err)
		}
		second()
	})
}
