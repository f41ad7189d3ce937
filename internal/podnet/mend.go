package podnet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/internal/dump"
	"github.com/kemudi/kemudi/internal/podnet/nft"
	"github.com/kemudi/kemudi/internal/task"
)

// watchLinks joins the groups that tell of changes which may have taken something
// of ours away: links, addresses, routes, and whether the machine forwards. It
// does so in the network namespace of the calling thread.
func watchLinks() (*nft.Groups, error) {
	return nft.Join(unix.NETLINK_ROUTE, "links",
		unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE,
		unix.RTNLGRP_IPV4_NETCONF, unix.RTNLGRP_IPV6_NETCONF)
}

// linksChanged waits for a message of the kernel about links, addresses or routes that may
// concern this network. It reads the kind of the message alone: the caller looks at
// what is on the machine now.
func (n *Network) linksChanged(ctx context.Context) error {
	return n.links.Next(ctx, func(m nft.Message) bool {
		switch m.Type {
		case unix.RTM_NEWLINK, unix.RTM_DELLINK, unix.RTM_DELADDR, unix.RTM_DELROUTE, unix.RTM_NEWNETCONF:
			return true
		}
		return false
	})
}

// amiss says, in words for people, what Ensure made is not there any more;
// empty: all is well.
func (n *Network) amiss() (string, error) {
	link, err := n.nl.LinkByName(n.o.Bridge)
	var notFound netlink.LinkNotFoundError
	switch {
	case errors.As(err, &notFound):
		return "the bridge is gone", nil
	case err != nil:
		return "", fmt.Errorf("find bridge %s: %w", n.o.Bridge, err)
	case link.Attrs().Flags&unix.IFF_UP == 0:
		return "the bridge is down", nil
	}
	have, err := dump.Addrs(n.nl, link, netlink.FAMILY_ALL)
	if err != nil {
		return "", err
	}
	for _, c := range n.o.PodCIDRs {
		if !slices.ContainsFunc(have, func(a netlink.Addr) bool {
			p, ok := prefixOf(a.IPNet)
			return ok && p == netip.PrefixFrom(Gateway(c), c.Bits())
		}) {
			return fmt.Sprintf("the bridge has no address of %s", c), nil
		}
		if f := forwarding(c.Addr()); readSysctl(f) != "1" {
			return f + " is off", nil
		}
	}
	routes, err := ourRoutes(n.nl)
	if err != nil {
		return "", err
	}
	for _, c := range n.serviceRoutes() {
		if !slices.ContainsFunc(routes, func(r netlink.Route) bool {
			p, ok := prefixOf(r.Dst)
			return ok && p == c && r.LinkIndex == link.Attrs().Index
		}) {
			return fmt.Sprintf("there is no route to service addresses %s", c), nil
		}
	}
	return "", nil
}

// forwarding is the parameter that makes the machine a router for a family.
func forwarding(a netip.Addr) string {
	if a.Is4() {
		return "net/ipv4/ip_forward"
	}
	return "net/ipv6/conf/all/forwarding"
}

// mendPause is the least time between two repairs, so that two programs which
// want different things do not keep the machine busy.
const mendPause = time.Second

// mend repairs what is amiss, and tries again until nothing is or ctx ends.
func (n *Network) mend(ctx context.Context) {
	back := task.Backoff{Initial: n.pause, Max: 30 * time.Second, Jitter: 0.2}
	for ctx.Err() == nil {
		what, err := n.amiss()
		if err == nil && what == "" {
			return
		}
		if err == nil {
			n.o.Log.Warn("another program has changed the pod network: mending it", "bridge", n.o.Bridge, "reason", what)
			if err = n.Ensure(ctx); err == nil {
				err = n.reattach()
			}
		}
		wait := n.pause
		if err != nil {
			wait = back.Next()
			n.o.Log.Error("cannot mend the pod network", "err", err, "retry", wait)
		}
		_ = task.Sleep(ctx, wait) // the loop looks at ctx
	}
}

// reattach makes the links of the pods that run ports of the bridge again: they
// outlive it, and are not made anew before their pods are.
func (n *Network) reattach() error {
	bridge, err := n.nl.LinkByName(n.o.Bridge)
	if err != nil {
		return fmt.Errorf("find bridge %s: %w", n.o.Bridge, err)
	}
	names, err := n.podLinks()
	if err != nil {
		return err
	}
	var failed []error
	for _, name := range names {
		link, err := n.nl.LinkByName(name)
		if err != nil || link.Type() != "veth" || link.Attrs().MasterIndex == bridge.Attrs().Index {
			continue // an error: the pod is gone
		}
		err = errors.Join(n.nl.LinkSetMaster(link, bridge), n.nl.LinkSetHairpin(link, true), n.nl.LinkSetUp(link))
		if err != nil {
			failed = append(failed, fmt.Errorf("attach link %s to bridge %s: %w", name, n.o.Bridge, err))
		}
	}
	return errors.Join(failed...)
}

// podLinks are the names of the node's ends of its pods' links, as the CNI
// library noted them.
func (n *Network) podLinks() ([]string, error) {
	var files []string
	for _, dir := range []string{n.o.CNICacheDir, n.o.RuntimeCacheDir} {
		found, err := n.o.cachedResults(dir)
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	var names []string
	for _, f := range files {
		links, err := notedLinks(f)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has gone with its pod
		}
		if err != nil { // as after a loss of power; that must not keep the others from the bridge
			n.o.Log.Warn("cannot tell which link a pod has", "file", f, "err", err)
			continue
		}
		for _, l := range links {
			if l.Sandbox == "" && l.Name != n.o.Bridge {
				names = append(names, l.Name)
			}
		}
	}
	return names, nil
}

// cachedResults are the files in which a CNI library notes pods of our network.
func (o *Options) cachedResults(dir string) ([]string, error) {
	return filepath.Glob(filepath.Join(dir, "results", o.networkName()+"-*"))
}
