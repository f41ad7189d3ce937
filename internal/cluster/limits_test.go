package cluster

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestProcessDependsOnNoShell starts with few open files and a tight umask.
func TestProcessDependsOnNoShell(t *testing.T) {
	const child = "KEMUDI_TEST_SETTLE"
	if os.Getenv(child) == "" {
		cmd := exec.Command("sh", "-c", "ulimit -n 64; umask 077; exec "+os.Args[0]+" -test.run '^TestProcessDependsOnNoShell$'")
		cmd.Env = append(os.Environ(), child+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	err := settleProcess()
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	if mask := unix.Umask(0); mask != 0o022 {
		t.Errorf("umask: got %#o, want 022", mask)
	}
	switch {
	case errors.Is(err, syscall.EPERM) && strings.Contains(err.Error(), "ulimit -n"): // nobody who may
	case err != nil || files.Max < fewFiles || files.Cur < fewFiles:
		t.Errorf("open files: got %+v, %v, want more than 64", files, err)
	}
}

// TestHostNamesThatNoNodeCanHaveAreRefused at once: a node that cannot register
// would try for ever.
func TestHostNamesThatNoNodeCanHaveAreRefused(t *testing.T) {
	for name, ok := range map[string]bool{
		"m": true, "my.big.host": true, strings.Repeat("a", 63): true,
		"my_host": false, "host-": false, strings.Repeat("a", 64): false, "(none)": false,
	} {
		_, err := Options{NodeName: name}.withDefaults()
		if ok && err != nil || !ok && (err == nil || !strings.Contains(err.Error(), "--node-name")) {
			t.Errorf("%q: got %v, want it to be allowed: %t", name, err, ok)
		}
	}
}

// TestDirectoriesAreNamedAsTheKernelNamesThem or refused, where lists of mounts
// would take their path apart.
func TestDirectoriesAreNamedAsTheKernelNamesThem(t *testing.T) {
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("/srv", link); err != nil {
		t.Fatal(err)
	}
	o, err := Options{DataDir: link + "/my data", RunDir: "/run/x"}.withDefaults()
	if err != nil || o.DataDir != "/srv/my data" {
		t.Errorf("got %s, %v", o.DataDir, err)
	}
	for _, dir := range []string{"/srv/a:b", "/srv/a,b"} {
		if _, err := (Options{DataDir: dir}).withDefaults(); err == nil || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: got %v", dir, err)
		}
	}
}

// TestFailedStartSaysWhyAndNotWhatFollowed from it.
func TestFailedStartSaysWhyAndNotWhatFollowed(t *testing.T) {
	follows := func(ctx context.Context) error {
		<-ctx.Done()
		return errors.New("the socket is closed")
	}
	why := errors.New("the port is taken")
	f := newFloors(t.Context())
	f.top.Go("runtime", follows)
	if err := f.fail(why); err != why {
		t.Errorf("got %v, want %v", err, why)
	}
	f = newFloors(t.Context())
	f.plane.Go("store", func(context.Context) error { return why })
	f.top.Go("runtime", follows)
	<-f.top.Context().Done()
	if err := f.fail(errors.New("nobody answers")); err == nil || strings.Contains(err.Error(), "nobody answers") {
		t.Errorf("got %v, want what ended the server rather than what noticed it", err)
	}
}
