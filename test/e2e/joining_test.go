package e2e

import (
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kemudi/kemudi/internal/podnet/nettest"
	"github.com/kemudi/kemudi/internal/up"
)

// TestAMachineJoinsInTheBackground has a machine become an agent by kemudi up, which later starts it again without being told
// what it is; and refuses what it cannot be.
func TestAMachineJoinsInTheBackground(t *testing.T) {
	t.Parallel()
	c := &cluster{machine: newMachine(t), args: []string{"--disable-agent"}}
	c.setOutBare(t)
	m := &machine{build: c.build, host: nettest.New(t, "agent"), neighbour: c.neighbour}
	nettest.Link(m.host, "eth0", m.neighbour, "eth1")
	m.host.Addr("eth0", agentIP+"/24")
	m.neighbour.Addr("eth1", agentRouterIP+"/24")
	m.neighbour.Router()
	m.host.Route("0.0.0.0/0", agentRouterIP)
	m.furnish(t)
	dirs := []string{"--data-dir", m.DataDir, "--run-dir", m.RunDir}
	kemudi := func(command string, args ...string) output {
		return m.run(context.WithoutCancel(t.Context()), nil, append(append([]string{m.bin, command}, dirs...), args...)...)
	}
	t.Cleanup(func() { kemudi("down") })
	own := []string{"--", "--node-name", agentName, "--pod-logs-dir", m.LogsDir}
	invitation := filepath.Join(m.DataDir, "invitation.json")
	uninvited := func() {
		t.Helper()
		if _, err := os.Stat(invitation); !os.IsNotExist(err) {
			t.Errorf("%s: got %v, want %v", invitation, err, fs.ErrNotExist)
		}
	}

	o := kemudi("up", append([]string{"--join", machineIP, "--token", "abcdef.0123456789abcdef"}, own...)...)
	if o.code != 1 || !strings.Contains(o.stderr, "the agent ended while starting") || !strings.Contains(o.stderr, "token") {
		t.Errorf("with a token that nobody made: got %+v", o)
	}
	uninvited()

	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(c.token(t)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"started the agent (process", "the agent runs already (process"} {
		o = kemudi("up", append([]string{"--join", machineIP, "--token-file", file}, own...)...)
		if o.code != 0 || !strings.Contains(o.stdout, want) || strings.Contains(o.stdout, "wrote context") {
			t.Fatalf("got %+v, want %q", o, want)
		}
	}
	uninvited()
	status := func() (s up.State) {
		t.Helper()
		o := kemudi("status", "-o", "json")
		if err := json.Unmarshal([]byte(o.stdout), &s); err != nil {
			t.Fatalf("%v: %+v", err, o)
		}
		return s
	}
	if s := status(); s.Role != up.RoleAgent || !s.Running || !s.Ready || len(s.Nodes) != 1 || s.Nodes[0].Name != agentName {
		t.Errorf("after it has joined: got %+v", s)
	}
	if o := kemudi("down"); o.code != 0 || !strings.HasPrefix(o.stdout, "stopped the agent; containers keep running") {
		t.Errorf("down: got %+v", o)
	}
	if s := status(); s.Role != up.RoleAgent || s.Running {
		t.Errorf("after it was stopped: got %+v", s)
	}
	if o := kemudi("up", append([]string{"--join", machineIP, "--join-as", "server", "--token-file", file}, own...)...); o.code != 1 || !strings.Contains(o.stderr, "has the data of another agent, and this machine is to join as server") {
		t.Errorf("as a server: got %+v", o)
	}
	if o := kemudi("up", "--agents", "2"); o.code != 2 || !strings.Contains(o.stderr, "--agents is for the machine of a server, and this one is that of an agent") {
		t.Errorf("with agents of its own: got %+v", o)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if o := kemudi("up", append([]string{"--join", machineIP, "--token-file", file}, own...)...); o.code != 0 || !strings.Contains(o.stdout, "started the agent (process") {
		t.Errorf("up as before, without the token: got %+v", o)
	}
	if o := kemudi("down"); o.code != 0 {
		t.Errorf("down: got %+v", o)
	}
	if o := kemudi("up", own...); o.code != 0 || !strings.Contains(o.stdout, "started the agent (process") {
		t.Errorf("up again: got %+v", o)
	}
	if s := status(); !s.Ready {
		t.Errorf("up again: got %+v", s)
	}
}
