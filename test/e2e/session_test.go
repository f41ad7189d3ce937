package e2e

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// session is a program that a person talks to: its output is read as it comes.
type session struct {
	cmd  *exec.Cmd
	in   *os.File
	mu   sync.Mutex
	text strings.Builder
	done chan struct{} // closed when the output has ended
}

// begin starts a program on the machine. With a terminal, it has one of 33 rows
// and 101 columns; otherwise standard input is a pipe.
func (m *machine) begin(t *testing.T, terminal bool, args ...string) *session {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &session{cmd: m.command(ctx, args...), done: make(chan struct{})}
	t.Cleanup(func() {
		cancel()
		s.in.Close()
		_ = s.cmd.Wait()
		<-s.done
	})
	var out, far *os.File
	var err error
	if terminal {
		out, far, err = openTerminal(33, 101)
		s.in, s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = out, far, far, far
		s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	} else {
		var in *os.File
		if in, s.in, err = os.Pipe(); err == nil {
			out, far, err = os.Pipe()
		}
		s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = in, far, far
		defer in.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	go s.read(out)
	if err := m.start(s.cmd); err != nil {
		t.Fatal(err)
	}
	return s
}

// read collects output until it ends; a terminal reports that as an error.
func (s *session) read(out *os.File) {
	defer close(s.done)
	defer out.Close()
	r := bufio.NewReader(out)
	buf := make([]byte, 4096)
	for {
		n, err := r.Read(buf)
		s.mu.Lock()
		s.text.Write(buf[:n])
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (s *session) output() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// sees waits until the output has the text.
func (s *session) sees(t *testing.T, text string) {
	t.Helper()
	eventually(t, podPatience, func() error {
		if out := s.output(); !strings.Contains(out, text) {
			return fmt.Errorf("%q does not contain %q", out, text)
		}
		return nil
	})
}

func (s *session) types(t *testing.T, text string) {
	t.Helper()
	if _, err := s.in.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// exits waits for the end and returns the exit code.
func (s *session) exits(t *testing.T) int {
	t.Helper()
	select {
	case <-s.done:
	case <-time.After(podPatience):
		t.Fatalf("%s does not end; so far:\n%s", strings.Join(s.cmd.Args, " "), s.output())
	}
	_ = s.cmd.Wait()
	return s.cmd.ProcessState.ExitCode()
}

// interrupt is a person's Ctrl-C.
func (s *session) interrupt() { _ = s.cmd.Process.Signal(os.Interrupt) }

// openTerminal makes a pseudo terminal and returns both ends.
func openTerminal(rows, columns uint16) (near, far *os.File, err error) {
	if near, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		return nil, nil, err
	}
	fd := int(near.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, fmt.Errorf("unlock terminal: %w", err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return nil, nil, fmt.Errorf("number of terminal: %w", err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns}); err != nil {
		return nil, nil, fmt.Errorf("size of terminal: %w", err)
	}
	far, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	return near, far, err
}
