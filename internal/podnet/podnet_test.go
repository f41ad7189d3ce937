package podnet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/vishvananda/netlink"

	"github.com/kemudi/kemudi/internal/podnet/nettest"
	"github.com/kemudi/kemudi/internal/podnet/nft"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/trace"
)

func mustPrefixes(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// node is a machine with a pod network, and what it takes to add pods to it.
type node struct {
	*nettest.Host
	t   *testing.T
	o   Options
	net *Network
}

// newNode makes a node of number i at 192.168.1.i, which must be cabled as eth0 by the caller.
func newNode(t *testing.T, h *nettest.Host, i int) *node {
	t.Helper()
	return newNodeWith(t, h, Options{
		PodCIDRs:     mustPrefixes(fmt.Sprintf("10.244.%d.0/24", i), fmt.Sprintf("fd00:244:0:%d::/64", i)),
		ClusterCIDRs: mustPrefixes("10.244.0.0/16", "fd00:244::/48"),
		ServiceCIDRs: mustPrefixes("10.96.0.0/12", "fd00:96::/112"),
	})
}

// newNodeWith makes a node with a pod network, in directories of its own.
func newNodeWith(t *testing.T, h *nettest.Host, o Options) *node {
	t.Helper()
	dir := t.TempDir()
	o.CNIConfDir, o.DataDir, o.CNICacheDir = filepath.Join(dir, "cni"), filepath.Join(dir, "data"), filepath.Join(dir, "cache")
	n := &node{Host: h, t: t, o: o}
	n.ensure()
	return n
}

func (n *node) ensure() {
	n.t.Helper()
	n.Must(func() (err error) {
		if n.net == nil {
			if n.net, err = New(n.o); err != nil {
				return err
			}
			n.t.Cleanup(n.net.Close)
		}
		return n.net.Ensure(n.t.Context())
	})
}

// plugins unpacks the CNI plugins that travel inside the program, or skips the test. All programs are
// packed as one, in the order of their manifest.
func plugins(t *testing.T) string {
	t.Helper()
	embedded := filepath.Join("../container/embedded", runtime.GOARCH)
	packed, err := os.Open(filepath.Join(embedded, "programs.zst"))
	if _, moved := os.Stat(embedded); errors.Is(err, fs.ErrNotExist) && moved == nil {
		t.Skipf("the CNI plugins have not been built: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	manifest, err := os.ReadFile(filepath.Join(embedded, "manifest"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := zstd.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	dir, missing := t.TempDir(), []string{"bridge", "host-local"}
	for line := range strings.Lines(string(manifest)) {
		f := strings.Fields(line) // hash, size, name and package of a program
		if len(f) != 4 || f[3] != "programs" || len(missing) == 0 {
			continue
		}
		size, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		program := make([]byte, size)
		if _, err := io.ReadFull(r, program); err != nil {
			t.Fatalf("unpack %s: %v", f[2], err)
		}
		if !slices.Contains(missing, f[2]) {
			continue
		}
		missing = slices.DeleteFunc(missing, func(name string) bool { return name == f[2] })
		if err := os.WriteFile(filepath.Join(dir, f[2]), program, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if len(missing) > 0 {
		t.Fatalf("%q are not among the programs that have been built", missing)
	}
	return dir
}

// cni runs the network's plugin for a pod as a container runtime does.
func (n *node) cni(bin, command string, pod *nettest.Host) ([]byte, error) {
	var list struct {
		CNIVersion, Name string
		Plugins          []map[string]any
	}
	data, err := os.ReadFile(n.o.confFile())
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, err
	}
	conf := list.Plugins[0]
	conf["cniVersion"], conf["name"] = list.CNIVersion, list.Name
	input, err := json.Marshal(conf)
	if err != nil {
		return nil, err
	}
	var out []byte
	err = n.Do(func() error {
		cmd := exec.Command(filepath.Join(bin, conf["type"].(string)))
		cmd.Env = append(os.Environ(), "CNI_COMMAND="+command, "CNI_CONTAINERID="+pod.Name, "CNI_NETNS="+pod.Path(), "CNI_IFNAME=eth0", "CNI_PATH="+bin)
		cmd.Stdin = strings.NewReader(string(input))
		var err error
		if out, err = cmd.Output(); err != nil {
			return fmt.Errorf("%s: %w: %s", command, err, out)
		}
		return nil
	})
	return out, err
}

// attach adds a pod to the network as the CNI library does, and returns its addresses.
func (n *node) attach(bin string, pod *nettest.Host) (ips []netip.Addr) {
	n.t.Helper()
	out, err := n.cni(bin, "ADD", pod)
	if err != nil {
		n.t.Fatal(err)
	}
	noted := filepath.Join(n.o.CNICacheDir, "results", n.o.networkName()+"-"+pod.Name+"-eth0")
	if err := os.MkdirAll(filepath.Dir(noted), 0o755); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(noted, fmt.Appendf(nil, `{"kind":"cniCacheV1","result":%s}`, out), 0o644); err != nil {
		n.t.Fatal(err)
	}
	var result struct {
		IPs []struct{ Address netip.Prefix }
	}
	if err := json.Unmarshal(out, &result); err != nil {
		n.t.Fatalf("decode %s: %v", out, err)
	}
	for _, ip := range result.IPs {
		ips = append(ips, ip.Address.Addr())
	}
	return ips
}

// wire is three machines on one wire.
func wire(t *testing.T) (h1, h2, out *nettest.Host) {
	t.Helper()
	var sw *nettest.Host
	sw, h1, h2, out = nettest.New(t, "switch"), nettest.New(t, "n1"), nettest.New(t, "n2"), nettest.New(t, "out")
	for i, h := range []*nettest.Host{h1, h2, out} {
		nettest.Link(sw, fmt.Sprintf("p%d", i), h, "eth0")
		h.Addr("eth0", fmt.Sprintf("192.168.1.%d/24", i+1))
		h.Addr("eth0", fmt.Sprintf("fd00:1::%d/64", i+1))
	}
	sw.Bridge("br0", "p0", "p1", "p2")
	return h1, h2, out
}

// twoNodes are two nodes and a machine beyond them on one wire.
func twoNodes(t *testing.T) (n1, n2 *node, outside *nettest.Host) {
	t.Helper()
	h1, h2, out := wire(t)
	return newNode(t, h1, 1), newNode(t, h2, 2), out
}

func (n *node) peer(i int) Peer {
	return Peer{
		PodCIDRs: n.o.PodCIDRs,
		Addrs:    []netip.Addr{netip.MustParseAddr(fmt.Sprintf("192.168.1.%d", i)), netip.MustParseAddr(fmt.Sprintf("fd00:1::%d", i))},
	}
}

// ask asks a server at "tcp address" or "udp address", and checks who answers
// and, unless client is empty, from where the question seemed to come.
func ask(from *nettest.Host, at, name, client string) error {
	network, addr, _ := strings.Cut(at, " ")
	gotName, gotClient, err := from.Ask(network, addr)
	if err != nil || gotName != name || client != "" && gotClient != client {
		return fmt.Errorf("%s asks %s: got %q seeing %q, %v, want %q seeing %q", from.Name, at, gotName, gotClient, err, name, client)
	}
	return nil
}

func TestPodsReachEachOtherAndTheWorld(t *testing.T) {
	t.Parallel()
	bin := plugins(t)
	n1, n2, outside := twoNodes(t)
	for _, err := range []error{
		n1.net.Routes.Update(t.Context(), "n2", n2.peer(2)),
		n2.net.Routes.Update(t.Context(), "n1", n1.peer(1)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	a, b, c := nettest.New(t, "a"), nettest.New(t, "b"), nettest.New(t, "c")
	ipA, ipB, ipC := n1.attach(bin, a), n1.attach(bin, b), n2.attach(bin, c)
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	trace.Proves(t, "DUAL-002")
	for _, ips := range [][]netip.Addr{ipA, ipB, ipC} {
		if len(ips) != 2 || !ips[0].Is4() || !ips[1].Is6() {
			t.Fatalf("a pod got %v, want an address of each family", ips)
		}
	}
	for i := range 2 { // both families
		addr := func(ip netip.Addr) string { return netip.AddrPortFrom(ip, 8080).String() }
		for name, h := range map[string]*nettest.Host{"a": a, "b": b, "c": c} {
			h.Serve(name, "tcp", addr(map[string][]netip.Addr{"a": ipA, "b": ipB, "c": ipC}[name][i]))
		}
		trace.Proves(t, "CONN-002", "CONN-005", "CONN-006")
		check(ask(a, "tcp "+addr(ipB[i]), "b", ipA[i].String()))
		check(ask(a, "tcp "+addr(ipC[i]), "c", ipA[i].String()))
		check(ask(c, "tcp "+addr(ipA[i]), "a", ipC[i].String()))
		trace.Proves(t, "CONN-006")
		check(ask(n1.Host, "tcp "+addr(ipA[i]), "a", ""))
		check(ask(n1.Host, "tcp "+addr(ipC[i]), "c", ""))
		check(ask(c, "tcp "+n1.Serve("n1", "tcp", netip.AddrPortFrom(n1.peer(1).Addrs[i], 0).String()), "n1", n2.peer(2).Addrs[i].String()))
		// What leaves the cluster has the node's address.
		world := outside.Serve("world", "udp", netip.AddrPortFrom(n1.peer(3).Addrs[i], 0).String())
		trace.Proves(t, "DUAL-004", "DUAL-021", "DUALT-001/egress", "DUALT-009")
		check(ask(a, "udp "+world, "world", n1.peer(1).Addrs[i].String()))
	}
	if _, err := n1.cni(bin, "DEL", a); err != nil {
		t.Error(err)
	}
}

// TestPodsMayHaveRoutableAddresses of others than private networks, and reach each other all the same.
func TestPodsMayHaveRoutableAddresses(t *testing.T) {
	t.Parallel()
	bin := plugins(t)
	h1, h2, _ := wire(t)
	var nodes [2]*node
	for i, h := range []*nettest.Host{h1, h2} {
		nodes[i] = newNodeWith(t, h, Options{
			PodCIDRs:     mustPrefixes(fmt.Sprintf("10.244.%d.0/24", i+1), fmt.Sprintf("2001:db8:0:%d::/64", i+1)),
			ClusterCIDRs: mustPrefixes("10.244.0.0/16", "2001:db8::/48"),
			ServiceCIDRs: mustPrefixes("10.96.0.0/12", "fd00:96::/112"),
		})
	}
	for i, n := range nodes {
		if err := n.net.Routes.Update(t.Context(), "other", nodes[1-i].peer(2-i)); err != nil {
			t.Fatal(err)
		}
	}
	a, c := nettest.New(t, "a"), nettest.New(t, "c")
	ipA, ipC := nodes[0].attach(bin, a), nodes[1].attach(bin, c)
	trace.Proves(t, "DUAL-020/routable", "DUALT-008/routable")
	if err := ask(a, "tcp "+c.Serve("c", "tcp", netip.AddrPortFrom(ipC[1], 8080).String()), "c", ipA[1].String()); err != nil {
		t.Error(err)
	}
}

func TestNodeHasAWayToServiceAddressesWithoutADefaultRoute(t *testing.T) {
	t.Parallel()
	n, _, _ := twoNodes(t)
	n.ensure()
	if err := n.net.Routes.Prune(t.Context()); err != nil {
		t.Fatal(err)
	}
	for addr, want := range map[string]string{"10.96.0.1": "10.244.1.1", "fd00:96::1": "fd00:244:0:1::1"} {
		routes, err := n.Netlink().RouteGet(netip.MustParseAddr(addr).AsSlice())
		if err != nil || len(routes) != 1 || routes[0].Src.String() != want {
			t.Errorf("route to %s: got %v, %v, want one with source %s", addr, routes, err, want)
		}
	}
}

func TestNeighboursAreReachedByTheGateway(t *testing.T) {
	t.Parallel()
	bin := plugins(t)
	n, _, _ := twoNodes(t)
	a, b := nettest.New(t, "a"), nettest.New(t, "b")
	n.attach(bin, a)
	ips := n.attach(bin, b)
	for i, ip := range ips {
		routes, err := a.Netlink().RouteGet(ip.AsSlice())
		if err != nil || len(routes) != 1 {
			t.Fatalf("route to %s: got %v, %v", ip, routes, err)
		}
		if want := Gateway(n.o.PodCIDRs[i]).AsSlice(); !routes[0].Gw.Equal(want) {
			t.Errorf("route to %s: got by %s, want by the gateway %s", ip, routes[0].Gw, Gateway(n.o.PodCIDRs[i]))
		}
	}
}

func TestLoopbackAddressesAreNotLetIn(t *testing.T) {
	t.Parallel()
	n1, _, outside := twoNodes(t)
	n1.Serve("secret", "tcp", "127.0.0.1:7777")
	if got := sysctlIn(n1.Host, "net/ipv4/conf/all/route_localnet"); got != "1" {
		t.Fatalf("route_localnet: got %q, want 1", got)
	}
	outside.Sysctl("net/ipv4/conf/all/route_localnet", "1")
	// Send what is for 127.0.0.1 to the node.
	outside.Must(func() error {
		for _, args := range [][]string{
			{"route", "del", "local", "127.0.0.0/8", "dev", "lo", "table", "local"},
			{"route", "del", "local", "127.0.0.1", "dev", "lo", "table", "local"},
			{"route", "add", "127.0.0.1", "via", "192.168.1.1", "src", "192.168.1.3"},
		} {
			if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil && args[1] == "add" {
				return fmt.Errorf("ip %v: %w: %s", args, err, out)
			}
		}
		return nil
	})
	if name, _, err := outside.Ask("tcp", "127.0.0.1:7777"); err == nil {
		t.Errorf("a service on 127.0.0.1 answered %q to another machine", name)
	}
	if err := ask(n1.Host, "tcp 127.0.0.1:7777", "secret", ""); err != nil {
		t.Error(err)
	}
}

func sysctlIn(h *nettest.Host, name string) (value string) {
	h.Must(func() error {
		value = readSysctl(name)
		return nil
	})
	return value
}

func TestRoutesFollowTheirPeers(t *testing.T) {
	t.Parallel()
	n1, n2, _ := twoNodes(t)
	routes := func() (list []string) {
		t.Helper()
		found, err := ourRoutes(n1.Netlink())
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range found {
			if r.Gw != nil {
				list = append(list, fmt.Sprintf("%s via %s", r.Dst, r.Gw))
			}
		}
		slices.Sort(list)
		return list
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx := t.Context()
	// An earlier process has left a route.
	must(n1.Netlink().RouteAdd(&netlink.Route{Dst: ipNet(mustPrefixes("10.244.9.0/24")[0]), Gw: n2.peer(2).Addrs[0].AsSlice(), Protocol: routeProtocol}))
	r := n1.net.Routes
	must(r.Update(ctx, "n2", n2.peer(2)))
	must(r.Update(ctx, "n2", n2.peer(2)))
	must(r.Prune(ctx))
	want := []string{"10.244.2.0/24 via 192.168.1.2", "fd00:244:0:2::/64 via fd00:1::2"}
	if got := routes(); !slices.Equal(got, want) {
		t.Errorf("routes: got %q, want %q", got, want)
	}
	// The node comes back with other addresses and prefixes.
	must(r.Update(ctx, "n2", Peer{PodCIDRs: mustPrefixes("10.244.3.0/24", "10.244.4.0/24"), Addrs: []netip.Addr{netip.MustParseAddr("192.168.1.3")}}))
	want = []string{"10.244.3.0/24 via 192.168.1.3", "10.244.4.0/24 via 192.168.1.3"}
	if got := routes(); !slices.Equal(got, want) {
		t.Errorf("routes after a change: got %q, want %q", got, want)
	}
	// Its prefix is given to another node before it goes.
	must(r.Update(ctx, "n3", Peer{PodCIDRs: mustPrefixes("10.244.3.0/24"), Addrs: n2.peer(2).Addrs}))
	must(r.Delete(ctx, "n2"))
	want = []string{"10.244.3.0/24 via 192.168.1.2"}
	if got := routes(); !slices.Equal(got, want) {
		t.Errorf("routes after a node went: got %q, want %q", got, want)
	}
	if err := r.Update(ctx, "far", Peer{PodCIDRs: mustPrefixes("10.244.5.0/24"), Addrs: []netip.Addr{netip.MustParseAddr("203.0.113.1")}}); err == nil {
		t.Error("a machine to which there is no way was accepted")
	}
}

func TestResetLeavesNothing(t *testing.T) {
	t.Parallel()
	bin := plugins(t)
	h := nettest.New(t, "n1")
	out := nettest.New(t, "out")
	nettest.Link(h, "eth0", out, "eth0")
	h.Addr("eth0", "192.168.1.1/24")
	h.Addr("eth0", "fd00:1::1/64")
	h.Sysctl("net/ipv6/conf/eth0/accept_ra", "1")
	h.Sysctl("net/ipv4/ip_forward", "0") // new namespaces have what the machine has
	foreign := nft.Table{Family: nft.IPv4, Name: "foreign"}
	h.Must(func() error {
		conn, err := nft.Open()
		if err != nil {
			return err
		}
		defer conn.Close()
		var b nft.Batch
		b.AddTable(foreign)
		return conn.Commit(t.Context(), &b)
	})
	before := hostState(t, h)

	n := newNode(t, h, 1)
	n.attach(bin, nettest.New(t, "a"))
	n.attach(bin, nettest.New(t, "b"))
	if err := n.net.Routes.Update(t.Context(), "n2", Peer{PodCIDRs: mustPrefixes("10.244.2.0/24"), Addrs: []netip.Addr{netip.MustParseAddr("192.168.1.2")}}); err != nil {
		t.Fatal(err)
	}
	n.ensure()
	if err := os.MkdirAll(filepath.Join(n.o.CNICacheDir, "results"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{n.o.networkName() + "-abc-eth0", "other-abc-eth0"} {
		if err := os.WriteFile(filepath.Join(n.o.CNICacheDir, "results", f), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if during := hostState(t, h); slices.Equal(during, before) {
		t.Fatal("the pod network changed nothing on the host")
	}

	var listed, removed, left []string
	n.Must(func() (err error) {
		if listed, err = Leftovers(t.Context(), n.o); err != nil {
			return err
		}
		if removed, err = Reset(t.Context(), n.o); err != nil {
			return err
		}
		left, err = Leftovers(t.Context(), n.o)
		return err
	})
	if !slices.Equal(listed, removed) {
		t.Errorf("removed %q, want what was listed before: %q", removed, listed)
	}
	for _, want := range []string{"CNI configuration", "route 10.244.2.0/24 via", "route 10.96.0.0/12", "route fd00:96::/112", "link veth", "bridge kemudi0", "nftables table inet kemudi-podnet",
		"sysctl net.ipv4.ip_forward = 1 (was 0)", "sysctl net.ipv6.conf.eth0.accept_ra = 2 (was 1)", "CNI result", "directory"} {
		if !slices.ContainsFunc(removed, func(s string) bool { return strings.HasPrefix(s, want) }) {
			t.Errorf("removed %q, want also %q", removed, want)
		}
	}
	if len(left) > 0 {
		t.Errorf("left after reset: %q", left)
	}
	if after := hostState(t, h); !slices.Equal(after, before) {
		t.Errorf("host after reset:\n%s\nwant as before:\n%s", strings.Join(after, "\n"), strings.Join(before, "\n"))
	}
	if _, err := os.Stat(filepath.Join(n.o.CNICacheDir, "results", "other-abc-eth0")); err != nil {
		t.Errorf("the result of another network: %v, want that it is still there", err)
	}
	for _, dir := range []string{n.o.DataDir, n.o.confFile()} {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("stat %s: got %v, want that it does not exist", dir, err)
		}
	}
}

// hostState is all of a host that the pod network might change.
func hostState(t *testing.T, h *nettest.Host) (state []string) {
	t.Helper()
	h.Must(func() error {
		links, err := h.Netlink().LinkList()
		if err != nil {
			return err
		}
		for _, l := range links {
			state = append(state, "link "+l.Attrs().Name)
		}
		routes, err := h.Netlink().RouteList(nil, 2)
		if err != nil {
			return err
		}
		for _, r := range routes {
			state = append(state, fmt.Sprintf("route %s %s", r.Dst, r.Gw))
		}
		conn, err := nft.Open()
		if err != nil {
			return err
		}
		defer conn.Close()
		tables, err := conn.Tables()
		if err != nil {
			return err
		}
		for _, tb := range tables {
			state = append(state, "table "+tb.String())
		}
		for _, s := range []string{"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding", "net/ipv6/conf/eth0/forwarding", "net/ipv6/conf/eth0/accept_ra",
			"net/ipv4/conf/all/route_localnet", "net/ipv4/conf/all/send_redirects", "net/ipv4/conf/eth0/send_redirects"} {
			state = append(state, "sysctl "+s+" "+readSysctl(s))
		}
		return nil
	})
	slices.Sort(state)
	return state
}

// keep runs the network until the test ends.
func (n *node) keep() {
	group := task.NewGroup(n.t.Context())
	group.Go("network", func(ctx context.Context) error {
		return n.Do(func() error { return n.net.Run(ctx) })
	})
	n.t.Cleanup(func() {
		group.Cancel(context.Canceled)
		if err := group.Wait(); err != nil {
			n.t.Error(err)
		}
	})
}

func TestRunWritesFlushedRulesAgain(t *testing.T) {
	t.Parallel()
	n, _, _ := twoNodes(t)
	n.keep()
	var conn *nft.Conn
	n.Must(func() (err error) {
		conn, err = nft.Open()
		return err
	})
	defer conn.Close()
	for range 3 {
		watch := func() *nft.Watch {
			var w *nft.Watch
			n.Must(func() (err error) {
				w, err = conn.Watch()
				return err
			})
			return w
		}()
		var b nft.Batch
		b.AddTable(table)
		b.DelTable(table)
		if err := conn.Commit(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		// Writing the rules begins with a deletion of what is there.
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		for {
			if has, err := conn.Has(table); err != nil || has {
				break
			}
			if err := watch.Next(ctx, table); err != nil {
				t.Fatalf("the rules did not come back: %v", err)
			}
		}
		cancel()
		watch.Close()
	}
	chains, err := conn.Chains(table)
	if err != nil || len(chains) != 3 {
		t.Errorf("chains: got %q, %v, want three", chains, err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	base := Options{CNIConfDir: "/c", DataDir: "/d"}
	for want, o := range map[string]Options{
		"must be set":      {},
		"more than one of": {CNIConfDir: "/c", DataDir: "/d", PodCIDRs: mustPrefixes("10.0.0.0/24", "10.0.1.0/24")},
		"too small":        {CNIConfDir: "/c", DataDir: "/d", PodCIDRs: mustPrefixes("10.0.0.0/31")},
		"longer than 15":   {CNIConfDir: "/c", DataDir: "/d", Bridge: "abcdefghijklmnop"},
		"no pod CIDR":      base,
		"is none of":       {CNIConfDir: "/c", DataDir: "/d", Mode: "bgp"},
		"is not below":     {CNIConfDir: "/c", DataDir: "/d", VXLAN: VXLAN{ID: 1 << 24}},
	} {
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New(%+v): got %v, want an error with %q", o, err, want)
		}
	}
}

func TestPodRoutesCoverTheSubnetInHalves(t *testing.T) {
	for c, want := range map[string]string{
		"10.244.1.0/24":      "[{0.0.0.0/0} {10.244.1.128/25} {10.244.1.0/25}]",
		"10.244.16.0/20":     "[{0.0.0.0/0} {10.244.24.0/21} {10.244.16.0/21}]",
		"fd00:244:0:1::/64":  "[{::/0} {fd00:244:0:1:8000::/65} {fd00:244:0:1::/65}]",
		"fd00:244:0:1::/112": "[{::/0} {fd00:244:0:1::8000/113} {fd00:244:0:1::/113}]",
	} {
		if got := fmt.Sprint(podRoutes(netip.MustParsePrefix(c))); got != want {
			t.Errorf("podRoutes(%s): got %s, want %s", c, got, want)
		}
	}
}

// TestRulesAreReadableWithNft lists the rules with the program that every
// administrator has.
func TestRulesAreReadableWithNft(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("there is no nft on this machine")
	}
	bin := plugins(t)
	n := newNode(t, nettest.New(t, "n1"), 1)
	n.attach(bin, nettest.New(t, "pod"))
	n.ensure()
	var out []byte
	n.Must(func() (err error) {
		out, err = exec.Command("nft", "list", "ruleset").CombinedOutput()
		return err
	})
	for _, want := range []string{"table inet kemudi-podnet {", "masquerade fully-random", `iifname != "lo" ip saddr 127.0.0.0/8 drop`, "nd-redirect drop"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("nft list ruleset lacks %q:\n%s", want, out)
		}
	}
	if !regexp.MustCompile(`set ports \{\s+type ifname\s+elements = \{ "veth`).Match(out) {
		t.Errorf("nft list ruleset does not name the link of the pod:\n%s", out)
	}
}
