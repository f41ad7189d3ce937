package e2e

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// hostState is what a cluster changes on a host, as lines of text.
type hostState map[string]bool

// look describes everything on the host that belongs to this machine.
func (m *machine) look(t *testing.T) hostState {
	t.Helper()
	s := hostState{}
	for name, f := range map[string]func(hostState) error{
		"mounts": m.lookMounts, "processes": m.lookProcesses, "network": m.lookNetwork, "cgroups": m.lookCgroups, "files": m.lookFiles,
	} {
		if err := f(s); err != nil {
			t.Fatalf("look at %s: %v", name, err)
		}
	}
	return s
}

// compare fails the test if after is not as before.
func (s hostState) compare(t *testing.T, after hostState) {
	t.Helper()
	for _, line := range slices.Sorted(maps.Keys(after)) {
		if !s[line] && !s.loaded(line) {
			t.Errorf("left on the host: %s", line)
		}
	}
	for _, line := range slices.Sorted(maps.Keys(s)) {
		if !after[line] {
			t.Errorf("gone from the host: %s", line)
		}
	}
}

// loaded says whether a line is about a setting that there was not before: it
// came with a module of the kernel, which stays loaded.
func (s hostState) loaded(line string) bool {
	name, _, set := strings.Cut(line, "=")
	if !set || !strings.HasPrefix(line, "sysctl ") {
		return false
	}
	for before := range s {
		if strings.HasPrefix(before, name+"=") {
			return false
		}
	}
	return true
}

// ours says whether a text names one of the machine's directories.
func (p *place) ours(text string) bool {
	return strings.Contains(text, p.Dir+"/") || strings.Contains(text, p.RunDir)
}

func (m *machine) lookMounts(s hostState) error {
	mounts, err := mountinfo.GetMounts(nil)
	if err != nil {
		return err
	}
	for _, mount := range mounts {
		if m.ours(mount.Mountpoint) || m.ours(mount.Root) || m.ours(mount.VFSOptions) {
			s["mount "+mount.Mountpoint] = true
		}
	}
	return nil
}

func (m *machine) lookProcesses(s hostState) error {
	list, err := m.processes()
	for pid, line := range list {
		s[fmt.Sprintf("process %d: %.200q", pid, line)] = true
	}
	return err
}

// processes finds the command lines of processes that run a program of the machine or were told of it, live in its
// network namespace, have files of it for a root, or are in its cgroups. Who has
// ended and only waits for its parent to notice does not count.
func (p *place) processes() (map[int]string, error) {
	netns, err := os.Stat(p.Netns)
	if err != nil {
		return nil, err
	}
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	list := map[int]string{}
	for _, dir := range dirs {
		cmdline, _ := os.ReadFile(dir + "/cmdline")
		pid, err := strconv.Atoi(filepath.Base(dir))
		if len(cmdline) == 0 || err != nil || pid == os.Getpid() {
			continue
		}
		exe, _ := os.Readlink(dir + "/exe")
		cgroup, _ := os.ReadFile(dir + "/cgroup")
		mounts, _ := os.ReadFile(dir + "/mountinfo")
		root := bytes.SplitN(mounts, []byte("\n"), 2)[0]
		ns, err := os.Stat(dir + "/ns/net")
		inside := slices.ContainsFunc([]string{"\n", "/", "-"}, func(end string) bool { return bytes.Contains(cgroup, []byte(p.cgroup()+end)) })
		if p.ours(exe) || p.ours(string(cmdline)) || p.ours(string(root)) || inside || err == nil && os.SameFile(ns, netns) {
			list[pid] = string(cmdline)
		}
	}
	return list, nil
}

// cgroup is the one that the machine's pods live in. Those of machines in the machine begin so.
func (p *place) cgroup() string { return "/kemudi-" + filepath.Base(p.RunDir) }

func (m *machine) lookCgroups(s hostState) error {
	dirs, err := filepath.Glob("/sys/fs/cgroup/*")
	if err != nil {
		return err
	}
	for _, dir := range append(dirs, "/sys/fs/cgroup") {
		groups, err := filepath.Glob(dir + m.cgroup() + "*")
		if err != nil {
			return err
		}
		for _, group := range groups {
			s["cgroup "+group] = true
		}
	}
	return nil
}

// lookNetwork lists links, addresses, routes, rules, nft tables and what the
// kernel was told to do with packets.
func (m *machine) lookNetwork(s hostState) error {
	nl := m.host.Netlink()
	links, err := nl.LinkList()
	if err != nil {
		return err
	}
	for _, link := range links {
		s["link "+link.Attrs().Name] = true
	}
	addrs, err := nl.AddrList(nil, unix.AF_UNSPEC)
	if err != nil {
		return err
	}
	for _, addr := range addrs {
		if addr.IP.IsLinkLocalUnicast() {
			continue // the kernel gives one to every link, in its own time
		}
		s["address "+addr.IPNet.String()] = true
	}
	routes, err := nl.RouteList(nil, unix.AF_UNSPEC)
	if err != nil {
		return err
	}
	for _, route := range routes {
		if route.Dst != nil && (route.Dst.IP.IsLinkLocalUnicast() || route.Dst.IP.IsMulticast()) {
			continue // likewise
		}
		s["route "+route.String()] = true
	}
	rules, err := nl.RuleList(unix.AF_UNSPEC)
	if err != nil {
		return err
	}
	for _, rule := range rules {
		s["rule "+rule.String()] = true
	}
	inside, err := filepath.Glob("/run/netns/" + filepath.Base(m.RunDir) + "-*") // of machines in the machine
	if err != nil {
		return err
	}
	for _, name := range inside {
		s["network namespace "+name] = true
	}
	return m.host.Do(func() error {
		for _, name := range []string{
			"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding", "net/ipv4/conf/all/route_localnet", "net/ipv4/conf/all/rp_filter", "net/ipv4/conf/default/rp_filter",
			"net/bridge/bridge-nf-call-iptables",
		} {
			if value, err := os.ReadFile("/proc/sys/" + name); err == nil {
				s["sysctl "+name+"="+strings.TrimSpace(string(value))] = true
			}
		}
		tables, err := (&nftables.Conn{}).ListTables()
		for _, table := range tables {
			s[fmt.Sprintf("nft table %d %s", table.Family, table.Name)] = true
		}
		return err
	})
}

// lookFiles lists the machine's directories, and files elsewhere that speak of
// them. The log of the test itself stays.
func (m *machine) lookFiles(s hostState) error {
	for _, dir := range []string{m.DataDir, m.RunDir, m.LogsDir} {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err == nil && path != m.LogsDir {
				s["file "+path] = true
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	for _, dir := range []string{"/var/lib/cni", "/var/lib/kubelet", "/var/log/containers", "/etc/cni"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return nil //nolint:nilerr // others may clean up beside us
			}
			if target, err := os.Readlink(path); err == nil && m.ours(target) {
				s["link "+path] = true
			}
			if text, err := os.ReadFile(path); err == nil && m.ours(string(text)) {
				s["file "+path] = true
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
