package leader_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kemudi/kemudi/internal/sim"
)

// fates are control planes to which things happen: they are killed, stopped, frozen in the
// middle of their writes, and others are started.
type fates struct {
	*testing.T
	rng    *rand.Rand
	c      *sim.Cluster
	alive  []string // the frozen ones among them
	frozen []string
	late   []func() int
}

func (g *fates) must(_ any, err error) {
	g.Helper()
	if err != nil {
		g.Error(err)
	}
}

// fate is what happens to a control plane.
func (g *fates) fate() {
	g.Helper()
	leader := g.c.Leader("kube-controller-manager")
	if g.rng.IntN(3) == 0 {
		leader = g.c.Leader("kube-scheduler")
	}
	running := slices.Contains(g.alive, leader) && !slices.Contains(g.frozen, leader)
	switch what := g.rng.IntN(6); {
	case len(g.frozen) > 0 && (what == 0 || len(g.frozen) == 2):
		g.thaw(g.frozen[0])
	case len(g.alive) < 3 && what == 1:
		g.start()
	case !running || len(g.alive)-len(g.frozen) < 2: // one must be left
	case what == 2:
		g.end(leader, g.c.KillPlane)
	case what == 3:
		g.end(leader, g.c.StopPlane)
	default:
		g.must(nil, g.c.FreezePlane(leader, g.rng.IntN(4)))
		g.frozen = append(g.frozen, leader)
	}
}

func (g *fates) thaw(name string) {
	g.Helper()
	late, err := g.c.ThawPlane(name)
	g.must(nil, err)
	g.late = append(g.late, late)
	g.frozen = slices.DeleteFunc(slices.Clone(g.frozen), func(x string) bool { return x == name })
}

func (g *fates) start() {
	g.Helper()
	name := fmt.Sprintf("p%d", g.rng.Uint32())
	g.must(nil, g.c.StartPlane(name))
	g.alive = append(g.alive, name)
}

func (g *fates) end(name string, how func(string) error) {
	g.Helper()
	g.must(nil, how(name))
	g.alive = slices.DeleteFunc(g.alive, func(x string) bool { return x == name })
}

// revive has all that are frozen go on, and one run at least.
func (g *fates) revive() {
	g.Helper()
	for _, name := range g.frozen {
		g.thaw(name)
	}
	if len(g.alive) == 0 {
		g.start()
	}
}

// lateWrites are those that were on their way when their control plane was frozen.
func (g *fates) lateWrites() (n int) {
	for _, late := range g.late {
		n += late()
	}
	return n
}

// transitions is how often leaders have changed.
func (g *fates) transitions() (n int) {
	for _, lease := range []string{"kube-controller-manager", "kube-scheduler"} {
		n += g.c.Transitions(lease)
	}
	return n
}
