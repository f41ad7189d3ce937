package cluster

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/discovery"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/client/https"
	"github.com/kemudi/kemudi/internal/dialback"
	"github.com/kemudi/kemudi/internal/drain"
	"github.com/kemudi/kemudi/internal/join"
	"github.com/kemudi/kemudi/internal/kubelet/machine"
	"github.com/kemudi/kemudi/internal/obs"
	"github.com/kemudi/kemudi/internal/reach/local"
	"github.com/kemudi/kemudi/internal/scavenge"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/version"
	"github.com/kemudi/kemudi/internal/wholefile"
	"github.com/kemudi/kemudi/internal/worker"
	"github.com/kemudi/kemudi/internal/worker/settings"
)

// AgentOptions configure an agent: a machine that runs pods of a cluster whose servers
// are others.
type AgentOptions struct {
	Machine

	Servers []string          // --server: URLs or addresses; none: those that it knows from before
	Token   join.Token        // --token, --token-file; none: it has joined before
	Said    settings.Settings // --cluster-cidr and others: what is said must be so in the cluster

	LocalPort uint16 // --lb-server-port: of 127.0.0.1, which leads to a server; 0: there is none
}

// AgentDefaults are the options of an agent that is given none, as its flags show them.
func AgentDefaults() AgentOptions { return AgentOptions{Machine: defaultMachine(), LocalPort: 6444} }

// agent is one running agent.
type agent struct {
	o       AgentOptions
	at      place
	id      *join.Identity
	api     *https.Transport
	worker  *worker.Worker
	tunnels *dialback.Agent
	local   *local.Address    // nil: the machine has none
	common  settings.Settings // of the cluster
}

// RunAgent runs an agent until ctx ends or a part of it fails. Containers keep running
// when it returns.
func RunAgent(ctx context.Context, o AgentOptions) error {
	asked := addresses{first: o.NodeIP, second: o.SecondNodeIP}
	if err := o.complete(); err != nil {
		return err
	}
	if err := o.checkNode(""); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(o.DataDir, "pki", "ca.key")); err == nil {
		return fmt.Errorf("%s has the data of a server: run kemudi server here, or remove it with kemudi reset to have an agent, or name another directory (--data-dir)", o.DataDir)
	}
	if err := settleProcess(0); err != nil {
		return err
	}
	release, err := o.claim()
	if err != nil {
		return err
	}
	defer release()
	a := &agent{o: o}
	a.at.log, a.at.asked, a.at.find = o.Logger, asked, a.findAddresses
	sg := newStages(ctx)
	// The container runtime boots while the machine joins.
	w := o.worker(sg)
	w.Agent.SaidIPs = asked.node()
	if a.worker, err = worker.New(sg.last, w); err != nil {
		return sg.fail(err)
	}
	if err := a.start(sg); err != nil {
		return sg.fail(err)
	}
	return sg.wait()
}

// start joins the cluster and starts the parts, in order.
func (a *agent) start(sg *stages) error {
	g := sg.last
	if err := a.join(g.Context()); err != nil {
		return err
	}
	a.o.Step("joined the cluster", false)
	known := a.id.Cluster()
	var err error
	a.api, err = https.New(https.Options{
		Servers: known.Servers, CA: known.CA, Certificate: a.id.Certificate, Agent: "kubelet", Tracing: a.worker.Tracing(), Logger: a.o.Logger.With("part", "api"),
		Trim: worker.Trim(a.o.NodeName), Memory: worker.Memory(a.o.DataDir, a.id.Silent(), a.worker.Disbelieved),
	})
	if err != nil {
		return err
	}
	sg.plane.Go("connection to the servers", a.api.Run)
	if err := a.serveLocally(g); err != nil {
		return err
	}
	if err := a.learn(g.Context()); err != nil {
		return err
	}
	found, err := a.findAddresses(a.at.asked)
	if err != nil {
		return err
	}
	a.at.set(found)
	g.Go("certificates", func(ctx context.Context) error { return a.id.Run(ctx, a.api) })
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(known.CA) {
		return errors.New("the cluster's authority, as this machine knows it, is no certificate: run 'kemudi reset' here and join again")
	}
	if err := a.worker.Start(g, worker.Cluster{
		Transport: a.api, ClientCA: func() *x509.CertPool { return authorities }, Serving: a.id.Serving, NodeIPs: a.at.get().node(), Settings: a.common,
		Others: drain.ByServers(a.api), Metrics: append(a.api.Metrics(), a.id.Metrics()),
	}); err != nil {
		return err
	}
	if a.tunnels, err = a.worker.Tunnels(authorities, a.id.Certificate); err != nil {
		return err
	}
	a.tunnels.SetServers(known.Servers)
	g.Go("tunnels", a.tunnels.Run)
	g.Go("servers", func(ctx context.Context) error { return a.followServers(ctx, known.Servers) })
	moved := make(chan struct{}, 1) // a token: addresses may have changed
	g.Go("follow addresses", func(ctx context.Context) error { return followAddresses(ctx, moved) })
	g.Go("keep addresses", func(ctx context.Context) error { return a.at.keep(ctx, moved, nil, a.settle) })
	g.Go("memory", func(ctx context.Context) error {
		return scavenge.Run(ctx, scavenge.Options{Log: a.o.Logger.With("part", "memory")})
	})
	a.o.Step("node is ready", true)
	return nil
}

// join makes this machine part of the cluster, unless it is.
func (a *agent) join(ctx context.Context) (err error) {
	a.id, err = join.Open(join.Options{
		Dir: a.identityFile(""), NodeName: a.o.NodeName, Machine: machine.Identify().SystemUUID,
		Hosts: func() []string { return a.at.get().node() }, Log: a.o.Logger.With("part", "join"), Version: version.Git(),
	})
	if err != nil {
		return err
	}
	return a.id.Join(ctx, a.o.Servers, a.o.Token)
}

// identityFile is the path of a file of this machine's identity.
func (a *agent) identityFile(name string) string { return filepath.Join(a.o.DataDir, "identity", name) }

// Waits for the cluster's settings.
const (
	firstAsked   = 200 * time.Millisecond
	longestAsked = 10 * time.Second
)

// learn finds out what all machines of the cluster have in common. A machine whose servers
// do not answer starts with what it has learned before.
func (a *agent) learn(ctx context.Context) error {
	file := filepath.Join(a.o.DataDir, settings.Key)
	before, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read what this machine knows of its cluster: %w", err)
	}
	text, err := a.ask(ctx, len(before) > 0)
	if err != nil {
		return err
	}
	if text == "" {
		text = string(before)
	}
	if a.common, err = settings.Parse(text); err != nil {
		return err
	}
	if err := a.common.Check(a.o.Said); err != nil {
		return err
	}
	if text == string(before) {
		return nil
	}
	return wholefile.Private(file, []byte(text))
}

// ask asks for the cluster's settings until they are there, or, if so long only, until what is
// remembered counts: then it returns none.
func (a *agent) ask(ctx context.Context, whileOnly bool) (text string, _ error) {
	backoff := task.Backoff{Initial: firstAsked, Max: longestAsked, Jitter: 0.2}
	limited := ctx
	if whileOnly {
		until := a.api.Until()
		if !time.Now().Before(until) {
			return "", nil
		}
		var cancel context.CancelFunc
		limited, cancel = context.WithDeadline(ctx, until)
		defer cancel()
	}
	var row obs.Row
	for {
		err := a.api.Verify(limited)
		if err == nil {
			var found *corev1.ConfigMap
			if found, err = client.For(a.api, core.ConfigMaps).Get(limited, metav1.NamespaceSystem, settings.ConfigMap); err == nil {
				return found.Data[settings.Key], nil
			}
		}
		if ctx.Err() != nil {
			return "", fmt.Errorf("ask for the cluster's settings: %w", err)
		}
		wait := backoff.Next()
		a.o.Logger.Log(ctx, row.Failed(), "the servers do not say what the cluster's settings are", "err", err, "again", wait.Round(time.Millisecond))
		if err := task.Sleep(limited, wait); err != nil {
			if ctx.Err() != nil {
				return "", fmt.Errorf("ask for the cluster's settings: %w", err)
			}
			return "", nil
		}
	}
}

// findAddresses finds out the machine's addresses that are not asked for.
func (a *agent) findAddresses(asked addresses) (addresses, error) {
	m := a.o.Machine
	m.NodeIP, m.SecondNodeIP = asked.first, asked.second
	err := m.findAddresses(a.common.ServiceCIDRs[0].Addr().Is4(), len(a.common.ClusterCIDRs) == 2)
	return addresses{first: m.NodeIP, second: m.SecondNodeIP}, err
}

// settle brings everything that names this machine's addresses up to date.
func (a *agent) settle(context.Context) error {
	a.worker.SetNodeIPs(a.at.get().node())
	a.id.Changed()
	return nil
}

// followServers keeps those who ask the servers told of where they are, until ctx ends: where
// they were when the agent started, which may be an address that the cluster does not
// know of, and where the cluster says that they are.
func (a *agent) followServers(ctx context.Context, known []string) error {
	const service = metav1.NamespaceDefault + "/kubernetes"
	of := client.Cached(a.api, discovery.EndpointSlices, "")
	return of.Each(ctx, cache.FollowOptions{Index: discovery.IndexService, Value: service}, func([]cache.Delta) error {
		urls := slices.Clone(known)
		for _, s := range of.ByIndex(discovery.IndexService, service) {
			for _, url := range serverURLs(s) {
				if !slices.Contains(urls, url) {
					urls = append(urls, url)
				}
			}
		}
		if err := a.api.SetServers(urls); err != nil {
			a.o.Logger.Warn("cannot follow where the servers are", "err", err)
			return nil
		}
		a.tunnels.SetServers(urls)
		if a.local != nil {
			a.local.SetServers(urls)
		}
		if err := a.id.SetServers(urls); err != nil {
			a.o.Logger.Warn("the next start may not know where the servers are", "err", err)
		}
		return nil
	})
}

// serverURLs are the servers that a slice of the service "kubernetes" names.
func serverURLs(s *discoveryv1.EndpointSlice) (urls []string) {
	for _, port := range s.Ports {
		for _, e := range s.Endpoints {
			if port.Port == nil || len(e.Addresses) == 0 || !ptr.Deref(e.Conditions.Ready, true) {
				continue
			}
			urls = append(urls, "https://"+net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(*port.Port))))
		}
	}
	return urls
}
