package ssh

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/kemudi/kemudi/internal/task"
)

// Options of tunnels. All are required.
type Options struct {
	User    string // that the server logs in as, on every node
	KeyFile string // its private key, in PEM, without a passphrase
	// KnownHosts is the file with the keys of the nodes' SSH servers, as ssh has it, by the
	// names of the nodes. The key of one that it does not name is believed the first time,
	// and noted.
	KnownHosts string
	Logger     *slog.Logger
}

// Bounds of connections.
const (
	loginTimeout = 10 * time.Second
	lookPeriod   = 30 * time.Second // between two looks at whether a connection is used and alive
	idleLooks    = 10               // that find nobody to use it, and then it is closed
	pingTimeout  = 10 * time.Second
)

// Tunnels keeps a connection to each node that somebody wants to reach. Its methods may
// be called concurrently.
type Tunnels struct {
	o     Options
	hosts knownHosts

	mu struct {
		sync.Mutex
		nodes map[string]*login
	}
}

// login is the connection to one node, or the try to make one.
type login struct {
	done   chan struct{} // closed when client and err are there
	client *ssh.Client
	ended  <-chan struct{} // closed when the client's connection is
	err    error

	uses, idle int // connections through it now; looks that found none. Guarded by Tunnels.mu
}

// New returns tunnels to no node yet. It reads the files.
func New(o Options) (*Tunnels, error) {
	t := &Tunnels{o: o, hosts: knownHosts(o.KnownHosts)}
	if _, err := t.key(); err != nil {
		return nil, err
	}
	if _, err := t.hosts.of(""); err != nil {
		return nil, err
	}
	t.mu.nodes = map[string]*login{}
	return t, nil
}

// key reads the key that servers log in with: for each connection, so that it may be replaced.
func (t *Tunnels) key() (ssh.Signer, error) {
	text, err := os.ReadFile(t.o.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("--ssh-keyfile: %w; a key is made by: ssh-keygen -t ed25519 -N '' -f %s", err, t.o.KeyFile)
	}
	key, err := ssh.ParsePrivateKey(text)
	if err != nil {
		return nil, fmt.Errorf("--ssh-keyfile %s: %w", t.o.KeyFile, err)
	}
	return key, nil
}

// Target is what is to be reached by SSH.
type Target struct {
	Node    string // whose SSH server is asked
	Server  string // where that is, "10.0.0.7:22"
	Address string // to what it is to connect, likewise
}

// Dial has the SSH server of a node connect to an address. ctx bounds the time until it
// has.
func (t *Tunnels) Dial(ctx context.Context, to Target) (net.Conn, error) {
	for again := false; ; again = true {
		l, kept := t.use(to.Node)
		if !kept {
			l.err = t.logIn(ctx, l, to)
			close(l.done)
		}
		conn, err := l.dial(ctx, to.Address)
		if err == nil {
			return &connection{Conn: conn, leave: sync.OnceFunc(func() { t.leave(l) })}, nil
		}
		t.leave(l)
		var no *ssh.OpenChannelError
		if errors.As(err, &no) {
			return nil, fmt.Errorf("connect to %s by SSH: node %s: %w", to.Address, to.Node, err)
		}
		if ctx.Err() == nil || l.err != nil {
			t.drop(to.Node, l)
		}
		if !kept || again || ctx.Err() != nil { // a connection that was kept may have ended without a word
			return nil, fmt.Errorf("connect to %s by SSH: %w", to.Address, err)
		}
	}
}

// use returns the connection to a node; if it is not kept, the caller makes it.
func (t *Tunnels) use(node string) (l *login, kept bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l, kept = t.mu.nodes[node]
	if !kept {
		l = &login{done: make(chan struct{})}
		t.mu.nodes[node] = l
	}
	l.uses++
	return l, kept
}

func (t *Tunnels) leave(l *login) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l.uses--
	l.idle = 0
}

// drop forgets a connection that has failed, and closes it.
func (t *Tunnels) drop(node string, l *login) {
	t.mu.Lock()
	if t.mu.nodes[node] == l {
		delete(t.mu.nodes, node)
	}
	t.mu.Unlock()
	if l.client != nil {
		_ = l.client.Close() // who uses it is told
	}
}

// errEnded says that a connection to a node's SSH server is no more.
var errEnded = errors.New("the connection to the node's SSH server has ended")

// dial connects through the login, once that is there, and no longer than it lasts: what is
// asked of the library in the moment in which a connection ends is not answered.
func (l *login) dial(ctx context.Context, address string) (net.Conn, error) {
	select {
	case <-l.done:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if l.err != nil {
		return nil, l.err
	}
	asking, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer func() {
		stop()
		wg.Wait()
	}()
	wg.Go(func() {
		select {
		case <-l.ended:
			stop()
		case <-asking.Done():
		}
	})
	conn, err := l.client.DialContext(asking, "tcp", address)
	if err != nil && ctx.Err() == nil && asking.Err() != nil {
		return nil, errEnded
	}
	return conn, err
}

// raw is what an SSH connection goes by. The library closes it when that has ended, after
// it has told all those who wait for answers.
type raw struct {
	net.Conn
	end func()
}

// Close says that the connection has ended, and closes it.
func (r raw) Close() error {
	r.end()
	return r.Conn.Close()
}

// logIn connects to a node's SSH server, for a login.
func (t *Tunnels) logIn(ctx context.Context, l *login, to Target) error {
	node, server := to.Node, to.Server
	ctx, cancel := context.WithTimeoutCause(ctx, loginTimeout, fmt.Errorf("no answer within %s", loginTimeout))
	defer cancel()
	key, err := t.key()
	if err != nil {
		return err
	}
	known, err := t.hosts.of(node)
	if err != nil {
		return err
	}
	tcp, err := (&net.Dialer{}).DialContext(ctx, "tcp", server)
	if err != nil {
		return fmt.Errorf("log in to node %s: %w", node, err)
	}
	ended := make(chan struct{})
	by := raw{Conn: tcp, end: sync.OnceFunc(func() { close(ended) })}
	stop := context.AfterFunc(ctx, func() { _ = by.Close() })
	conn, channels, requests, err := ssh.NewClientConn(by, server, &ssh.ClientConfig{
		User: t.o.User, Auth: []ssh.AuthMethod{ssh.PublicKeys(key)}, ClientVersion: "SSH-2.0-kemudi",
		HostKeyAlgorithms: algorithms(known),
		HostKeyCallback:   func(_ string, _ net.Addr, shown ssh.PublicKey) error { return t.hosts.check(node, known, shown) },
	})
	if !stop() && err == nil {
		_ = conn.Close() // and what it goes by
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = by.Close()
		return fmt.Errorf("log in to node %s as %s: %w", node, t.o.User, err)
	}
	t.o.Logger.InfoContext(ctx, "SSH connection to node is open", "node", node, "server", server)
	l.client, l.ended = ssh.NewClient(conn, channels, requests), ended
	return nil
}

// Run looks after the connections until ctx ends, and then closes them: those that
// nobody uses for some minutes are closed, and those that do not answer.
func (t *Tunnels) Run(ctx context.Context) error {
	for task.Sleep(ctx, lookPeriod) == nil {
		var pings sync.WaitGroup
		for node, l := range t.open() {
			pings.Go(func() {
				if !t.wanted(l) || !answers(ctx, l.client) {
					t.drop(node, l)
				}
			})
		}
		pings.Wait()
	}
	for node, l := range t.open() {
		t.drop(node, l)
	}
	return nil
}

// open are the connections that are there.
func (t *Tunnels) open() map[string]*login {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := map[string]*login{}
	for node, l := range t.mu.nodes {
		select {
		case <-l.done:
			if l.err == nil {
				list[node] = l
			}
		default: // it is being made
		}
	}
	return list
}

// wanted reports whether somebody has used a connection lately.
func (t *Tunnels) wanted(l *login) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l.uses > 0 {
		return true
	}
	l.idle++
	return l.idle <= idleLooks
}

// answers asks the other end of a connection for a sign of life. One that gives none is
// closed, so that the question ends.
func answers(ctx context.Context, c *ssh.Client) bool {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	_, _, err := c.SendRequest("keepalive@openssh.com", true, nil)
	return err == nil
}
