package etcd

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kemudi/kemudi/internal/store"
)

func TestSnapshotIsReadAsItWas(t *testing.T) {
	dir := t.TempDir()
	s, stop := run(t, Options{Dir: dir, Name: "test"})
	write(t, s, "/registry/pods/b", "old")
	write(t, s, "/registry/pods/a", "one")
	write(t, s, "/registry/pods/gone", "x")
	write(t, s, "/registry/nodes/n", "node")
	rev := write(t, s, "/registry/pods/b", "new")
	if _, err := s.Txn(t.Context(), store.Txn{Ops: []store.Op{{Key: "/registry/pods/gone"}}}); err != nil {
		t.Fatal(err)
	}
	stop()
	file := filepath.Join(Options{Dir: dir}.member(), "snap", "db")
	if is, err := IsSnapshot(file); err != nil || !is {
		t.Errorf("%s: got %v, %v, want a snapshot", file, is, err)
	}
	list, err := ReadSnapshot(file, "/registry/pods/")
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, kv := range list {
		got += fmt.Sprintf("%s=%s ", kv.Key, kv.Value)
	}
	if want := "/registry/pods/a=one /registry/pods/b=new "; got != want || list[1].Rev != rev {
		t.Errorf("got %s with revision %d, want %s with revision %d", got, list[1].Rev, want, rev)
	}
}

func TestWhatIsNoSnapshotIsRefused(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("apiVersion: v1\n", 10)), 0o600); err != nil {
		t.Fatal(err)
	}
	if is, err := IsSnapshot(text); err != nil || is {
		t.Errorf("text: got %v, %v, want none", is, err)
	}
	if _, err := ReadSnapshot(text, ""); err == nil || !strings.HasPrefix(err.Error(), "read snapshot "+text+": ") {
		t.Errorf("text: got %v, want an error that names the file", err)
	}
	if _, err := IsSnapshot("/nowhere"); err == nil {
		t.Error("got no error of a file that is not there")
	}
}
