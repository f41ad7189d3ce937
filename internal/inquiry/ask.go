package inquiry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"

	"github.com/kemudi/kemudi/internal/rawconn"
	"github.com/kemudi/kemudi/internal/store/etcd"
)

// Asker asks other servers. It may be used concurrently.
type Asker struct {
	// Others are the URLs of the other servers, as they are known now.
	Others func() []string
	// Caller is who calls them.
	Caller func() rawconn.Caller

	mu struct {
		sync.Mutex
		lines map[uint64]net.Conn // by the members at their other ends
		over  bool
	}
}

var errNoMoreQuestions = errors.New("this server stops")

// Ask asks a member, by the connection that is kept to it. It may have been given up at the other end. There
// is one question at a time, of a bounded time each: those who come meanwhile share the next one.
func (a *Asker) Ask(ctx context.Context, of etcd.Other) (etcd.Standing, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if kept := a.mu.lines[of.Asked]; kept != nil {
		said, err := inquire(ctx, kept)
		if err == nil && said.Member == of.Asked {
			return said, nil
		}
		a.drop(of.Asked)
		if ctx.Err() != nil {
			return said, fmt.Errorf("ask how far the store is: %w", err)
		}
	}
	return a.find(ctx, of)
}

// find asks the servers on the machines of a member, until it is the one that answers, and keeps the connections.
func (a *Asker) find(ctx context.Context, of etcd.Other) (etcd.Standing, error) {
	if a.mu.over {
		return etcd.Standing{}, errNoMoreQuestions
	}
	var hosts []string
	for _, peer := range of.Peers {
		if at, err := url.Parse(peer); err == nil {
			hosts = append(hosts, at.Hostname())
		}
	}
	for _, server := range a.Others() {
		at, err := url.Parse(server)
		if err != nil || !slices.Contains(hosts, at.Hostname()) {
			continue
		}
		at.Path, at.RawQuery = Path, url.Values{"asker": {strconv.FormatUint(of.Asker, 16)}}.Encode()
		said, err := a.call(ctx, at)
		if err != nil {
			return said, fmt.Errorf("ask how far the store is: %w", err)
		}
		if said.Member == of.Asked { // else it is another server of that machine
			return said, nil
		}
	}
	return etcd.Standing{}, fmt.Errorf("no server at %v is member %x of the store", hosts, of.Asked)
}

// call asks by a new connection, which is kept.
func (a *Asker) call(ctx context.Context, at *url.URL) (etcd.Standing, error) {
	caller := a.Caller()
	conn, _, err := caller.Call(ctx, at, http.Header{"Upgrade": {protocol}})
	if err != nil {
		return etcd.Standing{}, err
	}
	said, err := inquire(ctx, conn)
	if err != nil {
		_ = conn.Close()
		return said, err
	}
	a.drop(said.Member)
	if a.mu.lines == nil {
		a.mu.lines = map[uint64]net.Conn{}
	}
	a.mu.lines[said.Member] = conn
	return said, nil
}

// drop closes the connection to a member, if there is one.
func (a *Asker) drop(member uint64) {
	if kept := a.mu.lines[member]; kept != nil {
		_ = kept.Close()
		delete(a.mu.lines, member)
	}
}

// inquire asks by a connection, for as long as ctx says.
func inquire(ctx context.Context, conn net.Conn) (said etcd.Standing, _ error) {
	until, _ := ctx.Deadline() // the zero time is for ever
	if err := conn.SetDeadline(until); err != nil {
		return said, err
	}
	var b [size]byte
	if _, err := conn.Write(b[:1]); err != nil {
		return said, err
	}
	if _, err := io.ReadFull(conn, b[:]); err != nil {
		return said, err
	}
	return read(&b), nil
}

// Close closes the connections, for good.
func (a *Asker) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.over = true
	for member := range a.mu.lines {
		a.drop(member)
	}
}
