package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"syscall"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kemudi/kemudi/internal/reach/local"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/wholefile"
)

// nodeKubeconfig is the file in the data directory by which programs on an agent's machine
// reach the API, as the node.
const nodeKubeconfig = "kubelet.kubeconfig"

// serveLocally gives the machine an address of its own that leads to a server that lives,
// and a kubeconfig that names it, unless that is not wanted. Pods do not depend on it: a
// port that is taken is no reason to run none.
func (a *agent) serveLocally(g *task.Group) error {
	if a.o.LocalPort == 0 {
		return nil
	}
	at := net.JoinHostPort("127.0.0.1", strconv.Itoa(int(a.o.LocalPort)))
	l, err := (&net.ListenConfig{}).Listen(g.Context(), "tcp", at)
	if errors.Is(err, syscall.EADDRINUSE) {
		a.o.Logger.Error("the API has no address on this machine: the port is taken; --lb-server-port names another one, or 0 for none", "address", at)
		return nil
	}
	if err != nil {
		return fmt.Errorf("serve the API on this machine: %w; --lb-server-port names another port, or 0 for none", err)
	}
	a.local = local.New(local.Options{Listener: l, Prefer: a.api.Server, Logger: a.o.Logger.With("part", "local API")})
	a.local.SetServers(a.id.Cluster().Servers)
	g.Go("local API", func(ctx context.Context) error { return a.local.Run(ctx) })
	return a.writeKubeconfig("https://" + at)
}

// writeKubeconfig writes the kubeconfig of this machine's node. It names the files of the
// node's certificate and key, which are renewed.
func (a *agent) writeKubeconfig(url string) error {
	const cluster = "kemudi"
	user := "system:node:" + a.o.NodeName
	c := clientcmdapi.NewConfig()
	c.Clusters[cluster] = &clientcmdapi.Cluster{Server: url, CertificateAuthorityData: a.id.Cluster().CA}
	c.AuthInfos[user] = &clientcmdapi.AuthInfo{ClientCertificate: a.identityFile("client.crt"), ClientKey: a.identityFile("client.key")}
	c.Contexts[user+"@"+cluster] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: user}
	c.CurrentContext = user + "@" + cluster
	data, err := clientcmd.Write(*c)
	if err != nil {
		return fmt.Errorf("encode kubeconfig: %w", err)
	}
	return wholefile.Private(filepath.Join(a.o.DataDir, nodeKubeconfig), data)
}
