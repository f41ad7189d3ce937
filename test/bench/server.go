package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/kemudi/kemudi/internal/up"
)

// server is a running kemudi server.
type server struct {
	place
	cmd   *exec.Cmd
	began time.Time
	steps *os.File // where it reports the steps of its start
}

// startPatience is how long a start may take.
const startPatience = time.Minute

// start starts a server and does not wait for it.
func (p place) start(bin string) (*server, error) {
	for _, dir := range []string{p.data, p.logs} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("make directory: %w", err)
		}
	}
	log, err := os.OpenFile(p.log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	defer log.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	defer w.Close()
	cmd := exec.Command(bin, p.args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{w}
	cmd.Env = append(os.Environ(), up.NotifyEnv+"=3")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	s := &server{place: p, cmd: cmd, steps: r, began: time.Now()}
	if err := cmd.Start(); err != nil {
		r.Close()
		return nil, fmt.Errorf("start server: %w", err)
	}
	return s, nil
}

// log is the file that a server writes its log to.
func (p place) log() string { return filepath.Join(filepath.Dir(p.data), "log") }

// ready waits until the server says that it is, and returns how long after its
// start that was.
func (s *server) ready(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startPatience, fmt.Errorf("not ready after %s", startPatience))
	defer cancel()
	defer context.AfterFunc(ctx, func() { s.steps.Close() })() // wakes the decoder
	for d := json.NewDecoder(s.steps); ; {
		var step up.Step
		if err := d.Decode(&step); err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			} else if errors.Is(err, io.EOF) {
				err = errors.New("it ended")
			}
			return 0, fmt.Errorf("start server: %w\n%s", err, s.tail())
		}
		if step.Ready {
			return time.Since(s.began), nil
		}
	}
}

// tail is the end of the server's log.
func (s *server) tail() string {
	data, err := os.ReadFile(s.log())
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(lines[max(0, len(lines)-10):], "\n")
}

// stop ends the server and waits until it is gone. Containers stay.
func (s *server) stop() error {
	defer s.steps.Close()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop server: %w", err)
	}
	if err := s.cmd.Wait(); err != nil {
		return fmt.Errorf("stop server: %w\n%s", err, s.tail())
	}
	return nil
}

// kill ends the server as a loss of power does, unless it has ended already.
func (s *server) kill() error {
	if s.cmd.ProcessState != nil {
		return nil
	}
	defer s.steps.Close()
	if err := s.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill server: %w", err)
	}
	_ = s.cmd.Wait() // says that it was killed
	return nil
}

// restart stops the server and starts it again.
func (s *server) restart(bin string) error {
	if err := s.stop(); err != nil {
		return err
	}
	next, err := s.place.start(bin)
	if err != nil {
		return err
	}
	*s = *next
	return nil
}

// command runs another command of the program to its end.
func command(ctx context.Context, bin string, args ...string) error {
	if out, err := exec.CommandContext(ctx, bin, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(args[:2], " "), err, out)
	}
	return nil
}
