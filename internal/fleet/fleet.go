package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/internal/store/etcd"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/up"
)

// Fleet is the further machines of a server on this machine.
type Fleet struct {
	Program    string   // the kemudi program
	DataDir    string   // of the server: those of the machines are below it
	RunDir     string   // of the server: those of the machines begin so
	ServerArgs []string // further flags of the servers
	AgentArgs  []string // further flags of the agents
	// Servers is how many servers there are to be, the first included: machines whose servers were
	// removed from the cluster join it anew until there are. Fewer than there are: none does.
	Servers int
}

var _ up.Machines = Fleet{}

// Size is how large a cluster on one machine is.
type Size struct {
	Servers int // the one whose machine this is included
	Agents  int
}

// most is how large it can be: what the network has addresses for. More servers are of no
// use: each write waits for a majority of them.
var most = Size{Servers: 9, Agents: 200}

// role is what runs on a machine: a command of the program, and how its machines are called.
type role string

const (
	server role = "server"
	agent  role = "agent"
)

// machine is one of a fleet.
type machine struct {
	role   role
	number int // from 1; of servers from 2, as the first has the machine itself
	name   string
	data   string
	run    string
	netns  string // name of its network namespace
}

func (f Fleet) machine(r role, number int) machine {
	name := string(r) + "-" + strconv.Itoa(number)
	return machine{
		role: r, number: number, name: name,
		// Cgroups and network namespaces are called after the run directory: another cluster has others.
		data: filepath.Join(f.machines(), name), run: f.RunDir + "-" + name, netns: filepath.Base(f.RunDir) + "-" + name,
	}
}

// joined says whether a server has its part of the store, and so starts by itself.
func (m *machine) joined() bool { return m.role == server && etcd.Begun(m.data) }

// removed says whether it is the machine of a server that was taken out of the cluster.
func (m *machine) removed() bool { return m.role == server && up.Removed(m.data) }

// machines is the directory of their data.
func (f Fleet) machines() string { return filepath.Join(f.DataDir, "machines") }

// all are the machines that have been made, in their order.
func (f Fleet) all() ([]machine, error) {
	entries, err := os.ReadDir(f.machines())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find the machines of the cluster: %w", err)
	}
	var list []machine
	for _, e := range entries {
		name, number, _ := strings.Cut(e.Name(), "-")
		if n, err := strconv.Atoi(number); err == nil && n > 0 && (role(name) == server || role(name) == agent) {
			list = append(list, f.machine(role(name), n))
		}
	}
	slices.SortFunc(list, func(a, b machine) int {
		return cmp.Or(-cmp.Compare(a.role, b.role), cmp.Compare(a.number, b.number)) // servers first
	})
	return list, nil
}

// Size is how large the cluster is; without further machines it has one server. Those that were removed
// from it do not count.
func (f Fleet) Size() (Size, error) {
	list, err := f.all()
	return sizeOf(list), err
}

func sizeOf(list []machine) Size {
	s := Size{Servers: 1}
	for _, m := range list {
		switch {
		case m.role == agent:
			s.Agents++
		case !m.removed():
			s.Servers++
		}
	}
	return s
}

// Grow makes machines until the cluster is so large; none is taken away. It returns the
// address at which they reach the first server: that is to be the address of its node.
func (f Fleet) Grow(ctx context.Context, to Size) (first netip.Addr, err error) {
	switch {
	case to.Servers > most.Servers:
		return first, fmt.Errorf("%d servers: there can be %d, and 3 or 5 are enough for any cluster", to.Servers, most.Servers)
	case to.Agents > most.Agents:
		return first, fmt.Errorf("%d agents: there can be %d", to.Agents, most.Agents)
	}
	l, err := openLAN(ctx, f.machines())
	if err != nil {
		return first, err
	}
	defer l.close()
	have, err := f.all()
	if err != nil {
		return first, err
	}
	have = append(have, f.missing(have, to)...)
	for _, m := range have {
		if err := l.connect(m); err != nil {
			return first, fmt.Errorf("make machine %s: %w", m.name, err)
		}
		if err := os.MkdirAll(m.data, 0o700); err != nil {
			return first, fmt.Errorf("make machine %s: %w", m.name, err)
		}
	}
	return l.server(), nil
}

// missing are the machines that a cluster lacks which is to be so large. Those of servers that were
// removed are there, and can join anew.
func (f Fleet) missing(have []machine, to Size) (list []machine) {
	last := map[role]int{server: 1}
	back := 0
	for _, m := range have {
		last[m.role] = max(last[m.role], m.number)
		if m.removed() {
			back++
		}
	}
	now := sizeOf(have)
	for i := range to.Servers - now.Servers - back {
		list = append(list, f.machine(server, last[server]+1+i))
	}
	for i := range to.Agents - now.Agents {
		list = append(list, f.machine(agent, last[agent]+1+i))
	}
	return list
}

// tokenLife is how long the token is good by which machines join.
const tokenLife = 10 * time.Minute

// Resume starts the servers that do not run and have their part of the store: the first one may
// need them for a majority. It returns when all are ready, with their names. One that hears only now
// that it was removed is left as it is.
func (f Fleet) Resume(ctx context.Context) (started []string, _ error) {
	list, err := f.all()
	if err != nil {
		return nil, err
	}
	g := task.NewGroup(ctx)
	ready := make([]bool, len(list))
	for i, m := range list {
		pid, err := up.Running(m.run)
		if err != nil {
			return nil, errors.Join(err, g.Wait())
		}
		if pid != 0 || !m.joined() || m.removed() {
			continue
		}
		g.Go("start "+m.name, func(ctx context.Context) error {
			err := f.start(ctx, m)
			ready[i] = err == nil
			if m.removed() {
				return nil
			}
			return err
		})
	}
	err = g.Wait()
	for i, m := range list {
		if ready[i] {
			started = append(started, m.name)
		}
	}
	return started, err
}

// Start starts the machines that do not run, servers one after the other, and waits until their
// nodes are ready. The first server runs. step is told what was done.
func (f Fleet) Start(ctx context.Context, step func(what string)) error {
	list, err := f.all()
	if err != nil || len(list) == 0 {
		return err
	}
	tokens, servers := map[role]up.NewToken{}, sizeOf(list).Servers
	for _, m := range list {
		was := m.removed()
		left := was && servers >= f.Servers
		err := up.Settle(m.run, func(int) error {
			if was {
				return nil // it ends when it hears of that
			}
			return up.AwaitNode(ctx, up.Access{DataDir: f.DataDir}, m.name, m.run)
		}, func() (err error) {
			if left {
				return nil
			}
			token := tokens[m.role]
			if token.Token == "" {
				token, err = up.CreateToken(ctx, up.Access{DataDir: f.DataDir}, up.TokenOptions{
					Life: tokenLife, Server: m.role == server, Description: "machines on the server's own machine",
				})
				if err != nil {
					return err
				}
				tokens[m.role] = token
			}
			if err := f.join(ctx, m, token); err != nil {
				return err
			}
			step("node is ready: " + m.name)
			return nil
		})
		if err != nil {
			return err
		}
		if was && !left {
			servers++
		}
	}
	for _, token := range tokens {
		if err := up.RevokeToken(ctx, up.Access{DataDir: f.DataDir}, token.ID); err != nil {
			return err
		}
	}
	return nil
}

// join starts a machine with a token, which it needs the first time.
func (f Fleet) join(ctx context.Context, m machine, token up.NewToken) error {
	if err := os.MkdirAll(m.run, 0o755); err != nil {
		return fmt.Errorf("make run directory: %w", err)
	}
	file := filepath.Join(m.run, "token") // the command line is for all to see
	if err := os.WriteFile(file, []byte(token.Token+"\n"), 0o600); err != nil {
		return fmt.Errorf("write token: %w", err)
	}
	defer os.Remove(file)
	return f.start(ctx, m, "--server", strings.Join(token.Servers, ","), "--token-file", file)
}

// args are the flags of a machine. Whatever a file says that all read, it gives no container processors or
// memory for itself: they are the first server's to give.
func (f Fleet) args(m machine) []string {
	own := []string{"--node-name", m.name, "--pod-logs-dir", filepath.Join(m.data, "pod-logs"), "--cpu-manager-policy", "none", "--memory-manager-policy", "None"}
	if m.role == agent {
		return append(own, f.AgentArgs...)
	}
	return append(own, f.ServerArgs...)
}

// start starts the server or agent of a machine.
func (f Fleet) start(ctx context.Context, m machine, args ...string) error {
	err := up.Process{
		Program: f.Program, Command: string(m.role), DataDir: m.data, RunDir: m.run, Args: append(f.args(m), args...),
		Begin: func(cmd *exec.Cmd) error { return within(m.netns, cmd.Start) },
	}.Start(ctx, func(string, time.Duration) {})
	if err != nil {
		return fmt.Errorf("start machine %s: %w", m.name, err)
	}
	return nil
}

// State is how one machine is.
type State struct {
	Name    string `json:"name"`
	Role    string `json:"role"`              // server or agent
	Process int    `json:"process,omitempty"` // of that; 0: it does not run
	Log     string `json:"log"`
	// Removed says that it was a server, which was taken out of the cluster.
	Removed bool `json:"removed,omitempty"`
}

// States says how the machines are.
func (f Fleet) States() (states []State, _ error) {
	list, err := f.all()
	if err != nil {
		return nil, err
	}
	for _, m := range list {
		pid, err := up.Running(m.run)
		if err != nil {
			return nil, err
		}
		states = append(states, State{Name: m.name, Role: string(m.role), Process: pid, Log: up.LogFile(m.data), Removed: m.removed()})
	}
	return states, nil
}

// Down stops the machines that run, agents before servers, and returns their names; containers
// keep running. Servers stop at one time: with the second to go, of three, nobody could write any more.
func (f Fleet) Down(ctx context.Context) (stopped []string, _ error) {
	list, err := f.all()
	if err != nil {
		return nil, err
	}
	for _, r := range []role{agent, server} {
		ran := make([]bool, len(list))
		g := task.NewGroup(ctx)
		for i, m := range list {
			if m.role != r {
				continue
			}
			g.Go("stop "+m.name, func(ctx context.Context) (err error) {
				if ran[i], err = up.Down(ctx, m.data, m.run); err != nil {
					return fmt.Errorf("stop machine %s: %w", m.name, err)
				}
				return nil
			})
		}
		err := g.Wait()
		for i, m := range list {
			if ran[i] {
				stopped = append(stopped, m.name)
			}
		}
		if err != nil {
			return stopped, err
		}
	}
	return stopped, nil
}

// Remover removes the machines with all that runs in them, and their network.
func (f Fleet) Remover() up.Remover {
	return up.Remover{Part: "machines", Remove: f.remove}
}

func (f Fleet) remove(ctx context.Context) (removed []string, _ error) {
	list, err := f.all()
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, m := range list {
		some, err := f.reset(ctx, m)
		if err != nil {
			errs = append(errs, fmt.Errorf("remove machine %s: %w", m.name, err))
		} else if some {
			removed = append(removed, "machine "+m.name)
		}
	}
	if len(errs) > 0 {
		return removed, errors.Join(errs...)
	}
	gone, err := removeLAN(ctx, f.machines())
	if err == nil {
		_, err = removeDir(f.machines())
	}
	return append(removed, gone...), err
}

// resetPatience is how long it may take to remove what runs in one machine.
const resetPatience = 2 * time.Minute

// removeDir removes a directory that may be gone, but for what is mounted in it.
func removeDir(dir string) (some bool, _ error) {
	some, err := up.RemoveDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return some, fmt.Errorf("remove %s: %w", dir, err)
	}
	return some, nil
}

// reset removes what is in a machine, and then the machine. It says whether there was something.
func (f Fleet) reset(ctx context.Context, m machine) (some bool, _ error) {
	if _, err := up.Down(ctx, m.data, m.run); err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, resetPatience)
	defer cancel()
	was := made(m.netns)
	if was {
		var out strings.Builder
		cmd := exec.CommandContext(ctx, f.Program, "reset", "--data-dir", m.data, "--run-dir", m.run, "--kubeconfig", "")
		cmd.Stdout, cmd.Stderr = &out, &out
		cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
		if err := within(m.netns, cmd.Start); err != nil {
			return false, fmt.Errorf("run kemudi reset in it: %w", err)
		}
		if err := cmd.Wait(); err != nil {
			return false, fmt.Errorf("kemudi reset in it: %w:\n%s", err, strings.TrimSpace(out.String()))
		}
	}
	if err := disconnect(m); err != nil {
		return false, err
	}
	some, err := removeDir(m.data)
	return was || some, err
}

// Import has the machines that run containers take an image from an archive, too.
func (f Fleet) Import(ctx context.Context, file string) (names []string, _ error) {
	list, err := f.all()
	if err != nil {
		return nil, err
	}
	for _, m := range list {
		if m.removed() {
			continue
		}
		took, err := up.ImportImage(ctx, up.Options{DataDir: m.data, RunDir: m.run}, file)
		if errors.Is(err, up.ErrNoRuntime) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("import into machine %s: %w", m.name, err)
		}
		names = took
	}
	return names, nil
}
