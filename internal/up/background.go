package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Process is a server or an agent in the background. All fields but Args are required.
type Process struct {
	Program string // the kemudi program
	Command string // server or agent
	DataDir string
	RunDir  string
	Args    []string // further flags
	// Begin starts the process: here, or in another namespace.
	Begin func(cmd *exec.Cmd) error
}

// Start starts the process in a session of its own, follows its steps, and returns when it
// is ready. One that does not get so far on time goes on starting. It fails with ErrRunning if
// somebody else has started one with the same directories.
func (s Process) Start(ctx context.Context, done func(step string, took time.Duration)) error {
	if err := os.MkdirAll(s.DataDir, 0o700); err != nil {
		return fmt.Errorf("make data directory: %w", err)
	}
	log, err := os.OpenFile(LogFile(s.DataDir), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
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
	args := append([]string{s.Command, "--data-dir", s.DataDir, "--run-dir", s.RunDir}, s.Args...)
	cmd := exec.Command(s.Program, args...) // not tied to ctx: it is to outlive us
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{w}
	cmd.Env = append(os.Environ(), NotifyEnv+"=3")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = s.Begin(cmd)
	w.Close()
	if err != nil {
		return fmt.Errorf("start %s: %w", s.Command, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startPatience, fmt.Errorf("not ready after %s", startPatience))
	defer cancel()
	defer context.AfterFunc(ctx, func() { r.Close() })() // wakes the reader
	err = follow(r, func(s Step) { done(s.Name, s.Took) })
	switch {
	case err == nil:
		return cmd.Process.Release()
	case errors.Is(ctx.Err(), context.Canceled):
		return errors.Join(fmt.Errorf("interrupted: the %s was stopped again, what it has made stays (kemudi reset removes it): %w", s.Command, ctx.Err()), stop(cmd))
	case ctx.Err() != nil:
		return fmt.Errorf("start %s: %w; it goes on starting (process %d, kemudi down ends it): see %s", s.Command, late(ctx, s.RunDir), cmd.Process.Pid, LogFile(s.DataDir))
	case errors.Is(err, io.ErrUnexpectedEOF):
		err = fmt.Errorf("the %s ended while starting (%w):\n%s", s.Command, cmd.Wait(), tail(LogFile(s.DataDir), before))
		if pid, _ := Running(s.RunDir); pid != 0 { // that is why
			return fmt.Errorf("%w (process %d): %w", ErrRunning, pid, err)
		}
		return err
	}
	return err
}

// errEnded says that a process which was waited for is not there any more.
var errEnded = errors.New("the process that was running has ended")

// Settle has a server or an agent run: start starts it, unless it runs already; runs waits until one
// is ready that somebody else has started, maybe just now. It may end meanwhile, as one does that
// was killed and is not gone yet, or be there a moment after nothing was.
func Settle(runDir string, runs func(pid int) error, start func() error) error {
	for {
		pid, err := Running(runDir)
		switch {
		case err != nil:
			return err
		case pid != 0:
			err = runs(pid)
		default:
			err = start()
		}
		if !errors.Is(err, errEnded) && !errors.Is(err, ErrRunning) {
			return err
		}
	}
}

// stop ends a process that this one has started.
func stop(cmd *exec.Cmd) error {
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop process %d: %w", cmd.Process.Pid, err)
	}
	kill := time.AfterFunc(stopPatience, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		return fmt.Errorf("stop process %d: %w", cmd.Process.Pid, err)
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
