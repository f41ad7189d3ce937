package dialback

import (
	"net"
	"strings"
	"sync"
	"time"
)

// What both ends upgrade to.
const (
	protocol      = "kemudi-tunnel/1"
	relayProtocol = "kemudi-connect/1" // between servers
)

// A server says in every answer about tunnels which it is; an agent says to which it has one.
// Both are in the form that http.Header has them in.
const (
	serverHeader = "Kemudi-Server"
	othersHeader = "Kemudi-Tunnels"
)

// NodeAgent is the address by which a server asks for the node's own agent,
// wherever that is served.
const NodeAgent = "node-agent:0"

// The path of tunnels has the node's name between the first two, that by which a server
// asks another one to use its tunnel between the first and the last.
const (
	pathPrefix  = "/kemudi.io/v1/nodes/"
	pathSuffix  = "/tunnel"
	relaySuffix = "/connect"
)

// Path is where the agent of a node asks for its tunnel.
func Path(node string) string { return pathPrefix + node + pathSuffix }

// RelayPath is where a server asks another one to connect to something on a node.
func RelayPath(node string) string { return pathPrefix + node + relaySuffix }

// IsPath reports whether a path is one of these.
func IsPath(path string) bool {
	rest, ok := strings.CutPrefix(path, pathPrefix)
	node, what, _ := strings.Cut(rest, "/")
	return ok && node != "" && (what == pathSuffix[1:] || what == relaySuffix[1:])
}

// Bounds of tunnels and of what goes through them.
const (
	maxStreams   = 512       // connections at a time through one tunnel
	streamBuffer = 256 << 10 // what may be on its way to a reader that does not read
	// tunnelBuffer has room for all streams: none waits for another's reader (T3).
	tunnelBuffer = maxStreams * streamBuffer

	// agentPing is the silence after which the agent asks whether the server is
	// there. The server is more patient, so that at rest one of them asks.
	agentPing    = 30 * time.Second
	serverPing   = 45 * time.Second
	pingTimeout  = 15 * time.Second
	writeTimeout = 30 * time.Second // for the other end to take any of what is sent

	dialTimeout = 10 * time.Second
	lastWords   = 5 * time.Second // for a target to take what was sent before the stream was closed
)

// watched is a connection that tells when it is closed. The HTTP/2 client closes
// it when it finds that the other end has gone.
type watched struct {
	net.Conn
	once sync.Once
	done chan struct{}
}

func watch(c net.Conn) *watched { return &watched{Conn: c, done: make(chan struct{})} }

// Close closes the connection. It may be called more than once.
func (w *watched) Close() error {
	w.once.Do(func() { close(w.done) })
	return w.Conn.Close()
}
