package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/version"
)

// Options say which cluster, and what to put on it.
type Options struct {
	Program    string      // the kemudi program; required
	DataDir    string      // of the server or agent; required
	RunDir     string      // of the server or agent; required
	Args       []string    // its further flags
	Said       []string    // those of them that a person has given
	Invitation *Invitation // the cluster to join; nil: none, or the machine has joined
	Kubeconfig string      // the file to merge a server's access into; empty: none
	Images     []string    // image archives to import
	Manifests  []string    // files to apply
	AtBoot     bool        // have systemd start the server or agent with the machine, and now
	Machines   Machines    // further ones of the cluster, on this machine; nil: there are none
	Out        io.Writer

	is string // what the machine is to be, server or agent
}

// Machines are further machines of a cluster.
type Machines interface {
	// Resume starts those that the first server may wait for, and waits until they are ready.
	Resume(ctx context.Context) (started []string, err error)
	// Start starts those that do not run, and waits until they take pods. step is told
	// what was done.
	Start(ctx context.Context, step func(what string)) error
	// Import has those that run containers take the images of an archive, and returns the images' names.
	Import(ctx context.Context, file string) (names []string, err error)
}

// startPatience is how long a start may take before it counts as failed.
const startPatience = 2 * time.Minute

// AdminKubeconfig is where a server keeps the administrator's kubeconfig.
func AdminKubeconfig(dataDir string) string { return filepath.Join(dataDir, "admin.kubeconfig") }

// LogFile is where a server in the background writes its log.
func LogFile(dataDir string) string { return filepath.Join(dataDir, "kemudi.log") }

// Up starts the server in the background, or on the machine of an agent that one, or the service that has been
// made of it, unless it runs already, waits until it is ready, and then imports images and applies manifests. It
// prints each step with the time it took, and returns where the services among the manifests answer. Doing it again
// is harmless.
func Up(ctx context.Context, o Options) (urls []string, err error) {
	if o.is, err = o.role(); err != nil {
		return nil, err
	}
	p := &printer{out: o.Out, last: time.Now()}
	machine := machineServices()
	service, err := machine.has(o)
	if err != nil {
		return nil, err
	}
	if o.AtBoot || service && len(o.Args) > 0 {
		if err := machine.install(ctx, o); err != nil {
			return nil, err
		}
		service = true
		p.step("systemd starts the " + o.is + " with this machine: " + machine.file())
	}
	others := task.NewGroup(ctx)
	var resumed []string
	if o.Machines != nil {
		others.Go("other servers", func(ctx context.Context) (err error) {
			resumed, err = o.Machines.Resume(ctx)
			return err
		})
	}
	err = Settle(o.RunDir, func(pid int) error { return runsAlready(ctx, o, p, pid) }, func() error {
		return invited(o, func() error {
			if service {
				return machine.start(ctx, o, p)
			}
			return start(ctx, o, p)
		})
	})
	if err != nil {
		others.Cancel(err)
		_ = others.Wait() // what went wrong is known
		return nil, err
	}
	if err := others.Wait(); err != nil {
		return nil, err
	}
	for _, name := range resumed {
		p.step("node is ready: " + name)
	}
	if o.Kubeconfig != "" && o.is == RoleServer {
		if err := mergeKubeconfig(AdminKubeconfig(o.DataDir), o.Kubeconfig); err != nil {
			return nil, err
		}
		p.step("wrote context \"kemudi\" to " + o.Kubeconfig)
	}
	if o.Machines != nil {
		if err := o.Machines.Start(ctx, p.step); err != nil {
			return nil, err
		}
	}
	for _, file := range o.Images {
		names, err := importEverywhere(ctx, o, file)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("interrupted: the "+o.is+" runs, and kemudi up goes on with the rest (%w)", context.Cause(ctx))
		}
		if err != nil {
			return nil, err
		}
		p.step("imported " + strings.Join(names, ", "))
	}
	return deploy(ctx, o, p)
}

// invited starts a machine that may have to join first. What could not be started is not to be tried again by a start
// that says nothing of it.
func invited(o Options, start func() error) error {
	if o.Invitation == nil {
		return start()
	}
	if err := o.Invitation.leave(o.DataDir); err != nil {
		return err
	}
	err := start()
	if pid, look := Running(o.RunDir); err != nil && look == nil && pid == 0 {
		err = errors.Join(err, DropInvitation(o.DataDir))
	}
	return err
}

// runsAlready waits for a server or agent that runs to be ready, and tells of it.
func runsAlready(ctx context.Context, o Options, p *printer, pid int) error {
	runs, err := awaitRunning(ctx, o, p)
	if err != nil {
		return err
	}
	p.step("the " + o.is + " runs already (process " + strconv.Itoa(pid) + ")")
	if runs != version.Git() {
		p.note("it is " + runs + ", and this program " + version.Git() + ": kemudi down and kemudi up change over; containers keep running")
	}
	if !startedWith(pid, o.Said) {
		p.note("it was started without " + strings.Join(o.Said, " ") + ", which count from the next start on: kemudi down, and this command again; containers keep running")
	}
	return nil
}

// startedWith reports whether flags are on the command line of a process, one after the other; also
// if nobody can tell.
func startedWith(pid int, flags []string) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(flags) == 0 {
		return true
	}
	return strings.Contains("\x00"+string(line), "\x00"+strings.Join(flags, "\x00")+"\x00")
}

// awaitRunning waits until a server or agent that somebody else has started, maybe just
// now, is ready, and its own node: others may be gone for good. It reports to that
// one alone, so it is asked; awaitRunning returns its version.
func awaitRunning(ctx context.Context, o Options, p *printer) (version string, _ error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startPatience, fmt.Errorf("not ready after %s", startPatience))
	defer cancel()
	wait := task.Backoff{Initial: 50 * time.Millisecond, Max: time.Second}
	for told := false; ; told = true {
		s, err := Status(ctx, o)
		why := s.Problem
		if i := slices.IndexFunc(s.Nodes, func(n Node) bool { return n.here && !n.Ready }); i >= 0 && why == "" {
			why = "node " + s.Nodes[i].Name + " is not ready"
		}
		switch {
		case err != nil:
			return "", err
		case !s.Running:
			return "", errEnded
		case why == "":
			return s.Version, nil
		case !told:
			p.note("the " + o.is + " runs (process " + strconv.Itoa(s.Process) + ") and is not ready yet: " + why)
		}
		if err := task.Sleep(ctx, wait.Next()); err != nil {
			return "", fmt.Errorf("wait for the %s that runs already: %w (last: %s)", o.is, context.Cause(ctx), why)
		}
	}
}

// start runs the server or agent in the background.
func start(ctx context.Context, o Options, p *printer) error {
	process := Process{Program: o.Program, Command: o.is, DataDir: o.DataDir, RunDir: o.RunDir, Args: o.Args}
	process.Begin = func(cmd *exec.Cmd) error {
		err := cmd.Start()
		if err == nil {
			p.step("started the " + o.is + " (process " + strconv.Itoa(cmd.Process.Pid) + ", log " + LogFile(o.DataDir) + ")")
		}
		return err
	}
	err := process.Start(ctx, p.done)
	p.last = time.Now()
	return err
}

// printer shows steps with their times.
type printer struct {
	out  io.Writer
	last time.Time
}

// step prints what has been done since the last step.
func (p *printer) step(what string) {
	now := time.Now()
	p.done(what, now.Sub(p.last))
	p.last = now
}

func (p *printer) done(what string, took time.Duration) {
	fmt.Fprintf(p.out, "%8s  %s\n", took.Round(time.Millisecond), what)
}

// note prints what is going on meanwhile.
func (p *printer) note(what string) {
	fmt.Fprintf(p.out, "%8s  %s\n", "...", strings.ReplaceAll(what, "\n", "\n          "))
}
