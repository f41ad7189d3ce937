package podnet

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A network namespace has room for one cluster: bridge, routes and rules have
// fixed names. The bridge's alias says whose they are.

// markStart begins the alias of a bridge of ours. The cluster's directory follows.
const markStart = "kemudi "

// ownerMark is the alias that our bridge has. The kernel keeps 255 bytes of it.
func (o *Options) ownerMark() string {
	mark := markStart + filepath.Clean(o.DataDir)
	return mark[:min(len(mark), 255)]
}

// Owner returns the directory of another cluster that the pod network in the
// network namespace of the calling thread belongs to; empty: it is free, or ours.
func Owner(o Options) (string, error) {
	o, err := o.withDefaults()
	if err != nil {
		return "", err
	}
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return "", fmt.Errorf("open netlink: %w", err)
	}
	defer nl.Close()
	return otherOwner(nl, &o)
}

// otherOwner is Owner. A cluster whose directory is gone owns nothing any more.
func otherOwner(nl *netlink.Handle, o *Options) (string, error) {
	link, err := nl.LinkByName(o.Bridge)
	var notFound netlink.LinkNotFoundError
	if errors.As(err, &notFound) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("find link %s: %w", o.Bridge, err)
	}
	dir, marked := strings.CutPrefix(link.Attrs().Alias, markStart)
	if !marked || link.Attrs().Alias == o.ownerMark() {
		return "", nil
	}
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return dir, nil
}
