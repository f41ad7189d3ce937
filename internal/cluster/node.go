package cluster

import (
	"context"
	"crypto/tls"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/cloud"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/worker"
	"github.com/kemudi/kemudi/internal/worker/settings"
)

// newWorker begins to make this machine one that runs pods.
func (s *server) newWorker(g *task.Group) (*worker.Worker, error) {
	o := s.o.worker()
	o.Registry = s.registry
	o.Agent.SaidIPs = s.at.asked.said()
	return worker.New(g, o)
}

// startWorker has this machine run pods, of this server's cluster.
func (s *server) startWorker(g *task.Group) error {
	if err := s.serving.renew(); err != nil {
		return err
	}
	g.Go("node role", s.keepRole)
	if err := s.worker.Start(g, worker.Cluster{
		Transport: s.asNode(), ClientCA: s.pki.CA.Pool(), Serving: s.serving.get, NodeIPs: s.at.get().node(), Settings: s.o.settings(),
	}); err != nil {
		return err
	}
	s.o.Step("node is ready", true)
	return nil
}

// asNode is the API as this machine's node sees it.
func (s *server) asNode() client.Transport {
	self := &user.DefaultInfo{Name: "system:node:" + s.o.NodeName, Groups: []string{user.NodesGroup, user.AllAuthenticated}}
	return s.plane.Server().As(self, "kubelet")
}

// serving is the certificate of this machine's node agent.
type serving struct {
	s    *server
	cert atomic.Pointer[tls.Certificate]
}

// renew makes the certificate, or reads the one that is still good.
func (c *serving) renew() error {
	o := &c.s.o
	pair, err := c.s.pki.Pair("kubelet", pki.Subject{
		Name: "system:node:" + o.NodeName, Organizations: []string{"system:nodes"}, Server: true,
		Hosts: append(c.s.at.get().node(), o.NodeName, "localhost", "127.0.0.1", "::1"),
	})
	if err != nil {
		return err
	}
	cert := pair.TLS()
	c.cert.Store(&cert)
	return nil
}

func (c *serving) get() (*tls.Certificate, error) { return c.cert.Load(), nil }

// settings is what all machines of the cluster have in common.
func (o *Options) settings() settings.Settings {
	n, provider := &o.Network, ""
	if o.Controllers.Cloud.Name != "" {
		provider = cloud.External // to a node, wherever its loops run
	}
	return settings.Settings{
		CloudProvider: provider,
		ClusterCIDRs:  n.ClusterCIDRs, ServiceCIDRs: n.ServiceCIDRs, ClusterDNS: n.ClusterDNS, ClusterDomain: n.ClusterDomain,
		PodNetwork: string(n.PodNetwork), VXLANPort: n.VXLAN.Port, VXLANID: n.VXLAN.ID,
	}
}

// keepRole keeps the label on this machine's Node that says that it is a server too, until
// ctx ends: a node may not say that of itself.
func (s *server) keepRole(ctx context.Context) error {
	nodes := client.Cached(s.plane.Admin(), core.Nodes, "")
	return nodes.Each(ctx, cache.FollowOptions{}, func([]cache.Delta) error {
		node, ok := nodes.Get("", s.o.NodeName)
		if !ok {
			return nil
		}
		if _, has := node.Labels[roleLabel]; has {
			return nil
		}
		_, err := client.For(s.plane.Admin(), core.Nodes).Patch(ctx, "", node.Name, "", client.Patch{
			Type: types.MergePatchType, Data: []byte(`{"metadata":{"labels":{"` + roleLabel + `":""}}}`),
		})
		if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			s.o.Logger.Warn("this machine's node does not say that it is of the control plane", "node", node.Name, "err", err)
		}
		return nil
	})
}

// roleLabel is on the nodes that run the control plane too.
const roleLabel = "node-role.kubernetes.io/control-plane"
