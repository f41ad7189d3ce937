package podnet

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/internal/podnet/nettest"
	"github.com/kemudi/kemudi/internal/podnet/nft"
)

// reset undoes the node's pod network and returns what was removed.
func (n *node) reset() (removed []string) {
	n.t.Helper()
	n.Must(func() (err error) {
		removed, err = Reset(n.t.Context(), n.o)
		return err
	})
	return removed
}

// TestClustersOfOneMachineAreResetApart has two clusters in network namespaces
// of their own, whose CNI library keeps its notes in one directory.
func TestClustersOfOneMachineAreResetApart(t *testing.T) {
	t.Parallel()
	a, b := newNode(t, nettest.New(t, "a"), 1), newNode(t, nettest.New(t, "b"), 2)
	b.o.CNICacheDir = a.o.CNICacheDir
	if a.o.networkName() == b.o.networkName() {
		t.Fatalf("both networks are called %s", a.o.networkName())
	}
	same := a.o
	same.DataDir += "/"
	if same.networkName() != a.o.networkName() {
		t.Error("the name of a network is not always the same")
	}
	results := filepath.Join(a.o.CNICacheDir, "results")
	if err := os.MkdirAll(results, 0o755); err != nil {
		t.Fatal(err)
	}
	note := func(n *node) string { return filepath.Join(results, n.o.networkName()+"-abc-eth0") }
	for _, n := range []*node{a, b} {
		conf, err := os.ReadFile(n.o.confFile())
		if err != nil || !strings.Contains(string(conf), `"name": "`+n.o.networkName()+`"`) {
			t.Errorf("CNI configuration: got %s, %v, want the name %s in it", conf, err, n.o.networkName())
		}
		if err := os.WriteFile(note(n), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	a.reset()
	if _, err := os.Stat(note(a)); !os.IsNotExist(err) {
		t.Errorf("the note of the cluster that was reset: got %v, want it gone", err)
	}
	if _, err := os.Stat(note(b)); err != nil {
		t.Errorf("the note of the other cluster: %v", err)
	}
}

// TestSecondClusterInANetworkNamespaceIsRefused starts another cluster where
// there is one, and resets it.
func TestSecondClusterInANetworkNamespaceIsRefused(t *testing.T) {
	t.Parallel()
	h := nettest.New(t, "n1")
	first := newNode(t, h, 1)
	dir := t.TempDir()
	o := first.o
	o.PodCIDRs = mustPrefixes("10.244.9.0/24")
	o.CNIConfDir, o.DataDir = filepath.Join(dir, "cni"), filepath.Join(dir, "data")
	before := hostState(t, h)
	second := &node{Host: h, t: t, o: o}
	ensure := func() error {
		var failed error
		h.Must(func() error {
			n, err := New(o)
			if err != nil {
				return err
			}
			defer n.Close()
			failed = n.Ensure(t.Context())
			return nil
		})
		return failed
	}
	if err := ensure(); err == nil || !strings.Contains(err.Error(), "bridge kemudi0 belongs to another cluster of this machine, which is kept in "+first.o.DataDir) {
		t.Errorf("second cluster: got %v, want it refused", err)
	}
	if removed := second.reset(); slices.ContainsFunc(removed, func(s string) bool { return !strings.HasPrefix(s, "directory") }) {
		t.Errorf("reset of the second cluster removed %q", removed)
	}
	if after := hostState(t, h); !slices.Equal(after, before) {
		t.Errorf("host after the second cluster:\n%s\nwant as before:\n%s", strings.Join(after, "\n"), strings.Join(before, "\n"))
	}
	var owner string
	h.Must(func() (err error) {
		owner, err = Owner(o)
		return err
	})
	if owner != first.o.DataDir {
		t.Errorf("owner: got %q, want %q", owner, first.o.DataDir)
	}
	first.ensure() // its own bridge is no hindrance
	// Who has thrown the first one's directory away need not know of bridges.
	if err := os.RemoveAll(first.o.DataDir); err != nil {
		t.Fatal(err)
	}
	if err := ensure(); err != nil {
		t.Errorf("after the first cluster's directory has gone: %v", err)
	}
	second.reset()
	h.Must(func() error {
		conn, err := nft.Open()
		if err != nil {
			return err
		}
		defer conn.Close()
		if there, err := conn.Has(table); err != nil || there {
			t.Errorf("table after reset: got %v, %v, want none", there, err)
		}
		return nil
	})
}

// TestConfigurationAppearsWhole watches its directory as containerd does, which
// reads all files there when one is written, renamed away or removed, but not
// when one is moved in.
func TestConfigurationAppearsWhole(t *testing.T) {
	o := Options{CNIConfDir: filepath.Join(t.TempDir(), "cni/net.d"), DataDir: t.TempDir(), PodCIDRs: mustPrefixes("10.244.1.0/24")}
	if err := os.MkdirAll(o.CNIConfDir, 0o700); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if _, err := unix.InotifyAddWatch(fd, o.CNIConfDir, unix.IN_ALL_EVENTS); err != nil {
		t.Fatal(err)
	}
	if err := writeConf(&o, 1500); err != nil {
		t.Fatal(err)
	}
	var seen uint32
	buf := make([]byte, 4096)
	n, err := unix.Read(fd, buf)
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at < n; {
		e := (*unix.InotifyEvent)(unsafe.Pointer(&buf[at]))
		seen |= e.Mask
		at += unix.SizeofInotifyEvent + int(e.Len)
	}
	if seen&(unix.IN_MODIFY|unix.IN_DELETE) != 0 {
		t.Error("something was written or removed in the watched directory")
	}
	if seen&unix.IN_MOVED_FROM == 0 {
		t.Error("nothing happened that containerd takes notice of")
	}
	entries, err := os.ReadDir(o.CNIConfDir)
	if err != nil || len(entries) != 1 || entries[0].Name() != "10-kemudi.conflist" {
		t.Errorf("directory: got %v, %v, want only the configuration", entries, err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(o.CNIConfDir), ".*")); len(left) > 0 {
		t.Errorf("left beside it: %v", left)
	}
}
