package podnet

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// overlayNames begins the names of our VXLAN devices.
const overlayNames = "kemudi-vxlan"

func (v overlay) name() string { return fmt.Sprintf("%s%d", overlayNames, v) }

// OwnLink reports whether links of the pod network have this name, so that the addresses
// on it are not those by which the machine is known.
func OwnLink(name string) bool {
	return name == DefaultBridge || strings.HasPrefix(name, overlayNames)
}

// ownDevice reports whether a link is a VXLAN device of ours. Its hardware address
// says so from the moment when it is made.
func ownDevice(link netlink.Link) bool {
	_, own := ours(link.Attrs().HardwareAddr)
	return own && link.Type() == "vxlan"
}

// ensureDevice makes a VXLAN device that carries at least so many bytes at a time,
// and no more than that once all peers are known.
func (r *Routes) ensureDevice(over overlay, mtu int) error {
	d := cmp.Or(r.have.devices[over], &device{})
	if d.sure && d.mtu >= mtu {
		return nil
	}
	if !r.pruned {
		mtu = max(mtu, d.mtu)
	}
	if err := r.touch(); err != nil {
		return err
	}
	index, err := r.makeDevice(over, mtu)
	if err != nil {
		r.stale = true
		return fmt.Errorf("set up link %s: %w", over.name(), err)
	}
	if index != d.index {
		r.have.forget(over)
		r.watch.add(index)
		d.stations = 0
	}
	r.have.devices[over] = &device{index: index, mtu: mtu, stations: d.stations, sure: true}
	return nil
}

// makeDevice makes a device what it ought to be, without touching what is right. It
// learns nothing and floods nothing: what it knows of other nodes is what it is told.
func (r *Routes) makeDevice(over overlay, mtu int) (index int, err error) {
	want := &netlink.Vxlan{
		LinkAttrs: netlink.LinkAttrs{Name: over.name(), MTU: mtu, HardwareAddr: macOf(r.o.PodCIDRs[0]).hardware(), TxQLen: -1},
		VxlanId:   int(r.o.VXLAN.ID), Port: int(r.o.VXLAN.Port), NoAge: true, UDP6ZeroCSumRx: over == over6,
	}
	if over == over6 {
		want.SrcAddr = net.IPv6unspecified // that it is for IPv6; it sends from what the route says
	}
	link, err := r.nl.LinkByName(over.name())
	var notFound netlink.LinkNotFoundError
	switch has, _ := link.(*netlink.Vxlan); {
	case errors.As(err, &notFound):
		link = nil
	case err != nil:
		return 0, err
	case !ownDevice(link):
		return 0, errors.New("there is a link of this name that is not ours: remove it, or choose --pod-network=routes")
	case has.VxlanId != want.VxlanId || has.Port != want.Port || has.Learning:
		if err := r.nl.LinkDel(link); err != nil {
			return 0, fmt.Errorf("delete the one with other settings: %w", err)
		}
		link = nil
	}
	if link == nil {
		if err := r.addDevice(want); err != nil {
			return 0, err
		}
		if link, err = r.nl.LinkByName(over.name()); err != nil {
			return 0, err
		}
	}
	return link.Attrs().Index, r.configure(link, want)
}

func (r *Routes) addDevice(want *netlink.Vxlan) error {
	err := r.nl.LinkAdd(want)
	if errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("another program of this machine has a VXLAN network %d on port %d: choose others for the whole cluster, with --vxlan-id or --vxlan-port: %w", want.VxlanId, want.Port, err)
	}
	if err != nil {
		return fmt.Errorf("add: %w", err)
	}
	return nil
}

// configure makes what can change on a device what it ought to be.
func (r *Routes) configure(link netlink.Link, want *netlink.Vxlan) error {
	a := link.Attrs()
	for _, step := range []struct {
		what   string
		needed bool
		do     func() error
	}{
		{"set hardware address", !bytes.Equal(a.HardwareAddr, want.HardwareAddr), func() error { return r.nl.LinkSetHardwareAddr(link, want.HardwareAddr) }},
		{"set MTU", a.MTU != want.MTU, func() error { return r.nl.LinkSetMTU(link, want.MTU) }},
		{"set parameters", true, func() error { return configureDevice(a.Name) }},
		{"set addresses", true, func() error { return setAddrs(r.nl, link, r.o.ownAddrs()) }},
		{"set up", a.Flags&net.FlagUp == 0, func() error { return r.nl.LinkSetUp(link) }},
	} {
		if !step.needed {
			continue
		}
		err := r.touch()
		if err == nil {
			err = step.do()
		}
		if errors.Is(err, unix.EADDRINUSE) {
			return fmt.Errorf("another program of this machine has UDP port %d: choose another one for the whole cluster, with --vxlan-port: %w", want.Port, err)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return nil
}

// ownAddrs are the addresses of a VXLAN device. What the machine itself sends, and
// what the service proxy hides behind it, must come back through the tunnel: so it
// is sent from this node's part of the pod network.
func (o *Options) ownAddrs() map[netip.Prefix]bool {
	addrs := map[netip.Prefix]bool{}
	for _, c := range o.PodCIDRs {
		addrs[netip.PrefixFrom(Gateway(c), c.Addr().BitLen())] = true
	}
	return addrs
}

// configureDevice sets the parameters of a VXLAN device, which go with it.
func configureDevice(name string) error {
	for _, s := range []sysctl{
		{"net/ipv4/conf/" + name + "/forwarding", "1"},
		// Packets come from wherever the other node is; that they come from its pods
		// is all that can be asked. The greater of this and of what holds for all links counts.
		{"net/ipv4/conf/" + name + "/rp_filter", "2"},
		{"net/ipv4/conf/" + name + "/send_redirects", "0"},
		{"net/ipv6/conf/" + name + "/forwarding", "1"},
		{"net/ipv6/conf/" + name + "/accept_ra", "0"},
		{"net/ipv6/conf/" + name + "/addr_gen_mode", "1"}, // no address but ours
	} {
		if _, err := os.Stat(filepath.Join(sysctlRoot, s.name)); errors.Is(err, fs.ErrNotExist) {
			continue // a machine without IPv6
		}
		if readSysctl(s.name) == s.value {
			continue
		}
		if err := writeSysctl(s.name, s.value); err != nil {
			return err
		}
	}
	return nil
}

// dropDevices removes the devices of ours that no peer needs any more.
func (r *Routes) dropDevices() error {
	var failed []error
	for over, d := range r.have.devices {
		if d.stations > 0 {
			continue
		}
		if err := r.touch(); err != nil {
			return err
		}
		err := r.nl.LinkDel(&netlink.Vxlan{LinkAttrs: netlink.LinkAttrs{Index: d.index}})
		if err != nil && !errors.Is(err, unix.ENODEV) {
			failed = append(failed, fmt.Errorf("delete link %s: %w", over.name(), err))
			continue
		}
		r.have.forget(over)
	}
	return errors.Join(failed...)
}
