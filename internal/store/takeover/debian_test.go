package takeover

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/test/port"
	"github.com/kemudi/kemudi/test/wait"
)

// TestEtcdOfDebianIsTakenOver, which is older than ours by several versions: while it runs by a
// snapshot, and after it has ended by its directory, unless it was killed.
func TestEtcdOfDebianIsTakenOver(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("etcd")
	ctl, err2 := exec.LookPath("etcdctl")
	if err := errors.Join(err, err2); err != nil {
		t.Skipf("apt-get install etcd-server etcd-client: %v", err)
	}
	for _, end := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(end.String(), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			client, peer := "http://"+port.Address(t), "http://"+port.Address(t)
			cmd := exec.Command(program, "--data-dir", dir, "--listen-client-urls", client, "--advertise-client-urls", client,
				"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
			call := func(stdin string, args ...string) string {
				t.Helper()
				c := exec.Command(ctl, append([]string{"--endpoints", client}, args...)...)
				c.Env, c.Stdin = append(os.Environ(), "ETCDCTL_API=3"), strings.NewReader(stdin)
				out, err := c.CombinedOutput()
				if err != nil {
					t.Fatalf("etcdctl %v: %v\n%s", args, err, out)
				}
				return string(out)
			}
			wait.Until(t, func() error {
				conn, err := net.Dial("tcp", strings.TrimPrefix(client, "http://"))
				if err != nil {
					return err
				}
				return conn.Close()
			})
			for i := range 30 {
				call(fmt.Sprintf("\nput /registry/a/%02d v%d\nput /registry/b/%02d v%d\n\n\n", i, i, i%10, i), "txn")
			}
			call("", "del", "/registry/a/29")
			want := map[string]store.KV{}
			for i := range 29 {
				kv := store.KV{Key: fmt.Sprintf("/registry/a/%02d", i), Value: []byte(fmt.Sprintf("v%d", i)), Rev: int64(2 + i)}
				want[kv.Key] = kv
			}
			for i := 20; i < 30; i++ {
				kv := store.KV{Key: fmt.Sprintf("/registry/b/%02d", i%10), Value: []byte(fmt.Sprintf("v%d", i)), Rev: int64(2 + i)}
				want[kv.Key] = kv
			}
			const rev = 32
			if err := take(t, dir, t.TempDir(), asItIs); err == nil || !strings.Contains(err.Error(), "is in use: stop the etcd") {
				t.Errorf("while it runs: got %v", err)
			}
			snapshot, to := filepath.Join(t.TempDir(), "snapshot.db"), t.TempDir()
			call("", "snapshot", "save", snapshot)
			if err := take(t, snapshot, to, asItIs); err != nil {
				t.Fatal(err)
			}
			wantTaken(t, to, want, rev)

			if err := cmd.Process.Signal(end); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // it says by whom it was ended
			late, _, err := late(filepath.Join(dir, "member"))
			if err != nil {
				t.Fatal(err)
			}
			to = t.TempDir()
			err = take(t, dir, to, asItIs)
			switch {
			case late > 0 && err != nil: // of such an old one only what is in its database is known
				if !strings.Contains(err.Error(), "did not end in order") || !strings.Contains(err.Error(), "etcdctl snapshot save") || end == syscall.SIGTERM {
					t.Errorf("got %v", err)
				}
			case err != nil:
				t.Error(err)
			default:
				wantTaken(t, to, want, rev)
			}
		})
	}
}
