package baremetal

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	utilrand "k8s.io/apimachinery/pkg/util/rand"

	"github.com/kemudi/kemudi/internal/cloud/scale"
	"github.com/kemudi/kemudi/internal/task"
)

var _ scale.Cloud = pools{}

// Scale is the pools, if the inventory has any.
func (c *Cloud) Scale() (scale.Cloud, bool) {
	inv, err := c.read()
	return pools{c}, err == nil && len(inv.Pools) > 0
}

// pools switches machines on and off, and has them made and removed.
type pools struct{ c *Cloud }

// Pools are those of the inventory.
func (p pools) Pools(context.Context) ([]scale.Pool, error) {
	inv, err := p.c.read()
	return inv.Pools, err
}

// made are the machines that the hook of machines has made.
func (inv *Inventory) made(ctx context.Context) (out []Machine, err error) {
	if inv.Hooks.Machines == "" {
		return nil, nil
	}
	text, err := inv.Hooks.call(ctx, inv.Hooks.Machines, "list")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if len(words) < 2 {
			return nil, fmt.Errorf("hook %s list prints %q: want a name, a pool and addresses", inv.Hooks.Machines, strings.TrimSpace(line))
		}
		m := Machine{Name: words[0], Pool: words[1], made: true}
		for _, word := range words[2:] {
			if _, err := netip.ParseAddr(word); err != nil {
				return nil, fmt.Errorf("hook %s list prints %q: %w", inv.Hooks.Machines, strings.TrimSpace(line), err)
			}
			m.Addresses = append(m.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: word})
		}
		out = append(out, m)
	}
	return out, nil
}

// mostAtOnce is how many machines are asked for their power side by side.
const mostAtOnce = 8

// Machines are those of the inventory that are of a pool, and those that were made. One whose power nobody
// can tell keeps the others from nothing.
func (p pools) Machines(ctx context.Context) (out []scale.Machine, err error) {
	inv, err := p.c.read()
	if err != nil {
		return nil, err
	}
	made, err := inv.made(ctx)
	if err != nil {
		return nil, err
	}
	for _, m := range made {
		out = append(out, scale.Machine{Node: m.Name, Pool: m.Pool, State: scale.On})
	}
	mine := slices.DeleteFunc(slices.Clone(inv.Machines), func(m Machine) bool { return m.Pool == "" })
	said := make([]string, len(mine))
	for first := 0; first < len(mine); first += mostAtOnce {
		g := task.NewGroup(ctx)
		for i := first; i < min(first+mostAtOnce, len(mine)); i++ {
			g.Go("power of "+mine[i].Name, func(ctx context.Context) error {
				is, err := inv.power(ctx, &mine[i])
				if err != nil { // who fails has said nothing
					return nil
				}
				p.c.said.keep(mine[i].Name, is)
				if is == powerOff && p.c.said.awake(mine[i].Name) {
					is = powerOn
				}
				said[i] = is
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			return nil, err
		}
	}
	for i, m := range mine {
		if said[i] != gone {
			out = append(out, scale.Machine{Node: m.Name, Pool: m.Pool, Kept: true, State: states[said[i]]})
		}
	}
	return out, ctx.Err()
}

var states = map[string]scale.State{powerOn: scale.On, powerOff: scale.Off}

// sleepers are the machines of a pool that may be off: first those that were when they were last asked.
func (p pools) sleepers(inv *Inventory, pool string) (off []*Machine) {
	var others []*Machine
	for i := range inv.Machines {
		switch m := &inv.Machines[i]; {
		case m.Pool != pool || p.c.said.awake(m.Name):
		case p.c.said.last(m.Name) == powerOff:
			off = append(off, m)
		default:
			others = append(others, m)
		}
	}
	return append(off, others...)
}

// Start switches the first machine on that is off, or has one made.
func (p pools) Start(ctx context.Context, pool string) (started scale.Machine, err error) {
	inv, err := p.c.read()
	if err != nil {
		return started, err
	}
	for _, m := range p.sleepers(&inv, pool) {
		if is, err := inv.power(ctx, m); err != nil || is != powerOff {
			continue // of one that nobody can tell of others may do
		}
		if _, err := inv.Hooks.call(ctx, inv.Hooks.Power, "on", m.Name); err != nil {
			return started, err
		}
		p.c.said.wake(m.Name, time.Now())
		return scale.Machine{Node: m.Name, Pool: pool, State: scale.On, Kept: true}, nil
	}
	if inv.Hooks.Machines == "" {
		return started, scale.ErrNone
	}
	name := pool + "-" + utilrand.String(5)
	if _, err := inv.Hooks.call(ctx, inv.Hooks.Machines, "create", pool, name); err != nil {
		return started, err
	}
	return scale.Machine{Node: name, Pool: pool, State: scale.On}, nil
}

// Stop switches a machine off, or has one removed that was made.
func (p pools) Stop(ctx context.Context, m scale.Machine) error {
	inv, err := p.c.read()
	if err != nil {
		return err
	}
	if m.Kept {
		p.c.said.wake(m.Node, time.Time{})
		_, err = inv.Hooks.call(ctx, inv.Hooks.Power, "off", m.Node)
		return err
	}
	_, err = inv.Hooks.call(ctx, inv.Hooks.Machines, "delete", m.Node)
	return err
}
