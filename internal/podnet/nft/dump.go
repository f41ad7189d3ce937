package nft

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Tables lists the tables of the namespace.
func (c *Conn) Tables() ([]Table, error) {
	var tables []Table
	err := c.dump(unix.NFT_MSG_GETTABLE, 0, nil, func(f Family, attrs map[uint16][]byte) {
		tables = append(tables, Table{f, cString(attrs[unix.NFTA_TABLE_NAME])})
	})
	if err != nil {
		return nil, fmt.Errorf("list nftables tables: %w", err)
	}
	return tables, nil
}

// Has says whether the table exists.
func (c *Conn) Has(t Table) (bool, error) {
	tables, err := c.Tables()
	return slices.Contains(tables, t), err
}

// Chains lists the names of a table's chains.
func (c *Conn) Chains(t Table) ([]string, error) {
	var chains []string
	err := c.dump(unix.NFT_MSG_GETCHAIN, t.Family, nil, func(_ Family, attrs map[uint16][]byte) {
		if cString(attrs[unix.NFTA_CHAIN_TABLE]) == t.Name {
			chains = append(chains, cString(attrs[unix.NFTA_CHAIN_NAME]))
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list chains of table %s: %w", t, err)
	}
	return chains, nil
}

// Gate is a chain that lets through only what one of its rules allows.
type Gate struct {
	Table    Table
	Chain    string
	Received bool // it is called for what is for the machine itself, not for what it forwards
}

func (g Gate) String() string { return g.Table.String() + " " + g.Chain }

// Gates lists the gates among the chains for what the machine forwards and
// receives. That a chain of ours lets something pass is of no help against them.
func (c *Conn) Gates() ([]Gate, error) {
	var gates []Gate
	err := c.dump(unix.NFT_MSG_GETCHAIN, 0, nil, func(f Family, attrs map[uint16][]byte) {
		hook, filters := hookOf(attrs[unix.NFTA_CHAIN_HOOK]), cString(attrs[unix.NFTA_CHAIN_TYPE]) == "filter"
		if f != IPv4 && f != IPv6 && f != Inet || !filters || hook != unix.NF_INET_FORWARD && hook != unix.NF_INET_LOCAL_IN {
			return
		}
		g := Gate{Table{f, cString(attrs[unix.NFTA_CHAIN_TABLE])}, cString(attrs[unix.NFTA_CHAIN_NAME]), hook == unix.NF_INET_LOCAL_IN}
		policy := attrs[unix.NFTA_CHAIN_POLICY]
		// firewalld has a last rule instead of a policy.
		if policy != nil && number(policy) == netfilterDrop || g.Table.Name == "firewalld" && strings.HasPrefix(g.Chain, "filter_") {
			gates = append(gates, g)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list chains: %w", err)
	}
	return gates, nil
}

// hookOf is the place at which the kernel calls a chain; -1: nowhere.
func hookOf(hook []byte) int {
	at := -1
	eachAttr(hook, func(typ uint16, v []byte) {
		if typ == unix.NFTA_HOOK_HOOKNUM {
			at = int(number(v))
		}
	})
	return at
}

// Found is a set as the kernel has it.
type Found struct {
	Name                       string
	Flags                      uint32
	KeyType, KeyLen            uint32
	DataType, DataLen, MaxSize uint32
}

// Sets lists a table's named sets.
func (c *Conn) Sets(t Table) ([]Found, error) {
	var sets []Found
	table := appendAttr(nil, unix.NFTA_SET_TABLE, append([]byte(t.Name), 0))
	err := c.dump(unix.NFT_MSG_GETSET, t.Family, table, func(_ Family, attrs map[uint16][]byte) {
		f := Found{
			Name: cString(attrs[unix.NFTA_SET_NAME]), Flags: number(attrs[unix.NFTA_SET_FLAGS]),
			KeyType: number(attrs[unix.NFTA_SET_KEY_TYPE]), KeyLen: number(attrs[unix.NFTA_SET_KEY_LEN]),
			DataType: number(attrs[unix.NFTA_SET_DATA_TYPE]), DataLen: number(attrs[unix.NFTA_SET_DATA_LEN]),
		}
		eachAttr(attrs[unix.NFTA_SET_DESC], func(typ uint16, v []byte) {
			if typ == unix.NFTA_SET_DESC_SIZE {
				f.MaxSize = number(v)
			}
		})
		if f.Flags&unix.NFT_SET_ANONYMOUS == 0 {
			sets = append(sets, f)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list sets of table %s: %w", t, err)
	}
	return sets, nil
}

// Matches says whether s would make just such a set.
func (f Found) Matches(s Set) bool {
	const shape = unix.NFT_SET_EVAL | unix.NFT_SET_TIMEOUT | unix.NFT_SET_INTERVAL
	var want uint32
	if s.Dynamic {
		want = unix.NFT_SET_EVAL | unix.NFT_SET_TIMEOUT
	}
	if s.Interval {
		want |= unix.NFT_SET_INTERVAL
	}
	dataLen := width(s.Data)
	if dataType(s) == unix.NFT_DATA_VERDICT {
		dataLen = f.DataLen // the kernel's own affair
	}
	return f.Flags&shape == want && f.KeyType == datatype(s.Key) && f.KeyLen == width(s.Key) &&
		f.DataType == dataType(s) && f.DataLen == dataLen && f.MaxSize == s.Size
}

// keyReads bounds how often Keys reads a set that is growing or shrinking.
const keyReads = 100

// Keys lists the keys that a set has at the moment, each once. After many changes
// the kernel moves a set to a table of another size, in its own time: who reads on
// meanwhile gets some elements twice, and in their place may miss others. Such a
// list is read again.
func (c *Conn) Keys(t Table, set string) ([][]byte, error) {
	for range keyReads {
		keys, err := c.readKeys(t, set)
		if err != nil {
			return nil, err
		}
		slices.SortFunc(keys, bytes.Compare)
		n := len(keys)
		if keys = slices.CompactFunc(keys, bytes.Equal); len(keys) == n {
			return keys, nil
		}
	}
	return nil, fmt.Errorf("list elements of set %s of table %s: it does not come to rest in %d readings", set, t, keyReads)
}

func (c *Conn) readKeys(t Table, set string) ([][]byte, error) {
	var keys [][]byte
	err := c.EachElem(t, set, func(e Elem) { keys = append(keys, slices.Clone(e.Key)) })
	return keys, err
}

// EachElem calls fn for all elements that a set has at the moment: for some twice, and for others not at all, while
// the set moves; see Keys. What an element is made of is valid during the call.
func (c *Conn) EachElem(t Table, set string, fn func(Elem)) error {
	req := appendAttr(nil, unix.NFTA_SET_ELEM_LIST_TABLE, append([]byte(t.Name), 0))
	req = appendAttr(req, unix.NFTA_SET_ELEM_LIST_SET, append([]byte(set), 0))
	err := c.dump(unix.NFT_MSG_GETSETELEM, t.Family, req, func(_ Family, attrs map[uint16][]byte) {
		eachAttr(attrs[unix.NFTA_SET_ELEM_LIST_ELEMENTS], func(_ uint16, elem []byte) { fn(readElem(elem)) })
	})
	if err != nil {
		return fmt.Errorf("list elements of set %s of table %s: %w", set, t, err)
	}
	return nil
}

// readElem reads what elem of a batch writes.
func readElem(attrs []byte) (e Elem) {
	value := func(data []byte) (v []byte) {
		eachAttr(data, func(typ uint16, b []byte) {
			switch typ {
			case unix.NFTA_DATA_VALUE:
				v = b
			case unix.NFTA_DATA_VERDICT:
				e.Code, e.Chain = readVerdict(b)
			}
		})
		return v
	}
	eachAttr(attrs, func(typ uint16, v []byte) {
		switch typ {
		case unix.NFTA_SET_ELEM_KEY:
			e.Key = value(v)
		case setElemKeyEnd:
			e.Last = value(v)
		case unix.NFTA_SET_ELEM_DATA:
			e.Data = value(v)
		case unix.NFTA_SET_ELEM_FLAGS:
			e.End = number(v)&unix.NFT_SET_ELEM_INTERVAL_END != 0
		}
	})
	return e
}

func readVerdict(attrs []byte) (code Code, chain string) {
	eachAttr(attrs, func(typ uint16, v []byte) {
		switch typ {
		case unix.NFTA_VERDICT_CODE:
			for _, c := range []Code{Drop, Accept, Jump, Goto, Return} {
				if uint32(c.wire()) == number(v) {
					code = c
				}
			}
		case unix.NFTA_VERDICT_CHAIN:
			chain = cString(v)
		}
	})
	return code, chain
}

// FoundChain is a chain as the kernel has it.
type FoundChain struct {
	Name    string
	Hook    *Hook    // nil: the kernel does not call it
	Accepts bool     // what none of the rules of one that it calls is about
	Marks   []uint64 // of its rules, in order; 0: one has none
}

// FoundChains lists a table's chains with their rules.
func (c *Conn) FoundChains(t Table) (map[string]*FoundChain, error) {
	chains := map[string]*FoundChain{}
	err := c.dump(unix.NFT_MSG_GETCHAIN, t.Family, nil, func(_ Family, attrs map[uint16][]byte) {
		if cString(attrs[unix.NFTA_CHAIN_TABLE]) != t.Name {
			return
		}
		f := &FoundChain{Name: cString(attrs[unix.NFTA_CHAIN_NAME])}
		if hook := attrs[unix.NFTA_CHAIN_HOOK]; hook != nil {
			f.Hook = &Hook{Type: cString(attrs[unix.NFTA_CHAIN_TYPE])}
			f.Accepts = number(attrs[unix.NFTA_CHAIN_POLICY]) == netfilterAccept
			eachAttr(hook, func(typ uint16, v []byte) {
				switch typ {
				case unix.NFTA_HOOK_HOOKNUM:
					f.Hook.Num = number(v)
				case unix.NFTA_HOOK_PRIORITY:
					f.Hook.Priority = int32(number(v))
				}
			})
		}
		chains[f.Name] = f
	})
	if err != nil {
		return nil, fmt.Errorf("list chains of table %s: %w", t, err)
	}
	of := appendAttr(nil, unix.NFTA_RULE_TABLE, append([]byte(t.Name), 0))
	err = c.dump(unix.NFT_MSG_GETRULE, t.Family, of, func(_ Family, attrs map[uint16][]byte) {
		f := chains[cString(attrs[unix.NFTA_RULE_CHAIN])]
		if f != nil && cString(attrs[unix.NFTA_RULE_TABLE]) == t.Name {
			f.Marks = append(f.Marks, markIn(attrs[unix.NFTA_RULE_USERDATA]))
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list rules of table %s: %w", t, err)
	}
	return chains, nil
}

func number(v []byte) uint32 {
	if len(v) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(v)
}

// dump asks for all objects of a kind and calls fn with each one's attributes,
// which are valid only during the call.
func (c *Conn) dump(msg uint8, f Family, attrs []byte, fn func(Family, map[uint16][]byte)) error {
	return c.dumpOf(unix.NFNL_SUBSYS_NFTABLES<<8|uint16(msg), f, attrs, fn)
}

// dumpOf is dump for any subsystem of netfilter.
func (c *Conn) dumpOf(typ uint16, f Family, attrs []byte, fn func(Family, map[uint16][]byte)) error {
	c.drain()
	req := appendHeader(nil, typ, unix.NLM_F_REQUEST|unix.NLM_F_DUMP, 1)
	req = append(req, uint8(f), unix.NFNETLINK_V0, 0, 0)
	req = append(req, attrs...)
	binary.NativeEndian.PutUint32(req, uint32(len(req)))
	if err := unix.Sendto(c.fd, req, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	buf := make([]byte, 1<<20)
	for done := false; !done; {
		n, _, err := unix.Recvfrom(c.fd, buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return os.NewSyscallError("recvfrom", err)
		}
		if done, err = dumped(buf[:n], fn); err != nil {
			return err
		}
	}
	return nil
}

// dumped reads a part of the answer to dump; done: it was the last one.
func dumped(buf []byte, fn func(Family, map[uint16][]byte)) (done bool, err error) {
	err = eachMessage(buf, func(h header, body []byte) error {
		switch {
		case h.typ == unix.NLMSG_DONE:
			done = true
		case h.typ == unix.NLMSG_ERROR && len(body) < 4:
			return errors.New("netlink error that does not say which")
		case h.typ == unix.NLMSG_ERROR:
			return unix.Errno(-int32(binary.NativeEndian.Uint32(body)))
		case len(body) >= 4:
			m := map[uint16][]byte{}
			eachAttr(body[4:], func(typ uint16, v []byte) { m[typ] = v })
			fn(Family(body[0]), m)
		}
		return nil
	})
	return done, err
}
