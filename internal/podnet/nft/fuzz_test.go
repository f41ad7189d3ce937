package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// FuzzDump reads any bytes as an answer of the kernel, and holds what is found in
// them against the libraries that read netlink messages.
func FuzzDump(f *testing.F) {
	var b Batch
	b.AddTable(testTable)
	b.AddChain(testTable, "one", &Hook{Type: "filter", Num: unix.NF_INET_FORWARD})
	b.AddSet(testTable, Set{Name: "set", Key: []Field{Addr4}, Data: []Field{Verdict}})
	b.AddElems(testTable, "set", []Elem{{Key: Key{10, 0, 0, 1}, Code: Drop}})
	done := appendHeader(nil, unix.NLMSG_DONE, 0, 1)
	binary.NativeEndian.PutUint32(done, uint32(len(done)))
	f.Add(b.buf)
	f.Add(append(slices.Clone(b.buf), done...))
	refused := append(appendHeader(nil, unix.NLMSG_ERROR, 0, 1), 0xfe, 0xff, 0xff, 0xff)
	binary.NativeEndian.PutUint32(refused, uint32(len(refused)))
	f.Add(refused)
	short := appendHeader(nil, unix.NLMSG_ERROR, 0, 1)
	binary.NativeEndian.PutUint32(short, uint32(len(short)))
	f.Add(short)
	f.Fuzz(func(t *testing.T, buf []byte) {
		buf = buf[:len(buf)&^3] // the kernel sends whole words
		found := 0
		_, err := dumped(buf, func(_ Family, attrs map[uint16][]byte) {
			found++
			for typ, v := range attrs {
				_, _, _ = cString(v), number(v), hookOf(v)
				_ = fmt.Sprint(typ)
			}
		})
		messages, wantErr := syscall.ParseNetlinkMessage(buf)
		if wantErr == nil && err != nil && !slices.ContainsFunc(messages, func(m syscall.NetlinkMessage) bool { return m.Header.Type == unix.NLMSG_ERROR }) {
			t.Fatalf("got %v, want no error", err)
		}
		i := 0
		_ = eachMessage(buf, func(h header, body []byte) error {
			if wantErr != nil {
				return nil
			}
			if m := messages[i]; h.typ != m.Header.Type || h.flags != m.Header.Flags || h.seq != m.Header.Seq || h.pid != m.Header.Pid || !slices.Equal(body, m.Data) {
				t.Fatalf("message %d: got %v %v, want %v", i, h, body, m)
			}
			i++
			if len(body) >= 4 {
				compareAttrs(t, body[4:len(body)&^3])
			}
			return nil
		})
		if wantErr == nil && (i != len(messages) || found > i) {
			t.Fatalf("got %d messages, want %d; %d were found in the dump", i, len(messages), found)
		}
	})
}

// compareAttrs compares what both find until one breaks the rules, where the
// library finds nothing.
func compareAttrs(t *testing.T, buf []byte) {
	t.Helper()
	want, err := nl.ParseRouteAttr(buf)
	if errors.Is(err, unix.EINVAL) {
		want = nil
	}
	i := 0
	eachAttr(buf, func(typ uint16, v []byte) {
		if err != nil {
			return
		}
		if a := want[i]; typ != a.Attr.Type&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER) || !slices.Equal(v, a.Value) {
			t.Fatalf("attribute %d: got %d %v, want %v", i, typ, v, a)
		}
		i++
	})
	if i != len(want) {
		t.Fatalf("got %d attributes, want %d", i, len(want))
	}
}
