package gateway

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/kemudi/kemudi/internal/edge/route"
	"github.com/kemudi/kemudi/internal/ingress"
)

// tablePrefix begins the keys in tables of edges of what is a Gateway's, beside those of Ingresses.
const tablePrefix = "gateway/"

// Table is what edges are told of a Gateway, but for endpoints.
type Table struct {
	Doors        []*route.Door                 `json:"doors,omitempty"`
	Upstreams    []Upstream                    `json:"upstreams,omitempty"`
	Certificates map[string]*route.Certificate `json:"certificates,omitempty"`
}

// Upstream is a port of a service.
type Upstream struct {
	Namespace string `json:"namespace"`
	Service   string `json:"service"`
	Port      int32  `json:"port"`
	UDP       bool   `json:"udp,omitempty"`
}

// Key is the upstream's in tables.
func (u Upstream) Key() string {
	key := tablePrefix + u.Namespace + "/" + u.Service + ":" + strconv.Itoa(int(u.Port))
	if u.UDP {
		key += "/udp"
	}
	return key
}

func (u Upstream) port() ingress.Upstream {
	return ingress.Upstream{Namespace: u.Namespace, Service: u.Service, Port: networkingv1.ServiceBackendPort{Number: u.Port}, UDP: u.UDP}
}

// How large a table may be: what holds it when it is packed must fit into the store, and nodes unpack it in memory.
const (
	mostBytes    = 900 << 10
	mostUnpacked = 256 << 20
)

// Pack makes bytes of a table.
func (t *Table) Pack() ([]byte, error) {
	text, err := json.Marshal(t)
	if err != nil {
		return nil, fmt.Errorf("pack what edges are told of a Gateway: %w", err)
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(text); err != nil {
		return nil, fmt.Errorf("pack what edges are told of a Gateway: %w", err)
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("pack what edges are told of a Gateway: %w", err)
	}
	if b.Len() > mostBytes || len(text) > mostUnpacked {
		return nil, fmt.Errorf("the routes and certificates of the Gateway are %d bytes, and packed %d, of which edges can be told %d and %d: what they were told last stays in force; spread them over several Gateways",
			len(text), b.Len(), mostUnpacked, mostBytes)
	}
	return b.Bytes(), nil
}

// Unpack reads what Pack has made.
func Unpack(data []byte) (*Table, error) {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("read what edges are told of a Gateway: %w", err)
	}
	t := &Table{}
	if err := json.NewDecoder(io.LimitReader(z, mostUnpacked)).Decode(t); err != nil {
		return nil, fmt.Errorf("read what edges are told of a Gateway: %w", err)
	}
	return t, nil
}
