package etcd

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/store/storetest"
	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

// run runs a server until the test ends or stop is called.
func run(t testing.TB, o Options) (s *Server, stop func()) {
	t.Helper()
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := s.Run(ctx); err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, ErrRemoved) {
			t.Errorf("Run: %v", err)
		}
	}()
	stop = func() {
		cancel()
		<-ended
	}
	t.Cleanup(stop)
	select {
	case <-s.Ready():
	case <-ended:
		t.Fatal("Run ended before the server was ready")
	}
	return s, stop
}

// write writes a key, again if the leader of several members has changed meanwhile.
func write(t testing.TB, s *Server, key, value string) int64 {
	t.Helper()
	for {
		r, err := s.Txn(t.Context(), store.Txn{Ops: []store.Op{{Key: key, Value: []byte(value)}}})
		switch {
		case err == nil:
			return r.Rev
		case !errors.Is(err, store.ErrUnknown) && !errors.Is(err, store.ErrNoMajority):
			t.Fatalf("write %s: %v", key, err)
		}
	}
}

// eventually waits until ok, which has no event to wait for.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(wait.Patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: not within %s", what, wait.Patience)
		}
	}
}

func TestStorePassesTheSuite(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store {
		s, _ := run(t, Options{Dir: t.TempDir(), NoSync: true})
		return s
	})
}

func TestStateSurvivesRestarts(t *testing.T) {
	dir := t.TempDir()
	for i := range 5 {
		s, stop := run(t, Options{Dir: dir})
		p, err := s.List(t.Context(), "/", store.ListOptions{})
		if err != nil || len(p.KVs) != i {
			t.Errorf("start %d: got %d keys, %v; want %d", i, len(p.KVs), err, i)
		}
		write(t, s, fmt.Sprintf("/%d", i), "x")
		stop()
		if _, _, err := s.Get(t.Context(), "/0"); !errors.Is(err, ErrStopped) {
			t.Errorf("read from a stopped store: got %v, want ErrStopped", err)
		}
	}
}

// TestStartsAgainAndAgainWithALogOfAnyLength begins where a log has no snapshot
// yet, and goes on past several.
func TestStartsAgainAndAgainWithALogOfAnyLength(t *testing.T) {
	dir, n := t.TempDir(), 0
	for range 20 {
		s, stop := run(t, Options{Dir: dir, NoSync: true})
		if kv, _, err := s.Get(t.Context(), "/a"); err != nil || n > 0 && string(kv.Value) != strconv.Itoa(n-1) {
			t.Errorf("got %q, %v; want %d", kv.Value, err, n-1)
		}
		for range 333 {
			write(t, s, "/a", strconv.Itoa(n))
			n++
		}
		stop()
	}
}

func TestSecondServerOnADirectoryIsRefusedAtOnce(t *testing.T) {
	dir := t.TempDir()
	_, stop := run(t, Options{Dir: dir, NoSync: true})
	_, err := New(Options{Dir: dir, Log: slog.Default()})
	if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), strconv.Itoa(os.Getpid())) {
		t.Errorf("got %v, want ErrInUse with the directory and the holder's process", err)
	}
	stop()
	run(t, Options{Dir: dir, NoSync: true})
}

// childEnv names the directory in which a child process of the test below writes.
const childEnv = "KEMUDI_TEST_ETCD_CHILD"

func TestChildWritesUntilItIsKilled(t *testing.T) {
	dir := os.Getenv(childEnv)
	if dir == "" {
		t.Skip("only as the child of TestAcknowledgedWritesSurviveAKill")
	}
	s, _ := run(t, Options{Dir: dir})
	for i := 0; ; i++ {
		write(t, s, fmt.Sprintf("/registry/%d", i), strings.Repeat("x", 1000))
		fmt.Printf("\nacknowledged %d\n", i)
	}
}

func TestAcknowledgedWritesSurviveAKill(t *testing.T) {
	trace.Proves(t, "API-004")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	last := -1
	for range 3 {
		child := exec.CommandContext(t.Context(), exe, "-test.run=^TestChildWritesUntilItIsKilled$")
		child.Env = append(os.Environ(), childEnv+"="+dir, "KEMUDI_TRACE_DIR=")
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		killed := false
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if n, err := fmt.Sscanf(lines.Text(), "acknowledged %d", &last); n == 1 && err == nil && last >= 300 && !killed {
				killed = true
				if err := child.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := child.Wait(); err == nil || !killed {
			t.Fatalf("child ended by itself: %v", err)
		}
	}
	s, _ := run(t, Options{Dir: dir})
	for i := range last + 1 {
		if kv, _, err := s.Get(t.Context(), fmt.Sprintf("/registry/%d", i)); err != nil || len(kv.Value) != 1000 {
			t.Fatalf("key %d of %d acknowledged: got %d bytes, %v", i, last+1, len(kv.Value), err)
		}
	}
}

func TestOldHistoryIsCompactedByItself(t *testing.T) {
	s, _ := run(t, Options{Dir: t.TempDir(), NoSync: true, History: 100 * time.Millisecond})
	first := write(t, s, "/a", "1")
	write(t, s, "/a", "2")
	eventually(t, "compaction of the first revision", func() bool {
		write(t, s, "/a", "3")
		_, err := s.List(t.Context(), "/", store.ListOptions{Rev: first})
		return errors.Is(err, store.ErrCompacted)
	})
}

func TestAnIdleStoreWritesNothing(t *testing.T) {
	s, _ := run(t, Options{Dir: t.TempDir(), History: 300 * time.Millisecond})
	write(t, s, "/a", "1")
	written := func() string {
		out := ""
		for _, pattern := range []string{"member/snap/*", "member/wal/*.wal"} {
			files, err := filepath.Glob(filepath.Join(s.o.dir(), pattern))
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range files {
				if info, err := os.Stat(f); err == nil {
					out += fmt.Sprintln(f, info.Size(), info.ModTime())
				}
			}
		}
		return out
	}
	// What follows the start (the cluster's version, the last commit of the
	// database, one compaction) comes to rest, and then stays as it is.
	last, still := "", 0
	eventually(t, "rest", func() bool {
		now := written()
		if now == last {
			still++
		} else {
			last, still = now, 0
		}
		return still >= 250
	})
}

func TestLogTellsTheOperatorNothingInNormalUse(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo}))
	dir := t.TempDir()
	for range 2 {
		s, stop := run(t, Options{Dir: dir, Log: log, NoSync: true})
		write(t, s, "/a", "1")
		stop()
	}
	if out.Len() > 0 {
		t.Errorf("logged at level info:\n%s", out.String())
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for name, o := range map[string]Options{
		"no directory":              {Log: slog.Default()},
		"no log":                    {Dir: t.TempDir()},
		"client port without files": {Dir: t.TempDir(), Log: slog.Default(), ListenClient: "https://127.0.0.1:2379"},
	} {
		if _, err := New(o); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}
