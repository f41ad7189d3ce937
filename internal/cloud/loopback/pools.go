package loopback

import (
	"context"
	"fmt"
	"slices"

	"github.com/kemudi/kemudi/internal/cloud/scale"
)

var _ scale.Cloud = pools{}

// Scale is the pools, if the file has any. A cloud of no file stands for all that there may be.
func (c *Cloud) Scale() (scale.Cloud, bool) {
	if c.file == "" {
		return pools{c}, true
	}
	w, err := c.load()
	return pools{c}, err == nil && len(w.Pools) > 0
}

// pools switches machines on and off.
type pools struct{ c *Cloud }

// Pools are those of the file.
func (p pools) Pools(ctx context.Context) ([]scale.Pool, error) {
	w, err := p.c.read(ctx, "Pools", "")
	return w.Pools, some(err)
}

func (m *Machine) scaled() scale.Machine {
	out := scale.Machine{Node: m.Name, Pool: m.Pool, State: scale.On, Kept: !m.Made}
	if m.Shutdown {
		out.State = scale.Off
	}
	return out
}

// Machines are those that say which pool they are of.
func (p pools) Machines(ctx context.Context) (out []scale.Machine, _ error) {
	w, err := p.c.read(ctx, "Machines", "")
	if err != nil {
		return nil, some(err)
	}
	for i := range w.Machines {
		if w.Machines[i].Pool != "" {
			out = append(out, w.Machines[i].scaled())
		}
	}
	return out, nil
}

// Start switches the first machine on that is off, or makes one.
func (p pools) Start(ctx context.Context, pool string) (out scale.Machine, err error) {
	err = p.c.change(ctx, "Start", pool, func(w *World) error {
		i := slices.IndexFunc(w.Machines, func(m Machine) bool { return m.Pool == pool && m.Shutdown })
		if i < 0 {
			w.Machines = append(w.Machines, Machine{Name: w.newName(pool), Pool: pool, Made: true})
			i = len(w.Machines) - 1
		}
		w.Machines[i].Shutdown = false
		out = w.Machines[i].scaled()
		return nil
	})
	return out, err
}

// newName is a name of a pool that no machine has.
func (w *World) newName(pool string) string {
	for i := 1; ; i++ {
		name := fmt.Sprintf("%s-%d", pool, i)
		if !slices.ContainsFunc(w.Machines, func(m Machine) bool { return m.Name == name }) {
			return name
		}
	}
}

// Stop switches a machine off, or removes one that was made.
func (p pools) Stop(ctx context.Context, stop scale.Machine) error {
	return some(p.c.change(ctx, "Stop", stop.Node, func(w *World) error {
		w.Machines = slices.DeleteFunc(w.Machines, func(m Machine) bool { return m.Name == stop.Node && m.Made })
		for i := range w.Machines {
			if w.Machines[i].Name == stop.Node {
				w.Machines[i].Shutdown = true
			}
		}
		return nil
	}))
}
