package e2e

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/test/wait"
)

// TestUpFailsClearly is a newcomer on a machine that is not as it should be: the
// error says what is wrong, and nothing runs afterwards.
func TestUpFailsClearly(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	small, sealed := filepath.Join(m.Dir, "small"), filepath.Join(m.Dir, "sealed")
	mount(t, small, 0, "size=8m")
	mount(t, sealed, unix.MS_RDONLY, "size=1m")
	noexec := filepath.Join(m.Dir, "noexec")
	mount(t, noexec, unix.MS_NOEXEC, "size=99m")
	l := listen(t, m, machineIP+":7443")
	broken := filepath.Join(m.Dir, "broken.yaml")
	if err := os.WriteFile(broken, []byte("secure-prot: 1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		data string
		args []string
		code int
		want []string
	}{
		{"port taken", m.DataDir, []string{"--", "--secure-port", "7443"}, 1, []string{"the server ended while starting", "address already in use; is another server running, or is --secure-port taken?"}},
		{"full disk", filepath.Join(small, "data"), nil, 1, []string{"no space left on device"}},
		{"disk that cannot be written", filepath.Join(sealed, "data"), nil, 1, []string{"read-only file system"}},
		{"disk that runs no programs", filepath.Join(noexec, "data"), nil, 1, []string{"(mounted noexec)", "--data-dir"}},
		{"name that no node can have", m.DataDir, []string{"--", "--node-name", "my_host"}, 1, []string{`a node cannot be called "my_host"`, "--node-name"}},
		{"wrong setting", m.DataDir, []string{"--config", broken}, 2, []string{`broken.yaml: unknown key "secure-prot"`}},
		{"wrong flag of the server", m.DataDir, []string{"--", "--secure-prot", "1"}, 2, []string{"flags of kemudi server: unknown flag: --secure-prot"}},
		{"address that the machine does not have", m.DataDir, []string{"--", "--bind-address", "192.0.2.1"}, 1, []string{"192.0.2.1:6443: bind: cannot assign requested address"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dirs := []string{"--data-dir", tc.data, "--run-dir", m.RunDir, "--kubeconfig", ""}
			ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
			defer cancel()
			o := m.run(ctx, nil, append(append([]string{m.bin, "up"}, dirs...), tc.args...)...)
			for _, want := range tc.want {
				if o.code != tc.code || !strings.Contains(o.stderr, want) {
					t.Errorf("got exit code %d:\n%s\nwant %d and %q", o.code, o.all(), tc.code, want)
				}
			}
			if o := m.run(ctx, nil, m.bin, "status", "--data-dir", tc.data, "--run-dir", m.RunDir); o.code != 3 || !strings.Contains(o.stdout, "no server is running") {
				t.Errorf("status afterwards: got %+v", o)
			}
		})
	}
	for _, dir := range []string{small, sealed, noexec} {
		o := m.run(t.Context(), nil, m.bin, "reset", "--data-dir", filepath.Join(dir, "data"), "--run-dir", m.RunDir+"x", "--kubeconfig", "")
		if o.code != 0 {
			t.Errorf("reset of %s: got %+v", dir, o)
		}
	}
	// What stood in the way is gone: it starts.
	l.Close()
	o := m.run(t.Context(), nil, m.bin, "up", "--data-dir", m.DataDir, "--run-dir", m.RunDir, "--kubeconfig", "", "--", "--secure-port", "7443", "--pod-logs-dir", m.LogsDir)
	if o.code != 0 {
		t.Errorf("up at last: got %+v", o)
	}
}

// TestInterruptedUpStopsWhatItStarted presses Ctrl-C at different moments of a
// start, and then lets one go through.
func TestInterruptedUpStopsWhatItStarted(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	dirs := []string{"--data-dir", m.DataDir, "--run-dir", m.RunDir}
	up := append(append([]string{m.bin, "up", "--kubeconfig", ""}, dirs...), "--", "--pod-logs-dir", m.LogsDir)
	for _, moment := range []string{"started the server (process ", "keys and certificates\n", "API server\n"} {
		wait.Until(t, func() error {
			s := m.begin(t, false, up...)
			s.sees(t, moment)
			s.interrupt()
			switch code := s.exits(t); {
			case code == 1 && strings.Contains(s.all(), "interrupted: the server was stopped again"):
				return nil
			case code == 0 || strings.Contains(s.all(), "interrupted: the server runs"): // it was faster than we are: once more
				if o := m.run(t.Context(), nil, append([]string{m.bin, "down"}, dirs...)...); o.code != 0 {
					t.Fatalf("down: got %+v", o)
				}
				return fmt.Errorf("it never was interrupted after %q", moment)
			default:
				t.Fatalf("interrupted after %q: got exit code %d:\n%s", moment, code, s.all())
			}
			return nil
		})
		if o := m.run(t.Context(), nil, append([]string{m.bin, "status"}, dirs...)...); o.code != 3 || !strings.Contains(o.stdout, "no server is running") {
			t.Errorf("status after %q: got %+v", moment, o)
		}
	}
	// Two at once: one starts it, the other waits for it.
	first, second := m.begin(t, false, up...), (*session)(nil)
	first.sees(t, "keys and certificates\n")
	second = m.begin(t, false, up...)
	for name, s := range map[string]*session{"first": first, "second": second} {
		if code := s.exits(t); code != 0 {
			t.Errorf("%s: exit code %d:\n%s", name, code, s.all())
		}
	}
	if !strings.Contains(second.output(), "the server runs already") {
		t.Errorf("second: got\n%s", second.output())
	}
}

// TestWhoIsNotRootCannotStartANode runs the program as nobody.
func TestWhoIsNotRootCannotStartANode(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	if err := os.Chmod(m.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if filepath.Dir(m.bin) == m.build.dir { // built here, out of others' sight
		if err := os.Chmod(m.build.dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	mine := filepath.Join(m.Dir, "mine")
	if err := os.Mkdir(mine, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(mine, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"up":                         {[]string{"up", "--kubeconfig", "", "--data-dir", m.DataDir, "--run-dir", m.RunDir}, "permission denied; this needs root: try sudo"},
		"server":                     {[]string{"server", "--data-dir", m.DataDir, "--run-dir", m.RunDir}, "this needs root: try sudo"},
		"server with directories":    {[]string{"server", "--data-dir", mine + "/data", "--run-dir", mine + "/run"}, "a node needs root; without one (--disable-agent), a server does not"},
		"images of nobody's cluster": {[]string{"image", "ls", "--data-dir", m.DataDir, "--run-dir", m.RunDir}, "is the server running?"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
		cmd := m.command(ctx, append([]string{m.bin}, tc.args...)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		var out strings.Builder
		cmd.Stderr = &out
		err := m.start(cmd)
		if err == nil {
			err = cmd.Wait()
		}
		cancel()
		if cmd.ProcessState.ExitCode() != 1 || !strings.Contains(out.String(), tc.want) {
			t.Errorf("%s: got %v\n%s\nwant exit code 1 and %q", name, err, out.String(), tc.want)
		}
	}
}

// mount mounts a small disk that is gone when the test ends.
func mount(t *testing.T, dir string, flags uintptr, options string) {
	t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", flags, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unmount(t, dir) })
}

// unmount unmounts what nobody needs any more. Others on this machine may be
// looking at it just now.
func unmount(t *testing.T, dir string) {
	t.Helper()
	if err := wait.Try(wait.Patience, func() error { return unix.Unmount(dir, 0) }); err != nil {
		t.Errorf("unmount: %v", err)
	}
}

// listen takes a port of the machine.
func listen(t *testing.T, m *machine, addr string) (l net.Listener) {
	t.Helper()
	err := m.host.Do(func() (err error) {
		l, err = net.Listen("tcp", addr)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}
