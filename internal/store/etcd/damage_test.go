package etcd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDamagedFilesAreToldOfWithWhatToDo instead of a stack trace, a wait for ever or an
// empty cluster.
func TestDamagedFilesAreToldOfWithWhatToDo(t *testing.T) {
	whole := t.TempDir()
	_, stop := func() (*Server, func()) {
		s, stop := run(t, Options{Dir: whole})
		for i := range 2100 { // beyond a snapshot
			write(t, s, fmt.Sprintf("/%d", i), "x")
		}
		return s, stop
	}()
	stop()
	overwrite := func(path string, at, n int64) error {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = f.WriteAt([]byte(strings.Repeat("?", int(n))), at)
		return err
	}
	for name, damage := range map[string]func(db, log string) error{
		"both heads of the database": func(db, _ string) error { return overwrite(db, 0, 8192) },
		"database cut off":           func(db, _ string) error { return os.Truncate(db, 5000) },
		"database of zeros":          func(db, _ string) error { return errors.Join(os.Truncate(db, 0), os.Truncate(db, 1<<20)) },
		"database gone":              func(db, _ string) error { return os.Remove(db) },
		"log gone":                   func(_, log string) error { return os.Remove(log) },
		"middle of the log": func(_, log string) error {
			at, err := record(log, 20_000)
			return errors.Join(err, overwrite(log, at+24, 512))
		},
		"length of an entry in the log": func(_, log string) error {
			at, err := record(log, 20_000)
			return errors.Join(err, overwrite(log, at, 8))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(whole)); err != nil {
				t.Fatal(err)
			}
			member := filepath.Join(dir, "etcd", "member")
			logs, err := filepath.Glob(filepath.Join(member, "wal", "*.wal"))
			if err != nil || len(logs) != 1 {
				t.Fatalf("got logs %v, %v; want one", logs, err)
			}
			if err := damage(filepath.Join(member, "snap", "db"), logs[0]); err != nil {
				t.Fatal(err)
			}
			s, err := New(Options{Dir: dir, Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			err = s.Run(t.Context())
			if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), member) || !strings.Contains(err.Error(), "put back a copy of the whole directory") {
				t.Errorf("got %v, want ErrDamaged with the file and what to do", err)
			}
		})
	}
}

// record is where the first record of a log at or after a place begins: each is
// its length, how much is added to it to make eight bytes whole, and that much.
func record(log string, from int64) (int64, error) {
	data, err := os.ReadFile(log)
	if err != nil {
		return 0, err
	}
	at := int64(0)
	for at < from {
		head := binary.LittleEndian.Uint64(data[at:])
		at += 8 + int64(head&(1<<56-1)) + int64(head>>56&7)
	}
	return at, nil
}
