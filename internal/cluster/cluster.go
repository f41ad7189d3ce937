package cluster

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kemudi/kemudi/internal/apiserver"
	"github.com/kemudi/kemudi/internal/apiserver/legacy"
	"github.com/kemudi/kemudi/internal/audit"
	"github.com/kemudi/kemudi/internal/auth/authn"
	"github.com/kemudi/kemudi/internal/auth/identity"
	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/auth/trust"
	"github.com/kemudi/kemudi/internal/dialback"
	"github.com/kemudi/kemudi/internal/drain"
	"github.com/kemudi/kemudi/internal/inquiry"
	"github.com/kemudi/kemudi/internal/obs"
	"github.com/kemudi/kemudi/internal/obs/tracing"
	"github.com/kemudi/kemudi/internal/plane"
	"github.com/kemudi/kemudi/internal/reach"
	"github.com/kemudi/kemudi/internal/reach/egress"
	"github.com/kemudi/kemudi/internal/reach/ssh"
	"github.com/kemudi/kemudi/internal/scavenge"
	"github.com/kemudi/kemudi/internal/servers"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/up"
	"github.com/kemudi/kemudi/internal/watchcache"
	"github.com/kemudi/kemudi/internal/worker"
)

// server is one running server.
type server struct {
	o        Options
	at       place
	registry *prometheus.Registry
	pki      *pki.PKI
	known    *identity.Known // by tokens
	issuer   *authn.Issuer
	used     *authn.UsedTokens
	access   *authn.NodeAccess
	legacy   *legacy.Calls // of deprecated versions
	believed believed
	hints    *x509.CertPool // authorities that clients find their certificates by; nil: they are not told
	plane    *plane.Plane
	tunnels  *dialback.Registry // of the agents of other machines
	ways     *reach.Ways        // to other machines and their pods
	backBy   time.Time          // when agents that had tunnels to this server before have them again
	ssh      *ssh.Tunnels       // nil: they are not reached by SSH
	egress   egress.Selection   // what is reached by proxies
	tracing  *tracing.Provider  // of requests; nil: they are not traced
	worker   *worker.Worker     // nil: this machine runs no pods
	serving  *serving           // its certificate
	member   *membership        // its place among several servers
	seats    *seats             // what it does about which there are
	drains   *drain.Nodes       // what the nodes' rules are, for pods that end
	sealed   *sealed            // nil: nothing lies encrypted in the store
	telling  sync.Mutex         // which servers live: held from asking until it is written, else an earlier answer may be written last
}

// newServer is a server that has not been started. The options are complete; asked
// are the addresses that they named before.
func newServer(o Options, asked addresses) *server {
	s := &server{o: o, registry: obs.NewRegistry(), used: authn.NewUsedTokens(), member: o.member}
	if s.member == nil {
		s.member = newMembership(o.DataDir)
	}
	s.at.log, s.at.asked, s.at.find = o.Logger, asked, o.find
	s.at.set(o.addresses())
	s.serving = &serving{s: s}
	return s
}

// Run runs a server until ctx ends or a part of it fails. Containers keep
// running when it returns.
func Run(ctx context.Context, o Options) (failed error) {
	asked := o.addresses()
	if err := o.prepare(); err != nil {
		return err
	}
	var err error
	if o.member, err = openMembership(o.DataDir); err != nil {
		return err
	}
	// What is wrong with the addresses is said before anything is touched; of a cluster that
	// others have begun they are not known yet.
	others := len(o.Joining.Servers) > 0 || o.member.get().withOthers()
	if !others {
		if o, err = o.withDefaults(); err != nil {
			return err
		}
	}
	if !o.NoNode {
		if err := o.checkNode("; without one (--disable-agent), a server does not"); err != nil {
			return err
		}
	}
	if err := settleProcess(o.API.MemoryLimit); err != nil {
		return err
	}
	release, err := o.claim()
	if err != nil {
		return err
	}
	defer release()
	if err := o.forgetEphemeral(ctx); err != nil {
		return err
	}
	if o.Ephemeral {
		if err := o.markEphemeral(); err != nil {
			return err
		}
		// However it ends, ctx included.
		defer func() { failed = errors.Join(failed, o.forgetEphemeral(context.WithoutCancel(ctx))) }()
	}
	if err := o.takeOver(ctx); err != nil {
		return err
	}
	if others {
		if o, err = o.enrol(ctx); err != nil {
			return err
		}
	}
	s := newServer(o, asked)
	sg := newStages(ctx)
	// The container runtime boots while the store and the control plane start.
	if !o.NoNode {
		if s.worker, err = s.newWorker(sg); err != nil {
			return sg.fail(err)
		}
	}
	if err := s.start(sg); err != nil {
		return sg.fail(err)
	}
	return sg.wait()
}

// stages are the groups that the parts of a server run in, in the order of their start.
// A shutdown ends them in reverse: the node agent can still write its status, and the
// API server can still answer the requests that it has taken on. A stage that ends by itself
// ends the stages after it.
type stages struct {
	store *task.Group
	plane *task.Group // the control plane
	last  *task.Group // the node, and what else calls the API
}

func newStages(ctx context.Context) *stages {
	lasting := context.WithoutCancel(ctx)
	sg := &stages{store: task.NewGroup(lasting), plane: task.NewGroup(lasting), last: task.NewGroup(ctx)}
	for g, after := range map[*task.Group]*task.Group{sg.store: sg.plane, sg.plane: sg.last} {
		context.AfterFunc(g.Context(), func() { after.Cancel(context.Cause(g.Context())) })
	}
	return sg
}

// wait waits until the last stage has ended, then ends the control plane, then the
// store. It returns the first error.
func (sg *stages) wait() (err error) {
	for _, g := range []*task.Group{sg.last, sg.plane, sg.store} {
		if g != sg.last {
			g.Cancel(context.Canceled)
		}
		if failed := g.Wait(); err == nil {
			err = failed
		}
	}
	return err
}

// fail ends the stages after a start that failed with err, and returns the error to
// show. A part that fails ends its stage, and start then fails as well: the part's error
// is the cause, and is shown. If no part had failed, fail ends the last stage with err:
// what the parts then return comes of that, and err is shown.
func (sg *stages) fail(err error) error {
	sg.last.Cancel(err)
	ended := errors.Is(context.Cause(sg.last.Context()), err)
	if first := sg.wait(); first != nil && !ended {
		return first
	}
	return err
}

// start starts the parts, in order.
func (s *server) start(sg *stages) error {
	if err := s.openEgress(); err != nil {
		return err
	}
	var err error
	if s.tracing, err = tracing.Begin(sg.store, tracing.Options{
		Config: s.o.API.tracing, Part: "apiserver", Attributes: []tracing.Attribute{tracing.InstanceID(servers.Self{Host: s.o.NodeName}.Name())},
		Dial: s.egress.To(egress.ControlPlane), Logger: s.o.Logger.With("part", "tracing"),
	}); err != nil {
		return err
	}
	if err := s.keys(sg.last.Context()); err != nil {
		return err
	}
	s.o.Step("keys and certificates", false)
	if err := s.tellFeatures(); err != nil {
		return err
	}
	s.legacy = legacy.New(s.o.NodeName, s.o.Logger.With("part", "legacy calls"))
	st, err := s.store(sg)
	if err != nil {
		return err
	}
	if err := s.encrypt(sg.last.Context(), &st); err != nil {
		return err
	}
	s.o.Step("store", false)
	if err := s.agree(sg.last.Context(), st); err != nil {
		return err
	}
	if s.o.seed != nil {
		if err := s.o.seed(sg.last.Context(), st); err != nil {
			return err
		}
	}
	if err := s.serve(sg, st); err != nil {
		return err
	}
	s.o.Step("API server", false)
	if s.o.also != nil {
		sg.last.Go("simulation", func(ctx context.Context) error { return s.o.also(ctx, s.plane.Admin()) })
	}
	renewals := []func() error{s.pki.Renew}
	if s.worker == nil {
		s.o.Step("ready", true)
	} else {
		if err := s.startWorker(sg.last); err != nil {
			return err
		}
		renewals = append(renewals, s.serving.renew)
	}
	moved := make(chan struct{}, 1) // a token: addresses may have changed
	sg.last.Go("follow addresses", func(ctx context.Context) error { return followAddresses(ctx, moved) })
	sg.last.Go("keep certificates", func(ctx context.Context) error {
		return s.at.keep(ctx, moved, renewals, func(ctx context.Context) error { return s.settle(ctx, renewals) })
	})
	return nil
}

// keys makes sure that the cluster's keys and certificates exist.
func (s *server) keys(ctx context.Context) error {
	var err error
	joined := s.member.get().Joined
	if s.o.alone != nil {
		if s.pki, err = pki.Open(s.o.alone.Keys); err != nil {
			return err
		}
	} else if s.pki, err = pki.Ensure(pki.Options{Dir: s.o.DataDir, Hosts: s.hosts(), Domain: s.o.Network.ClusterDomain, Joined: joined}); err != nil && joined {
		return fmt.Errorf("keys and certificates: %w; the files of %s that are missing or damaged are alike on all servers: put back a copy of one, or remove this server (kemudi member remove, on another one), run 'kemudi reset' here and join again", err, filepath.Join(s.o.DataDir, "pki"))
	} else if err != nil {
		return fmt.Errorf("keys and certificates: %w; if a file there is damaged, put back a copy of it, or remove the whole of %s for new ones: other nodes and people then need new ones as well", err, filepath.Join(s.o.DataDir, "pki"))
	}
	if err := s.believe(); err != nil {
		return err
	}
	s.known, err = identity.Open(ctx, &s.o.Identity, identity.With{
		Own: s.ownKeys(), URL: "https://kubernetes.default.svc." + s.o.Network.ClusterDomain,
		KeySet: "https://" + netip.AddrPortFrom(s.o.AdvertiseAddress, s.o.SecurePort).String() + authn.KeySetPath, Server: s.o.NodeName, Egress: s.egress, Registry: s.registry, Logger: s.o.Logger.With("part", "authentication"),
	})
	if err == nil {
		s.issuer = s.known.Issuer
	}
	return err
}

// await waits for a part to be ready.
func await(g *task.Group, ready <-chan struct{}) error {
	select {
	case <-ready:
		return nil
	case <-g.Context().Done():
		return context.Cause(g.Context())
	}
}

// serve starts the control plane and serves its API.
func (s *server) serve(sg *stages, st state) error {
	g := sg.last
	controllers := s.o.Controllers
	controllers.Authority, controllers.Tokens = s.pki.CA, s.issuer
	controllers.DNS.Domain = s.o.Network.ClusterDomain
	if err := s.openCloud(&controllers); err != nil {
		return err
	}
	published := make(chan struct{})
	if s.o.alone == nil {
		s.seats = newSeats(s, st)
	}
	scheduling, err := s.o.Scheduling.config(s.o.Election)
	if err != nil {
		return err
	}
	for _, idle := range scheduling.Idle {
		s.o.Logger.Warn("a field of --scheduler-config has no effect", "field", idle.Field, "why", idle.Why)
	}
	node := s.o.NodeName
	if s.worker == nil {
		node = ""
	}
	s.plane, err = plane.New(plane.Options{
		Store: st.Store, Shared: st.shared, Alone: s.o.alone != nil, CABundle: string(s.pki.CA.CertPEM()), Network: s.o.Network.Network, Logger: s.o.Logger,
		Registry: s.registry, Tracing: s.tracing, Controllers: controllers, Host: s.o.NodeName, Plugins: s.o.API.Plugins, Authorization: s.o.API.Authorization, Egress: s.egress, Scheduler: scheduling,
		Election: s.o.Election, Features: s.o.API.Features, Coordinated: s.o.API.Coordinated, Address: s.own(), Node: node, ProxyCertificate: s.pki.FrontProxyCertificate,
		Serving: func(o *apiserver.Options, caches *watchcache.Set) error {
			// The service "kubernetes" leads here.
			o.Health.Add(obs.Check{Name: "poststarthook/bootstrap-controller", Run: obs.Done(published)})
			if st.own != nil {
				o.Health.Add(obs.Check{Name: "disk", Run: st.own.Writable, ReadyOnly: true})
			}
			return s.configure(o, caches)
		},
	})
	if err != nil {
		return err
	}
	s.drains = drain.NewNodes(drain.NodesOptions{
		Group: sg.plane, Transport: s.plane.Admin(), Dial: nodes{s}.DialNode, Logger: s.o.Logger.With("part", "drain"),
	})
	asks := s.asker()
	if st.own != nil {
		st.own.AskOthers(asks.Ask)
	}
	s.believed.told = trust.NewPublisher(s.plane.Admin(), s.trust, s.o.Logger)
	l, config, err := s.listen(g.Context())
	if err != nil {
		return err
	}
	if s.seats != nil {
		g.Go("servers", s.seats.keep)
	}
	sg.plane.Go("control plane", s.plane.Run)
	sg.plane.Go("access of nodes", s.access.Run)
	s.follow(g)
	g.Go("used tokens", func(ctx context.Context) error { return s.used.Run(ctx, s.plane.Admin(), s.o.Logger) })
	s.runBeside(sg.plane)
	g.Go("memory", func(ctx context.Context) error {
		o := scavenge.Options{AfterWork: s.plane.Server().Scavenge, Log: s.o.Logger.With("part", "memory")}
		if st.own != nil {
			o.Idle, o.Mapped = st.own.Scavenge, st.own.WhileMapped
		}
		return scavenge.Run(ctx, o)
	})
	g.Go("serve", func(ctx context.Context) error {
		return s.plane.Server().Serve(ctx, l, config)
	})
	if s.o.alone == nil {
		url := "https://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(int(s.o.SecurePort)))
		if err := s.pki.WriteAdminKubeconfig(up.AdminKubeconfig(s.o.DataDir), "kemudi", url); err != nil {
			return fmt.Errorf("write administrator's kubeconfig: %w", err)
		}
	}
	if err := await(g, s.plane.Ready()); err != nil {
		return err
	}
	if err := s.publish(g.Context()); err != nil {
		return err
	}
	close(published)
	g.Go("whom others are to believe", s.believed.told.Run)
	if s.member.get().Several {
		s.seats.wake()
	}
	g.Go("other servers", s.attend)
	g.Go("what is published", s.keep)
	g.Go("leave other servers", func(ctx context.Context) error {
		<-ctx.Done()
		s.plane.Leave()
		asks.Close()
		return nil
	})
	if len(s.o.VirtualIPs) > 0 {
		g.Go("virtual addresses", s.holdVirtual)
	}
	return s.backUp(g, st.own)
}

// runBeside runs beside the control plane what it needs and not each server has.
func (s *server) runBeside(g *task.Group) {
	if s.sealed != nil {
		g.Go("encryption", s.sealed.keeper.Run)
	}
	if s.ssh != nil {
		g.Go("SSH to nodes", s.ssh.Run)
	}
}

// configure sets what an API server beyond a simulation's has.
func (s *server) configure(o *apiserver.Options, caches *watchcache.Set) (err error) {
	if s.tunnels, err = dialback.NewRegistry(s.o.Logger.With("part", "tunnels")); err != nil {
		return err
	}
	if err := s.openSSH(); err != nil {
		return err
	}
	s.ways, s.backBy = reach.New(nodes{s}.ways), time.Now().Add(tunnelsWithin)
	if err := s.requests(o); err != nil {
		return err
	}
	if o.Audit, err = s.audit(); err != nil {
		return err
	}
	o.Tokens = s.issuer
	o.Authenticator = s.authenticator(caches)
	o.While, o.Legacy = s.access.While, s.legacy
	o.Nodes, o.Tunnels = nodes{s}, s.tunnels
	if s.seats != nil {
		o.Plain, o.Early = s.seats.paths(), []string{inquiry.Path} // whether the store can be asked may depend on the answer
		o.Plain[drain.Pattern] = s.drained
	}
	s.serveEncryption(o, caches)
	return nil
}

// requests says which requests are served, and how.
func (s *server) requests(o *apiserver.Options) (err error) {
	api := &s.o.API
	o.RuntimeConfig, o.EncodedBytes = api.RuntimeConfig, api.EncodedCacheSize
	o.RequestTimeout, o.MaxReads, o.MaxWrites = api.RequestTimeout, api.MaxReads, api.MaxWrites
	o.Kept = api.EventTTL
	if api.WatchTime != nil {
		if o.WatchTime = time.Duration(*api.WatchTime) * time.Second; o.WatchTime == 0 {
			o.WatchTime = -1
		}
	}
	o.FrameByFrame, o.Serving, o.NoProfiling = api.FrameByFrame, api.Serving, api.NoProfiling
	if o.Serving.Emulation, err = api.Emulation.settled(); err != nil {
		return err
	}
	if err := s.registry.Register(obs.VersionInfo(o.Serving.Emulation.Level)); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	if api.Contention && !api.NoProfiling {
		runtime.SetBlockProfileRate(1) // every wait
	}
	return nil
}

// audit is told of requests; nil: nobody is.
func (s *server) audit() (*audit.Log, error) {
	o := s.o.API.Audit
	o.Registry, o.Logger, o.Webhook.Dial = s.registry, s.o.Logger.With("part", "audit"), s.egress.To(egress.ControlPlane)
	return audit.New(o)
}

// Removers undo what a server with these directories changed on this machine,
// in the order in which it must be undone.
func Removers(dataDir, runDir string) []up.Remover { return worker.Removers(dataDir, runDir) }
