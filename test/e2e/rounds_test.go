package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/kemudi/kemudi/internal/up"
	"github.com/kemudi/kemudi/test/wait"
)

// TestResetLeavesTheHostAsBefore makes clusters of several servers and agents on one machine, one
// after the other: the joining is interrupted, servers and agents have faults, some are taken
// out, and with some of that still so each cluster is reset: nothing of it is left.
func TestResetLeavesTheHostAsBefore(t *testing.T) {
	t.Parallel()
	random := chance(t)
	m := newMachine(t)
	for round := range rounds(t) {
		if !t.Run(fmt.Sprint(round), func(t *testing.T) { m.round(t, random) }) {
			return
		}
	}
}

// round is one cluster.
func (m *machine) round(t *testing.T, random *rand.Rand) {
	s := &servers{cluster: &cluster{machine: m}, clients: map[string]kubernetes.Interface{}}
	begin := time.Now()
	defer func() {
		o := s.do(context.Background(), "reset", "--kubeconfig", "")
		if o.code != 0 || !strings.Contains(o.stdout, "nothing is left") {
			t.Errorf("reset: exit code %d\n%s", o.code, o.all())
		}
		m.before.compare(t, m.look(t))
		t.Logf("the round took %s", time.Since(begin).Round(time.Millisecond))
	}()
	if random.IntN(3) == 0 {
		if s.interrupted(t, random); random.IntN(3) == 0 {
			return
		}
	}
	s.bring(t, 3, 2)
	k := s.kubectl()
	k.apply(t, webOnEachNode)
	if random.IntN(2) == 0 {
		k.do(t, "rollout", "status", "daemonset/web", patient)
	}
	for range 1 + random.IntN(2) {
		machine := append([]string{"agent-1", "agent-2"}, s.names...)[random.IntN(2+len(s.names))]
		all := s.machineFaults()
		fault := all[random.IntN(len(all))]
		t.Logf("%s: %s", machine, fault.name)
		mend := fault.strike(t, machine)
		await(t.Context(), time.Duration(random.IntN(2000))*time.Millisecond)
		if random.IntN(3) == 0 {
			return // as it is
		}
		mend()
		s.wantReady(t)
	}
	if random.IntN(3) == 0 {
		t.Log("server-3 is taken out")
		wait.Until(t, func() error {
			if o := s.run(t.Context(), nil, s.bin, "member", "remove", "server-3", "--data-dir", s.DataDir); o.code != 0 {
				return fmt.Errorf("take server-3 out: %s", o.all())
			}
			return nil
		})
	}
}

// machineFaults are those that agents can have as well.
func (s *servers) machineFaults() []fault {
	return []fault{
		{"killed", func(t *testing.T, name string) func() { return s.kill(t, name) }},
		{"frozen", func(t *testing.T, name string) func() { return s.freeze(t, name) }},
		{"cut off", func(t *testing.T, name string) func() {
			if name == first { // which all others go through
				name = "agent-1"
			}
			return s.cut(t, name, wholeCut...)
		}},
		{"without power", func(t *testing.T, name string) func() {
			if name == first {
				name = "server-2"
			}
			s.cutPower(t, name)
			return func() { s.up(t) }
		}},
		{"all killed", func(t *testing.T, _ string) func() {
			return s.kill(t, append([]string{"agent-1", "agent-2"}, s.names...)...)
		}},
	}
}

// interrupted kills the command that makes a cluster at a moment, and maybe a machine with it.
func (s *servers) interrupted(t *testing.T, random *rand.Rand) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	cmd := s.begin(ctx, t, 3, 2)
	moment := time.Duration(random.IntN(9000)) * time.Millisecond
	await(ctx, moment)
	_ = cmd.Process.Kill()
	err := cmd.Wait()
	killed := 0
	if random.IntN(2) == 0 {
		for pid, line := range s.processesOf(t) {
			if random.IntN(2) == 0 && syscall.Kill(pid, syscall.SIGKILL) == nil {
				t.Logf("killed %.100q as well", line)
				killed++
			}
		}
	}
	t.Logf("interrupted after %s: %v; %d machines killed as well", moment, err, killed)
}

// begin starts the command that makes a cluster, and does not wait for it.
func (s *servers) begin(ctx context.Context, t *testing.T, count, agents int) *exec.Cmd {
	t.Helper()
	args := s.upArgs("--servers", fmt.Sprint(count), "--agents", fmt.Sprint(agents))
	cmd := s.command(ctx, append([]string{s.bin, args[0], "--data-dir", s.DataDir, "--run-dir", s.RunDir}, args[1:]...)...)
	if err := s.start(cmd); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// processesOf are the servers and agents that run on the machine and in it.
func (s *servers) processesOf(t *testing.T) map[int]string {
	t.Helper()
	list := must(s.processes())(t)
	for pid, line := range list {
		if args := strings.Split(line, "\x00"); args[0] != s.bin || len(args) < 2 || args[1] != "server" && args[1] != "agent" {
			delete(list, pid)
		}
	}
	return list
}

// TestUpWaitsForWhatEarlierOnesStarted ends the command that makes a cluster at moments at which its
// machines are starting, some of them just killed: done again it returns when all are ready.
func TestUpWaitsForWhatEarlierOnesStarted(t *testing.T) {
	t.Parallel()
	s := noServers(t, 3)
	for i, name := range []string{first, "server-2", "agent-1"} {
		cmd := s.begin(t.Context(), t, 2, 1)
		run := s.RunDir
		if name != first {
			run += "-" + name
		}
		pid := 0
		wait.Until(t, func() (err error) {
			if pid, err = up.Running(run); err == nil && pid == 0 {
				err = fmt.Errorf("%s does not run", name)
			}
			return err
		})
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if i < 2 {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
	}
	s.bring(t, 2, 1)
}
