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

	"github.com/kemudi/kemudi/internal/up"
)

// Fleet is the further machines of a server on this machine.
type Fleet struct {
	Program string   // the kemudi program
	DataDir string   // of the server: those of the machines are below it
	RunDir  string   // likewise
	Args    []string // further flags of kemudi agent
}

var _ up.Machines = Fleet{}

// most is how many machines there can be: what their network has addresses for.
const most = 200

// machine is one of a fleet.
type machine struct {
	number int // from 1
	name   string
	data   string
	run    string
	netns  string // name of its network namespace
}

func (f Fleet) machine(number int) machine {
	name := "agent-" + strconv.Itoa(number)
	return machine{
		number: number, name: name,
		data: filepath.Join(f.machines(), name), run: filepath.Join(f.RunDir, name), netns: filepath.Base(f.RunDir) + "-" + name,
	}
}

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
		number, ok := strings.CutPrefix(e.Name(), "agent-")
		if n, err := strconv.Atoi(number); ok && err == nil && n > 0 {
			list = append(list, f.machine(n))
		}
	}
	slices.SortFunc(list, func(a, b machine) int { return cmp.Compare(a.number, b.number) })
	return list, nil
}

// Size is how many machines there are.
func (f Fleet) Size() (int, error) {
	list, err := f.all()
	return len(list), err
}

// Grow makes machines until there are so many; none is taken away. It returns the
// address at which they reach the server: that is to be the address of its node.
func (f Fleet) Grow(ctx context.Context, size int) (server netip.Addr, err error) {
	if size > most {
		return server, fmt.Errorf("%d machines: there can be %d", size, most)
	}
	l, err := openLAN(ctx, f.machines())
	if err != nil {
		return server, err
	}
	defer l.close()
	have, err := f.all()
	if err != nil {
		return server, err
	}
	for n := len(have) + 1; n <= size; n++ {
		have = append(have, f.machine(n))
	}
	for _, m := range have {
		if err := l.connect(m); err != nil {
			return server, fmt.Errorf("make machine %s: %w", m.name, err)
		}
		if err := os.MkdirAll(m.data, 0o700); err != nil {
			return server, fmt.Errorf("make machine %s: %w", m.name, err)
		}
	}
	return l.server(), nil
}

// tokenLife is how long the token is good by which machines join.
const tokenLife = 10 * time.Minute

// Start starts the machines that do not run, and waits until their nodes are ready. The
// server runs. step is told what was done.
func (f Fleet) Start(ctx context.Context, step func(what string)) error {
	list, err := f.all()
	if err != nil || len(list) == 0 {
		return err
	}
	var token up.NewToken
	for _, m := range list {
		pid, err := up.Running(m.run)
		if err != nil {
			return err
		}
		if pid != 0 {
			continue
		}
		if token.Token == "" {
			token, err = up.CreateToken(ctx, up.Access{DataDir: f.DataDir}, up.TokenOptions{Life: tokenLife, Description: "machines on the server's own machine"})
			if err != nil {
				return err
			}
		}
		if err := f.start(ctx, m, token); err != nil {
			return fmt.Errorf("start machine %s: %w", m.name, err)
		}
		step("node is ready: " + m.name)
	}
	if token.Token == "" {
		return nil
	}
	return up.RevokeToken(ctx, up.Access{DataDir: f.DataDir}, token.ID)
}

func (f Fleet) start(ctx context.Context, m machine, token up.NewToken) error {
	if err := os.MkdirAll(m.run, 0o755); err != nil {
		return fmt.Errorf("make run directory: %w", err)
	}
	file := filepath.Join(m.run, "token") // the command line is for all to see
	if err := os.WriteFile(file, []byte(token.Token+"\n"), 0o600); err != nil {
		return fmt.Errorf("write token: %w", err)
	}
	defer os.Remove(file)
	return up.Process{
		Program: f.Program, Command: "agent", DataDir: m.data, RunDir: m.run,
		Args: append([]string{
			"--node-name", m.name, "--pod-logs-dir", filepath.Join(m.data, "pod-logs"),
			"--server", strings.Join(token.Servers, ","), "--token-file", file,
		}, f.Args...),
		Begin: func(cmd *exec.Cmd) error { return within(m.netns, cmd.Start) },
	}.Start(ctx, func(string, time.Duration) {})
}

// State is how one machine is.
type State struct {
	Name    string `json:"name"`
	Process int    `json:"process,omitempty"` // of its agent; 0: it does not run
	Log     string `json:"log"`
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
		states = append(states, State{Name: m.name, Process: pid, Log: up.LogFile(m.data)})
	}
	return states, nil
}

// Down stops the machines that run, and returns their names; containers keep running.
func (f Fleet) Down(ctx context.Context) (stopped []string, _ error) {
	list, err := f.all()
	if err != nil {
		return nil, err
	}
	for _, m := range list {
		ran, err := up.Down(ctx, m.run)
		if err != nil {
			return stopped, fmt.Errorf("stop machine %s: %w", m.name, err)
		}
		if ran {
			stopped = append(stopped, m.name)
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
		if err := f.reset(ctx, m); err != nil {
			errs = append(errs, fmt.Errorf("remove machine %s: %w", m.name, err))
			continue
		}
		removed = append(removed, "machine "+m.name)
	}
	if len(errs) > 0 {
		return removed, errors.Join(errs...)
	}
	gone, err := removeLAN(ctx, f.machines())
	if err == nil {
		err = os.RemoveAll(f.machines())
	}
	return append(removed, gone...), err
}

// resetPatience is how long it may take to remove what runs in one machine.
const resetPatience = 2 * time.Minute

// reset removes what is in a machine, and then the machine.
func (f Fleet) reset(ctx context.Context, m machine) error {
	if _, err := up.Down(ctx, m.run); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, resetPatience)
	defer cancel()
	if made(m.netns) {
		var out strings.Builder
		cmd := exec.CommandContext(ctx, f.Program, "reset", "--data-dir", m.data, "--run-dir", m.run, "--kubeconfig", "")
		cmd.Stdout, cmd.Stderr = &out, &out
		cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
		if err := within(m.netns, cmd.Start); err != nil {
			return fmt.Errorf("run kemudi reset in it: %w", err)
		}
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("kemudi reset in it: %w:\n%s", err, strings.TrimSpace(out.String()))
		}
	}
	if err := disconnect(m); err != nil {
		return err
	}
	return os.RemoveAll(m.data)
}

// Import has the machines take an image from an archive, too.
func (f Fleet) Import(ctx context.Context, file string) error {
	list, err := f.all()
	if err != nil {
		return err
	}
	for _, m := range list {
		if _, err := up.ImportImage(ctx, up.Options{DataDir: m.data, RunDir: m.run}, file); err != nil {
			return fmt.Errorf("import into machine %s: %w", m.name, err)
		}
	}
	return nil
}
