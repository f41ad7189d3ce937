package fleet

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kemudi/kemudi/internal/up"
)

// TestMachinesAreFoundServersFirst, whatever else lies there.
func TestMachinesAreFoundServersFirst(t *testing.T) {
	t.Parallel()
	f := Fleet{DataDir: t.TempDir(), RunDir: filepath.Join(t.TempDir(), "run")}
	if size, err := f.Size(); err != nil || size != (Size{Servers: 1}) {
		t.Errorf("got %+v, %v of a cluster that is alone", size, err)
	}
	for _, name := range []string{"agent-10", "agent-2", "server-3", "server-2", "agent-1", "other-1", "agent-x", "agent"} {
		if err := os.MkdirAll(filepath.Join(f.DataDir, "machines", name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if size, err := f.Size(); err != nil || size != (Size{Servers: 3, Agents: 3}) {
		t.Errorf("got %+v, %v", size, err)
	}
	states, err := f.States()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range states {
		got = append(got, s.Role+" "+s.Name)
	}
	if want := []string{"server server-2", "server server-3", "agent agent-1", "agent agent-2", "agent agent-10"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	links := map[string]string{}
	list, err := f.all()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range list {
		if other := links[m.link()]; other != "" || len(m.link()) > 15 { // what the kernel takes
			t.Errorf("%s has the link %s, as %q has", m.name, m.link(), other)
		}
		links[m.link()] = m.name
		if m.joined() {
			t.Errorf("%s counts as joined", m.name)
		}
	}
	beginStore(t, f, "server-2")
	if list[0].name != "server-2" || !list[0].joined() {
		t.Error("a server with its part of the store does not count as joined")
	}
	if stopped, err := f.Down(t.Context()); err != nil || len(stopped) > 0 {
		t.Errorf("got %q, %v of machines that do not run", stopped, err)
	}
}

// beginStore has a machine look as if its server had begun its part of the store.
func beginStore(t *testing.T, f Fleet, name string) {
	t.Helper()
	log := filepath.Join(f.DataDir, "machines", name, "etcd", "member", "wal")
	if err := os.MkdirAll(log, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(log, "0000000000000000-0000000000000000.wal"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestClustersThatAreTooLargeAreRefused(t *testing.T) {
	t.Parallel()
	f := Fleet{DataDir: t.TempDir(), RunDir: t.TempDir()}
	for says, size := range map[string]Size{"10 servers: there can be 9": {Servers: 10}, "201 agents: there can be 200": {Servers: 1, Agents: 201}} {
		if _, err := f.Grow(t.Context(), size); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: got %v, want %q", size, err, says)
		}
	}
}

// TestMachinesOfRemovedServersAreNoServers until they are wanted again.
func TestMachinesOfRemovedServersAreNoServers(t *testing.T) {
	t.Parallel()
	f := Fleet{DataDir: t.TempDir(), RunDir: filepath.Join(t.TempDir(), "run")}
	for _, name := range []string{"server-2", "server-3", "agent-1"} {
		beginStore(t, f, name)
	}
	mark := filepath.Join(f.DataDir, "machines", "server-2", up.MemberFile)
	if err := os.WriteFile(mark, []byte(`{"name": "server-2", "joined": true, "removed": true}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if size, err := f.Size(); err != nil || size != (Size{Servers: 2, Agents: 1}) {
		t.Errorf("got %+v, %v", size, err)
	}
	list, err := f.all()
	if err != nil {
		t.Fatal(err)
	}
	for to, want := range map[Size]string{
		{Servers: 2, Agents: 1}: "", {Servers: 3, Agents: 1}: "", // server-2 comes back
		{Servers: 4, Agents: 2}: "server-4 agent-2", {Servers: 1}: "",
	} {
		var names []string
		for _, m := range f.missing(list, to) {
			names = append(names, m.name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%+v: got %q, want %q", to, got, want)
		}
	}
	// It is not started: there is no program to do so.
	for _, m := range list {
		if m.name != "server-2" {
			if err := os.RemoveAll(m.data); err != nil {
				t.Fatal(err)
			}
		}
	}
	if started, err := f.Resume(t.Context()); err != nil || len(started) > 0 {
		t.Errorf("resume: got %q, %v", started, err)
	}
	if err := f.Start(t.Context(), func(what string) { t.Errorf("start: got %q", what) }); err != nil {
		t.Error(err)
	}
	states, err := f.States()
	if err != nil || len(states) != 1 || !states[0].Removed {
		t.Errorf("got %+v, %v", states, err)
	}
}

func TestFlagsOfMachinesFollowTheirOwn(t *testing.T) {
	t.Parallel()
	f := Fleet{DataDir: "/data", RunDir: "/run/k", ServerArgs: []string{"--secure-port=7443"}, AgentArgs: []string{"--max-pods=9"}}
	for r, want := range map[role]string{
		server: "--node-name server-2 --pod-logs-dir /data/machines/server-2/pod-logs --cpu-manager-policy none --memory-manager-policy None --secure-port=7443",
		agent:  "--node-name agent-2 --pod-logs-dir /data/machines/agent-2/pod-logs --cpu-manager-policy none --memory-manager-policy None --max-pods=9",
	} {
		if got := strings.Join(f.args(f.machine(r, 2)), " "); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
