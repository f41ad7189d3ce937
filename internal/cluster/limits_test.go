package cluster

import (
	"context"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/internal/audit"
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
	err := settleProcess(200 << 20)
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	if mask := unix.Umask(0); mask != 0o022 {
		t.Errorf("umask: got %#o, want 022", mask)
	}
	if got := debug.SetMemoryLimit(-1); got > 200<<20 {
		t.Errorf("memory: got a limit of %d bytes, want what was asked for at the most", got)
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
		_, err := Options{Machine: Machine{NodeName: name}}.withDefaults()
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
	o, err := Options{Machine: Machine{DataDir: link + "/my data", RunDir: "/run/x"}}.withDefaults()
	if err != nil || o.DataDir != "/srv/my data" {
		t.Errorf("got %s, %v", o.DataDir, err)
	}
	for _, dir := range []string{"/srv/a:b", "/srv/a,b"} {
		if _, err := (Options{Machine: Machine{DataDir: dir}}).withDefaults(); err == nil || !strings.Contains(err.Error(), dir) {
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
	sg := newStages(t.Context())
	sg.last.Go("runtime", follows)
	if err := sg.fail(why); err != why {
		t.Errorf("got %v, want %v", err, why)
	}
	sg = newStages(t.Context())
	sg.plane.Go("store", func(context.Context) error { return why })
	sg.last.Go("runtime", follows)
	<-sg.last.Context().Done()
	if err := sg.fail(errors.New("nobody answers")); err == nil || strings.Contains(err.Error(), "nobody answers") {
		t.Errorf("got %v, want what ended the server rather than what noticed it", err)
	}
}

func TestMemoryIsLimitedByTheMachineAndItsCgroups(t *testing.T) {
	const gib = 1 << 30
	for name, tc := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"nothing is known": {nil, math.MaxInt64 / 100 * 75},
		"the machine's":    {map[string]string{"proc/meminfo": "MemFree: 1 kB\nMemTotal:  2000000 kB\n"}, 1_500_000_000},
		"a cgroup of version 1 or one above": {map[string]string{
			"proc/meminfo": "MemTotal: 24000000 kB\n", "proc/self/cgroup": "5:cpu,cpuacct:/\n4:memory:/a/b\n0::/x\n",
			"sys/fs/cgroup/memory/a/b/memory.stat": "cache 5\nhierarchical_memory_limit 1073741824\n",
		}, gib / 100 * 75},
		"no limit in version 1": {map[string]string{
			"proc/meminfo": "MemTotal: 1000000 kB\n", "proc/self/cgroup": "4:memory:/a\n",
			"sys/fs/cgroup/memory/a/memory.stat": "hierarchical_memory_limit 9223372036854771712\n",
		}, 750_000_000},
		"the tightest cgroup of version 2": {map[string]string{
			"proc/meminfo": "MemTotal: 24000000 kB\n", "proc/self/cgroup": "0::/a/b/c\n",
			"sys/fs/cgroup/a/b/c/memory.max": "max\n", "sys/fs/cgroup/a/b/memory.max": "1073741824\n", "sys/fs/cgroup/a/memory.max": "2147483648\n",
		}, gib / 100 * 75},
		"a container's own": {map[string]string{
			"proc/meminfo": "MemTotal: 24000000 kB\n", "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "1073741824\n",
		}, gib / 100 * 75},
	} {
		root := t.TempDir()
		for path, text := range tc.files {
			path = filepath.Join(root, path)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := memoryLimit(root); got != tc.want {
			t.Errorf("%s: got %d, want %d", name, got, tc.want)
		}
	}
}

func TestSwitchesAndLimitsThatCannotBeAreRefusedByTheFlag(t *testing.T) {
	for want, a := range map[string]API{
		"--memory-limit must be 80 MiB at least":                            {MemoryLimit: 1 << 20},
		"--runtime-config: unknown api groups bacth":                        {RuntimeConfig: map[string]bool{"bacth/v1": false, "batch/v1": false}},
		"--runtime-config: api/legcy: there are api/all, api/alpha,":        {RuntimeConfig: map[string]bool{"api/legcy": false}},
		"--runtime-config: batch: want group/version or group/version/reso": {RuntimeConfig: map[string]bool{"batch": false}},
	} {
		a.Audit = audit.Defaults()
		if err := a.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	good := API{MemoryLimit: 400 << 20, Audit: audit.Defaults(), RuntimeConfig: map[string]bool{"v1": true, "v1/pods": true, "api/legacy": false, "extensions/v1beta1": false, "settings.k8s.io/v1alpha1": true}}
	if err := good.check(); err != nil {
		t.Error(err)
	}
}
