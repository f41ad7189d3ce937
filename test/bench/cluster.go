package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kemudi/kemudi/internal/fleet"
	"github.com/kemudi/kemudi/internal/task"
)

// A clusterStep is what is measured of a cluster of several machines that it makes and
// removes.
type clusterStep struct {
	name string
	do   func(*bench, context.Context) error
}

// clusterSteps are in the order of what is wanted most, if there is not the time for all.
var clusterSteps = []clusterStep{
	{"servers", (*bench).severalServers},
	{"etcd", (*bench).plainEtcd},
	{"disks", (*bench).disks},
	{"agents", (*bench).manyAgents},
	{"watches", (*bench).shortPods},
	{"agent", (*bench).joinAgents},
}

// cluster measures clusters of several machines, one after another. A step that fails, or that
// there is no time for, keeps nobody from the others.
func (b *bench) cluster(ctx context.Context) error {
	if b.within > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, b.within, fmt.Errorf("not within %s", b.within))
		defer cancel()
	}
	var errs []error
	for _, step := range clusterSteps {
		if b.steps != "" && !listed(b.steps, step.name) || b.done[step.name] {
			continue
		}
		err := context.Cause(ctx)
		if err == nil {
			err = step.do(b, ctx)
		}
		if err != nil {
			b.say("%s: %v", step.name, err)
			b.missing = append(b.missing, step.name)
			errs = append(errs, fmt.Errorf("%s: %w", step.name, err))
		}
	}
	return errors.Join(errs...)
}

// agentsJoined is how many agents join, one after another.
const agentsJoined = 3

// joinAgents measures how agents join, and what they cost at rest.
func (b *bench) joinAgents(ctx context.Context) (err error) {
	p := joined(b.dir)
	f := fleet.Fleet{Program: b.bin, DataDir: p.data, RunDir: p.run}
	defer func() { err = errors.Join(err, p.remove(ctx, b.bin)) }()
	at, err := f.Grow(ctx, fleet.Size{Servers: 1})
	if err != nil {
		return err
	}
	p.args = append(p.args, "--pod-logs-dir", p.logs, "--node-ip", at.String())
	s, err := p.start(b.bin)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	if _, err := s.ready(ctx); err != nil {
		return err
	}
	a, err := awaitAPI(ctx, s)
	if err != nil {
		return err
	}
	before, err := a.watches(ctx)
	if err != nil {
		return err
	}
	var took []time.Duration
	for i := range agentsJoined {
		if _, err := f.Grow(ctx, fleet.Size{Servers: 1, Agents: i + 1}); err != nil {
			return err
		}
		began := time.Now()
		if err := f.Start(ctx, func(string) { took = append(took, time.Since(began)) }); err != nil {
			return err
		}
	}
	b.results.duration(agentReady, b.median(took, "an agent joined"))
	after, err := a.watches(ctx)
	if err := b.set(agentWatches, float64(after-before)/agentsJoined, err); err != nil {
		return err
	}
	if _, err := f.Grow(ctx, fleet.Size{Servers: serversJoined, Agents: agentsJoined}); err != nil {
		return err
	}
	began := time.Now()
	if err := f.Start(ctx, func(string) {}); err != nil {
		return err
	}
	b.results.duration(nodesReady, time.Since(began))
	return b.machinesAtRest(ctx, s, f)
}

// machinesAtRest measures what agents use that have nothing to do, and servers with nodes. s is the
// first of those.
func (b *bench) machinesAtRest(ctx context.Context, s *server, f fleet.Fleet) error {
	states, err := f.States()
	if err != nil {
		return err
	}
	pids, agents := []int{s.cmd.Process.Pid}, 0
	for _, m := range states {
		if m.Process == 0 {
			return fmt.Errorf("machine %s has ended", m.Name)
		}
		if m.Role == "agent" {
			agents++
		}
		pids = append(pids, m.Process)
	}
	all, err := b.atRest(ctx, pids)
	if err != nil {
		return err
	}
	servers, each := mean(all[:len(all)-agents]), mean(all[len(all)-agents:]) // servers are the first of the fleet
	return errors.Join(
		b.set(agentCPU, each.share, nil), b.set(agentMemory, mib(each.rss), nil), b.set(agentShared, mib(each.pss), nil), b.set(agentAnon, mib(each.anon), nil),
		b.set(nodesCPU, servers.share, nil), b.set(nodesMemory, mib(servers.rss), nil), b.set(nodesAnon, mib(servers.anon), nil),
	)
}

// restful is what a process uses that has nothing to do.
type restful struct {
	footprint
	share float64 // percent of one core
}

// atRest measures what processes use that have nothing to do.
func (b *bench) atRest(ctx context.Context, pids []int) ([]restful, error) {
	b.say("%d processes at rest for %s", len(pids), idleRest+idleWindow)
	if err := task.Sleep(ctx, idleRest); err != nil {
		return nil, err
	}
	before, began := make([]time.Duration, len(pids)), time.Now()
	for i, pid := range pids {
		var err error
		if before[i], err = cpuTime(pid); err != nil {
			return nil, fmt.Errorf("read processor time of process %d: %w", pid, err)
		}
	}
	if err := task.Sleep(ctx, idleWindow); err != nil {
		return nil, err
	}
	all := make([]restful, len(pids))
	for i, pid := range pids {
		after, err := cpuTime(pid)
		if err != nil {
			return nil, fmt.Errorf("read processor time of process %d: %w", pid, err)
		}
		all[i].share = 100 * float64(after-before[i]) / float64(time.Since(began))
		if all[i].footprint, err = footprintOf(pid); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// mean is what one of them uses.
func mean(all []restful) (one restful) {
	n := int64(len(all))
	for _, r := range all {
		one.share += r.share / float64(n)
		one.rss, one.pss, one.anon = one.rss+r.rss/n, one.pss+r.pss/n, one.anon+r.anon/n
	}
	return one
}

// set notes a figure and says it, unless what was measured has failed.
func (b *bench) set(m measure, v float64, err error) error {
	if err == nil {
		b.results[m] = v
		b.say("%s: %s", m.name, m.unit.format(v))
	}
	return err
}
