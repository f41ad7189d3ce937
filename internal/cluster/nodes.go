package cluster

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/apiserver/tunnel"
	"github.com/kemudi/kemudi/internal/client"
)

// nodes reaches node agents: the agent of this machine by its socket, the agents of
// other machines by their ports.
type nodes struct{ s *server }

var _ tunnel.Nodes = nodes{}

// agentDial is how long it may take to reach the agent of another machine.
const agentDial = 10 * time.Second

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
	host, port := agentAddress(node)
	if host == "" || port == 0 {
		return nil, fmt.Errorf("node %s does not say where its agent is served", name)
	}
	ctx, cancel := context.WithTimeout(ctx, agentDial)
	defer cancel()
	dialer := tls.Dialer{Config: &tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: d.s.pki.CA.Pool(), ServerName: name, GetClientCertificate: d.s.pki.KubeletClientCertificate,
	}}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
	if err != nil {
		return nil, fmt.Errorf("reach the agent of node %s: %w", name, err)
	}
	return conn, nil
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
