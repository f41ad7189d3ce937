package join

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/wholefile"
)

// Options say which machine it is. Dir and NodeName are required.
type Options struct {
	Dir      string // where the identity is kept; nothing else is there
	NodeName string
	// Hosts are the addresses and further names that others reach the machine by, as
	// its Node says them; the node's own name is always among those of its serving
	// certificate. Asked again after [Identity.Changed]. Nil: none.
	Hosts func() []string
	// Machine tells this machine from one that has a copy of its disk: its Node's
	// systemUUID. Empty: nothing does.
	Machine string
	// Version is that of the program, as [version.Git] has it. Required to join.
	Version string
	Log     *slog.Logger // default: nobody is told
}

// Identity is who a machine is in its cluster: the keys that were made on it, and what
// the cluster has signed for them. Its methods may be called concurrently, but Join
// and Run by one goroutine at a time.
type Identity struct {
	o       Options
	client  *credential
	serving *credential
	changed chan struct{} // a token: hosts may have changed

	mu struct {
		sync.Mutex
		record record
		silent time.Time // since when no server answered; zero: one did
	}
}

// record is what is kept beside keys and certificates.
type record struct {
	Node    string   `json:"node"`
	Machine string   `json:"machine,omitempty"`
	Servers []string `json:"servers"`
	CA      string   `json:"ca"` // PEM
}

// recordFile is the record's name; those of keys and certificates follow from what
// they are for.
const recordFile = "cluster.json"

// Open reads the identity in a directory; that of a machine that is in no cluster yet is
// empty.
func Open(o Options) (*Identity, error) {
	if o.Dir == "" || o.NodeName == "" {
		return nil, errors.New("join options: Dir and NodeName are required")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Hosts == nil {
		o.Hosts = func() []string { return nil }
	}
	i := &Identity{o: o, changed: make(chan struct{}, 1)} // a full one says enough
	var err error
	if i.client, err = openCredential(o.Dir, "client"); err != nil {
		return nil, err
	}
	if i.serving, err = openCredential(o.Dir, "serving"); err != nil {
		return nil, err
	}
	path := filepath.Join(o.Dir, recordFile)
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return i, nil
	case err != nil:
		return nil, fmt.Errorf("read who this machine is: %w", err)
	}
	r := &i.mu.record
	if err := json.Unmarshal(data, r); err != nil {
		return nil, refuse("read %s: %w; put back a copy of the file, or remove the whole of %s and join again with a token", path, err, o.Dir)
	}
	if i.client.get() != nil && r.Node != o.NodeName {
		return nil, refuse("this machine is called %s now, but it is the node %s by what is in %s. If it is a copy of that machine, run 'kemudi reset' here and join with a token; if it was given another name, "+
			"delete the node (kubectl delete node %s), run 'kemudi reset' and join again; to keep the old name, start it with --node-name %s", o.NodeName, r.Node, o.Dir, r.Node, r.Node)
	}
	return i, nil
}

// Joined says whether the machine has a certificate by which the cluster knows it.
func (i *Identity) Joined() bool {
	c := i.client.get()
	return c != nil && !ended(c.Leaf) && i.record().CA != ""
}

// Silent is since when no server has answered, where Join has found none that did: the
// machine starts without them, and who asks them next need not begin to wait anew. Zero: one has.
func (i *Identity) Silent() time.Time {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.mu.silent
}

// Certificate is what the machine shows to the API: it fits the option of that name of
// the transport. It is the same one until another was signed.
func (i *Identity) Certificate() (*tls.Certificate, error) {
	if c := i.client.get(); c != nil {
		return c, nil
	}
	return nil, errors.New("this machine has not joined a cluster")
}

// Serving is what the machine's agent serves with. There is none until the cluster has
// signed it, soon after the Node with its addresses is there.
func (i *Identity) Serving() (*tls.Certificate, error) {
	if c := i.serving.get(); c != nil {
		return c, nil
	}
	return nil, errors.New("the cluster has not signed a serving certificate for this machine yet")
}

// Cluster is what the machine knows of its cluster.
func (i *Identity) Cluster() Cluster {
	r := i.record()
	return Cluster{Servers: slices.Clone(r.Servers), CA: []byte(r.CA)}
}

// Changed says that the hosts may have changed: the machine then asks for a serving
// certificate for those that there are. It does not block.
func (i *Identity) Changed() {
	select {
	case i.changed <- struct{}{}:
	default:
	}
}

// SetServers remembers where the API is, for the next start.
func (i *Identity) SetServers(servers []string) error {
	r := i.record()
	if len(servers) == 0 || slices.Equal(r.Servers, servers) {
		return nil
	}
	r.Servers = slices.Clone(servers)
	return i.remember(r)
}

func (i *Identity) record() record {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.mu.record
}

// remember writes the record.
func (i *Identity) remember(r record) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode who this machine is: %w", err)
	}
	if err := wholefile.Private(filepath.Join(i.o.Dir, recordFile), append(data, '\n')); err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.mu.record = r
	return nil
}

// of says whether the machine belongs to the cluster with the authority of that pin.
func (r *record) of(pin string) bool {
	certs, err := parseCertificates([]byte(r.CA))
	return err == nil && slices.ContainsFunc(certs, func(c *x509.Certificate) bool { return pki.Pin(c) == pin })
}
