package takeover

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/store/etcd"
	"github.com/kemudi/kemudi/internal/task"
)

var quiet = slog.New(slog.DiscardHandler)

// running is an etcd of a directory, until stop is called.
func running(t *testing.T, dir string) (st *etcd.Server, stop func()) {
	t.Helper()
	st, err := etcd.New(etcd.Options{Dir: dir, Name: "old", Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	g := task.NewGroup(context.WithoutCancel(t.Context()))
	g.Go("etcd", st.Run)
	ended := false
	stop = func() {
		if ended {
			return
		}
		ended = true
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	select {
	case <-st.Ready():
	case <-g.Context().Done():
		t.Fatal(context.Cause(g.Context()))
	}
	return st, stop
}

// full is an etcd with keys that were written, written again, deleted, and have an end.
func full(t *testing.T, dir string) (st *etcd.Server, stop func()) {
	t.Helper()
	st, stop = running(t, dir)
	for i := range 50 {
		write(t, st, store.Op{Key: fmt.Sprintf("/registry/a/%02d", i%20), Value: []byte(fmt.Sprint(i))})
	}
	write(t, st, store.Op{Key: "/registry/a/00"}, store.Op{Key: "/registry/a/two", Value: []byte("2")}, store.Op{Key: "/other", Value: []byte{}})
	write(t, st, store.Op{Key: "/registry/events/e", Value: []byte("e"), TTL: time.Hour})
	write(t, st, store.Op{Key: "/registry/a/01"})
	return st, stop
}

func write(t *testing.T, st *etcd.Server, ops ...store.Op) {
	t.Helper()
	if r, err := st.Txn(t.Context(), store.Txn{Ops: ops}); err != nil || !r.OK {
		t.Fatalf("write: %v, %v", r, err)
	}
}

func all(t *testing.T, st *etcd.Server) map[string]store.KV {
	t.Helper()
	page, err := st.List(t.Context(), "/", store.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	list := map[string]store.KV{}
	for _, kv := range page.KVs {
		list[kv.Key] = kv
	}
	return list
}

// sums are those of all files below a directory.
func sums(t *testing.T, dir string) map[string]string {
	t.Helper()
	list := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		list[path] = fmt.Sprintf("%x", sha256.Sum256(data))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// take takes a store over into a directory.
func take(t *testing.T, path, dir string, change func(kv store.KV) ([]byte, error)) error {
	t.Helper()
	src, err := Open(t.Context(), Options{Path: path, Scratch: filepath.Join(t.TempDir(), "scratch"), Log: quiet})
	if err != nil {
		return err
	}
	return errors.Join(src.Write(t.Context(), dir, "new", change), src.Close())
}

func asItIs(store.KV) ([]byte, error) { return nil, nil }

// wantTaken expects a store with the keys and revisions that the old one had, which goes on
// above all that anybody has seen of that.
func wantTaken(t *testing.T, dir string, want map[string]store.KV, rev int64) {
	t.Helper()
	st, stop := running(t, dir)
	defer stop()
	got := all(t, st)
	if len(got) != len(want) || len(want) < 20 {
		t.Errorf("got %d keys, want %d", len(got), len(want))
	}
	for key, kv := range want {
		if g := got[key]; g.Rev != kv.Rev || string(g.Value) != string(kv.Value) {
			t.Errorf("%s: got %q at %d, want %q at %d", key, g.Value, g.Rev, kv.Value, kv.Rev)
		}
	}
	if at, err := st.Rev(t.Context()); err != nil || at != rev+leap {
		t.Errorf("got revision %d, %v, want %d", at, err, rev+leap)
	}
	for _, seen := range []int64{rev - 1, rev, rev + 5} { // by who followed the old one
		if err := st.Watch(t.Context(), "/", seen, func([]store.Change, int64) error { return errors.New("it goes on") }); !errors.Is(err, store.ErrCompacted) {
			t.Errorf("a watch from revision %d: got %v, want that it has to list anew", seen, err)
		}
	}
	write(t, st, store.Op{Key: "/registry/a/02", Value: []byte("new")})
	if kv, _, err := st.Get(t.Context(), "/registry/a/02"); err != nil || kv.Rev != rev+leap+1 {
		t.Errorf("got the next write at %d, %v, want %d", kv.Rev, err, rev+leap+1)
	}
}

func TestDirectoryOfAnEtcdIsTakenOver(t *testing.T) {
	t.Parallel()
	dir, to := t.TempDir(), t.TempDir()
	st, stop := full(t, dir)
	want := all(t, st)
	rev, err := st.Rev(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := take(t, dir, to, asItIs); err == nil || !strings.Contains(err.Error(), "is in use: stop the etcd") {
		t.Errorf("while it runs: got %v", err)
	}
	stop()
	before := sums(t, dir)
	for _, path := range []string{dir, filepath.Join(dir, "etcd"), filepath.Join(dir, "etcd/member")} {
		to := t.TempDir()
		if err := take(t, path, to, asItIs); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		wantTaken(t, to, want, rev)
	}
	if after := sums(t, dir); !maps.Equal(before, after) {
		t.Errorf("the old store was changed: got %v, want %v", after, before)
	}
}

// TestWritesInTheLogAloneComeAlong: the database of an etcd that was killed is behind its log.
func TestWritesInTheLogAloneComeAlong(t *testing.T) {
	t.Parallel()
	dir, killed := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	st, _ := full(t, dir)
	want := all(t, st)
	rev, err := st.Rev(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(killed, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	n, members, err := late(filepath.Join(killed, "etcd", "member"))
	if err != nil || n == 0 || members > 1 {
		t.Fatalf("got %d writes in the log alone, of %d members, %v: the test shows nothing", n, members, err)
	}
	to := t.TempDir()
	if err := take(t, killed, to, asItIs); err != nil {
		t.Fatal(err)
	}
	wantTaken(t, to, want, rev)
}

func TestSnapshotIsTakenOver(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	st, stop := full(t, dir)
	want := all(t, st)
	rev, err := st.Rev(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	stop()
	db, err := os.ReadFile(filepath.Join(dir, "etcd/member/snap/db"))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(db)
	file := func(name string, data ...[]byte) string {
		path := filepath.Join(dir, name)
		var whole []byte
		for _, d := range data {
			whole = append(whole, d...)
		}
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, path := range []string{file("with-sum", db, sum[:]), file("copied", db)} {
		before, to := sums(t, dir), t.TempDir()
		if err := take(t, path, to, asItIs); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		wantTaken(t, to, want, rev)
		if after := sums(t, dir); !maps.Equal(before, after) {
			t.Errorf("%s was changed", path)
		}
	}
	wrong := sha256.Sum256(nil)
	for path, says := range map[string]string{
		file("wrong-sum", db, wrong[:]):        "is damaged: its sum is not the one that is behind it",
		file("short", db[:3*os.Getpagesize()]): "is not the store of an etcd, or is damaged",
		file("text", []byte("apiVersion")):     "is not the store of an etcd, or is damaged",
		t.TempDir():                            "there is no member/snap/db in it",
		filepath.Join(dir, "nothing"):          "no such file or directory",
	} {
		to := t.TempDir()
		if err := take(t, path, to, asItIs); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v, want %q", path, err, says)
		}
		if left, err := os.ReadDir(to); err != nil || len(left) > 0 {
			t.Errorf("%s: %d things were made, %v", path, len(left), err)
		}
	}
}

func TestValuesMayBeChangedOnTheWay(t *testing.T) {
	t.Parallel()
	dir, to := t.TempDir(), t.TempDir()
	st, stop := full(t, dir)
	want := all(t, st)
	rev, err := st.Rev(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	stop()
	changed := want["/registry/a/two"]
	changed.Value = []byte("another")
	want[changed.Key] = changed
	if err := take(t, dir, to, func(kv store.KV) ([]byte, error) {
		if kv.Key == changed.Key {
			return changed.Value, nil
		}
		return nil, nil
	}); err != nil {
		t.Fatal(err)
	}
	wantTaken(t, to, want, rev)
}
