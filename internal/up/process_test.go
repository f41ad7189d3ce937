package up

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// holderEnv makes the test program a process that holds a run directory.
const holderEnv = "KEMUDI_UP_TEST_HOLD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(holderEnv); dir != "" {
		lock, err := Claim(dir)
		if err != nil {
			panic(err)
		}
		defer lock.Close()
		os.Stdout.WriteString("held\n")
		_, _ = io.ReadAll(os.Stdin) // until the parent goes, or a signal comes
		return
	}
	os.Exit(m.Run())
}

// hold runs a process that has claimed the run directory.
func hold(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holderEnv+"="+dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	line := make([]byte, 5)
	if _, err := io.ReadFull(out, line); err != nil || string(line) != "held\n" {
		t.Fatalf("the process says %q, %v", line, err)
	}
	return cmd
}

func TestOneServerHoldsARunDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	if pid, err := Running(dir); pid != 0 || err != nil {
		t.Errorf("running before: got %d, %v", pid, err)
	}
	other := hold(t, dir)
	pid := other.Process.Pid
	if got, err := Running(dir); got != pid || err != nil {
		t.Errorf("running: got %d, %v; want %d", got, err, pid)
	}
	_, err := Claim(dir)
	if !errors.Is(err, ErrRunning) || !strings.Contains(err.Error(), "process "+strconv.Itoa(pid)) || !strings.Contains(err.Error(), dir) {
		t.Errorf("claim of another's directory: got %v", err)
	}
	if stopped, err := Down(t.Context(), dir, dir); !stopped || err != nil {
		t.Errorf("down: got %v, %v", stopped, err)
	}
	if stopped, err := Down(t.Context(), dir, dir); stopped || err != nil {
		t.Errorf("down again: got %v, %v", stopped, err)
	}
}

// A crash leaves the file behind, and its number may be another process's by now.
func TestAStaleProcessFileIsNobodys(t *testing.T) {
	dir := t.TempDir()
	other := hold(t, dir)
	if err := other.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = other.Wait()
	for _, content := range []string{strconv.Itoa(other.Process.Pid) + "\n", "1\n", "", "garbage"} {
		if err := os.WriteFile(PIDFile(dir), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if pid, err := Running(dir); pid != 0 || err != nil {
			t.Errorf("file with %q: got %d, %v; want nobody", content, pid, err)
		}
		if stopped, err := Down(t.Context(), dir, dir); stopped || err != nil {
			t.Errorf("down with %q: got %v, %v; want nothing to stop", content, stopped, err)
		}
		lock, err := Claim(dir)
		if err != nil {
			t.Fatalf("claim with %q: %v", content, err)
		}
		if data, _ := os.ReadFile(PIDFile(dir)); string(data) != strconv.Itoa(os.Getpid())+"\n" {
			t.Errorf("claimed file: got %q", data)
		}
		lock.Close()
	}
}

// Those who look whether a server runs hold its lock for a moment, and a server
// writes its number after it has taken the lock.
func TestAServerStartsWhileSomebodyLooksWhetherItRuns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	done := make(chan struct{})
	var looking sync.WaitGroup
	for range 2 {
		looking.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if pid, err := Running(dir); err != nil || pid != 0 && pid != os.Getpid() {
					t.Errorf("running: got %d, %v", pid, err)
				}
				<-time.After(time.Millisecond)
			}
		})
	}
	for i := range 50 {
		lock, err := Claim(dir)
		if err != nil {
			t.Fatalf("claim %d: %v", i, err)
		}
		lock.Close()
	}
	close(done)
	looking.Wait()
}

func TestServersDoNotShareADataDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	lock, err := ClaimData(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ClaimData(dir); !errors.Is(err, ErrRunning) || !strings.Contains(err.Error(), "data directory "+dir) {
		t.Errorf("got %v, want a refusal that names the directory", err)
	}
	lock.Close()
	if lock, err = ClaimData(dir); err != nil {
		t.Errorf("after its end: %v", err)
	} else {
		lock.Close()
	}
}

func TestFollowsStepsUntilTheLast(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	n := &Notifier{}
	n.mu.w, n.mu.last = w, time.Now()
	n.Done("store", false)
	n.Done("node is ready", true)
	n.Done("too late", false) // nobody listens any more
	var got []string
	if err := follow(r, func(s Step) { got = append(got, s.Name) }); err != nil || strings.Join(got, ", ") != "store, node is ready" {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestFollowingFailsWhenTheServerEnds(t *testing.T) {
	line, err := json.Marshal(Step{Name: "store"})
	if err != nil {
		t.Fatal(err)
	}
	if err := follow(bytes.NewReader(append(line, '\n')), func(Step) {}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("steps without a last one: got %v, want %v", err, io.ErrUnexpectedEOF)
	}
	if err := follow(strings.NewReader("panic: oh\n"), func(Step) {}); err == nil || !strings.Contains(err.Error(), "panic: oh") {
		t.Errorf("no step: got %v, want an error that shows it", err)
	}
}

func TestNobodyListensToANilNotifier(t *testing.T) {
	t.Setenv(NotifyEnv, "")
	n, err := NewNotifier()
	if n != nil || err != nil {
		t.Errorf("got %v, %v", n, err)
	}
	n.Done("step", true)
	t.Setenv(NotifyEnv, "three")
	if _, err := NewNotifier(); err == nil || !strings.Contains(err.Error(), `KEMUDI_NOTIFY_FD="three" is not a file descriptor`) {
		t.Errorf("got %v", err)
	}
}
