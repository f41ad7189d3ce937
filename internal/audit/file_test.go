package audit

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/test/wait"
)

func newTelling() *telling {
	return &telling{metrics: newMetrics(nil), log: slog.New(slog.DiscardHandler)}
}

// lostBy is how many events a backend has lost.
func (t *telling) lostBy(plugin string) (n int) {
	reg := prometheus.NewRegistry()
	reg.MustRegister(t.metrics.errors)
	families, err := reg.Gather()
	if err != nil {
		panic(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if m.GetLabel()[0].GetValue() == plugin {
				n = int(m.GetCounter().GetValue())
			}
		}
	}
	return n
}

func open(t *testing.T, o *FileOptions) *file {
	t.Helper()
	f, err := openFile(o, newTelling())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.close)
	return f
}

func names(t *testing.T, dir string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

func TestFileIsTurnedOverBeforeItIsTooLarge(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "for", "it")
	path := filepath.Join(dir, "audit.log")
	f := open(t, &FileOptions{Path: path, MaxSize: 1})
	half := append(bytes.Repeat([]byte("x"), 600<<10), '\n')
	for range 3 {
		if err := f.write(half); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.write(append(slices.Concat(half, half, half), '\n')); err != nil { // more than a file should have
		t.Fatal(err)
	}
	got := names(t, dir)
	if len(got) != 4 || got[3] != "audit.log" {
		t.Fatalf("got %v, want audit.log and three before it", got)
	}
	for _, name := range got {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s: got mode %v, want 0600", name, info.Mode())
		}
		if _, err := time.Parse("audit-2006-01-02T15-04-05.000.log", name); err != nil && name != "audit.log" {
			t.Errorf("%s is not named by its time: %v", name, err)
		}
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory: got %v, %v, want mode 0700", info.Mode(), err)
	}
}

func TestFileGoesOnWhereItWas(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	for text, want := range map[string]string{
		"":                                     "new\n",
		"a\nb\n":                               "a\nb\nnew\n",
		"a\nb\n{\"half\": \"of":                "a\nb\nnew\n",
		"a\n" + strings.Repeat("long", 50<<10): "a\nnew\n",
		"no line of ours":                      "no line of oursnew\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := open(t, &FileOptions{Path: path}).write([]byte("new\n")); err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(path); string(got) != want {
			t.Errorf("%.20q: got %.40q, want %q", text, got, want)
		}
	}
}

func TestOldFilesAreCompressedAndRemoved(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.log")
	now := time.Date(2026, 1, 10, 0, 0, 0, 0, time.UTC)
	for i := range 6 { // a day between two
		if err := os.WriteFile(oldName(path, now.Add(-time.Duration(i)*24*time.Hour)), []byte("line\n"), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	// What nobody turned over stays, what was compressed counts, and half of that is done again.
	for _, name := range []string{"audit.log", "audit-notes.log", "other-2026-01-01T00-00-00.000.log", "audit-2026-01-05T00-00-00.000.log.gz", "audit-2026-01-10T00-00-00.000.log.gz"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	k := keeping{days: 3, files: 3, compress: true}
	if err := k.tidy(t.Context(), path, now); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"audit-2026-01-08T00-00-00.000.log.gz", "audit-2026-01-09T00-00-00.000.log.gz", "audit-2026-01-10T00-00-00.000.log.gz",
		"audit-notes.log", "audit.log", "other-2026-01-01T00-00-00.000.log",
	}
	if got := names(t, dir); !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	packed, err := os.Open(filepath.Join(dir, "audit-2026-01-10T00-00-00.000.log.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	z, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(z); err != nil || string(got) != "line\n" {
		t.Errorf("unpacked: got %q, %v", got, err)
	}
	k = keeping{days: 2}
	if err := k.tidy(t.Context(), path, now.Add(24*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if got := names(t, dir); !slices.Equal(got, want[1:]) {
		t.Errorf("by age alone: got %v, want %v", got, want[1:])
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	k = keeping{compress: true}
	if err := k.tidy(over, path, now); err != nil {
		t.Errorf("when the server ends: got %v", err)
	}
}

func TestOldFilesAreTidiedUpWhileTheFileIsWritten(t *testing.T) {
	dir := t.TempDir()
	f := open(t, &FileOptions{Path: filepath.Join(dir, "audit.log"), MaxSize: 1, MaxBackups: 1, Compress: true})
	g := task.NewGroup(t.Context())
	g.Go("file", f.run)
	line := append(bytes.Repeat([]byte("x"), 700<<10), '\n')
	for range 4 {
		if err := f.write(line); err != nil {
			t.Fatal(err)
		}
	}
	wait.Until(t, func() error {
		if got := names(t, dir); len(got) != 2 || !strings.HasSuffix(got[0], ".log.gz") || got[1] != "audit.log" {
			return fmt.Errorf("got %v, want the file and one that is compressed", got)
		}
		return nil
	})
	g.Cancel(context.Canceled)
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := f.write(line); !errors.Is(err, errClosed) {
		t.Errorf("after the end: got %v, want %v", err, errClosed)
	}
}

func TestDiskThatIsFullLosesEventsAndSaysSo(t *testing.T) {
	told := newTelling()
	f, err := openFile(&FileOptions{Path: "/dev/full", MaxSize: 1, MaxBackups: 1}, told)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	s := &fileSink{out: f, told: told}
	if s.process([]*auditv1.Event{{}, {}}) || told.lostBy("log") != 2 {
		t.Errorf("got %d lost, want 2, and a failure", told.lostBy("log"))
	}
	if err := f.write([]byte("a\n")); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v, want no space", err)
	}
	if !(lenient{s}).process([]*auditv1.Event{{}}) || told.lostBy("log") != 3 {
		t.Errorf("blocking: got %d lost, want 3, and no failure", told.lostBy("log"))
	}
}

// asWriter, if set, makes the test binary a process that writes lines until it is killed.
const asWriter = "KEMUDI_AUDIT_WRITER"

func TestMain(m *testing.M) {
	if path := os.Getenv(asWriter); path != "" {
		writeUntilKilled(path)
	}
	os.Exit(m.Run())
}

func writeUntilKilled(path string) {
	f, err := openFile(&FileOptions{Path: path, MaxSize: 1}, newTelling())
	if err != nil {
		os.Exit(1)
	}
	s := &fileSink{out: f, told: newTelling()}
	e := sample()
	e.RequestURI = strings.Repeat("/long", 20<<10)
	for s.process([]*auditv1.Event{e}) {
		_, _ = os.Stdout.WriteString("one\n")
	}
	os.Exit(1)
}

func TestLinesAreWholeAfterAKill(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.log")
	written := 0
	for round := range 5 {
		c := exec.CommandContext(t.Context(), os.Args[0])
		c.Env = append(os.Environ(), asWriter+"="+path)
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		n := 20 + 7*round
		if _, err := io.ReadFull(out, make([]byte, n*len("one\n"))); err != nil {
			t.Fatal(err)
		}
		written += n
		_ = c.Process.Kill()
		_ = c.Wait() // it was killed
	}
	open(t, &FileOptions{Path: path, MaxSize: 1}) // as the next start does
	whole := 0
	for _, name := range names(t, dir) {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(data) {
			var e auditv1.Event
			if err := json.Unmarshal(line, &e); err != nil || line[len(line)-1] != '\n' {
				t.Fatalf("%s: %v in a line of %d bytes", name, err, len(line))
			}
			whole++
		}
	}
	if whole < written {
		t.Errorf("got %d events, want all %d that were acknowledged", whole, written)
	}
}
