package nft

import (
	"encoding/binary"
	"fmt"
	"iter"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Family is the protocol family of a table.
type Family uint8

// The families that are used here.
const (
	Inet   Family = unix.NFPROTO_INET
	IPv4   Family = unix.NFPROTO_IPV4
	IPv6   Family = unix.NFPROTO_IPV6
	Bridge Family = unix.NFPROTO_BRIDGE // frames between the ports of bridges
)

func (f Family) String() string {
	switch f {
	case Inet:
		return "inet"
	case IPv4:
		return "ip"
	case IPv6:
		return "ip6"
	case Bridge:
		return "bridge"
	}
	return fmt.Sprintf("family-%d", uint8(f))
}

// Table names a table.
type Table struct {
	Family Family
	Name   string
}

func (t Table) String() string { return t.Family.String() + " " + t.Name }

// Hook makes a chain a base chain: the kernel calls it at Num (unix.NF_INET_*)
// in order of Priority. Type is filter or nat. The policy is accept.
type Hook struct {
	Type     string
	Num      uint32
	Priority int32
}

// Batch is a transaction being written. The zero value is ready for use.
// Messages take effect in the order of the calls.
type Batch struct {
	buf   []byte
	msgs  []message
	setID uint32
	err   error
}

// message says what one message of the batch is about, for error texts.
type message struct {
	at         int // offset in buf
	what, name string
}

// Len is the number of messages written so far.
func (b *Batch) Len() int { return len(b.msgs) }

// Size is the length of the transaction in bytes.
func (b *Batch) Size() int { return len(b.buf) }

// Bytes are what has been written so far.
func (b *Batch) Bytes() []byte { return b.buf }

// Grow makes room for so many bytes more.
func (b *Batch) Grow(n int) { b.buf = slices.Grow(b.buf, n) }

// AddTable makes sure that a table exists.
func (b *Batch) AddTable(t Table) {
	b.begin(op{unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, t.Family, "add table", t.Name})
	b.str(unix.NFTA_TABLE_NAME, t.Name)
	b.u32(unix.NFTA_TABLE_FLAGS, 0)
	b.end()
}

// DelTable deletes a table, which must exist, with all it holds.
func (b *Batch) DelTable(t Table) {
	b.begin(op{unix.NFT_MSG_DELTABLE, 0, t.Family, "delete table", t.Name})
	b.str(unix.NFTA_TABLE_NAME, t.Name)
	b.end()
}

// AddChain makes sure that a chain exists. hook is nil for a chain that is
// only jumped to.
func (b *Batch) AddChain(t Table, name string, hook *Hook) {
	b.begin(op{unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, t.Family, "add chain", name})
	b.str(unix.NFTA_CHAIN_TABLE, t.Name)
	b.str(unix.NFTA_CHAIN_NAME, name)
	if hook != nil {
		n := b.nest(unix.NFTA_CHAIN_HOOK)
		b.u32(unix.NFTA_HOOK_HOOKNUM, hook.Num)
		b.u32(unix.NFTA_HOOK_PRIORITY, uint32(hook.Priority))
		b.endNest(n)
		b.u32(unix.NFTA_CHAIN_POLICY, netfilterAccept)
		b.str(unix.NFTA_CHAIN_TYPE, hook.Type)
	}
	b.end()
}

// DelChain deletes a chain that nothing refers to any more.
func (b *Batch) DelChain(t Table, name string) {
	b.begin(op{unix.NFT_MSG_DELCHAIN, 0, t.Family, "delete chain", name})
	b.str(unix.NFTA_CHAIN_TABLE, t.Name)
	b.str(unix.NFTA_CHAIN_NAME, name)
	b.end()
}

// FlushChain deletes all rules of a chain, which must exist.
func (b *Batch) FlushChain(t Table, name string) {
	b.begin(op{unix.NFT_MSG_DELRULE, 0, t.Family, "flush chain", name})
	b.str(unix.NFTA_RULE_TABLE, t.Name)
	b.str(unix.NFTA_RULE_CHAIN, name)
	b.end()
}

// AddRule appends a rule to a chain.
func (b *Batch) AddRule(t Table, chain string, rule ...Expr) {
	b.AddNotedRule(t, chain, Note{}, rule...)
}

// Note is what a rule has beside what it does.
type Note struct {
	Text string // for people: the nft program lists it as the rule's comment. At most 127 bytes
	Mark uint64 // by which the rule is known again; 0: none
}

// The kinds of what rules carry for programs.
const (
	noteText = 0    // NFTNL_UDATA_RULE_COMMENT, a C string
	noteMark = 0x6b // ours, which the nft program passes over
)

// bytes are the note as the kernel keeps it: each part is its kind, a length of one byte, and the value.
func (n Note) bytes() (data []byte) {
	if n.Text != "" {
		data = append([]byte{noteText, byte(len(n.Text) + 1)}, n.Text+"\x00"...)
	}
	if n.Mark != 0 {
		data = binary.BigEndian.AppendUint64(append(data, noteMark, 8), n.Mark)
	}
	return data
}

// markIn is the mark of a note; 0: it has none.
func markIn(data []byte) uint64 {
	for len(data) >= 2 && len(data) >= 2+int(data[1]) {
		v := data[2 : 2+int(data[1])]
		if data[0] == noteMark && len(v) == 8 {
			return binary.BigEndian.Uint64(v)
		}
		data = data[2+len(v):]
	}
	return 0
}

// AddNotedRule appends a rule to a chain, with a note.
func (b *Batch) AddNotedRule(t Table, chain string, note Note, rule ...Expr) {
	b.begin(op{unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE | unix.NLM_F_APPEND, t.Family, "add rule to chain", chain})
	b.str(unix.NFTA_RULE_TABLE, t.Name)
	b.str(unix.NFTA_RULE_CHAIN, chain)
	n := b.nest(unix.NFTA_RULE_EXPRESSIONS)
	for _, e := range rule {
		b.bytes(unix.NLA_F_NESTED|unix.NFTA_LIST_ELEM, e)
	}
	b.endNest(n)
	if data := note.bytes(); len(data) > 0 {
		b.bytes(unix.NFTA_RULE_USERDATA, data)
	}
	b.end()
}

// Set describes a set or map.
type Set struct {
	Name string
	Key  []Field // more than one: a concatenation
	// Data is what a map maps to: nothing for a set, Verdict alone, or values.
	Data []Field
	// Interval sets hold ranges: of one field, each an element and its End; of a
	// concatenation, each an element with the Last key, in which every field has a
	// range of its own.
	Interval bool
	// Dynamic sets are added to by rules, and their elements time out after
	// Timeout unless the rule says otherwise. Size is the most they may hold.
	Dynamic bool
	Timeout time.Duration
	Size    uint32
}

// Ref names a set within a batch.
type Ref struct {
	Name string
	id   uint32 // only for sets made in this batch
}

// Named refers to a set of the same table by its name.
func Named(name string) Ref { return Ref{Name: name} }

// AddSet makes sure that a set exists.
func (b *Batch) AddSet(t Table, s Set) Ref {
	var flags uint32
	if s.Interval {
		flags |= unix.NFT_SET_INTERVAL
	}
	if s.Dynamic {
		flags |= unix.NFT_SET_EVAL | unix.NFT_SET_TIMEOUT
	}
	return b.addSet(t, s, flags)
}

// AnonymousSet adds a set that lives as long as the rule that uses it, which
// must be added next.
func (b *Batch) AnonymousSet(t Table, s Set, elems []Elem) Ref {
	s.Name = "__set%d"
	if len(s.Data) > 0 {
		s.Name = "__map%d"
	}
	s.Size = uint32(len(elems))
	ref := b.addSet(t, s, unix.NFT_SET_ANONYMOUS|unix.NFT_SET_CONSTANT)
	b.elems(t, ref, unix.NFT_MSG_NEWSETELEM, slices.Values(elems))
	return ref
}

func (b *Batch) addSet(t Table, s Set, flags uint32) Ref {
	b.setID++
	ref := Ref{Name: s.Name, id: b.setID}
	b.begin(op{unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE, t.Family, "add set", s.Name})
	b.str(unix.NFTA_SET_TABLE, t.Name)
	b.str(unix.NFTA_SET_NAME, s.Name)
	if len(s.Key) > 1 {
		flags |= setConcat
	}
	if len(s.Data) > 0 {
		flags |= unix.NFT_SET_MAP
	}
	b.u32(unix.NFTA_SET_FLAGS, flags)
	b.u32(unix.NFTA_SET_KEY_TYPE, datatype(s.Key))
	b.u32(unix.NFTA_SET_KEY_LEN, width(s.Key))
	if len(s.Data) > 0 {
		b.u32(unix.NFTA_SET_DATA_TYPE, dataType(s))
		b.u32(unix.NFTA_SET_DATA_LEN, width(s.Data))
	}
	b.u32(unix.NFTA_SET_ID, ref.id)
	if s.Timeout > 0 {
		b.u64(unix.NFTA_SET_TIMEOUT, uint64(s.Timeout.Milliseconds()))
	}
	b.setShape(s)
	if len(s.Key) == 1 && (s.Key[0] == Integer || s.Key[0] == IfName) {
		b.bytes(unix.NFTA_SET_USERDATA, hostOrder)
	}
	b.end()
	return ref
}

// hostOrder tells the nft program that a set's keys are in the machine's byte
// order, or else it shows numbers the wrong way round, and no names of links
// (NFTNL_UDATA_SET_KEYBYTEORDER, 4 bytes, BYTEORDER_HOST_ENDIAN).
var hostOrder = binary.NativeEndian.AppendUint32([]byte{0, 4}, 1)

// setShape writes the size and the widths of a concatenated key's fields.
func (b *Batch) setShape(s Set) {
	if s.Size == 0 && len(s.Key) < 2 {
		return
	}
	n := b.nest(unix.NFTA_SET_DESC)
	if s.Size > 0 {
		b.u32(unix.NFTA_SET_DESC_SIZE, s.Size)
	}
	if len(s.Key) > 1 {
		fields := b.nest(setDescConcat)
		for _, f := range s.Key {
			field := b.nest(unix.NFTA_LIST_ELEM)
			b.u32(setFieldLen, f.len())
			b.endNest(field)
		}
		b.endNest(fields)
	}
	b.endNest(n)
}

// DelSet deletes a set that no rule uses any more.
func (b *Batch) DelSet(t Table, name string) {
	b.begin(op{unix.NFT_MSG_DELSET, 0, t.Family, "delete set", name})
	b.str(unix.NFTA_SET_TABLE, t.Name)
	b.str(unix.NFTA_SET_NAME, name)
	b.end()
}

// FlushSet deletes all elements of a set, which must exist.
func (b *Batch) FlushSet(t Table, name string) {
	b.begin(op{unix.NFT_MSG_DELSETELEM, 0, t.Family, "flush set", name})
	b.str(unix.NFTA_SET_ELEM_LIST_TABLE, t.Name)
	b.str(unix.NFTA_SET_ELEM_LIST_SET, name)
	b.end()
}

// Elem is one element of a set or map.
type Elem struct {
	Key  []byte // the fields of the key, as [Key] joins them
	Data []byte // the value, as Key joins it; nil in sets and verdict maps
	// Code is the verdict of an element of a verdict map (Drop, Accept, Goto ...),
	// Chain where Jump and Goto lead.
	Code  Code
	Chain string
	// End marks the first key after a range, in interval sets of one field.
	End bool
	// Last is the last key of a range, in interval sets of several fields: the same as
	// Key for a single one.
	Last []byte
}

// AddElems adds elements to a named set.
func (b *Batch) AddElems(t Table, set string, elems []Elem) {
	b.AddEach(t, set, slices.Values(elems))
}

// AddEach is AddElems without a list of the elements. What one is made of need only last until the next.
func (b *Batch) AddEach(t Table, set string, elems iter.Seq[Elem]) {
	b.elems(t, Ref{Name: set}, unix.NFT_MSG_NEWSETELEM, elems)
}

// DelElems deletes elements, of which only the keys count, from a named set.
// All must exist.
func (b *Batch) DelElems(t Table, set string, elems []Elem) {
	b.DelEach(t, set, slices.Values(elems))
}

// DelEach is DelElems without a list of the elements.
func (b *Batch) DelEach(t Table, set string, elems iter.Seq[Elem]) {
	b.elems(t, Ref{Name: set}, unix.NFT_MSG_DELSETELEM, elems)
}

// elemListLimit keeps the list of elements of one message below what the 16
// bits of an attribute's length can say.
const elemListLimit = 60_000

func (b *Batch) elems(t Table, set Ref, msg uint8, elems iter.Seq[Elem]) {
	what, flags := "add elements to set", uint16(unix.NLM_F_CREATE)
	if msg == unix.NFT_MSG_DELSETELEM {
		what, flags = "delete elements of set", 0
	}
	list := 0 // where that of the message begins; 0: there is no message
	for e := range elems {
		if list > 0 && len(b.buf)-list >= elemListLimit {
			b.endNest(list)
			b.end()
			list = 0
		}
		if list == 0 {
			b.begin(op{msg, flags, t.Family, what, set.Name})
			b.str(unix.NFTA_SET_ELEM_LIST_TABLE, t.Name)
			b.str(unix.NFTA_SET_ELEM_LIST_SET, set.Name)
			if set.id != 0 {
				b.u32(unix.NFTA_SET_ELEM_LIST_SET_ID, set.id)
			}
			list = b.nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
		}
		b.elem(&e, msg == unix.NFT_MSG_DELSETELEM)
	}
	if list > 0 {
		b.endNest(list)
		b.end()
	}
}

func (b *Batch) elem(e *Elem, keyOnly bool) {
	n := b.nest(unix.NFTA_LIST_ELEM)
	if e.End {
		b.u32(unix.NFTA_SET_ELEM_FLAGS, unix.NFT_SET_ELEM_INTERVAL_END)
	}
	key := b.nest(unix.NFTA_SET_ELEM_KEY)
	b.bytes(unix.NFTA_DATA_VALUE, e.Key)
	b.endNest(key)
	if e.Last != nil {
		last := b.nest(setElemKeyEnd)
		b.bytes(unix.NFTA_DATA_VALUE, e.Last)
		b.endNest(last)
	}
	switch {
	case keyOnly:
	case e.Data != nil:
		data := b.nest(unix.NFTA_SET_ELEM_DATA)
		b.bytes(unix.NFTA_DATA_VALUE, e.Data)
		b.endNest(data)
	case e.Code != 0 || e.Chain != "":
		data := b.nest(unix.NFTA_SET_ELEM_DATA)
		b.verdict(e.Code, e.Chain)
		b.endNest(data)
	}
	b.endNest(n)
}

func (b *Batch) verdict(code Code, chain string) {
	n := b.nest(unix.NFTA_DATA_VERDICT)
	b.u32(unix.NFTA_VERDICT_CODE, uint32(code.wire()))
	if chain != "" {
		b.str(unix.NFTA_VERDICT_CHAIN, chain)
	}
	b.endNest(n)
}

// op is the head of a message: its type and flags, and what it is about.
type op struct {
	msg        uint8
	flags      uint16
	family     Family
	what, name string
}

// begin starts a message; end finishes it. The sequence number is the
// message's number in the batch, counting from 1 (0 is the batch's own frame).
func (b *Batch) begin(o op) {
	b.msgs = append(b.msgs, message{len(b.buf), o.what, o.name})
	b.buf = appendHeader(b.buf, unix.NFNL_SUBSYS_NFTABLES<<8|uint16(o.msg), unix.NLM_F_REQUEST|o.flags, uint32(len(b.msgs)))
	b.buf = append(b.buf, uint8(o.family), unix.NFNETLINK_V0, 0, 0)
}

func (b *Batch) end() {
	at := b.msgs[len(b.msgs)-1].at
	binary.NativeEndian.PutUint32(b.buf[at:], uint32(len(b.buf)-at))
}

func appendHeader(buf []byte, typ, flags uint16, seq uint32) []byte {
	buf = binary.NativeEndian.AppendUint32(buf, unix.NLMSG_HDRLEN+4) // corrected by end
	buf = binary.NativeEndian.AppendUint16(buf, typ)
	buf = binary.NativeEndian.AppendUint16(buf, flags)
	buf = binary.NativeEndian.AppendUint32(buf, seq)
	return binary.NativeEndian.AppendUint32(buf, 0) // the kernel fills in the port
}

func (b *Batch) bytes(typ uint16, v []byte) { b.buf = appendAttr(b.buf, typ, v) }

func (b *Batch) str(typ uint16, s string) {
	b.buf = binary.NativeEndian.AppendUint16(b.buf, uint16(unix.SizeofNlAttr+len(s)+1))
	b.buf = binary.NativeEndian.AppendUint16(b.buf, typ)
	b.buf = append(append(b.buf, s...), 0)
	b.buf = pad(b.buf)
}

func (b *Batch) u32(typ uint16, v uint32) { b.buf = appendU32(b.buf, typ, v) }

func (b *Batch) u64(typ uint16, v uint64) {
	b.buf = appendAttr(b.buf, typ, binary.BigEndian.AppendUint64(nil, v))
}

// nest starts a nested attribute and returns where it starts, for endNest.
func (b *Batch) nest(typ uint16) int {
	at := len(b.buf)
	b.buf = append(b.buf, 0, 0)
	b.buf = binary.NativeEndian.AppendUint16(b.buf, unix.NLA_F_NESTED|typ)
	return at
}

func (b *Batch) endNest(at int) {
	n := len(b.buf) - at
	if n > 0xffff {
		b.err = fmt.Errorf("attribute of %d bytes is too long", n)
		n = 0xffff
	}
	binary.NativeEndian.PutUint16(b.buf[at:], uint16(n))
}

func appendU32(buf []byte, typ uint16, v uint32) []byte {
	buf = binary.NativeEndian.AppendUint16(buf, unix.SizeofNlAttr+4)
	buf = binary.NativeEndian.AppendUint16(buf, typ)
	return binary.BigEndian.AppendUint32(buf, v)
}

func appendAttr(buf []byte, typ uint16, v []byte) []byte {
	buf = binary.NativeEndian.AppendUint16(buf, uint16(unix.SizeofNlAttr+len(v)))
	buf = binary.NativeEndian.AppendUint16(buf, typ)
	return pad(append(buf, v...))
}

func pad(buf []byte) []byte {
	for len(buf)%unix.NLA_ALIGNTO != 0 {
		buf = append(buf, 0)
	}
	return buf
}
