package bgp

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	message "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/kemudi/kemudi/internal/announce/bfd"
)

const (
	port        = 179
	defaultHold = 9 * time.Second
	leastHold   = 3 * time.Second // RFC 4271, 4.2
	mostHold    = 65535 * time.Second
	mostRestart = 4095 * time.Second // RFC 4724, 3
)

// Peer is a router that is told.
type Peer struct {
	Addr         netip.AddrPort
	AS           uint32        // the router's autonomous system
	OwnAS        uint32        // this machine's
	Hold         time.Duration // how long the router may hear nothing before it forgets the routes
	PasswordFile string        // of the key of TCP's MD5 signatures (RFC 2385); empty: there are none
	Restart      time.Duration // how long the router may keep the routes while this process is started anew (RFC 4724); 0: not at all
	BFD          time.Duration // how often both say that they live (RFC 5880); 0: not at all
	Missed       uint8         // so many of those that are missed in a row are a failure
	Says         Says          // of routes, unless Within says otherwise
	Within       []Within
}

// Says is what a router is told of routes beside where they lead.
type Says struct {
	Communities []uint32 // RFC 1997
	Large       []Large  // RFC 8092
	Extended    []Extended
	Preference  uint32 // within one autonomous system; 0: 100
}

// Large is a large community.
type Large [3]uint32

// Extended is an extended community (RFC 4360): where routes are to go, or where they come from.
type Extended struct {
	Origin     bool
	AS, Number uint32 // of an AS above 65535 the number is below that
}

// Within is what is said of the routes to addresses of a network, in the place of what is said of all.
type Within struct {
	Prefix netip.Prefix
	Says
}

// ParsePeers reads peers as --load-balancer-bgp has them: peer=ADDRESS[:PORT],peer-as=N,as=N, and what may
// be left out. With each peer= another one begins; what follows a for=PREFIX is of routes to addresses there.
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
	for i := range all {
		if err := all[i].check(); err != nil {
			return nil, fmt.Errorf("--load-balancer-bgp: peer %s %w", all[i].Addr, err)
		}
		if slices.ContainsFunc(all[:i], func(o Peer) bool { return o.Addr == all[i].Addr }) {
			return nil, fmt.Errorf("--load-balancer-bgp: peer %s is named twice", all[i].Addr)
		}
	}
	return all, nil
}

// check looks at what a peer says as a whole.
func (p *Peer) check() error {
	says := []Says{p.Says}
	for _, w := range p.Within {
		says = append(says, w.Says)
	}
	switch {
	case p.AS == 0 || p.OwnAS == 0:
		return errors.New("wants the numbers of two autonomous systems, its own (peer-as=N) and that of this machine (as=N)")
	case p.AS != p.OwnAS && slices.ContainsFunc(says, func(s Says) bool { return s.Preference != 0 }):
		return errors.New("is of another autonomous system, which is told no local-preference (RFC 4271, 5.1.5)")
	case p.Missed != 0 && p.BFD == 0:
		return errors.New("has a bfd-multiplier without bfd=DURATION")
	case p.BFD != 0 && p.Missed == 0:
		p.Missed = bfd.DefaultMultiplier
	}
	return nil
}

func (p *Peer) set(key, value string) (err error) {
	says := &p.Says
	if n := len(p.Within); n > 0 {
		says = &p.Within[n-1].Says
	}
	switch key {
	case "peer":
		p.Addr, err = parseAddr(value)
	case "peer-as":
		p.AS, err = parseAS(value)
	case "as":
		p.OwnAS, err = parseAS(value)
	case "hold-time":
		p.Hold, err = parseDuration(value, span{leastHold, mostHold, time.Second})
	case "graceful-restart":
		p.Restart, err = parseDuration(value, span{time.Second, mostRestart, time.Second})
	case "bfd":
		p.BFD, err = parseDuration(value, span{bfd.LeastInterval, bfd.MostInterval, time.Millisecond})
	case "bfd-multiplier":
		var n uint64
		if n, err = strconv.ParseUint(value, 10, 8); err != nil || n == 0 {
			err = errors.New("want a number from 1 to 255")
		}
		p.Missed = uint8(n)
	case "password-file":
		if p.PasswordFile = value; value == "" {
			err = errors.New("want the name of a file")
		}
	case "for":
		var w Within
		if w.Prefix, err = netip.ParsePrefix(value); err != nil || w.Prefix != w.Prefix.Masked() {
			return errors.New("want a network, as 192.0.2.0/28")
		}
		p.Within = append(p.Within, w)
	case "community":
		err = says.community(value)
	case "local-preference":
		var n uint64
		if n, err = strconv.ParseUint(value, 10, 32); err != nil || n == 0 {
			err = errors.New("want a number from 1 to 4294967295")
		}
		says.Preference = uint32(n)
	default:
		err = errors.New("want peer=ADDRESS[:PORT], peer-as=N, as=N, hold-time=DURATION, password-file=FILE, graceful-restart=DURATION, bfd=DURATION, bfd-multiplier=N, " +
			"community=COMMUNITY, local-preference=N or for=PREFIX")
	}
	return err
}

// communities are those with a name.
var communities = map[string]uint32{
	"graceful-shutdown": 0xffff0000, "accept-own": 0xffff0001, "llgr-stale": 0xffff0006, "no-llgr": 0xffff0007, "blackhole": 0xffff029a,
	"no-export": 0xffffff01, "no-advertise": 0xffffff02, "no-export-subconfed": 0xffffff03, "no-peer": 0xffffff04,
}

// community adds one by its name, as 64512:100, a large one, as 64512:1:2, or an extended one, as rt:64512:100.
func (s *Says) community(text string) error {
	if known, ok := communities[text]; ok {
		s.Communities = append(s.Communities, known)
		return nil
	}
	kind, rest, _ := strings.Cut(text, ":")
	extended := kind == "rt" || kind == "soo"
	if extended {
		text = rest
	}
	var parts []uint32
	for field := range strings.SplitSeq(text, ":") {
		n, err := strconv.ParseUint(field, 10, 32)
		if err != nil {
			parts = nil
			break
		}
		parts = append(parts, uint32(n))
	}
	const small = 1<<16 - 1
	switch {
	case extended && len(parts) == 2 && (parts[0] <= small || parts[1] <= small):
		s.Extended = append(s.Extended, Extended{kind == "soo", parts[0], parts[1]})
	case !extended && len(parts) == 2 && max(parts[0], parts[1]) <= small:
		s.Communities = append(s.Communities, parts[0]<<16|parts[1])
	case !extended && len(parts) == 3:
		s.Large = append(s.Large, Large(parts))
	default:
		return fmt.Errorf("want two numbers up to 65535, as 64512:100, three up to 4294967295, as 64512:1:2, two after rt or soo, one of them up to 65535, as rt:64512:100, or one of %s",
			strings.Join(slices.Sorted(maps.Keys(communities)), ", "))
	}
	return nil
}

// says is what is said of the route to an address, and where that stands: in the narrowest network that it is in (from 0), or -1.
func (p *Peer) says(addr netip.Addr) (at int, s *Says) {
	at, s = -1, &p.Says
	for i := range p.Within {
		if w := &p.Within[i]; w.Prefix.Contains(addr) && (at < 0 || w.Prefix.Bits() > p.Within[at].Prefix.Bits()) {
			at, s = i, &w.Says
		}
	}
	return at, s
}

// span is what a duration may be: from least to most, in whole steps.
type span struct{ least, most, step time.Duration }

func parseDuration(text string, s span) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err == nil && (d < s.least || d > s.most || d%s.step != 0) {
		whole := "seconds"
		if s.step == time.Millisecond {
			whole = "milliseconds"
		}
		err = fmt.Errorf("want whole %s, %s to %s", whole, s.least, s.most)
	}
	return d, err
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
