package bgp

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"net/netip"
	"slices"
	"time"

	message "github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// An ending is why a session ends, which the router is told.
type ending struct {
	code, subcode uint8
	why           error
}

func (e *ending) Error() string { return e.why.Error() }

func ends(code, subcode uint8, format string, args ...any) *ending {
	return &ending{code, subcode, fmt.Errorf(format, args...)}
}

// version is that of BGP.
const version = 4

// perMessage is how many addresses go into one message: 200 of IPv6 take 3,400 of its 4,096 bytes.
const perMessage = 200

// routerID is what a machine is called in BGP: its first address of IPv4, or a number made of its name.
func routerID(node string, own []netip.Addr) netip.Addr {
	if i := slices.IndexFunc(own, netip.Addr.Is4); i >= 0 {
		return own[i]
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(node))
	n := h.Sum32()
	return netip.AddrFrom4([4]byte{byte(n>>24)%223 + 1, byte(n >> 16), byte(n >> 8), byte(n)}) // no multicast, never 0
}

// short is the number of an autonomous system in two bytes (RFC 6793).
func short(as uint32) uint16 {
	if as > 0xffff {
		return message.AS_TRANS
	}
	return uint16(as)
}

// openMessage is how a machine greets. restarted says that the process is new, and may be one that the router has known.
func openMessage(p *Peer, id netip.Addr, restarted bool) (*message.BGPMessage, error) {
	can := []message.ParameterCapabilityInterface{
		message.NewCapMultiProtocol(message.RF_IPv4_UC), message.NewCapMultiProtocol(message.RF_IPv6_UC),
		message.NewCapRouteRefresh(), message.NewCapFourOctetASNumber(p.OwnAS),
	}
	if p.Restart > 0 {
		// What leads packets on is in the kernel, and stays there while no process is.
		can = append(can, message.NewCapGracefulRestart(restarted, false, uint16(p.Restart/time.Second), []*message.CapGracefulRestartTuple{
			message.NewCapGracefulRestartTuple(message.RF_IPv4_UC, true), message.NewCapGracefulRestartTuple(message.RF_IPv6_UC, true),
		}))
	}
	return message.NewBGPOpenMessage(short(p.OwnAS), uint16(p.Hold/time.Second), id, []message.OptionParameterInterface{
		message.NewOptionParameterCapability(can),
	})
}

// terms are what this machine and a router have agreed upon.
type terms struct {
	hold     time.Duration // 0: nobody minds silence
	four     bool          // autonomous systems have numbers of four bytes
	keeps    bool          // the router keeps routes for as long as it was told to, when the connection ends without a word
	families map[message.Family]bool
}

// agree takes in how a router greets.
func agree(p *Peer, open *message.BGPOpen) (terms, error) {
	t, as := terms{families: map[message.Family]bool{}}, uint32(open.MyAS)
	for _, o := range open.OptParams {
		caps, ok := o.(*message.OptionParameterCapability)
		if !ok {
			continue
		}
		for _, c := range caps.Capability {
			switch c := c.(type) {
			case *message.CapMultiProtocol:
				t.families[c.CapValue] = true
			case *message.CapFourOctetASNumber:
				t.four, as = true, c.CapValue
			case *message.CapGracefulRestart:
				t.keeps = p.Restart > 0
			}
		}
	}
	if len(t.families) == 0 { // it is older than RFC 4760
		t.families[message.RF_IPv4_UC] = true
	}
	switch hold := time.Duration(open.HoldTime) * time.Second; {
	case open.Version != version:
		return t, ends(message.BGP_ERROR_OPEN_MESSAGE_ERROR, message.BGP_ERROR_SUB_UNSUPPORTED_VERSION_NUMBER, "it speaks version %d of BGP, not 4", open.Version)
	case as != p.AS:
		return t, ends(message.BGP_ERROR_OPEN_MESSAGE_ERROR, message.BGP_ERROR_SUB_BAD_PEER_AS, "it is of autonomous system %d, not of %d (peer-as)", as, p.AS)
	case hold != 0 && hold < leastHold:
		return t, ends(message.BGP_ERROR_OPEN_MESSAGE_ERROR, message.BGP_ERROR_SUB_UNACCEPTABLE_HOLD_TIME, "it wants a hold time of %s, and less than %s cannot be", hold, leastHold)
	default:
		t.hold = min(hold, p.Hold)
	}
	return t, nil
}

func familyOf(addr netip.Addr) message.Family {
	if addr.Is4() {
		return message.RF_IPv4_UC
	}
	return message.RF_IPv6_UC
}

// updates say what has become of addresses of one family, of which the same is to be said.
func updates(p *Peer, t *terms, addrs []netip.Addr, r route) (all []*message.BGPMessage, _ error) {
	for part := range slices.Chunk(addrs, perMessage) {
		var routes []message.PathNLRI
		for _, addr := range part {
			n, err := message.NewIPAddrPrefix(netip.PrefixFrom(addr, addr.BitLen()))
			if err != nil {
				return nil, fmt.Errorf("make a route of %s: %w", addr, err)
			}
			routes = append(routes, message.PathNLRI{NLRI: n})
		}
		m, err := update(p, t, routes, r)
		if err != nil {
			return nil, fmt.Errorf("tell of routes: %w", err)
		}
		all = append(all, m)
	}
	return all, nil
}

func update(p *Peer, t *terms, routes []message.PathNLRI, r route) (*message.BGPMessage, error) {
	if !r.hop.IsValid() {
		if r.four {
			return message.NewBGPUpdateMessage(routes, nil, nil), nil
		}
		gone, err := message.NewPathAttributeMpUnreachNLRI(message.RF_IPv6_UC, routes)
		return message.NewBGPUpdateMessage(nil, []message.PathAttributeInterface{gone}, nil), err
	}
	says := &p.Says
	if r.within >= 0 {
		says = &p.Within[r.within].Says
	}
	attributes := []message.PathAttributeInterface{message.NewPathAttributeOrigin(message.BGP_ORIGIN_ATTR_TYPE_IGP), path(p, t)}
	if r.four {
		next, err := message.NewPathAttributeNextHop(r.hop)
		if err != nil {
			return nil, err
		}
		attributes = append(attributes, next)
	}
	if p.AS == p.OwnAS {
		attributes = append(attributes, message.NewPathAttributeLocalPref(cmp.Or(says.Preference, 100))) // RFC 4271, 5.1.5
	}
	if len(says.Communities) > 0 {
		attributes = append(attributes, message.NewPathAttributeCommunities(says.Communities))
	}
	if len(says.Extended) > 0 {
		attributes = append(attributes, extended(says.Extended))
	}
	if len(says.Large) > 0 {
		var large []*message.LargeCommunity
		for _, l := range says.Large {
			large = append(large, &message.LargeCommunity{ASN: l[0], LocalData1: l[1], LocalData2: l[2]})
		}
		attributes = append(attributes, message.NewPathAttributeLargeCommunities(large))
	}
	if r.four {
		return message.NewBGPUpdateMessage(nil, attributes, routes), nil
	}
	reach, err := message.NewPathAttributeMpReachNLRI(message.RF_IPv6_UC, routes, r.hop)
	return message.NewBGPUpdateMessage(nil, append(attributes, reach), nil), err
}

func extended(list []Extended) message.PathAttributeInterface {
	var all []message.ExtendedCommunityInterface
	for _, e := range list {
		kind := message.EC_SUBTYPE_ROUTE_TARGET
		if e.Origin {
			kind = message.EC_SUBTYPE_ROUTE_ORIGIN
		}
		if e.AS > 1<<16-1 {
			all = append(all, message.NewFourOctetAsSpecificExtended(kind, e.AS, uint16(e.Number), true))
		} else {
			all = append(all, message.NewTwoOctetAsSpecificExtended(kind, uint16(e.AS), e.Number, true))
		}
	}
	return message.NewPathAttributeExtendedCommunities(all)
}

// path are the autonomous systems that a route has come through: this machine's, or within one none.
func path(p *Peer, t *terms) *message.PathAttributeAsPath {
	switch {
	case p.AS == p.OwnAS:
		return message.NewPathAttributeAsPath(nil)
	case t.four:
		return message.NewPathAttributeAsPath([]message.AsPathParamInterface{message.NewAs4PathParam(message.BGP_ASPATH_ATTR_TYPE_SEQ, []uint32{p.OwnAS})})
	}
	return message.NewPathAttributeAsPath([]message.AsPathParamInterface{message.NewAsPathParam(message.BGP_ASPATH_ATTR_TYPE_SEQ, []uint16{short(p.OwnAS)})})
}

// plain is an error without the ports of the connection, so that the same trouble has the same words each time.
func plain(err error) error {
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		return op.Err
	}
	if errors.Is(err, io.EOF) {
		return errors.New("it has closed the connection")
	}
	return err
}

// read reads one message. Of those of routes the body is nil: they do not matter.
func read(from io.Reader) (message.BGPMessage, error) {
	var m message.BGPMessage
	head := make([]byte, message.BGP_HEADER_LENGTH)
	if _, err := io.ReadFull(from, head); err != nil {
		return m, plain(err)
	}
	if err := m.Header.DecodeFromBytes(head); err != nil {
		return m, ends(message.BGP_ERROR_MESSAGE_HEADER_ERROR, message.BGP_ERROR_SUB_CONNECTION_NOT_SYNCHRONIZED, "what it says is not BGP: %w", err)
	}
	if m.Header.Len > message.BGP_MAX_MESSAGE_LENGTH {
		return m, ends(message.BGP_ERROR_MESSAGE_HEADER_ERROR, message.BGP_ERROR_SUB_BAD_MESSAGE_LENGTH, "it sends a message of %d bytes", m.Header.Len)
	}
	body := make([]byte, m.Header.Len-message.BGP_HEADER_LENGTH)
	if _, err := io.ReadFull(from, body); err != nil {
		return m, plain(err)
	}
	if m.Header.Type != message.BGP_MSG_OPEN && m.Header.Type != message.BGP_MSG_NOTIFICATION {
		return m, nil
	}
	parsed, err := message.ParseBGPBody(&m.Header, body)
	if err != nil {
		return m, ends(message.BGP_ERROR_OPEN_MESSAGE_ERROR, 0, "what it says cannot be read: %w", err)
	}
	if n, ok := parsed.Body.(*message.BGPNotification); ok {
		return m, fmt.Errorf("it has ended the session: %s", message.NewNotificationErrorCode(n.ErrorCode, n.ErrorSubcode))
	}
	return *parsed, nil
}

// say sends messages.
func say(to io.Writer, all ...*message.BGPMessage) error {
	for _, m := range all {
		data, err := m.Serialize()
		if err != nil {
			return fmt.Errorf("make a message: %w", err)
		}
		if _, err := to.Write(data); err != nil {
			return plain(err)
		}
	}
	return nil
}

// farewell is what the router is told when a session ends for err, if it is to be told something.
func farewell(err error) *message.BGPMessage {
	if e := (*ending)(nil); errors.As(err, &e) {
		return message.NewBGPNotificationMessage(e.code, e.subcode, nil)
	}
	return nil
}
