package cluster

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/join"
	"github.com/kemudi/kemudi/internal/plane"
	"github.com/kemudi/kemudi/internal/podnet"
	"github.com/kemudi/kemudi/internal/store/etcd"
	"github.com/kemudi/kemudi/internal/up"
	"github.com/kemudi/kemudi/internal/version"
	"github.com/kemudi/kemudi/internal/wholefile"
	"github.com/kemudi/kemudi/internal/worker/settings"
)

// Joining says which servers a server is to be one of, and where these reach it, each field by its
// flag. The zero value is that of a server that begins a cluster, or goes on with its own.
type Joining struct {
	Servers     []string   // --server
	Token       join.Token // --token, --token-file
	PeerAddress netip.Addr // --peer-address; default the node's
	PeerPort    uint16     // --peer-port; default [DefaultPeerPort]

	// Said is what flags have said of what all machines of the cluster have in common: it must be
	// so in a cluster that others have begun.
	Said settings.Settings
}

// DefaultPeerPort is where servers reach each other's part of the store.
const DefaultPeerPort = 2380

// Say notes which of the flags were said, among those that are the cluster's to say.
func (o *Options) Say(said func(flag string) bool) {
	all := o.settings()
	s := &o.Joining.Said
	for flag, note := range map[string]func(){
		"cluster-cidr":             func() { s.ClusterCIDRs = all.ClusterCIDRs },
		"service-cluster-ip-range": func() { s.ServiceCIDRs = all.ServiceCIDRs },
		"service-node-port-range":  func() { s.NodePorts = all.NodePorts },
		"cluster-dns":              func() { s.ClusterDNS = all.ClusterDNS },
		"cluster-domain":           func() { s.ClusterDomain = all.ClusterDomain },
		"pod-network":              func() { s.PodNetwork = all.PodNetwork },
		"vxlan-port":               func() { s.VXLANPort = all.VXLANPort },
		"vxlan-id":                 func() { s.VXLANID = all.VXLANID },
		"cloud-provider":           func() { s.CloudProvider = all.CloudProvider },
	} {
		if said(flag) {
			note()
		}
	}
	s.Servers = o.sayAlike(said)
}

func (j *Joining) check() error {
	if len(j.Servers) == 0 && j.Token.ID != "" {
		return errors.New("--token is for joining the servers of a cluster: name one of them (--server)")
	}
	return nil
}

// enrol finds out which cluster this server is of, and joins one if it is told to and is of
// none. What all servers have in common is then as it is there. The machine's directories are this
// process's.
func (o Options) enrol(ctx context.Context) (Options, error) {
	joins, err := o.joins()
	if err != nil {
		return o, err
	}
	if joins {
		if err := o.join(ctx); err != nil {
			return o, err
		}
	}
	if !o.member.get().Joined {
		return o.withDefaults()
	}
	text, err := os.ReadFile(filepath.Join(o.DataDir, settings.Key))
	if err != nil {
		return o, fmt.Errorf("read what the servers of this cluster have in common: %w; put back a copy of the file, it is alike on all of them", err)
	}
	known, err := settings.Parse(string(text))
	if err != nil {
		return o, err
	}
	known.Servers = nil // these may have changed since: the store says them
	if err := known.Check(o.Joining.Said); err != nil {
		return o, err
	}
	if err := o.adopt(known); err != nil {
		return o, err
	}
	return o.withDefaults()
}

// adopt takes over what all machines of the cluster have in common.
func (o *Options) adopt(s settings.Settings) error {
	n := &o.Network
	n.ClusterCIDRs, n.ServiceCIDRs, n.ClusterDNS, n.ClusterDomain = s.ClusterCIDRs, s.ServiceCIDRs, s.ClusterDNS, s.ClusterDomain
	n.PodNetwork, n.VXLAN = podnet.Mode(s.PodNetwork), podnet.VXLAN{Port: s.VXLANPort, ID: s.VXLANID}
	if s.NodePorts == "" { // of an older server, which has told agents only
		return nil
	}
	var err error
	n.NodePorts, err = plane.ParsePortRange(s.NodePorts)
	return err
}

// joins decides whether this server is to join others now, and refuses what cannot be.
func (o *Options) joins() (bool, error) {
	at := o.member.get()
	if _, err := os.Stat(filepath.Join(o.DataDir, "identity")); err == nil {
		return false, fmt.Errorf("%s has the data of an agent: run kemudi agent here, or remove it with kemudi reset to have a server, or name another directory (--data-dir)", o.DataDir)
	}
	told, pin := len(o.Joining.Servers) > 0, o.Joining.Token.Pin
	own, err := pki.AuthorityPin(o.DataDir)
	if err != nil {
		return false, fmt.Errorf("%w; put back a copy of it", err)
	}
	if pin != "" && own != "" && pin != own && !at.Joining {
		return false, fmt.Errorf("%s has the data of another cluster than that of token %s: run 'kemudi reset' here to leave that one, or name another directory (--data-dir), or start without --server and --token to stay", o.DataDir, o.Joining.Token.ID)
	}
	switch {
	case (at.Joined || at.Several) && at.Name != "" && at.Name != o.NodeName && !at.Joining && !at.Removed:
		return false, fmt.Errorf("this server is called %s now, but the other servers know it as %s: start it with --node-name %s; or remove it (kemudi member remove %s, on another server), run 'kemudi reset' here and join again", o.NodeName, at.Name, at.Name, at.Name)
	case at.Removed && (!told || o.Joining.Token.ID == "" || o.Joining.Token.ID == at.Token):
		return false, errRemoved
	case at.Joining && !told:
		return false, fmt.Errorf("this server was about to join others, and has not: start it again with --server and --token, or run 'kemudi reset' here to begin a cluster of its own")
	case at.Joining, at.Removed:
	case at.Joined && at.Cluster != nil && told && o.Joining.Token.ID != "" && !etcd.Begun(o.DataDir):
		// The store was not begun before the start was cut off, and others may have come or gone since.
	case at.Joined, at.Several, !told:
		return false, nil
	default:
		if _, err := os.Stat(filepath.Join(o.DataDir, "etcd", "member")); err == nil {
			if pin != "" { // that of its own cluster
				return false, nil
			}
			return false, fmt.Errorf("%s has the data of a cluster already: run 'kemudi reset' here to have this machine join another one, or name another directory (--data-dir), or start without --server", o.DataDir)
		}
	}
	if o.Joining.Token.ID == "" {
		return false, errors.New("this machine is no server of that cluster yet: make a token on one (kemudi token create --for server) and start with --server and --token")
	}
	return true, nil
}

// join makes this machine one of the servers of a cluster. Each step is one file: a start that is
// cut off goes on from there.
func (o *Options) join(ctx context.Context) error {
	pin, err := pki.PeerPin(o.DataDir)
	if err != nil {
		return fmt.Errorf("%w; put back a copy of it, or remove it", err)
	}
	request := join.ServerRequest{Name: o.NodeName, Version: version.Git(), Key: pin}
	if request.Settings, err = o.Joining.Said.Encode(); err != nil {
		return err
	}
	if request.Signer, err = o.Identity.Signer(); err != nil {
		return err
	}
	if len(o.Etcd.Servers) == 0 {
		m := o.Machine // of the families nothing is known yet
		if err := m.findAddresses(true, false); err != nil {
			return err
		}
		request.URL = o.Joining.url(m.NodeIP)
	}
	answer, err := (join.Server{Servers: o.Joining.Servers, Token: o.Joining.Token, Log: o.Logger.With("part", "join")}).Ask(ctx, request)
	if err != nil {
		return err
	}
	at := standing{Name: o.NodeName, Joining: true, Token: o.Joining.Token.ID}
	if err := o.member.set(at); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(o.DataDir, "etcd", "member")); err != nil { // of who was removed, or of nobody
		return fmt.Errorf("remove the store of before: %w", err)
	}
	if err := pki.WriteShared(o.DataDir, answer.Keys); err != nil {
		return err
	}
	if err := wholefile.Private(filepath.Join(o.DataDir, settings.Key), []byte(answer.Settings)); err != nil {
		return err
	}
	at.Joining, at.Joined, at.Several, at.Cluster = false, true, answer.Cluster != nil, answer.Cluster
	at.Servers = []string{answer.Server}
	if err := o.member.set(at); err != nil {
		return err
	}
	o.Logger.Info("joined the servers of the cluster", "node", o.NodeName, "server", o.Joining.Servers[0])
	return nil
}

// url is where other servers reach this one's part of the store.
func (j *Joining) url(node netip.Addr) string {
	if j.PeerAddress.IsValid() {
		node = j.PeerAddress
	}
	return "https://" + netip.AddrPortFrom(node, j.port()).String()
}

func (j *Joining) port() uint16 { return cmp.Or(j.PeerPort, DefaultPeerPort) }

// peer is how the other servers reach this one.
func (s *server) peer() (etcd.Peer, error) {
	files, err := s.pki.Peers()
	if err != nil {
		return etcd.Peer{}, err
	}
	return etcd.Peer{
		Listen: "https://" + netip.AddrPortFrom(s.o.BindAddress, s.o.Joining.port()).String(), Advertise: s.o.Joining.url(s.at.get().first),
		CertFile: files.CertFile, KeyFile: files.KeyFile, CAFile: files.CAFile, ServerName: pki.PeerName,
	}, nil
}

// takePlace waits until this server counts for a majority of the store's members, from where on it
// may serve.
func (s *server) takePlace(ctx context.Context, st *etcd.Server) error {
	self, err := st.Self(ctx)
	if err != nil {
		return err
	}
	if err = st.Promote(ctx, self); errors.Is(err, etcd.ErrMember) { // it has just heard so, and is about to end
		return s.member.removed()
	}
	return err
}

// How often a server that waits for others asks whether it was removed meanwhile.
const (
	firstDoubt  = 5 * time.Second
	longerDoubt = 15 * time.Second
)

// doubt ends with an error if this server has been removed from its cluster, until its store is ready:
// those who are left may be one, which has no port for others and tells nobody. It asks where they
// served the API when this server was last among them.
func (s *server) doubt(ctx context.Context, st *etcd.Server) error {
	self, err := st.Self(ctx)
	if err != nil {
		return nil // it is the store's to say what is wrong
	}
	admin, err := s.pki.Admin()
	if err != nil {
		return err
	}
	config := &tls.Config{RootCAs: s.pki.CA.Pool(), Certificates: []tls.Certificate{admin.TLS()}, MinVersion: tls.VersionTLS12}
	for wait := firstDoubt; ; wait = longerDoubt {
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-st.Ready():
			timer.Stop()
			return nil
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
		if wait == firstDoubt {
			if err := s.tellWaiting(ctx, st, self); err != nil {
				return err
			}
		}
		for _, url := range s.member.get().Servers {
			list, err := join.ListServers(ctx, url, config)
			switch {
			case ctx.Err() != nil:
				return nil
			case err != nil:
				s.o.Logger.Debug("another server does not say whether this one is of the cluster", "server", url, "err", err)
			case !slices.ContainsFunc(list, func(one join.ServerState) bool { return one.Member == hexID(self) }):
				return s.member.removed()
			}
		}
	}
}

// tellWaiting says why this server is not ready, and what to do.
func (s *server) tellWaiting(ctx context.Context, st *etcd.Server, self uint64) error {
	c, err := st.Members(ctx)
	if err != nil {
		return nil // it has ended meanwhile, and says why
	}
	var others []string
	for _, m := range c.Members {
		if m.ID != self {
			others = append(others, fmt.Sprintf("%s (%s)", cmp.Or(m.Name, "one that has never started"), m.URL))
		}
	}
	const text = "no majority of the %d servers of this cluster runs, or they do not reach each other. Besides this one, %s, there are %s: " +
		"start them (kemudi up, there). If so many are gone for good: kemudi down, kemudi member recover and kemudi up make this one a cluster of its own"
	why := fmt.Sprintf(text, len(c.Members), s.o.NodeName, strings.Join(others, ", "))
	s.o.Logger.Warn("this server waits", "why", why)
	s.o.Step(why, false)
	select {
	case <-st.Ready(): // meanwhile
		return nil
	default:
		return up.SetWaits(s.o.RunDir, why)
	}
}
