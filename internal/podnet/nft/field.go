package nft

import (
	"encoding/binary"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Field is the type of one part of a key or value. The numbers are those of the
// nft program's data types, so that it can print our sets.
type Field uint32

// The types of fields.
const (
	Verdict Field = 1
	Addr4   Field = 7  // IPv4 address
	Addr6   Field = 8  // IPv6 address
	Mac     Field = 9  // address of a network card
	Ether   Field = 10 // what a frame carries (unix.ETH_P_*)
	Proto   Field = 12 // transport protocol
	Port    Field = 13
	// Integer is 4 bytes in the machine's own order. For the nft program it is a
	// packet mark: its integers have no fixed width, and it cannot list keys that hold one.
	Integer Field = 19
	IfName  Field = 41
)

// AddrOf is the field type of a family's addresses.
func AddrOf(f Family) Field {
	if f == IPv6 {
		return Addr6
	}
	return Addr4
}

// Size is how many bytes a value has, without what fills up its register.
func (f Field) Size() int { return int(f.len()) }

func (f Field) len() uint32 {
	switch f {
	case Integer, Addr4:
		return 4
	case Addr6, IfName:
		return 16
	case Mac:
		return 6
	case Proto:
		return 1
	case Ether, Port:
		return 2
	}
	return 0
}

const (
	setConcat     = 0x80 // NFT_SET_CONCAT
	setDescConcat = 2    // NFTA_SET_DESC_CONCAT
	setFieldLen   = 1    // NFTA_SET_FIELD_LEN
	setElemKeyEnd = 10   // NFTA_SET_ELEM_KEY_END
)

// datatype packs the types of a concatenation as the nft program does.
func datatype(fields []Field) uint32 {
	var t uint32
	for _, f := range fields {
		t = t<<6 | uint32(f)
	}
	return t
}

// dataType is the type of what a map holds.
func dataType(s Set) uint32 {
	if len(s.Data) == 1 && s.Data[0] == Verdict {
		return unix.NFT_DATA_VERDICT
	}
	return datatype(s.Data)
}

// width is the length of a key or value: alone, that of the field; joined, each
// field takes whole registers of 4 bytes.
func width(fields []Field) uint32 {
	if len(fields) == 1 {
		return fields[0].len()
	}
	var n uint32
	for _, f := range fields {
		n += (f.len() + 3) &^ 3
	}
	return n
}

// Key joins the fields of a key or value. Use it as Key(nil).Addr(a).Port(p).
// A port, protocol or MAC address alone, without other fields, is not padded: take [:2], [:1] or [:6].
type Key []byte

// Addr appends an address.
func (k Key) Addr(a netip.Addr) Key {
	if a.Is4() {
		b := a.As4()
		return append(k, b[:]...)
	}
	b := a.As16()
	return append(k, b[:]...)
}

// Proto appends a transport protocol.
func (k Key) Proto(p uint8) Key { return append(k, p, 0, 0, 0) }

// Port appends a port.
func (k Key) Port(p uint16) Key { return append(k, byte(p>>8), byte(p), 0, 0) }

// Mac appends the address of a network card, of 6 bytes.
func (k Key) Mac(a net.HardwareAddr) Key { return append(append(k, a...), 0, 0) }

// Ether appends what a frame carries.
func (k Key) Ether(t uint16) Key { return append(k, byte(t>>8), byte(t), 0, 0) }

// IfName appends the name of an interface.
func (k Key) IfName(name string) Key { return append(k, ifnameValue(name)...) }

// Integer appends a number.
func (k Key) Integer(i uint32) Key { return binary.NativeEndian.AppendUint32(k, i) }
