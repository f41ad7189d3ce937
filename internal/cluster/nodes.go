package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/apiserver/tunnel"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/dialback"
)

// nodes reaches node agents: the agent of this machine by its socket, the agents of
// other machines by their ports, or by the tunnels that they keep to this server.
type nodes struct{ s *server }

var _ tunnel.Nodes = nodes{}

// agentDial is how long it may take to reach the agent of another machine.
const agentDial = 10 * time.Second

// agentHead is how long a node's port may take before its tunnel is used, if it has one.
const agentHead = time.Second

// DialNode opens a connection to the agent of a node. Over the network both ends
// show certificates of the cluster's CA, the agent one that is made out to its
// node: nobody else is believed.
func (d nodes) DialNode(ctx context.Context, name string) (net.Conn, error) {
	if d.s.worker != nil && name == d.s.o.NodeName {
		return (&net.Dialer{}).DialContext(ctx, "unix", d.s.worker.Socket())
	}
	node, ok := client.Cached(d.s.plane.Admin(), core.Nodes, "").Get("", name)
	if !ok {
		return nil, fmt.Errorf("node %s is not registered", name)
	}
	ctx, cancel := context.WithTimeout(ctx, agentDial)
	defer cancel()
	if !d.s.tunnels.Has(name) {
		return d.byPort(ctx, node)
	}
	head, end := context.WithTimeout(ctx, agentHead)
	defer end()
	conn, err := d.byPort(head, node)
	if err == nil {
		return conn, nil
	}
	conn, failed := d.byTunnel(ctx, name)
	if failed != nil {
		return nil, errors.Join(err, failed)
	}
	return conn, nil
}

// byPort connects to where a node says that its agent is served.
func (d nodes) byPort(ctx context.Context, node *corev1.Node) (net.Conn, error) {
	host, port := agentAddress(node)
	if host == "" || port == 0 {
		return nil, fmt.Errorf("node %s does not say where its agent is served", node.Name)
	}
	dialer := tls.Dialer{Config: d.secure(node.Name)}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
	if err != nil {
		return nil, fmt.Errorf("reach the agent of node %s: %w", node.Name, err)
	}
	return conn, nil
}

// byTunnel connects to it by the tunnel. Both ends prove themselves as by the port: who
// keeps the tunnel is not therefore the agent.
func (d nodes) byTunnel(ctx context.Context, name string) (net.Conn, error) {
	raw, err := d.s.tunnels.Dial(ctx, name, dialback.NodeAgent)
	if err != nil {
		return nil, fmt.Errorf("reach the agent of node %s: %w", name, err)
	}
	conn := tls.Client(raw, d.secure(name))
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close() // what went wrong is known
		return nil, fmt.Errorf("reach the agent of node %s by its tunnel: %w", name, err)
	}
	return conn, nil
}

// secure is how connections to the agent of a node are secured.
func (d nodes) secure(name string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: d.s.pki.CA.Pool(), ServerName: name, GetClientCertificate: d.s.pki.KubeletClientCertificate,
	}
}

// agentAddress is where a node says that its agent is served.
func agentAddress(node *corev1.Node) (host string, port int32) {
	for _, kind := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP, corev1.NodeInternalDNS, corev1.NodeHostName} {
		i := slices.IndexFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Type == kind })
		if i >= 0 {
			return node.Status.Addresses[i].Address, node.Status.DaemonEndpoints.KubeletEndpoint.Port
		}
	}
	return "", 0
}
