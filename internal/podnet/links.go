package podnet

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
)

// allLinks lists the links of the machine. Pods that come and go meanwhile make the
// kernel's answer a wrong one, and it says so: then it is asked again.
func allLinks(nl *netlink.Handle) ([]netlink.Link, error) {
	const tries = 10
	for try := 1; ; try++ {
		links, err := nl.LinkList()
		if err == nil {
			return links, nil
		}
		if try == tries || !errors.Is(err, netlink.ErrDumpInterrupted) {
			return nil, fmt.Errorf("list links: %w", err)
		}
	}
}
