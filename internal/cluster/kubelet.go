package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kemudi/kemudi/internal/client/https"
	"github.com/kemudi/kemudi/internal/join"
	"github.com/kemudi/kemudi/internal/kubelet/machine"
	"github.com/kemudi/kemudi/internal/obs"
	"github.com/kemudi/kemudi/internal/parts"
	"github.com/kemudi/kemudi/internal/scavenge"
	"github.com/kemudi/kemudi/internal/secureport"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/version"
	"github.com/kemudi/kemudi/internal/wholefile"
	"github.com/kemudi/kemudi/internal/worker"
	"github.com/kemudi/kemudi/internal/worker/settings"
)

// KubeletOptions configure a node agent that is a process of its own, with a container runtime:
// others are its network, service proxy and DNS.
type KubeletOptions struct {
	Machine

	Kubeconfig string // --kubeconfig
	Bootstrap  string // --bootstrap-kubeconfig: gets the certificate of Kubeconfig, where that is missing
	CertDir    string // --cert-dir
	Rotate     bool   // --rotate-certificates: renew what Bootstrap has got

	ServingCert, ServingKey string // --tls-cert-file, --tls-private-key-file; none: a certificate that nobody has signed
	ServingRequested        bool   // --rotate-server-certificates: the cluster signs it
	ClientCA                string // --client-ca-file: of those who may ask the agent

	ClusterDNS    []netip.Addr // --cluster-dns
	ClusterDomain string       // --cluster-domain
	CNIConfDir    string       // --cni-conf-dir
	CloudProvider string       // --cloud-provider

	HealthzAddress netip.Addr // --healthz-bind-address
	HealthzPort    uint16     // --healthz-port; 0: not served
}

// KubeletDefaults are the options of a node agent alone that is given none.
func KubeletDefaults() KubeletOptions {
	o := KubeletOptions{
		Machine: defaultMachine(), CertDir: "/var/lib/kubelet/pki", CNIConfDir: "/etc/cni/net.d",
		HealthzAddress: netip.MustParseAddr("127.0.0.1"), HealthzPort: 10248,
	}
	o.Agent.RootDir = "/var/lib/kubelet"
	return o
}

// check says what is wrong with the options.
func (o *KubeletOptions) check() error {
	if o.Kubeconfig == "" {
		return errors.New("--kubeconfig: want the file that says where the API is, and who the node is there")
	}
	if (o.ServingCert == "") != (o.ServingKey == "") {
		return errors.New("--tls-cert-file and --tls-private-key-file go together")
	}
	if o.ServingCert != "" && o.ServingRequested {
		return errors.New("--rotate-server-certificates and --tls-cert-file: give one of them")
	}
	if o.CloudProvider != "" && o.CloudProvider != "external" {
		return fmt.Errorf("--cloud-provider %s: want external, or nothing", o.CloudProvider)
	}
	return o.Agent.TLS.Check()
}

// nodeAgent is a running node agent alone.
type nodeAgent struct {
	o      KubeletOptions
	at     place
	id     *join.Identity
	api    *https.Transport
	worker *worker.Worker
}

// RunKubelet runs a node agent alone until ctx ends or a part of it fails. Containers keep
// running when it returns.
func RunKubelet(ctx context.Context, o KubeletOptions) error {
	asked := addresses{first: o.NodeIP, second: o.SecondNodeIP}
	if err := o.check(); err != nil {
		return err
	}
	if err := o.complete(); err != nil {
		return err
	}
	if err := o.checkNode(""); err != nil {
		return err
	}
	if err := settleProcess(0); err != nil {
		return err
	}
	release, err := o.claim()
	if err != nil {
		return err
	}
	defer release()
	a := &nodeAgent{o: o}
	a.at.log, a.at.asked, a.at.find = o.Logger, asked, a.findAddresses
	sg := newStages(ctx)
	w := o.worker(sg)
	w.Alone, w.CNIConfDir = true, o.CNIConfDir
	w.Agent.SaidIPs = asked.node()
	w.DNS = o.ClusterDNS
	if a.worker, err = worker.New(sg.last, w); err != nil {
		return sg.fail(err)
	}
	if err := a.start(sg); err != nil {
		return sg.fail(err)
	}
	return sg.wait()
}

// start starts the agent.
func (a *nodeAgent) start(sg *stages) error {
	g, o := sg.last, &a.o
	found, err := a.findAddresses(a.at.asked)
	if err != nil {
		return err
	}
	a.at.set(found)
	health := &obs.Health{Log: o.Logger}
	if err := (parts.Plain{Flag: "--healthz-bind-address", At: netip.AddrPortFrom(o.HealthzAddress, o.HealthzPort), Handler: healthz(health)}).Serve(g); err != nil {
		return err
	}
	if err := a.connect(g.Context()); err != nil {
		return err
	}
	sg.plane.Go("connection to the servers", a.api.Run)
	if o.Rotate && a.id.Joined() {
		g.Go("client certificate", func(ctx context.Context) error { return a.id.RunClient(ctx, a.api) })
	}
	c := worker.Cluster{Transport: a.api, NodeIPs: a.at.get().node(), Settings: settings.Settings{ClusterDomain: o.ClusterDomain, CloudProvider: o.CloudProvider}}
	if c.Metrics = a.api.Metrics(); a.id.Joined() {
		c.Metrics = append(c.Metrics, a.id.Metrics())
	}
	if c.Serving, err = a.serving(g); err != nil {
		return err
	}
	if c.ClientCA, err = secureport.Certificates("--client-ca-file", o.ClientCA); err != nil {
		return err
	}
	if err := a.worker.Start(g, c); err != nil {
		return err
	}
	moved := make(chan struct{}, 1) // a token: addresses may have changed
	g.Go("follow addresses", func(ctx context.Context) error { return followAddresses(ctx, moved) })
	g.Go("keep addresses", func(ctx context.Context) error { return a.at.keep(ctx, moved, nil, a.settle) })
	g.Go("memory", func(ctx context.Context) error {
		return scavenge.Run(ctx, scavenge.Options{Log: o.Logger.With("part", "memory")})
	})
	o.Step("node agent", true)
	return nil
}

// healthz serves /healthz.
func healthz(h *obs.Health) http.Handler {
	mux := http.NewServeMux()
	h.Install(mux, "healthz")
	return mux
}

// connect finds out where the API is and who the node is there, or, without a kubeconfig, has the
// cluster say so.
func (a *nodeAgent) connect(ctx context.Context) (err error) {
	o := &a.o
	if a.id, err = join.Open(join.Options{
		Dir: o.CertDir, NodeName: o.NodeName, Machine: machine.Identify().SystemUUID,
		Hosts: func() []string { return a.at.get().node() }, Log: o.Logger.With("part", "join"), Version: version.Git(),
	}); err != nil {
		return err
	}
	if _, err := os.Stat(o.Kubeconfig); errors.Is(err, os.ErrNotExist) && o.Bootstrap != "" {
		if err := a.bootstrap(ctx); err != nil {
			return err
		}
	}
	a.api, err = parts.API{Kubeconfig: o.Kubeconfig, Tracing: a.worker.Tracing()}.Connect("kubelet", o.Logger)
	return err
}

// bootstrap gets the node's certificate by the bootstrap kubeconfig, and writes the kubeconfig
// that shows it.
func (a *nodeAgent) bootstrap(ctx context.Context) error {
	o := &a.o
	config, err := clientcmd.BuildConfigFromFlags("", o.Bootstrap)
	if err != nil {
		return fmt.Errorf("--bootstrap-kubeconfig: %w", err)
	}
	config.UserAgent = "kubelet"
	options, err := https.FromConfig(config)
	if err != nil {
		return fmt.Errorf("--bootstrap-kubeconfig: %w", err)
	}
	options.Logger = o.Logger.With("part", "join")
	t, err := https.New(options)
	if err != nil {
		return err
	}
	if err := a.id.Bootstrap(ctx, t, join.Cluster{Servers: options.Servers, CA: options.CA}); err != nil {
		return err
	}
	made := clientcmdapi.NewConfig()
	made.Clusters["default-cluster"] = &clientcmdapi.Cluster{Server: options.Servers[0], CertificateAuthorityData: options.CA}
	made.AuthInfos["default-auth"] = &clientcmdapi.AuthInfo{ClientCertificate: filepath.Join(o.CertDir, "client.crt"), ClientKey: filepath.Join(o.CertDir, "client.key")}
	made.Contexts["default-context"] = &clientcmdapi.Context{Cluster: "default-cluster", AuthInfo: "default-auth"}
	made.CurrentContext = "default-context"
	text, err := clientcmd.Write(*made)
	if err != nil {
		return fmt.Errorf("write --kubeconfig: %w", err)
	}
	return wholefile.Private(o.Kubeconfig, text)
}

// serving is the certificate of the agent's port.
func (a *nodeAgent) serving(g *task.Group) (func() (*tls.Certificate, error), error) {
	if a.o.ServingRequested {
		g.Go("serving certificate", func(ctx context.Context) error { return a.id.RunServing(ctx, a.api) })
		return a.id.Serving, nil
	}
	return secureport.ServingCertificate(secureport.Serving{
		Name: a.o.NodeName, Hosts: a.at.get().node(), CertFile: a.o.ServingCert, KeyFile: a.o.ServingKey,
	})
}

// findAddresses finds out the machine's addresses that are not asked for.
func (a *nodeAgent) findAddresses(asked addresses) (addresses, error) {
	m := a.o.Machine
	m.NodeIP, m.SecondNodeIP = asked.first, asked.second
	err := m.findAddresses(true, false)
	return addresses{first: m.NodeIP, second: m.SecondNodeIP}, err
}

// settle brings everything that names this machine's addresses up to date.
func (a *nodeAgent) settle(context.Context) error {
	a.worker.SetNodeIPs(a.at.get().node())
	a.id.Changed()
	return nil
}
