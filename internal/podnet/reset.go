package podnet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/internal/dump"
	"github.com/kemudi/kemudi/internal/podnet/nft"
)

// leftover is something of ours on the host, and how to remove it.
type leftover struct {
	what   string
	remove func() error
}

// Leftovers lists what Reset would remove, in words for people.
func Leftovers(ctx context.Context, o Options) ([]string, error) {
	found, done, err := find(ctx, o)
	defer done()
	list := make([]string, len(found))
	for i, t := range found {
		list[i] = t.what
	}
	return list, err
}

// Reset undoes everything that the pod network has changed in the network
// namespace of the calling thread and in the file system, by this process or an
// earlier one. Pods must have been stopped: it removes their links. It goes on
// after errors, and returns what it did remove, in words for people. Calling it
// again is harmless.
func Reset(ctx context.Context, o Options) (removed []string, err error) {
	found, done, err := find(ctx, o)
	defer done()
	failed := []error{err}
	for _, t := range found {
		if err := t.remove(); err != nil {
			failed = append(failed, fmt.Errorf("remove %s: %w", t.what, err))
			continue
		}
		removed = append(removed, t.what)
	}
	return removed, errors.Join(failed...)
}

// find lists all that is there, in the order in which to remove it. done must
// be called when the list is no longer needed.
func find(ctx context.Context, o Options) (found []leftover, done func(), err error) {
	done = func() {}
	if o, err = o.withDefaults(); err != nil {
		return nil, done, err
	}
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, done, fmt.Errorf("open netlink: %w", err)
	}
	conn, err := nft.Open()
	if err != nil {
		nl.Close()
		return nil, done, err
	}
	done = func() {
		nl.Close()
		conn.Close()
	}
	var failed []error
	add := func(list []leftover, err error) {
		found = append(found, list...)
		failed = append(failed, err)
	}
	other, err := otherOwner(nl, &o)
	failed = append(failed, err)
	ours := other == "" // what is in the network namespace
	add(findFiles("CNI configuration", o.confFile()))
	if ours {
		add(findRoutes(nl))
	}
	add(findNamespaces(o.NetNSDirs))
	if ours {
		add(findLinks(nl, o.Bridge))
		add(findOverlays(nl))
		add(findTables(ctx, conn))
	}
	add(findSysctls(o.sysctlFile()))
	add(findCached(&o))
	add(findFiles("directory", o.DataDir))
	return found, done, errors.Join(failed...)
}

func findFiles(what, path string) ([]leftover, error) {
	if _, err := os.Lstat(path); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	return []leftover{{what + " " + path, func() error { return os.RemoveAll(path) }}}, nil
}

func findRoutes(nl *netlink.Handle) ([]leftover, error) {
	routes, err := ourRoutes(nl)
	if err != nil {
		return nil, err
	}
	var found []leftover
	for _, r := range routes {
		what := fmt.Sprintf("route %s via %s", r.Dst, r.Gw)
		switch {
		case r.Type == unix.RTN_UNREACHABLE:
			what = fmt.Sprintf("route %s, unreachable", r.Dst)
		case r.Gw == nil:
			what = fmt.Sprintf("route %s", r.Dst)
		}
		found = append(found, leftover{what, func() error { return nl.RouteDel(&r) }})
	}
	return found, nil
}

// findNamespaces lists the mounted namespaces in directories that are ours.
func findNamespaces(dirs []string) ([]leftover, error) {
	var (
		found  []leftover
		failed []error
	)
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = append(failed, err)
		}
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			found = append(found, leftover{"network namespace " + path, func() error {
				if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
					return fmt.Errorf("unmount: %w", err)
				}
				return os.Remove(path)
			}})
		}
	}
	return found, errors.Join(failed...)
}

// findLinks lists the bridge, after the links that are its ports.
func findLinks(nl *netlink.Handle, bridge string) ([]leftover, error) {
	br, err := nl.LinkByName(bridge)
	var notFound netlink.LinkNotFoundError
	switch {
	case errors.As(err, &notFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("find link %s: %w", bridge, err)
	case br.Type() != "bridge":
		return nil, nil
	}
	links, err := dump.Links(nl)
	if err != nil {
		return nil, err
	}
	var found []leftover
	del := func(l netlink.Link) func() error {
		return func() error {
			// A pod's end may be gone with its namespace by now, and this one with it.
			if err := nl.LinkDel(l); err != nil && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.EINVAL) {
				return err
			}
			return nil
		}
	}
	for _, l := range links {
		if l.Attrs().MasterIndex == br.Attrs().Index && l.Type() == "veth" {
			found = append(found, leftover{"link " + l.Attrs().Name, del(l)})
		}
	}
	return append(found, leftover{"bridge " + bridge, del(br)}), nil
}

// findOverlays lists our VXLAN devices.
func findOverlays(nl *netlink.Handle) ([]leftover, error) {
	var found []leftover
	for _, over := range []overlay{over4, over6} {
		link, err := nl.LinkByName(over.name())
		var notFound netlink.LinkNotFoundError
		switch {
		case errors.As(err, &notFound):
		case err != nil:
			return found, fmt.Errorf("find link %s: %w", over.name(), err)
		case ownDevice(link):
			found = append(found, leftover{"link " + over.name(), func() error { return nl.LinkDel(link) }})
		}
	}
	return found, nil
}

func findTables(ctx context.Context, conn *nft.Conn) (found []leftover, err error) {
	for _, t := range []nft.Table{table, frames} {
		exists, err := conn.Has(t)
		if err != nil {
			return found, err
		}
		if exists {
			found = append(found, leftover{"nftables table " + t.String(), func() error {
				var b nft.Batch
				b.DelTable(t)
				return conn.Commit(ctx, &b)
			}})
		}
	}
	return found, nil
}

// findSysctls lists the parameters that are to get back their old values: those
// that nobody has changed since.
func findSysctls(file string) ([]leftover, error) {
	record, err := readRecord(file)
	if err != nil {
		return nil, err
	}
	var found []leftover
	for _, name := range slices.Sorted(maps.Keys(record)) {
		if c := record[name]; readSysctl(name) == c.Is && c.Was != "" {
			found = append(found, leftover{fmt.Sprintf("sysctl %s = %s (was %s)", strings.ReplaceAll(name, "/", "."), c.Is, c.Was),
				func() error { return writeSysctl(name, c.Was) }})
		}
	}
	return found, nil
}

// findCached lists what the CNI library noted of our network.
func findCached(o *Options) ([]leftover, error) {
	files, err := o.cachedResults(o.CNICacheDir)
	if err != nil {
		return nil, err
	}
	var found []leftover
	for _, f := range files {
		found = append(found, leftover{"CNI result " + f, func() error { return os.Remove(f) }})
	}
	return found, nil
}
