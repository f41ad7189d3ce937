package parts

import (
	"context"
	"errors"

	"github.com/kemudi/kemudi/internal/leader"
	"github.com/kemudi/kemudi/internal/task"
)

// Election says how it is agreed on which of several processes works.
type Election = leader.Settings

// office is what one of several processes does at a time.
type office struct {
	settings leader.Settings // its one name is that of the lease
	reporter string          // of events
	work     func(ctx context.Context) error
}

// checkOffice says what is wrong with how leaders are elected.
func checkOffice(s leader.Settings) error {
	if len(s.Names) != 1 {
		return errNames
	}
	return s.Check()
}

var errNames = errors.New("--leader-elect-resource-name: want one name")

// hold works whenever this process leads, or always if leaders are not elected.
func (p *process) hold(g *task.Group, o office) {
	if o.settings.Off {
		g.Go(p.name, o.work)
		return
	}
	s := o.settings.WithDefaults()
	b := newBallot(p.api, s, p.log)
	elector := leader.New(leader.Options{
		Settings: s, Name: s.Lease(0), Identity: p.identity(), Transport: b,
		Events: p.events.For(o.reporter), Metrics: leader.NewMetrics(p.registry), Logger: p.log,
	})
	// The elector gives its lease back when it ends: what it writes needs no look.
	g.Go("lease", b.run)
	g.Go("election", elector.Run)
	g.Go(p.name, func(ctx context.Context) error { return elector.Lead(ctx, o.work) })
}
