package bgp

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	message "github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

const (
	port        = 179
	defaultHold = 9 * time.Second
	leastHold   = 3 * time.Second // RFC 4271, 4.2
	mostHold    = 65535 * time.Second
)

// Peer is a router that is told.
type Peer struct {
	Addr         netip.AddrPort
	AS           uint32        // the router's autonomous system
	OwnAS        uint32        // this machine's
	Hold         time.Duration // how long the router may hear nothing before it forgets the routes
	PasswordFile string        // of the key of TCP's MD5 signatures (RFC 2385); empty: there are none
}

// ParsePeers reads peers as --load-balancer-bgp has them: peer=ADDRESS[:PORT],peer-as=N,as=N, and what may
// be left out, hold-time=DURATION and password-file=FILE. With each peer= another one begins.
func ParsePeers(words []string) ([]Peer, error) {
	var all []Peer
	for _, word := range strings.Split(strings.Join(words, ","), ",") {
		key, value, _ := strings.Cut(strings.TrimSpace(word), "=")
		if key == "" && len(words) <= 1 {
			continue
		}
		if key == "peer" {
			all = append(all, Peer{Hold: defaultHold})
		}
		if len(all) == 0 {
			return nil, fmt.Errorf("--load-balancer-bgp: %q comes before any peer=ADDRESS", word)
		}
		if err := all[len(all)-1].set(key, value); err != nil {
			return nil, fmt.Errorf("--load-balancer-bgp %s: %w", word, err)
		}
	}
	for i, p := range all {
		if p.AS == 0 || p.OwnAS == 0 {
			return nil, fmt.Errorf("--load-balancer-bgp: peer %s wants the numbers of two autonomous systems, its own (peer-as=N) and that of this machine (as=N)", p.Addr)
		}
		if slices.ContainsFunc(all[:i], func(o Peer) bool { return o.Addr == p.Addr }) {
			return nil, fmt.Errorf("--load-balancer-bgp: peer %s is named twice", p.Addr)
		}
	}
	return all, nil
}

func (p *Peer) set(key, value string) (err error) {
	switch key {
	case "peer":
		p.Addr, err = parseAddr(value)
	case "peer-as":
		p.AS, err = parseAS(value)
	case "as":
		p.OwnAS, err = parseAS(value)
	case "hold-time":
		if p.Hold, err = time.ParseDuration(value); err == nil && (p.Hold < leastHold || p.Hold > mostHold || p.Hold%time.Second != 0) {
			err = fmt.Errorf("want whole seconds, %s to %s", leastHold, mostHold)
		}
	case "password-file":
		if p.PasswordFile = value; value == "" {
			err = errors.New("want the name of a file")
		}
	default:
		err = errors.New("want peer=ADDRESS[:PORT], peer-as=N, as=N, hold-time=DURATION or password-file=FILE")
	}
	return err
}

func parseAddr(text string) (netip.AddrPort, error) {
	if addr, err := netip.ParseAddr(text); err == nil {
		return netip.AddrPortFrom(addr.Unmap(), port), nil
	}
	at, err := netip.ParseAddrPort(text)
	if err != nil {
		return at, fmt.Errorf("want an address, or one with a port as 192.0.2.1:179 or [fd00::1]:179: %w", err)
	}
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port()), nil
}

func parseAS(text string) (uint32, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n == 0 || n == message.AS_TRANS {
		return 0, fmt.Errorf("%q is not the number of an autonomous system", text)
	}
	return uint32(n), nil
}
