package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"

	eventsapi "k8s.io/api/events/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/reach/egress"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/store/etcd"
	"github.com/kemudi/kemudi/internal/store/mem"
	"github.com/kemudi/kemudi/internal/store/prefix"
	"github.com/kemudi/kemudi/internal/up"
)

// Etcd says where the store is of a server that does not keep it itself.
type Etcd struct {
	Servers  []string // --etcd-servers; empty: this server keeps it
	CertFile string   // --etcd-certfile
	KeyFile  string   // --etcd-keyfile
	CAFile   string   // --etcd-cafile
	Prefix   string   // --etcd-prefix; empty: /registry
	// Overrides are --etcd-servers-overrides, RESOURCE#SERVERS: that events are to be in a store of their own is heard and
	// not done, and of other resources it is refused.
	Overrides []string
}

// checkOverrides refuses that resources are kept elsewhere on which writes of others depend.
func (e *Etcd) checkOverrides() error {
	for _, text := range e.Overrides {
		what, servers, ok := strings.Cut(text, "#")
		group, plural, named := strings.Cut(what, "/")
		if !ok || !named || servers == "" {
			return errors.New("--etcd-servers-overrides invalid, must be of format: group/resource#servers, where servers are URLs, semicolon separated")
		}
		if plural != core.Events.Def.Plural || group != "" && group != eventsapi.GroupName {
			return fmt.Errorf("--etcd-servers-overrides %s: all resources but events are kept in one store, as writes of one depend on others", what)
		}
	}
	return nil
}

// elsewhere reports that keys of objects have another prefix than that of all clusters.
func (e *Etcd) elsewhere() bool { return e.Prefix != "" && prefix.Clean(e.Prefix) != prefix.Registry }

func (e *Etcd) check() error {
	if len(e.Servers) == 0 && (e.CertFile != "" || e.KeyFile != "" || e.CAFile != "") {
		return errors.New("--etcd-certfile, --etcd-keyfile and --etcd-cafile are for connections to --etcd-servers, which is missing")
	}
	if err := e.checkOverrides(); err != nil {
		return err
	}
	if (e.CertFile == "") != (e.KeyFile == "") {
		return errors.New("--etcd-certfile and --etcd-keyfile go together")
	}
	if len(e.Servers) == 0 && e.elsewhere() {
		return errors.New("--etcd-prefix is for --etcd-servers that others have, too, and these are missing")
	}
	return nil
}

// checkPrefix refuses what goes with the usual prefix alone: what is encrypted is tied to its key, and others would
// look for it under the one that they know.
func (o *Options) checkPrefix() error {
	if o.Etcd.elsewhere() && o.API.Encryption.File != "" {
		return errors.New("--etcd-prefix: with --encryption-provider-config, keys begin with /registry alone")
	}
	return nil
}

// state is the store of a cluster.
type state struct {
	store.Store
	own    *etcd.Server // nil: it is kept elsewhere, or in memory
	shared bool         // other servers may use it, too
}

// store starts the store, or the connections to it.
func (s *server) store(sg *stages) (state, error) {
	log := s.o.Logger.With("part", "etcd")
	if len(s.o.Etcd.Overrides) > 0 {
		s.o.Logger.Warn("a flag has no effect", "flag", "--etcd-servers-overrides", "why", "events are kept in the one store that all is in")
	}
	if e := s.o.Etcd; len(e.Servers) > 0 {
		r, err := etcd.NewRemote(etcd.RemoteOptions{Servers: e.Servers, CertFile: e.CertFile, KeyFile: e.KeyFile, CAFile: e.CAFile, Dial: s.egress.To(egress.Store), Tracing: s.tracing, Log: log})
		if err != nil {
			return state{}, err
		}
		sg.store.Go("store", r.Run)
		s.registry.MustRegister(storageSize(r.Size))
		st := state{Store: &r.Store, shared: true}
		if e.elsewhere() {
			st.Store = prefix.Over(st.Store, e.Prefix)
		}
		return st, await(sg.last, r.Ready())
	}
	if s.o.Ephemeral {
		return state{Store: mem.New(mem.Options{})}, nil
	}
	if err := up.SetWaits(s.o.RunDir, ""); err != nil { // of a start that was cut off
		return state{}, err
	}
	o, at := etcd.Options{Dir: s.o.DataDir, Name: s.o.NodeName, Log: log}, s.member.get()
	if at.Several {
		p, err := s.peer()
		if err != nil {
			return state{}, err
		}
		o.Peer = p
		if at.Cluster != nil {
			o.Join = *at.Cluster
		}
		s.o.Logger.Info("this server is one of several, and starts as soon as a majority of them runs")
	}
	st, err := etcd.New(o)
	if err != nil {
		return state{}, err
	}
	s.registry.MustRegister(storageSize(st.Size), storeQuestions{st})
	sg.store.Go("store", func(ctx context.Context) error {
		err := st.Run(ctx)
		if errors.Is(err, etcd.ErrRemoved) {
			return s.member.removed()
		}
		return err
	})
	if at.Several {
		sg.last.Go("servers", func(ctx context.Context) error { return s.doubt(ctx, st) })
	}
	if err := await(sg.last, st.Ready()); err != nil {
		return state{}, err
	}
	if at.Joined && at.Several {
		if err := s.takePlace(sg.last.Context(), st); err != nil {
			return state{}, err
		}
	}
	return state{Store: &st.Store, own: st, shared: at.Several}, up.SetWaits(s.o.RunDir, "")
}
