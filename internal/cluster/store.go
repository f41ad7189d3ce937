package cluster

import (
	"errors"

	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/store/etcd"
)

// Etcd says where the store is of a server that does not keep it itself.
type Etcd struct {
	Servers  []string // --etcd-servers; empty: this server keeps it
	CertFile string   // --etcd-certfile
	KeyFile  string   // --etcd-keyfile
	CAFile   string   // --etcd-cafile
}

func (e *Etcd) check() error {
	if len(e.Servers) == 0 && (e.CertFile != "" || e.KeyFile != "" || e.CAFile != "") {
		return errors.New("--etcd-certfile, --etcd-keyfile and --etcd-cafile are for connections to --etcd-servers, which is missing")
	}
	if (e.CertFile == "") != (e.KeyFile == "") {
		return errors.New("--etcd-certfile and --etcd-keyfile go together")
	}
	return nil
}

// state is the store of a cluster.
type state struct {
	store.Store
	own *etcd.Server // nil: it is kept elsewhere, where other servers may use it, too
}

// store starts the store, or the connections to it.
func (s *server) store(sg *stages) (state, error) {
	log := s.o.Logger.With("part", "etcd")
	if e := s.o.Etcd; len(e.Servers) > 0 {
		r, err := etcd.NewRemote(etcd.RemoteOptions{Servers: e.Servers, CertFile: e.CertFile, KeyFile: e.KeyFile, CAFile: e.CAFile, Log: log})
		if err != nil {
			return state{}, err
		}
		sg.store.Go("store", r.Run)
		return state{Store: &r.Store}, await(sg.last, r.Ready())
	}
	st, err := etcd.New(etcd.Options{Dir: s.o.DataDir, Name: s.o.NodeName, Log: log})
	if err != nil {
		return state{}, err
	}
	sg.store.Go("store", st.Run)
	return state{Store: &st.Store, own: st}, await(sg.last, st.Ready())
}
