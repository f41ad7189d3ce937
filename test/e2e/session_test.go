package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/test/wait"
)

// session is a program that a person talks to: its output is read as it comes.
type session struct {
	cmd  *exec.Cmd
	in   *os.File
	done chan struct{} // closed when the output has ended
	mu   struct {
		sync.Mutex
		stdout, stderr strings.Builder // a terminal shows both as one
		more           chan struct{}   // closed when there is more
	}
}

// begin starts a program on the machine. With a terminal, it has one of 33 rows
// and 101 columns; otherwise standard input is a pipe.
func (m *machine) begin(t *testing.T, terminal bool, args ...string) *session {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &session{cmd: m.command(ctx, args...), done: make(chan struct{})}
	s.mu.more = make(chan struct{})
	t.Cleanup(func() {
		cancel()
		s.in.Close()
		_ = s.cmd.Wait()
		<-s.done
	})
	near, far, err := s.connect(terminal)
	if err != nil {
		t.Fatal(err)
	}
	var readers sync.WaitGroup
	for i, out := range near {
		readers.Go(func() { s.read(out, []*strings.Builder{&s.mu.stdout, &s.mu.stderr}[i]) })
	}
	go func() { readers.Wait(); close(s.done) }()
	err = m.start(s.cmd)
	for _, f := range far {
		f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// connect gives the program its input and output: near is what it writes to us,
// far are its own ends.
func (s *session) connect(terminal bool) (near, far []*os.File, err error) {
	if terminal {
		out, tty, err := openTerminal(33, 101)
		if err != nil {
			return nil, nil, err
		}
		s.in, s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = out, tty, tty, tty
		s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		return []*os.File{out}, []*os.File{tty}, nil
	}
	var in, out, outFar, errs, errsFar *os.File
	for _, pipe := range []struct{ r, w **os.File }{{&in, &s.in}, {&out, &outFar}, {&errs, &errsFar}} {
		if *pipe.r, *pipe.w, err = os.Pipe(); err != nil {
			return nil, nil, err
		}
	}
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = in, outFar, errsFar
	return []*os.File{out, errs}, []*os.File{in, outFar, errsFar}, nil
}

// read collects output until it ends; a terminal reports that as an error.
func (s *session) read(out *os.File, into *strings.Builder) {
	defer out.Close()
	buf := make([]byte, 4096)
	for {
		n, err := out.Read(buf)
		s.mu.Lock()
		into.Write(buf[:n])
		close(s.mu.more)
		s.mu.more = make(chan struct{})
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// output is what it wrote to standard output.
func (s *session) output() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.stdout.String()
}

// all is everything it said.
func (s *session) all() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.stdout.String() + s.mu.stderr.String()
}

// sees waits until the output has the text.
func (s *session) sees(t *testing.T, text string) {
	t.Helper()
	s.finds(t, regexp.MustCompile(regexp.QuoteMeta(text)))
}

// finds waits until the output matches, and returns the match with its groups.
func (s *session) finds(t *testing.T, what *regexp.Regexp) []string {
	t.Helper()
	over := time.After(wait.Patience)
	for ended := false; ; {
		s.mu.Lock()
		out, more := s.mu.stdout.String()+s.mu.stderr.String(), s.mu.more
		s.mu.Unlock()
		if found := what.FindStringSubmatch(out); found != nil {
			return found
		}
		if ended {
			t.Fatalf("%s: %q does not contain %s", strings.Join(s.cmd.Args, " "), out, what)
		}
		select {
		case <-more:
		case <-s.done:
			ended = true
		case <-over:
			ended = true
		}
	}
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
	case <-time.After(wait.Patience):
		t.Fatalf("%s does not end; so far:\n%s", strings.Join(s.cmd.Args, " "), s.all())
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
