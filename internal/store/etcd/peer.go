package etcd

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/embed"
)

// Peer says how the members of a cluster reach this one, and know each other. The zero
// value is that of a member that is and stays alone: nothing listens.
type Peer struct {
	// Listen is where this member listens, as "https://0.0.0.0:2380".
	Listen string
	// Advertise is the address that the others are told. Default: Listen.
	Advertise string
	// CertFile and KeyFile are what this member shows, to others as server and as client.
	// They are read for each connection: new files need no restart.
	CertFile, KeyFile string
	// CAFile has the authorities that sign members. They must sign nothing else: whoever
	// has a certificate of theirs can write the store. SetPeer reads it anew.
	CAFile string
	// ServerName is what the certificates of all members are for. Default: the address
	// under which each is reached.
	ServerName string
}

// set reports whether there can be other members.
func (p Peer) set() bool { return p.Listen != "" }

// advertised is the address that this member has in its cluster.
func (p Peer) advertised() string {
	if !p.set() {
		return peerURL
	}
	return cmp.Or(p.Advertise, p.Listen)
}

func (p Peer) check() error {
	if !p.set() {
		if p != (Peer{}) {
			return errors.New("etcd options: Peer needs Listen")
		}
		return nil
	}
	for _, address := range []string{p.Listen, p.advertised()} {
		u, err := url.Parse(address)
		if err != nil {
			return fmt.Errorf("etcd options: Peer: %w", err)
		}
		if u.Scheme != "https" && u.Scheme != "http" || u.Port() == "" {
			return fmt.Errorf("etcd options: Peer: %q must be https://ADDRESS:PORT", address)
		}
		if u.Scheme == "https" && (p.CertFile == "" || p.KeyFile == "" || p.CAFile == "") {
			return fmt.Errorf("etcd options: Peer: %q needs CertFile, KeyFile and CAFile", address)
		}
	}
	return nil
}

// tls are the settings for connections of members to each other. Who is a member is known
// by its key, not by its address, which may change.
func (p Peer) tls() transport.TLSInfo {
	if p.CertFile == "" {
		return transport.TLSInfo{}
	}
	return transport.TLSInfo{
		CertFile: p.CertFile, KeyFile: p.KeyFile, TrustedCAFile: p.CAFile, ServerName: p.ServerName,
		ClientCertAuth: true, SkipClientSANVerify: true,
	}
}

// joinedMark is a file that says that the directory is of a member that has joined others:
// however little of the log there is, it is not a first start to be made anew.
func (o Options) joinedMark() string { return filepath.Join(o.dir(), "joined") }

// setCluster says which cluster this member is of.
func (o Options) setCluster(c *embed.Config) error {
	u, err := url.Parse(o.Peer.advertised())
	if err != nil {
		return fmt.Errorf("parse peer URL: %w", err)
	}
	c.ListenPeerUrls, c.AdvertisePeerUrls = nil, []url.URL{*u}
	if o.Peer.set() {
		listen, err := url.Parse(o.Peer.Listen)
		if err != nil {
			return fmt.Errorf("parse peer URL: %w", err)
		}
		c.ListenPeerUrls = []url.URL{*listen}
		c.PeerTLSInfo = o.Peer.tls()
	}
	// Who has a log goes by that: of the cluster as it was, this member's address may be another.
	if _, logged := o.loggedCluster(); logged || len(o.Join.Members) == 0 {
		c.InitialCluster = c.InitialClusterFromName(o.Name)
		// What makes the IDs of a new cluster and of its member other than all others.
		c.InitialClusterToken = "kemudi-" + rand.Text()
		return nil
	}
	// Etcd takes the others by their addresses, and only this one by its name.
	var list []string
	for _, m := range o.Join.Members {
		name := o.Name
		if m.URL != o.Peer.advertised() {
			name = types.ID(m.ID).String()
		}
		list = append(list, name+"="+m.URL)
	}
	c.InitialCluster, c.ClusterState = strings.Join(list, ","), embed.ClusterStateFlagExisting
	return nil
}

// ErrOtherCluster says that the data directory holds data of another cluster.
var ErrOtherCluster = errors.New("the data directory belongs to another cluster")

// ErrRemoved says that this member is not of its cluster any more.
var ErrRemoved = errors.New("this server is not a member of its cluster any more")

// checkCluster refuses data of another cluster than the one to join, before etcd starts.
func (o Options) checkCluster() error {
	logged, ok := o.loggedCluster()
	if want := o.Join.ID; want != 0 && ok && logged != want {
		return fmt.Errorf("%w: %s is of cluster %s, and the one to join is %s; join with an empty data directory (kemudi reset removes this one), or start this server without joining", ErrOtherCluster, o.dir(), types.ID(logged), types.ID(want))
	}
	if len(o.Join.Members) == 0 || ok {
		return nil
	}
	if err := os.MkdirAll(o.dir(), 0o700); err != nil {
		return fmt.Errorf("create data directory: %w", err)
	}
	if err := os.WriteFile(o.joinedMark(), nil, 0o600); err != nil {
		return fmt.Errorf("note that this member joins others: %w", err)
	}
	return nil
}

// stoppedByItself says why an etcd has ended that nobody has told to.
func (o Options) stoppedByItself(m *member) error {
	if m.several {
		return o.removed()
	}
	return errors.New("etcd has stopped by itself")
}

func (o Options) removed() error {
	return fmt.Errorf("%w: it was removed; to join again, remove %s and join with a token", ErrRemoved, o.dir())
}
