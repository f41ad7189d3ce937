package cluster

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/discovery"
	"github.com/kemudi/kemudi/internal/apiserver"
	"github.com/kemudi/kemudi/internal/apiserver/tunnel"
	"github.com/kemudi/kemudi/internal/auth/node"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/dialback"
	"github.com/kemudi/kemudi/internal/podnet"
	"github.com/kemudi/kemudi/internal/reach"
	"github.com/kemudi/kemudi/internal/reach/egress"
)

// nodes reaches node agents and pods: the agent of this machine by its socket, all else
// by the network, by the tunnels that agents keep to this server, or by those that they
// keep to another one.
type nodes struct{ s *server }

var _ tunnel.Nodes = nodes{}

// DialNode opens a connection to the agent of a node. Over the network both ends
// show certificates of the cluster's CA, the agent of a node of ours one that is made out to its
// node: nobody else is believed, whichever way led there.
func (d nodes) DialNode(ctx context.Context, name string) (net.Conn, error) {
	if d.own(name) {
		return (&net.Dialer{}).DialContext(ctx, "unix", d.s.worker.Socket())
	}
	node, ok := d.node(name)
	if !ok {
		return nil, fmt.Errorf("node %s is not registered", name)
	}
	ctx, cancel := context.WithTimeout(ctx, d.s.o.Kubelets.Timeout)
	defer cancel()
	to := reach.Target{Node: name, Kind: reach.Agent, Address: d.s.o.Kubelets.address(node)}
	secured, err := d.secure(to, node)
	if err != nil {
		return nil, err
	}
	if tunnel.Unverified(ctx) {
		secured.InsecureSkipVerify, secured.VerifyConnection = true, nil
	}
	to.Prove = func(ctx context.Context, raw net.Conn) (net.Conn, error) {
		conn := tls.Client(raw, secured)
		return conn, conn.HandshakeContext(ctx)
	}
	conn, err := d.s.ways.Dial(ctx, to)
	if err != nil {
		return nil, fmt.Errorf("reach the agent of node %s: %w", name, err)
	}
	return conn, nil
}

// DialAddress opens a connection to an address of a pod on a node, or of the node.
func (d nodes) DialAddress(ctx context.Context, name, address string) (net.Conn, error) {
	node, ok := d.node(name)
	if d.own(name) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", address)
	}
	if !ok {
		return d.direct(ctx, reach.Target{Node: name, Kind: reach.Pod, Address: address})
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("reach %s on node %s: %w", address, name, err)
	}
	kind := reach.Pod
	if slices.ContainsFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Address == host }) {
		kind = reach.Host
	}
	conn, err := d.s.ways.Dial(ctx, reach.Target{Node: name, Kind: kind, Address: address})
	if err != nil {
		return nil, fmt.Errorf("reach %s on node %s: %w", address, name, err)
	}
	return conn, nil
}

// drained tells a node which others may still send something to a pod of it that ends.
func (s *server) drained(ctx context.Context, q apiserver.PlainRequest) (any, error) {
	asker, _ := node.Of(q.User)
	return s.drains.Serve(ctx, asker, q.Name, q.Query)
}

// own reports whether a node is this machine.
func (d nodes) own(name string) bool { return d.s.worker != nil && name == d.s.o.NodeName }

func (d nodes) node(name string) (*corev1.Node, bool) {
	return client.Cached(d.s.plane.Admin(), core.Nodes, "").Get("", name)
}

// ways are the ways that there are to a target now.
func (d nodes) ways(to reach.Target) []reach.Way {
	if d.s.ssh != nil {
		return []reach.Way{{Name: "by SSH", Dial: d.bySSH}}
	}
	if d.s.egress[egress.Cluster] != nil {
		return []reach.Way{{Name: "by the egress proxy", Dial: d.direct}}
	}
	list := []reach.Way{{Name: "by the network", Dial: d.direct}}
	tunnel := reach.Way{Name: "by its tunnel", Dial: d.tunnel}
	if d.s.tunnels.Has(to.Node) {
		if to.Kind == reach.Pod && d.s.worker == nil && d.s.o.Network.PodNetwork != podnet.None {
			// This machine is not of the pod network: whoever has the address here is another.
			return []reach.Way{tunnel, list[0]}
		}
		return append(list, tunnel)
	}
	if time.Now().Before(d.s.backBy) {
		list = append(list, tunnel)
	}
	for _, server := range d.others() {
		list = append(list, reach.Way{Name: "by server " + server, Dial: func(ctx context.Context, to reach.Target) (net.Conn, error) {
			return d.peers().Dial(ctx, server, to.Node, asked(to))
		}})
	}
	return list
}

// direct connects to a target's address, by the egress proxy if there is one.
func (d nodes) direct(ctx context.Context, to reach.Target) (net.Conn, error) {
	if to.Address == "" {
		return nil, fmt.Errorf("node %s does not say where its agent is served", to.Node)
	}
	if dial := d.s.egress.To(egress.Cluster); dial != nil {
		return dial(ctx, "tcp", to.Address)
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", to.Address)
}

// tunnelsWithin is how long after a server's start agents may take to come back with their tunnels.
const tunnelsWithin = 10 * time.Second

func (d nodes) tunnel(ctx context.Context, to reach.Target) (net.Conn, error) {
	coming, cancel := context.WithDeadlineCause(ctx, d.s.backBy, dialback.ErrNoTunnel)
	defer cancel()
	if !d.s.tunnels.Has(to.Node) {
		if err := d.s.tunnels.Wait(coming, to.Node); err != nil {
			return nil, err
		}
	}
	return d.s.tunnels.Dial(ctx, to.Node, asked(to))
}

// asked is what is asked for at the end of a tunnel: a node's agent by a word.
func asked(to reach.Target) string {
	if to.Kind == reach.Agent {
		return dialback.NodeAgent
	}
	return to.Address
}

// peers are the other servers of the cluster, which know this one by its certificate.
func (d nodes) peers() dialback.Peers {
	return dialback.Peers{CA: d.s.pki.CA.Pool(), Certificate: d.s.pki.KubeletClientCertificate}
}

// others are the URLs of the cluster's other servers.
func (d nodes) others() (urls []string) {
	own := net.JoinHostPort(d.s.at.get().advertise.String(), strconv.Itoa(int(d.s.o.SecurePort)))
	for _, s := range client.Cached(d.s.plane.Admin(), discovery.EndpointSlices, "").ByIndex(discovery.IndexService, metav1.NamespaceDefault+"/kubernetes") {
		for _, server := range serverURLs(s) {
			if at, err := url.Parse(server); err == nil && at.Host != own && !slices.Contains(urls, server) {
				urls = append(urls, server)
			}
		}
	}
	return urls
}
