package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"sync/atomic"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/cloud"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/worker"
	"github.com/kemudi/kemudi/internal/worker/settings"
)

// newWorker begins to make this machine one that runs pods.
func (s *server) newWorker(sg *stages) (*worker.Worker, error) {
	o := s.o.worker(sg)
	o.Registry = s.registry
	o.Agent.SaidIPs = s.at.asked.node()
	return worker.New(sg.last, o)
}

// startWorker has this machine run pods, of this server's cluster.
func (s *server) startWorker(g *task.Group) error {
	if err := s.serving.renew(); err != nil {
		return err
	}
	authority := s.pki.CA.Pool()
	if err := s.worker.Start(g, worker.Cluster{
		Transport: s.asNode(), ClientCA: func() *x509.CertPool { return authority }, Serving: s.serving.get, NodeIPs: s.at.get().node(), Settings: s.o.settings(),
		Others: s.drains.Others(s.o.NodeName),
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
		NodePorts: n.NodePorts.String(), Servers: o.alike(),
	}
}
