package backup

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// text is a store.
type text struct {
	io.Reader
	size int64
}

func (t text) Size() int64                        { return t.size }
func (t text) Close() error                       { return nil }
func (t text) WriteTo(w io.Writer) (int64, error) { return io.Copy(w, t.Reader) }

// bed is a server with a store, in a bubble of time that begins at midnight, 1 January 2000 UTC.
type bed struct {
	*testing.T
	dir   string
	store func(ctx context.Context) (Snapshot, error)
	reg   *prometheus.Registry
	m     *Maker
}

func newBed(t *testing.T) *bed {
	keys := t.TempDir()
	if err := os.WriteFile(filepath.Join(keys, "ca.key"), []byte("a key"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := &bed{T: t, reg: prometheus.NewRegistry(), dir: filepath.Join(t.TempDir(), "made"), store: func(context.Context) (Snapshot, error) { return text{strings.NewReader("all of it"), 9}, nil }}
	m, err := NewMaker(MakerOptions{
		Options: Options{Dir: b.dir, Schedule: "TZ=UTC 0 */12 * * *", Keep: 3}, Server: "n1", Keys: keys,
		Snapshot: func(ctx context.Context) (Snapshot, error) { return b.store(ctx) },
		Logger:   slog.New(slog.DiscardHandler), Registry: b.reg,
	})
	if err != nil {
		t.Fatal(err)
	}
	b.m = m
	return b
}

// run runs the maker for a time, and ends it.
func (b *bed) run(d time.Duration) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), d)
	defer cancel()
	if err := b.m.Run(ctx); err != nil {
		b.Fatal(err)
	}
}

// has fails unless these are the files in the directory.
func (b *bed) has(want ...string) {
	b.Helper()
	files, err := os.ReadDir(b.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		b.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, f.Name())
	}
	if !slices.Equal(names, want) {
		b.Errorf("got %q, want %q", names, want)
	}
}

// metric is what a metric says.
func (b *bed) metric(name string) float64 {
	b.Helper()
	all, err := b.reg.Gather()
	if err != nil {
		b.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() == name {
			return f.Metric[0].GetGauge().GetValue() + f.Metric[0].GetCounter().GetValue()
		}
	}
	b.Fatalf("there is no metric %s", name)
	return 0
}

func (b *bed) failures() float64 { return b.metric("kemudi_backup_failures_total") }

func (b *bed) put(names ...string) {
	b.Helper()
	if err := os.MkdirAll(b.dir, 0o700); err != nil {
		b.Fatal(err)
	}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(b.dir, name), []byte("there"), 0o600); err != nil {
			b.Fatal(err)
		}
	}
}

// inTime runs a test in a bubble of time.
func inTime(t *testing.T, test func(b *bed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(newBed(t)) })
}

func TestBackupsAreMadeByTheirSchedule(t *testing.T) {
	t.Parallel()
	inTime(t, func(b *bed) {
		time.Sleep(90 * time.Minute)
		b.run(time.Second)
		b.has("kemudi-n1-20000101T013000Z.tgz") // the first at once
		b.run(48 * time.Hour)
		b.has("kemudi-n1-20000102T000000Z.tgz", "kemudi-n1-20000102T120000Z.tgz", "kemudi-n1-20000103T000000Z.tgz")
	})
}

func TestABackupThatWasMissedIsMadeUpFor(t *testing.T) {
	t.Parallel()
	inTime(t, func(b *bed) {
		b.run(time.Second)
		time.Sleep(11 * time.Hour)
		b.run(time.Second)
		b.has("kemudi-n1-20000101T000000Z.tgz")
		time.Sleep(2 * time.Hour)
		b.run(time.Second)
		b.has("kemudi-n1-20000101T000000Z.tgz", "kemudi-n1-20000101T130002Z.tgz")
		if at := b.metric("kemudi_backup_last_timestamp_seconds"); at != float64(time.Date(2000, 1, 1, 13, 0, 2, 0, time.UTC).Unix()) {
			t.Errorf("got %v as the time of the newest", at)
		}
	})
}

func TestWhatIsNotThisServersStays(t *testing.T) {
	t.Parallel()
	inTime(t, func(b *bed) {
		others := []string{"kemudi-n1-b-19990101T000000Z.tgz", "kemudi-n1-notes.tgz", "kemudi-n2-19990101T000000Z.tgz", ".kemudi-n1-b-19990101T000000Z.tgz.77", "notes"}
		b.put(others...)
		b.put("kemudi-n1-19990101T000000Z.tgz", "kemudi-n1-19990102T000000Z.tgz", "kemudi-n1-19990103T000000Z.tgz", ".kemudi-n1-19990104T000000Z.tgz.123")
		b.run(time.Second)
		want := append(others, "kemudi-n1-19990102T000000Z.tgz", "kemudi-n1-19990103T000000Z.tgz", "kemudi-n1-20000101T000000Z.tgz")
		slices.Sort(want)
		b.has(want...)
	})
}

func TestABackupThatFailsIsTriedAgain(t *testing.T) {
	t.Parallel()
	inTime(t, func(b *bed) {
		good := b.store
		for name, bad := range map[string]func(context.Context) (Snapshot, error){
			"no store":     func(context.Context) (Snapshot, error) { return nil, errors.New("gone") },
			"half a store": func(context.Context) (Snapshot, error) { return text{strings.NewReader("all"), 9}, nil },
			"no room":      func(context.Context) (Snapshot, error) { return text{nil, math.MaxInt64}, nil },
			"silent store": func(ctx context.Context) (Snapshot, error) { <-ctx.Done(); return nil, context.Cause(ctx) },
		} {
			before := b.failures()
			b.store = bad
			b.run(2*time.Hour + 5*time.Minute)
			if n := b.failures() - before; n != 3 {
				t.Errorf("%s: got %v attempts in two hours, want 3", name, n)
			}
			b.has()
		}
		b.store = good
		b.run(time.Second)
		b.has("kemudi-n1-20000101T082000Z.tgz")
	})
}

func TestAServerThatEndsDoesNotWaitForItsBackup(t *testing.T) {
	t.Parallel()
	inTime(t, func(b *bed) {
		b.store = func(ctx context.Context) (Snapshot, error) { return text{slow{}, 1 << 20}, nil }
		b.run(time.Second)
		b.has()
		if n := b.failures(); n != 0 {
			t.Errorf("got %v failures, want none", n)
		}
	})
}

// slow takes two seconds for each piece.
type slow struct{}

func (slow) Read(p []byte) (int, error) {
	time.Sleep(2 * time.Second)
	return len(p), nil
}

func TestABackupHasStoreAndKeys(t *testing.T) {
	t.Parallel()
	inTime(t, func(b *bed) {
		b.run(time.Second)
		f, err := os.Open(filepath.Join(b.dir, "kemudi-n1-20000101T000000Z.tgz"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if info, err := f.Stat(); err != nil || info.Mode() != 0o600 {
			t.Errorf("got mode %v, %v, want one for the owner alone", info.Mode(), err)
		}
		z, err := gzip.NewReader(f)
		if err != nil {
			t.Fatal(err)
		}
		a := tar.NewReader(z)
		for name, want := range map[string]string{StoreName: "all of it", KeysName + "/ca.key": "a key"} {
			h, err := a.Next()
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(a); err != nil || string(got) != want || h.Name != name {
				t.Errorf("got %s: %q, %v, want %s: %q", h.Name, got, err, name, want)
			}
		}
	})
}

func TestOptionsThatMakeNoSense(t *testing.T) {
	t.Parallel()
	for o, want := range map[Options]string{
		{}:                             "",
		Defaults():                     "",
		{Schedule: "daily"}:            "--backup-schedule",
		{Schedule: "0 0 30 2 *"}:       "no such day",
		{Schedule: "@daily", Keep: -1}: "--backup-keep -1",
	} {
		if err := o.Check(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want %q", o, err, want)
		}
	}
}
