package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/version"
)

// Options say which cluster, and what to put on it.
type Options struct {
	Program    string   // the kemudi program; required
	DataDir    string   // of the server; required
	RunDir     string   // of the server; required
	ServerArgs []string // further flags of kemudi server
	Kubeconfig string   // the file to merge the access into; empty: none
	Images     []string // image archives to import
	Manifests  []string // files to apply
	AtBoot     bool     // have systemd start the server with the machine, and now
	Out        io.Writer
}

// startPatience is how long a start may take before it counts as failed.
const startPatience = 2 * time.Minute

// AdminKubeconfig is where a server keeps the administrator's kubeconfig.
func AdminKubeconfig(dataDir string) string { return filepath.Join(dataDir, "admin.kubeconfig") }

// LogFile is where a server in the background writes its log.
func LogFile(dataDir string) string { return filepath.Join(dataDir, "kemudi.log") }

// Up starts the server in the background, or the service that has been made of it,
// unless it runs already, waits until
// it is ready, and then imports images and applies manifests. It prints each step
// with the time it took, and returns where the services among the manifests
// answer. Doing it again is harmless.
func Up(ctx context.Context, o Options) (urls []string, _ error) {
	p := &printer{out: o.Out, last: time.Now()}
	pid, err := Running(o.RunDir)
	if err != nil {
		return nil, err
	}
	machine := machineServices()
	service, err := machine.has(o)
	if err != nil {
		return nil, err
	}
	if o.AtBoot || service && len(o.ServerArgs) > 0 {
		if err := machine.install(ctx, o); err != nil {
			return nil, err
		}
		service = true
		p.step("systemd starts the server with this machine: " + machine.file())
	}
	if pid != 0 {
		runs, err := awaitRunning(ctx, o)
		if err != nil {
			return nil, err
		}
		p.step("the server runs already (process " + strconv.Itoa(pid) + ")")
		if runs != version.Git() {
			p.note("it is " + runs + ", and this program " + version.Git() + ": kemudi down and kemudi up change over; containers keep running")
		}
	} else if service {
		err = machine.start(ctx, o, p)
	} else {
		err = start(ctx, o, p)
	}
	if err != nil {
		return nil, err
	}
	if o.Kubeconfig != "" {
		if err := mergeKubeconfig(AdminKubeconfig(o.DataDir), o.Kubeconfig); err != nil {
			return nil, err
		}
		p.step("wrote context \"kemudi\" to " + o.Kubeconfig)
	}
	for _, file := range o.Images {
		names, err := importImage(ctx, o, file)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("interrupted: the server runs, and kemudi up goes on with the rest (%w)", context.Cause(ctx))
		}
		if err != nil {
			return nil, err
		}
		p.step("imported " + strings.Join(names, ", "))
	}
	return deploy(ctx, o, p)
}

// awaitRunning waits until a server that somebody else has started, maybe just
// now, is ready. It reports to that one alone, so it is asked;
// awaitRunning returns its version.
func awaitRunning(ctx context.Context, o Options) (version string, _ error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startPatience, fmt.Errorf("not ready after %s", startPatience))
	defer cancel()
	wait := task.Backoff{Initial: 50 * time.Millisecond, Max: time.Second}
	for {
		s, err := Status(ctx, o)
		switch {
		case err != nil:
			return "", err
		case s.Ready:
			return s.Version, nil
		case !s.Running:
			return "", errors.New("the server that was running has ended")
		}
		if err := task.Sleep(ctx, wait.Next()); err != nil {
			return "", fmt.Errorf("wait for the server that runs already: %w (last: %s)", context.Cause(ctx), s.Problem)
		}
	}
}

// start runs the server as a process of its own session and follows its steps.
func start(ctx context.Context, o Options, p *printer) error {
	if err := os.MkdirAll(o.DataDir, 0o700); err != nil {
		return fmt.Errorf("make data directory: %w", err)
	}
	log, err := os.OpenFile(LogFile(o.DataDir), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	defer log.Close()
	before, err := log.Seek(0, io.SeekEnd) // where what this start logs begins
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make pipe: %w", err)
	}
	defer r.Close()
	args := append([]string{"server", "--data-dir", o.DataDir, "--run-dir", o.RunDir}, o.ServerArgs...)
	cmd := exec.Command(o.Program, args...) // not tied to ctx: it is to outlive us
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{w}
	cmd.Env = append(os.Environ(), NotifyEnv+"=3")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		w.Close()
		return fmt.Errorf("start server: %w", err)
	}
	w.Close()
	p.step("started the server (process " + strconv.Itoa(cmd.Process.Pid) + ", log " + LogFile(o.DataDir) + ")")
	ctx, cancel := context.WithTimeoutCause(ctx, startPatience, fmt.Errorf("not ready after %s", startPatience))
	defer cancel()
	defer context.AfterFunc(ctx, func() { r.Close() })() // wakes the reader
	err = follow(r, func(s Step) { p.done(s.Name, s.Took) })
	switch {
	case err == nil:
		p.last = time.Now()
		return cmd.Process.Release()
	case errors.Is(ctx.Err(), context.Canceled):
		return errors.Join(fmt.Errorf("interrupted: the server was stopped again, what it has made stays (kemudi reset removes it): %w", ctx.Err()), stop(cmd))
	case ctx.Err() != nil:
		return fmt.Errorf("start server: %w; it goes on starting (process %d, kemudi down ends it): see %s", context.Cause(ctx), cmd.Process.Pid, LogFile(o.DataDir))
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("the server ended while starting (%w):\n%s", cmd.Wait(), tail(LogFile(o.DataDir), before))
	}
	return err
}

// stop ends the server that this process has started.
func stop(cmd *exec.Cmd) error {
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop server: %w", err)
	}
	kill := time.AfterFunc(stopPatience, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		return fmt.Errorf("stop server: %w", err)
	}
	return nil
}

// tail is what a log says at its end, for an error message: the error with which
// the program ended, or else the last lines. What is before the offset from is of
// earlier starts.
func tail(file string, from int64) string {
	f, err := os.Open(file)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err.Error()
	}
	data := make([]byte, min(size-min(from, size), 64<<10))
	if _, err := f.ReadAt(data, size-int64(len(data))); err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	lines = lines[max(0, len(lines)-10):]
	for i, line := range lines {
		if strings.HasPrefix(line, "kemudi: ") {
			return strings.Join(lines[i:], "\n")
		}
	}
	return strings.Join(lines, "\n")
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
