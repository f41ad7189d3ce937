package join

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
)

// Member is who a machine is in its cluster, for a look from outside of its agent.
type Member struct {
	Node string
	Cluster
	// access shows the certificate of the node; empty: none is signed yet.
	access rest.TLSClientConfig
}

// ErrNoMember says that a machine is in no cluster.
var ErrNoMember = errors.New("this machine is in no cluster")

// ReadMember reads who a machine is from the directory of its identity. It changes nothing there.
func ReadMember(dir string) (*Member, error) {
	path := filepath.Join(dir, recordFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNoMember
	}
	if err != nil {
		return nil, fmt.Errorf("read who this machine is: %w", err)
	}
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	m := &Member{Node: r.Node, Cluster: Cluster{Servers: r.Servers, CA: []byte(r.CA)}}
	m.access.CAData = m.CA
	if m.access.CertData, err = os.ReadFile(filepath.Join(dir, "client.crt")); err == nil {
		m.access.KeyData, err = os.ReadFile(filepath.Join(dir, "client.key"))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the certificate of node %s: %w", r.Node, err)
	}
	return m, nil
}

// Access is how the node itself reaches one of the servers: without the proxy that the environment may name,
// which is for what is outside of the cluster.
func (m *Member) Access(server string) *rest.Config {
	direct := func(*http.Request) (*url.URL, error) { return nil, nil }
	return &rest.Config{Host: server, TLSClientConfig: m.access, QPS: -1, Proxy: direct}
}
