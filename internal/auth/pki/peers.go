package pki

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"

	"github.com/kemudi/kemudi/internal/wholefile"
)

// Names of what the servers of a cluster know each other by.
const (
	peerCAName = "kemudi-peer-ca"
	peerFile   = "peer"
	peerCAFile = "peer-ca"
	// PeerName is what the certificates of all servers are made out to, by which they know
	// each other: whatever their addresses are.
	PeerName = "kemudi-peer"
)

// Peer is the files by which servers of one cluster know each other.
type Peer struct{ CertFile, KeyFile, CAFile string }

// Peers makes what servers of one cluster know each other by, unless it is there: an authority
// that signs nothing else, and this server's own certificate. From then on [PKI.Renew] renews
// that as well.
func (p *PKI) Peers() (Peer, error) {
	f := p.files()
	if p.o.Joined && !p.hasPeers() {
		return Peer{}, fmt.Errorf("the cluster's keys are not all there: %s is missing", f.path(peerCAFile+".crt"))
	}
	a, err := f.authority(peerCAFile, peerCAName)
	if err != nil {
		return Peer{}, err
	}
	p.peers.Store(a)
	return p.peer(), p.renewPeer(a)
}

func (p *PKI) peer() Peer {
	f := p.files()
	return Peer{CertFile: f.path(peerFile + ".crt"), KeyFile: f.path(peerFile + ".key"), CAFile: f.path(peerCAFile + ".crt")}
}

// renewPeer makes this server's certificate, unless it is good. Both ends of a connection read
// the file for each: nobody has to be told.
func (p *PKI) renewPeer(a *Authority) error {
	_, err := p.files().pair(a, peerFile, Subject{Name: PeerName, Hosts: []string{PeerName}, Client: true, Server: true})
	return err
}

// PeerPin is the pin of the key by which other servers know the one with that data
// directory. The key is made if there is none.
func PeerPin(dir string) (string, error) {
	key, err := (&PKI{o: Options{Dir: dir}}).files().key(peerFile)
	if err != nil {
		return "", err
	}
	return PinOf(key.Public())
}

// AuthorityPin is the pin of the cluster's authority in a data directory; empty if there is none.
func AuthorityPin(dir string) (string, error) {
	cert, err := (&PKI{o: Options{Dir: dir}}).files().cert("ca")
	if err != nil || cert == nil {
		return "", err
	}
	return Pin(cert), nil
}

// sharedFiles are what all servers of a cluster have alike. A key goes before its certificate:
// where that is, the authority is whole.
var sharedFiles = []string{
	"sa.key", "front-proxy-ca.key", "front-proxy-ca.crt", peerCAFile + ".key", peerCAFile + ".crt", "ca.key", "ca.crt",
}

// Shared are the keys and authorities that another server of the cluster needs, by the names of
// their files. Who has them is the cluster.
func (p *PKI) Shared() (map[string][]byte, error) {
	files, err := p.oldAccountKeys()
	if err != nil {
		return nil, err
	}
	for _, name := range sharedFiles {
		data, err := os.ReadFile(p.files().path(name))
		if errors.Is(err, fs.ErrNotExist) && p.peers.Load() == nil {
			continue // of peers: there are none
		}
		if err != nil {
			return nil, fmt.Errorf("read what servers have in common: %w", err)
		}
		files[name] = data
	}
	return files, nil
}

// WriteShared writes what another server has given into a data directory.
func WriteShared(dir string, files map[string][]byte) error {
	f := (&PKI{o: Options{Dir: dir}}).files()
	for name := range files {
		if !slices.Contains(sharedFiles, name) && !isOldAccountKey(name) {
			return fmt.Errorf("what servers have in common has no file %q", name)
		}
	}
	first := slices.Sorted(maps.Keys(files))
	for _, name := range append(slices.DeleteFunc(first, func(name string) bool { return !isOldAccountKey(name) }), sharedFiles...) {
		if data, ok := files[name]; ok {
			if err := wholefile.Private(f.path(name), data); err != nil {
				return err
			}
		}
	}
	return nil
}
