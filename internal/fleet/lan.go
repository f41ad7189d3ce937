package fleet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/internal/dump"
	"github.com/kemudi/kemudi/internal/podnet"
	"github.com/kemudi/kemudi/internal/podnet/named"
	"github.com/kemudi/kemudi/internal/podnet/nft"
)

const (
	bridge   = "kemudilan" // joins the machines; the server's machine is at it, too
	uplink   = "eth0"      // a machine's link to it
	addrFile = "network"   // in the machines' directory: the addresses of their network
	first    = 10          // the first agent's last byte is one more; servers have their numbers
)

var table = nft.Table{Family: nft.Inet, Name: "kemudi-lan"}

// lan is the network of the machines.
type lan struct {
	nl     *netlink.Handle
	prefix netip.Prefix
	link   netlink.Link
}

// openLAN makes the network, unless it is there. dir is where its addresses are noted:
// they stay the same.
func openLAN(ctx context.Context, dir string) (_ *lan, err error) {
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	l := &lan{nl: nl}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if l.prefix, err = l.addresses(dir); err != nil {
		return nil, err
	}
	if err := l.ensureBridge(dir); err != nil {
		return nil, fmt.Errorf("make the network of the machines: %w", err)
	}
	if err := l.ensureRules(ctx); err != nil {
		return nil, err
	}
	return l, nil
}

func (l *lan) close() { l.nl.Close() }

// server is the address of the server's machine.
func (l *lan) server() netip.Addr { return l.prefix.Addr().Next() }

// addresses are those of the network: as noted, or the first that nothing else uses.
func (l *lan) addresses(dir string) (netip.Prefix, error) {
	file := filepath.Join(dir, addrFile)
	text, err := os.ReadFile(file)
	if err == nil {
		p, err := netip.ParsePrefix(strings.TrimSpace(string(text)))
		if err != nil {
			return p, fmt.Errorf("read %s: %w; put back a copy of it, or remove the cluster (kemudi reset)", file, err)
		}
		return p, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return netip.Prefix{}, fmt.Errorf("read the addresses of the machines: %w", err)
	}
	routes, err := dump.Routes(l.nl, netlink.FAMILY_V4, netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return netip.Prefix{}, err
	}
	for third := 255; third >= 0; third-- {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 30, byte(third), 0}), 24)
		if slices.ContainsFunc(routes, func(r netlink.Route) bool { return reaches(r.Dst, p) }) {
			continue
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return p, fmt.Errorf("make the machines' directory: %w", err)
		}
		if err := os.WriteFile(file, []byte(p.String()+"\n"), 0o600); err != nil {
			return p, fmt.Errorf("note the addresses of the machines: %w", err)
		}
		return p, nil
	}
	return netip.Prefix{}, errors.New("this machine has routes to all of 172.30.0.0/16: there are no addresses for further machines")
}

// reaches reports whether a route that is not the default leads to some of p.
func reaches(dst *net.IPNet, p netip.Prefix) bool {
	if dst == nil {
		return false
	}
	addr, ok := netip.AddrFromSlice(dst.IP)
	bits, _ := dst.Mask.Size()
	return ok && bits > 0 && netip.PrefixFrom(addr.Unmap(), bits).Overlaps(p)
}

func (l *lan) ensureBridge(owner string) (err error) {
	var none netlink.LinkNotFoundError
	l.link, err = l.nl.LinkByName(bridge)
	if errors.As(err, &none) {
		if err := l.nl.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridge}}); err != nil {
			return fmt.Errorf("add bridge: %w", err)
		}
		if l.link, err = l.nl.LinkByName(bridge); err == nil {
			err = l.nl.LinkSetAlias(l.link, owner)
		}
	}
	if err != nil {
		return fmt.Errorf("bridge %s: %w", bridge, err)
	}
	if by := l.link.Attrs().Alias; by != "" && by != owner {
		return fmt.Errorf("bridge %s is that of the machines of another cluster, %s: a machine has one such cluster (kemudi reset --data-dir %s removes it)", bridge, by, filepath.Dir(by))
	}
	if err := l.nl.AddrReplace(l.link, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(l.server(), l.prefix.Bits()))}); err != nil {
		return fmt.Errorf("give bridge %s its address: %w", bridge, err)
	}
	if err := l.nl.LinkSetUp(l.link); err != nil {
		return fmt.Errorf("set bridge %s up: %w", bridge, err)
	}
	return nil
}

const ruleTimeout = 10 * time.Second

// ensureRules give what machines send to the world this machine's address. Pods, and
// the machines among each other, see who it is.
func (l *lan) ensureRules(ctx context.Context) error {
	conn, err := nft.Open()
	if err != nil {
		return err
	}
	defer conn.Close()
	var b nft.Batch
	b.AddTable(table)
	b.DelTable(table)
	b.AddTable(table)
	b.AddChain(table, "postrouting", &nft.Hook{Type: "nat", Num: unix.NF_INET_POST_ROUTING, Priority: 100})
	rule := []nft.Expr{nft.Meta(unix.NFT_META_NFPROTO, nft.R0), nft.Equal(nft.R0, []byte{unix.NFPROTO_IPV4}), nft.SourceAddr(nft.IPv4, nft.R0)}
	rule = append(rule, nft.InPrefix(nft.R0, l.prefix)...)
	for _, inside := range []string{bridge, podnet.DefaultBridge} {
		rule = append(rule, nft.NotOutInterface(inside, nft.R0)...)
	}
	b.AddRule(table, "postrouting", append(rule, nft.Masquerade())...)
	ctx, cancel := context.WithTimeout(ctx, ruleTimeout)
	defer cancel()
	if err := conn.Commit(ctx, &b); err != nil {
		return fmt.Errorf("write rules of the machines' network: %w", err)
	}
	return nil
}

// link is the bridge's end of a machine's cable.
func (m *machine) link() string {
	if m.role == server {
		return bridge + "s" + strconv.Itoa(m.number)
	}
	return bridge + strconv.Itoa(m.number)
}

// connect makes a machine's network namespace and its link, unless they are there.
func (l *lan) connect(m machine) error {
	if err := makeNetns(m.netns); err != nil {
		return err
	}
	ns, err := netns.GetFromName(m.netns)
	if err != nil {
		return fmt.Errorf("open network namespace %s: %w", m.netns, err)
	}
	defer ns.Close()
	in, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink in %s: %w", m.netns, err)
	}
	defer in.Close()
	lo, err := in.LinkByName("lo")
	if err == nil {
		err = in.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("set the loopback of %s up: %w", m.netns, err)
	}
	if _, err := in.LinkByName(uplink); err != nil {
		// The machine may have been lost with its network: the kernel takes its time with what is left.
		if err := l.removeLink(m); err != nil {
			return err
		}
		pair := &netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: m.link(), MasterIndex: l.link.Attrs().Index}, PeerName: uplink, PeerNamespace: netlink.NsFd(ns),
		}
		if err := l.nl.LinkAdd(pair); err != nil {
			return fmt.Errorf("join %s to the bridge: %w", m.netns, err)
		}
	}
	outer, err := l.nl.LinkByName(m.link())
	if err == nil {
		err = l.nl.LinkSetUp(outer)
	}
	if err != nil {
		return fmt.Errorf("set the link to %s up: %w", m.netns, err)
	}
	inner, err := in.LinkByName(uplink)
	if err != nil {
		return fmt.Errorf("find %s of %s: %w", uplink, m.netns, err)
	}
	last := l.prefix.Addr().As4()
	last[3] = byte(m.number)
	if m.role == agent {
		last[3] += first
	}
	if err := in.AddrReplace(inner, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(netip.AddrFrom4(last), l.prefix.Bits()))}); err != nil {
		return fmt.Errorf("give %s its address: %w", m.netns, err)
	}
	if err := in.LinkSetUp(inner); err != nil {
		return fmt.Errorf("set %s of %s up: %w", uplink, m.netns, err)
	}
	if err := in.RouteReplace(&netlink.Route{LinkIndex: inner.Attrs().Index, Gw: l.server().AsSlice()}); err != nil {
		return fmt.Errorf("give %s its default route: %w", m.netns, err)
	}
	return nil
}

// removeLink removes a machine's link, unless it is gone.
func (l *lan) removeLink(m machine) error {
	var none netlink.LinkNotFoundError
	outer, err := l.nl.LinkByName(m.link())
	if err == nil {
		err = l.nl.LinkDel(outer)
	}
	if err != nil && !errors.As(err, &none) && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("remove the link to %s: %w", m.netns, err)
	}
	return nil
}

// disconnect removes a machine's link and its network namespace. The link goes by itself:
// the kernel takes apart what was in a namespace some time after it is removed.
func disconnect(m machine) error {
	if !made(m.netns) {
		return nil
	}
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer nl.Close()
	if err := (&lan{nl: nl}).removeLink(m); err != nil {
		return err
	}
	if err := netns.DeleteNamed(m.netns); err != nil {
		return fmt.Errorf("remove network namespace %s: %w", m.netns, err)
	}
	return named.Close()
}

// removeLAN removes what the network of the machines has left on this machine, if it is
// theirs.
func removeLAN(ctx context.Context, owner string) (removed []string, _ error) {
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	defer nl.Close()
	var none netlink.LinkNotFoundError
	link, err := nl.LinkByName(bridge)
	if errors.As(err, &none) || err == nil && link.Attrs().Alias != owner {
		return nil, nil
	}
	if err == nil {
		err = nl.LinkDel(link)
	}
	if err != nil {
		return nil, fmt.Errorf("remove bridge %s: %w", bridge, err)
	}
	removed = append(removed, "bridge "+bridge)
	conn, err := nft.Open()
	if err != nil {
		return removed, err
	}
	defer conn.Close()
	var b nft.Batch
	b.AddTable(table)
	b.DelTable(table)
	ctx, cancel := context.WithTimeout(ctx, ruleTimeout)
	defer cancel()
	if err := conn.Commit(ctx, &b); err != nil {
		return removed, fmt.Errorf("remove rules of the machines' network: %w", err)
	}
	return append(removed, "nft table "+table.String()), nil
}

// made reports whether there is a network namespace of that name.
func made(name string) bool {
	_, err := os.Stat(filepath.Join(named.Dir, name))
	return err == nil
}

// makeNetns makes a network namespace, unless it is there.
func makeNetns(name string) error {
	if made(name) {
		return nil
	}
	if err := named.Open(); err != nil {
		return err
	}
	return backAfter(func() error {
		ns, err := netns.NewNamed(name) // which enters it
		if err != nil {
			return fmt.Errorf("make network namespace %s: %w", name, err)
		}
		return ns.Close()
	})
}

// within runs f in a network namespace.
func within(name string, f func() error) error {
	return backAfter(func() error {
		ns, err := netns.GetFromName(name)
		if err != nil {
			return fmt.Errorf("open network namespace %s: %w; kemudi up makes it again", name, err)
		}
		defer ns.Close()
		if err := netns.Set(ns); err != nil {
			return fmt.Errorf("enter network namespace %s: %w", name, err)
		}
		return f()
	})
}

// backAfter runs f, which may enter another network namespace, on this thread alone, and
// comes back to the present one. A thread that does not come back is nobody else's.
func backAfter(f func() error) error {
	runtime.LockOSThread()
	here, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("find this network namespace: %w", err)
	}
	defer here.Close()
	err = f()
	if back := netns.Set(here); back != nil {
		return errors.Join(err, fmt.Errorf("come back to this network namespace: %w", back))
	}
	runtime.UnlockOSThread()
	return err
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
