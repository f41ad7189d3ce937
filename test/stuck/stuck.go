// Package stuck shows what a process does that a test has started and waits for in vain. It is
// for tests only, whose processes are written in Go: at SIGQUIT they tell what each of their
// goroutines does, and end.
package stuck

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/test/wait"
)

const (
	// margin is how long before the end of a package's time its processes are asked: the test
	// itself is told of by package testing.
	margin = 30 * time.Second
	// patience is how long a process has to tell.
	patience = 10 * time.Second
	// most is how much of the end of its log is shown.
	most = 8000
)

// Guard has a process explained that still runs when the package's time is about to be over.
// It has been started with a file as its standard error.
func Guard(t *testing.T, cmd *exec.Cmd, log string) {
	t.Helper()
	over, limited := t.Deadline()
	if !limited {
		return
	}
	var done sync.WaitGroup
	done.Add(1)
	timer := time.AfterFunc(time.Until(over)-margin, func() {
		defer done.Done()
		Explain(t, cmd, log)
	})
	t.Cleanup(func() {
		if !timer.Stop() {
			done.Wait()
		}
	})
}

// Explain ends a process that runs, and shows the end of its log and its goroutines. Of one that has
// ended it shows the end of the log.
func Explain(t testing.TB, cmd *exec.Cmd, log string) {
	t.Helper()
	begun, err := os.ReadFile(log)
	if err != nil {
		t.Logf("log of process %d: %v", cmd.Process.Pid, err)
		return
	}
	t.Logf("process %d, the end of its log:\n%s", cmd.Process.Pid, begun[max(0, len(begun)-most):])
	if err := cmd.Process.Signal(syscall.SIGQUIT); errors.Is(err, os.ErrProcessDone) {
		return
	} else if err != nil {
		t.Logf("ask process %d for its goroutines: %v", cmd.Process.Pid, err)
		return
	}
	if err := wait.Try(patience, func() error { return ended(cmd.Process.Pid) }); err != nil {
		t.Logf("process %d does not tell of its goroutines: %v", cmd.Process.Pid, err)
	}
	if all, err := os.ReadFile(log); err == nil {
		t.Logf("process %d, what it does:\n%s", cmd.Process.Pid, bytes.TrimPrefix(all, begun))
	}
}

// ended is an error as long as a child of this process runs; whoever has started it still learns how
// it has ended.
func ended(pid int) error {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil)
	if err == nil && info.Signo == 0 {
		return errors.New("it goes on")
	}
	if err != nil && !errors.Is(err, unix.ECHILD) { // whoever has waited for it knows
		return err
	}
	return nil
}
