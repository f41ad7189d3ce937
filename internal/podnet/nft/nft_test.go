package nft

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/internal/podnet/nettest"
)

var testTable = Table{IPv4, "test"}

// open gives the test a namespace of its own and n sockets in it.
func open(t *testing.T, n int) []*Conn {
	t.Helper()
	t.Parallel()
	h := nettest.New(t, "nft")
	var conns []*Conn
	for range n {
		h.Must(func() error {
			c, err := Open()
			conns = append(conns, c)
			return err
		})
	}
	t.Cleanup(func() {
		for _, c := range conns {
			c.Close()
		}
	})
	return conns
}

func commit(t *testing.T, c *Conn, fill func(b *Batch)) {
	t.Helper()
	var b Batch
	fill(&b)
	if err := c.Commit(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
}

func TestTransactionIsTakenAsAWholeOrNotAtAll(t *testing.T) {
	c := open(t, 1)[0]
	var b Batch
	b.AddTable(testTable)
	b.AddChain(testTable, "one", nil)
	b.DelChain(testTable, "missing")
	b.AddRule(testTable, "nowhere", Do(Drop, ""))
	err := c.Commit(t.Context(), &b)
	var tx *TxError
	if !errors.As(err, &tx) || tx.Errno != unix.ENOENT || tx.Op != "delete chain missing" {
		t.Errorf("commit: got %v, want that the chain to be deleted is missing", err)
	}
	if err == nil || !strings.Contains(err.Error(), "add rule to chain nowhere: no such file or directory") {
		t.Errorf("commit: got %v, want also the second failure", err)
	}
	if tables, err := c.Tables(); err != nil || len(tables) > 0 {
		t.Errorf("tables after a refused transaction: got %v, %v, want none", tables, err)
	}
	// The connection is of use as before.
	commit(t, c, func(b *Batch) { b.AddTable(testTable) })
	if has, err := c.Has(testTable); err != nil || !has {
		t.Errorf("Has(%s): got %v, %v, want true", testTable, has, err)
	}
}

func TestLoopOfChainsIsRefused(t *testing.T) {
	c := open(t, 1)[0]
	var b Batch
	b.AddTable(testTable)
	b.AddChain(testTable, "a", &Hook{Type: "filter", Num: unix.NF_INET_FORWARD})
	b.AddChain(testTable, "b", nil)
	b.AddChain(testTable, "c", nil)
	b.AddRule(testTable, "a", Do(Jump, "b"))
	b.AddRule(testTable, "b", Do(Jump, "c"))
	b.AddRule(testTable, "c", Do(Jump, "b"))
	var tx *TxError
	if err := c.Commit(t.Context(), &b); !errors.As(err, &tx) || tx.Errno != unix.ELOOP && tx.Errno != unix.EMLINK {
		t.Errorf("commit: got %v, want that the loop is refused", err)
	}
}

func TestManyElementsOfEveryKindOfSet(t *testing.T) {
	c := open(t, 1)[0]
	const n = 20_000
	addr := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}) }
	var plain, mapped, verdicts []Elem
	for i := range n {
		plain = append(plain, Elem{Key: Key(nil).Addr(addr(i))})
		mapped = append(mapped, Elem{Key: Key(nil).Addr(addr(i)).Proto(6).Port(80).Integer(uint32(i)), Data: Key(nil).Addr(addr(i)).Port(8080)})
		verdicts = append(verdicts, Elem{Key: Key(nil).Proto(17).Port(uint16(i)), Code: Goto, Chain: "target"})
	}
	verdicts[0] = Elem{Key: verdicts[0].Key, Code: Drop}
	frontend := []Field{Addr4, Proto, Port, Integer}
	sets := []Set{
		{Name: "plain", Key: []Field{Addr4}},
		{Name: "mapped", Key: frontend, Data: []Field{Addr4, Port}},
		{Name: "verdicts", Key: []Field{Proto, Port}, Data: []Field{Verdict}},
	}
	commit(t, c, func(b *Batch) {
		b.AddTable(testTable)
		b.AddChain(testTable, "target", nil)
		for _, s := range sets {
			b.AddSet(testTable, s)
		}
		b.AddElems(testTable, "plain", plain)
		b.AddElems(testTable, "mapped", mapped)
		b.AddElems(testTable, "verdicts", verdicts)
	})
	expectKeys := func(set string, want int) {
		t.Helper()
		keys, err := c.Keys(testTable, set)
		if err != nil || len(keys) != want {
			t.Errorf("keys of %s: got %d, %v, want %d", set, len(keys), err, want)
		}
	}
	for _, s := range sets {
		expectKeys(s.Name, n)
	}
	found, err := c.Sets(testTable)
	if err != nil || len(found) != len(sets) {
		t.Fatalf("sets: got %v, %v", found, err)
	}
	for i, f := range found {
		for j, s := range sets {
			if f.Name == s.Name != f.Matches(s) {
				t.Errorf("set %d (%s) matches declaration %d (%s): got %v", i, f.Name, j, s.Name, f.Matches(s))
			}
		}
	}
	// One element is given another value; all but ten go from another set.
	commit(t, c, func(b *Batch) {
		b.DelElems(testTable, "mapped", mapped[7:8])
		b.AddElems(testTable, "mapped", []Elem{{Key: mapped[7].Key, Data: Key(nil).Addr(addr(1)).Port(1)}})
		b.DelElems(testTable, "plain", plain[10:])
		b.FlushSet(testTable, "verdicts")
		b.DelChain(testTable, "target")
	})
	expectKeys("plain", 10)
	expectKeys("mapped", n)
	expectKeys("verdicts", 0)
}

// TestRangesOfSeveralFields has a set with a range in each field, and a map of single
// keys and ranges, as firewalls want them.
func TestRangesOfSeveralFields(t *testing.T) {
	c := open(t, 1)[0]
	addr := netip.MustParseAddr
	key := func(client, server string, port uint16) Key {
		return Key(nil).Addr(addr(client)).Addr(addr(server)).Proto(6).Port(port)
	}
	set := Set{Name: "allowed", Key: []Field{Addr4, Addr4, Proto, Port}, Interval: true}
	six := Set{Name: "six", Key: []Field{Addr6, Port}, Data: []Field{Verdict}, Interval: true}
	elems := []Elem{
		{Key: key("10.0.0.0", "10.96.0.1", 80), Last: key("10.255.255.255", "10.96.0.1", 80)},
		{Key: key("192.168.1.5", "10.96.0.1", 1000), Last: key("192.168.1.5", "10.96.0.9", 1010)},
	}
	sixth := Elem{Key: Key(nil).Addr(addr("fd00::")).Port(1), Last: Key(nil).Addr(addr("fd00::ffff")).Port(9), Code: Drop}
	commit(t, c, func(b *Batch) {
		b.AddTable(testTable)
		b.AddSet(testTable, set)
		b.AddSet(testTable, six)
		b.AddElems(testTable, set.Name, elems)
		b.AddElems(testTable, six.Name, []Elem{sixth})
		b.AddChain(testTable, "forward", &Hook{Type: "filter", Num: unix.NF_INET_FORWARD})
		b.AddRule(testTable, "forward", SourceAddr(IPv4, R0), DestinationAddr(IPv4, R0+1), TransportProto(R0+2), DestinationPort(R0+3), In(Named(set.Name), R0), Do(Drop, ""))
	})
	found, err := c.Sets(testTable)
	if err != nil || len(found) != 2 || !found[0].Matches(set) || !found[1].Matches(six) || found[0].Matches(six) {
		t.Errorf("sets: got %+v, %v, want the two declared", found, err)
	}
	keys := func(want ...Elem) {
		t.Helper()
		got, err := c.Keys(testTable, set.Name)
		if err != nil || len(got) != len(want) {
			t.Fatalf("keys: got %v, %v, want %d", got, err, len(want))
		}
		for i := range want {
			if !slices.Equal(got[i], want[i].Key) {
				t.Errorf("key %d: got %v, want %v", i, got[i], want[i].Key)
			}
		}
	}
	keys(elems...)
	commit(t, c, func(b *Batch) { b.DelElems(testTable, set.Name, elems[:1]) })
	var left Batch
	left.DelElems(testTable, set.Name, elems[:1])
	if err := c.Commit(t.Context(), &left); !errors.Is(err, unix.ENOENT) {
		t.Errorf("delete a range twice: got %v, want that it is not there", err)
	}
}

// TestBridgeTableKeepsPortsToTheirAddresses writes rules for frames between the ports
// of a bridge, and looks whether they are obeyed.
func TestBridgeTableKeepsPortsToTheirAddresses(t *testing.T) {
	t.Parallel()
	sw, one, two := nettest.New(t, "switch"), nettest.New(t, "one"), nettest.New(t, "two")
	for i, h := range []*nettest.Host{one, two} {
		port := fmt.Sprintf("p%d", i+1)
		nettest.Link(sw, port, h, "eth0")
		h.Addr("eth0", fmt.Sprintf("10.1.0.%d/24", i+1))
	}
	sw.Bridge("br0", "p1", "p2")
	two.Serve("two", "tcp", "10.1.0.2:8080")
	var c *Conn
	sw.Must(func() (err error) {
		c, err = Open()
		return err
	})
	t.Cleanup(c.Close)
	frames := Table{Bridge, "test"}
	ports := Set{Name: "ports", Key: []Field{IfName, Addr4}}
	at := Elem{Key: Key(nil).IfName("p1").Addr(netip.MustParseAddr("10.1.0.1"))}
	commit(t, c, func(b *Batch) {
		b.AddTable(frames)
		b.AddSet(frames, ports)
		b.AddElems(frames, ports.Name, []Elem{at})
		b.AddChain(frames, "forward", &Hook{Type: "filter", Num: unix.NF_INET_FORWARD})
		rule := append(InInterface("p1", R0), EtherType(R0), Equal(R0, []byte{0x08, 0x00}), Meta(unix.NFT_META_IIFNAME, R0), SourceAddr(IPv4, R0+4))
		b.AddRule(frames, "forward", append(rule, NotIn(Named(ports.Name), R0), Do(Drop, ""))...)
	})
	if found, err := c.Sets(frames); err != nil || len(found) != 1 || !found[0].Matches(ports) {
		t.Errorf("sets of %s: got %v, %v, want %v", frames, found, err, ports)
	}
	if name, _, err := one.Ask("tcp", "10.1.0.2:8080"); err != nil || name != "two" {
		t.Errorf("with its own address: got %q, %v, want an answer", name, err)
	}
	commit(t, c, func(b *Batch) { b.DelElems(frames, ports.Name, []Elem{at}) })
	err := one.Do(func() error {
		conn, err := net.DialTimeout("tcp", "10.1.0.2:8080", 300*time.Millisecond)
		if err == nil {
			_ = conn.Close()
		}
		return err
	})
	if err == nil {
		t.Error("with an address that the port does not have: got an answer, want none")
	}
}

func TestAnonymousSetMayBeLarge(t *testing.T) {
	c := open(t, 1)[0]
	var elems []Elem
	for i := range 5000 {
		elems = append(elems, Elem{Key: Key(nil).Integer(uint32(i)), Data: Key(nil).Addr(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})).Port(80)})
	}
	commit(t, c, func(b *Batch) {
		b.AddTable(testTable)
		b.AddChain(testTable, "nat", &Hook{Type: "nat", Num: unix.NF_INET_PRE_ROUTING, Priority: -100})
		set := b.AnonymousSet(testTable, Set{Key: []Field{Integer}, Data: []Field{Addr4, Port}}, elems)
		b.AddRule(testTable, "nat", TransportProto(R0), Equal(R0, []byte{6}), Random(R0, 5000), MapTo(set, R0, R0), DNAT(IPv4, R0, R0+1))
	})
	if sets, err := c.Sets(testTable); err != nil || len(sets) > 0 {
		t.Errorf("named sets: got %v, %v, want none", sets, err)
	}
}

func TestWatchTellsOfWhatOthersChange(t *testing.T) {
	conns := open(t, 1)
	ours := conns[0]
	h := nettest.New(t, "watch")
	var theirs *Conn
	var w *Watch
	h.Must(func() (err error) {
		ours.Close()
		if ours, err = Open(); err != nil {
			return err
		}
		conns[0] = ours
		if theirs, err = Open(); err != nil {
			return err
		}
		w, err = ours.Watch()
		return err
	})
	t.Cleanup(func() { w.Close(); theirs.Close() })
	other := Table{IPv4, "other"}
	quiet := func(what string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := w.Next(ctx, testTable); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: got %v, want that nothing is told", what, err)
		}
	}
	told := func(what string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := w.Next(ctx, testTable); err != nil {
			t.Errorf("%s: got %v, want that it is told", what, err)
		}
	}
	fill := func(b *Batch) {
		b.AddTable(testTable)
		b.AddChain(testTable, "a", nil)
		b.AddRule(testTable, "a", Do(Drop, ""))
	}
	commit(t, ours, fill)
	commit(t, ours, func(b *Batch) { b.DelTable(testTable) })
	quiet("our own deletion")
	commit(t, ours, fill)
	commit(t, theirs, func(b *Batch) { b.AddTable(other) })
	commit(t, theirs, func(b *Batch) { b.DelTable(other) })
	quiet("a table that is not ours")
	commit(t, theirs, func(b *Batch) { b.FlushChain(testTable, "a") })
	told("a flushed chain")
	commit(t, theirs, func(b *Batch) { b.AddRule(testTable, "a", Do(Accept, "")) })
	told("a rule more")
	commit(t, theirs, func(b *Batch) { b.AddSet(testTable, Set{Name: "set", Key: []Field{Addr4}}) })
	told("a set more")
	commit(t, theirs, func(b *Batch) { b.AddElems(testTable, "set", []Elem{{Key: Key{10, 0, 0, 1}}}) })
	told("an element more")
	commit(t, theirs, func(b *Batch) { b.DelTable(testTable) })
	told("a deleted table")
	commit(t, ours, func(b *Batch) {
		fill(b)
		for range 5000 { // more than fit a message of the kernel
			b.AddRule(testTable, "a", Do(Drop, ""))
		}
	})
	commit(t, theirs, func(b *Batch) { b.DelTable(testTable) })
	told("a large table that is deleted")
	quiet("the rest of the same deletion")
}

func TestWidthsAndTypesOfKeys(t *testing.T) {
	for _, c := range []struct {
		fields []Field
		width  uint32
		key    Key
	}{
		{[]Field{Addr4}, 4, Key(nil).Addr(netip.MustParseAddr("10.0.0.1"))},
		{[]Field{Addr6}, 16, Key(nil).Addr(netip.MustParseAddr("fd00::1"))},
		{[]Field{Addr4, Proto, Port}, 12, Key(nil).Addr(netip.MustParseAddr("10.0.0.1")).Proto(6).Port(80)},
		{[]Field{Mac, Ether}, 12, Key(nil).Mac(net.HardwareAddr{2, 0, 0, 0, 0, 1}).Ether(0x0806)},
		{[]Field{IfName, Addr4}, 20, Key(nil).IfName("veth0").Addr(netip.MustParseAddr("10.0.0.1"))},
		{[]Field{Addr6, Proto, Port, Integer}, 28, Key(nil).Addr(netip.MustParseAddr("fd00::1")).Proto(6).Port(80).Integer(3)},
	} {
		if got := width(c.fields); got != c.width || len(c.key) != int(c.width) {
			t.Errorf("%v: got width %d and a key of %d bytes, want %d", c.fields, got, len(c.key), c.width)
		}
	}
	if got := Key(nil).Port(0x1234); !slices.Equal(got, []byte{0x12, 0x34, 0, 0}) {
		t.Errorf("port: got %v", got)
	}
	if got := fmt.Sprint(testTable, " ", Table{Inet, "x"}, " ", Table{IPv6, "y"}); got != "ip test inet x ip6 y" {
		t.Errorf("tables: got %q", got)
	}
}
