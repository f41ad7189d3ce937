package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/kemudi/kemudi/internal/store/etcd"
	"github.com/kemudi/kemudi/internal/up"
	"github.com/kemudi/kemudi/internal/wholefile"
)

// membership is what a server knows of its place among several, in a file of its data
// directory. A server that is alone and has begun its cluster itself has none.
type membership struct {
	dir  string        // the data directory
	turn chan struct{} // has room for one, who changes it
	mu   struct {
		sync.Mutex
		standing
	}
}

// standing is the place itself. The zero value is that of who is alone.
type standing struct {
	// Name is what the server was called when it got its place.
	Name string `json:"name,omitempty"`
	// Joining says that a cluster's keys are being written: it belongs to none yet.
	Joining bool `json:"joining,omitempty"`
	// Joined says that others have begun the cluster: keys and settings are theirs.
	Joined bool `json:"joined,omitempty"`
	// Several says that others keep the store, too, or are about to.
	Several bool `json:"several,omitempty"`
	// Removed says that the others have taken this server out.
	Removed bool `json:"removed,omitempty"`
	// Token is the ID of the token by which this server has joined. After a removal it takes a new
	// one: else whatever starts it again, with the flags of before, undoes the removal.
	Token string `json:"token,omitempty"`
	// Servers are where other servers serve the API, as was last heard.
	Servers []string `json:"servers,omitempty"`
	// Cluster is the store's as it was when this server joined; nil: it was not.
	Cluster *etcd.Cluster `json:"cluster,omitempty"`
}

// withOthers says that the cluster is not this server's alone, and was not always.
func (s standing) withOthers() bool { return s.Joining || s.Joined || s.Several || s.Removed }

// memberFile is the file's name.
const memberFile = up.MemberFile

func newMembership(dir string) *membership {
	return &membership{dir: dir, turn: make(chan struct{}, 1)}
}

// openMembership reads what a server knows.
func openMembership(dir string) (*membership, error) {
	m := newMembership(dir)
	data, err := os.ReadFile(m.path())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return m, nil
	case err != nil:
		return nil, fmt.Errorf("read which servers this one is of: %w", err)
	}
	if err := json.Unmarshal(data, &m.mu.standing); err != nil {
		return nil, fmt.Errorf("read %s: %w; put back a copy of it, or remove this server from its cluster (kemudi member remove, on another one), run 'kemudi reset' here and join again with a token", m.path(), err)
	}
	return m, nil
}

func (m *membership) path() string { return filepath.Join(m.dir, memberFile) }

// get is the server's place now.
func (m *membership) get() standing {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.standing
}

// set notes the server's place.
func (m *membership) set(now standing) error {
	return m.change(func(s *standing) { *s = now })
}

// change changes what is noted: on the disk first.
func (m *membership) change(f func(s *standing)) error {
	m.turn <- struct{}{} // whoever has it writes one small file
	defer func() { <-m.turn }()
	now := m.get()
	f(&now)
	data, err := json.MarshalIndent(now, "", "  ")
	if err != nil {
		return fmt.Errorf("encode which servers this one is of: %w", err)
	}
	if err := wholefile.Private(m.path(), append(data, '\n')); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.standing = now
	return nil
}

// setSeveral notes whether others keep the store, too. Who is alone has its own store to go on from.
func (m *membership) setSeveral(name string, several bool) error {
	return m.change(func(s *standing) {
		s.Several = several
		if !several {
			s.Cluster = nil
		} else if s.Name == "" {
			s.Name = name
		}
	})
}

// setServers notes where other servers serve the API.
func (m *membership) setServers(urls []string) error {
	if slices.Equal(m.get().Servers, urls) {
		return nil
	}
	return m.change(func(s *standing) { s.Servers = urls })
}

// errRemoved ends a server that the others have taken out.
var errRemoved = errors.New("this server was removed from its cluster, and containers on this machine are left as they are. To have it join again, start it with --server and --token, by a new token (kemudi token create --for server, on another server); to have it leave for good, run 'kemudi reset' here")

// removed notes that the others have taken this server out.
func (m *membership) removed() error {
	return errors.Join(errRemoved, m.change(func(s *standing) { s.Removed = true }))
}
