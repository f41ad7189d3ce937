package table

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"

	"github.com/kemudi/kemudi/internal/podnet/nft"
)

// Kernel brings changes of tables to the kernel of one network namespace. One
// goroutine at a time uses it.
type Kernel struct {
	conn *nft.Conn
	// noIPv6 says that this kernel has no IPv6: it would refuse such a table.
	noIPv6 bool
}

// Open works on the network namespace of the calling thread.
func Open() (*Kernel, error) {
	conn, err := nft.Open()
	if err != nil {
		return nil, err
	}
	_, err = os.Stat("/proc/sys/net/ipv6")
	return &Kernel{conn, errors.Is(err, fs.ErrNotExist)}, nil
}

// Close may be called more than once.
func (k *Kernel) Close() { k.conn.Close() }

// Conn is the connection that changes are written by, for what is to be read or
// written beside them.
func (k *Kernel) Conn() *nft.Conn { return k.conn }

// Watch opens a watch of changes that are not made through k.
func (k *Kernel) Watch() (*nft.Watch, error) { return k.conn.Watch() }

// Apply makes the changes, in one transaction for all tables. Of a table that is given
// in full only those elements are written that differ, if its chains are as they are to be; if not, it is
// written in place, so that the sets which rules fill stay as they are;
// if the kernel refuses that, it is made anew. After an error the caller gives all
// of its tables in full.
func (k *Kernel) Apply(ctx context.Context, tables ...Changes) error {
	if k.noIPv6 {
		tables = slices.DeleteFunc(slices.Clone(tables), func(c Changes) bool { return c.Table.Family == nft.IPv6 })
	}
	var b nft.Batch
	for i := range tables {
		c := &tables[i]
		switch {
		case c.Full:
			if err := k.renew(&b, c); err != nil {
				return err
			}
		case !c.Empty():
			c.write(&b)
		}
	}
	err := k.conn.Commit(ctx, &b)
	if err == nil || !slices.ContainsFunc(tables, func(c Changes) bool { return c.Full }) {
		return err
	}
	// Something in our tables was not what we can build upon: begin anew.
	if rebuildErr := k.rebuild(ctx, tables); rebuildErr != nil {
		return errors.Join(err, rebuildErr)
	}
	return nil
}

// renew makes the table what it ought to be, whatever it is now.
func (k *Kernel) renew(b *nft.Batch, c *Changes) error {
	t := c.Table
	exists, err := k.conn.Has(t)
	if err != nil {
		return err
	}
	var old []string
	kept := map[string]bool{}
	if exists {
		diff, same, err := k.differences(c)
		if err != nil {
			return err
		}
		if same {
			diff.write(b)
			return nil
		}
		if old, kept, err = k.empty(b, c); err != nil {
			return err
		}
	}
	b.AddTable(t)
	fresh := *c
	fresh.Sets = slices.DeleteFunc(slices.Clone(c.Sets), func(s *Set) bool { return kept[s.Name] })
	fresh.write(b)
	for _, name := range old {
		if !slices.ContainsFunc(c.Chains, func(ch Chain) bool { return ch.Name == name }) {
			b.DelChain(t, name)
		}
	}
	return nil
}

// empty takes the content out of an existing table: the rules of all chains, and all
// sets but those that rules have filled. It returns the chains, and the sets that were
// kept. A set is made anew and not emptied: what is in it is there until the end of the
// transaction, and the kernel walks through it for each rule that is to use it.
func (k *Kernel) empty(b *nft.Batch, c *Changes) (chains []string, kept map[string]bool, err error) {
	t := c.Table
	if chains, err = k.conn.Chains(t); err != nil {
		return nil, nil, err
	}
	for _, name := range chains {
		b.FlushChain(t, name)
	}
	found, err := k.conn.Sets(t)
	if err != nil {
		return nil, nil, err
	}
	want := map[string]*Set{}
	for _, s := range c.Sets {
		want[s.Name] = s
	}
	kept = map[string]bool{}
	for _, f := range found {
		if w, ok := want[f.Name]; ok && w.Keep && f.Matches(w.Set) {
			kept[f.Name] = true
			continue
		}
		b.DelSet(t, f.Name)
	}
	return chains, kept, nil
}

// rebuild replaces the tables that are given in full by new ones, and changes the
// others as is said.
func (k *Kernel) rebuild(ctx context.Context, tables []Changes) error {
	var b nft.Batch
	for i := range tables {
		c := &tables[i]
		if !c.Full {
			c.write(&b)
			continue
		}
		b.AddTable(c.Table) // so that the deletion cannot fail
		b.DelTable(c.Table)
		b.AddTable(c.Table)
		c.write(&b)
	}
	return k.conn.Commit(ctx, &b)
}

// Remove takes the tables away, those that there are. It returns what it removed,
// for people.
func (k *Kernel) Remove(ctx context.Context, tables ...nft.Table) (removed []string, err error) {
	var b nft.Batch
	for _, t := range tables {
		found, err := k.conn.Has(t)
		if err != nil {
			return nil, err
		}
		if found {
			b.DelTable(t)
			removed = append(removed, "nftables table "+t.String())
		}
	}
	if err := k.conn.Commit(ctx, &b); err != nil {
		return nil, err
	}
	return removed, nil
}
