package egress

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
)

// Where what is sent may go.
const (
	Cluster      = "cluster"      // to nodes, pods and services
	ControlPlane = "controlplane" // to what decides for the control plane: webhooks of kubeconfigs, and providers that say so
	Store        = "etcd"
)

// Selection is which proxies are asked, by where what is sent goes. What it does not have goes directly; nil: all does.
type Selection map[string]*Proxy

// Dial makes connections of network "tcp" to a place; nil: they are made directly.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// To is how connections to a place are made.
func (s Selection) To(place string) Dial {
	p := s[place]
	if p == nil {
		return nil
	}
	return func(ctx context.Context, _, address string) (net.Conn, error) { return p.Dial(ctx, address) }
}

// Read is the selection of a file.
func Read(file string) (Selection, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("unable to read egress selector configuration: %w", err)
	}
	p, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return p, nil
}

func parse(data []byte) (Selection, error) {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	obj, err := runtime.Decode(serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder(), data)
	if err != nil {
		return nil, fmt.Errorf("error decoding egress selector configuration: %w", err)
	}
	c, ok := obj.(*apiserver.EgressSelectorConfiguration)
	if !ok {
		return nil, fmt.Errorf("want an EgressSelectorConfiguration, got %T", obj)
	}
	if len(c.EgressSelections) == 0 {
		return nil, errors.New("egressSelections: Required value")
	}
	all, seen := Selection{}, map[string]bool{}
	for i, s := range c.EgressSelections {
		at := fmt.Sprintf("egressSelections[%d]", i)
		switch s.Name {
		case Cluster, ControlPlane, Store:
		default:
			return nil, fmt.Errorf("%s.name: Unsupported value: %q: supported values: %q, %q, %q", at, s.Name, Cluster, ControlPlane, Store)
		}
		if seen[s.Name] {
			return nil, fmt.Errorf("%s.name: Duplicate value: %q", at, s.Name)
		}
		seen[s.Name] = true
		one, err := connection(at+".connection", &s.Connection)
		if err != nil {
			return nil, err
		}
		if one != nil {
			all[s.Name] = one
		}
	}
	return all, nil
}

// connection is the proxy of one selection; nil: there is none.
func connection(at string, c *apiserver.Connection) (*Proxy, error) {
	switch c.ProxyProtocol {
	case apiserver.ProtocolDirect:
		if c.Transport != nil {
			return nil, fmt.Errorf("%s.transport: must be absent with Direct", at)
		}
		return nil, nil
	case apiserver.ProtocolHTTPConnect, apiserver.ProtocolGRPC:
	default:
		return nil, fmt.Errorf("%s.proxyProtocol: Unsupported value: %q: supported values: %q, %q, %q", at, c.ProxyProtocol, apiserver.ProtocolDirect, apiserver.ProtocolGRPC, apiserver.ProtocolHTTPConnect)
	}
	grpc := c.ProxyProtocol == apiserver.ProtocolGRPC
	switch t := c.Transport; {
	case grpc && (t == nil || t.UDS == nil || t.TCP != nil):
		return nil, fmt.Errorf("%s.transport: want uds alone with GRPC", at)
	case t == nil || (t.TCP == nil) == (t.UDS == nil):
		return nil, fmt.Errorf("%s.transport: want one of tcp and uds with HTTPConnect", at)
	}
	if uds := c.Transport.UDS; uds != nil {
		if uds.UDSName == "" {
			return nil, fmt.Errorf("%s.transport.uds.udsName: Required value", at)
		}
		return &Proxy{network: "unix", address: uds.UDSName, grpc: grpc}, nil
	}
	return overTCP(at+".transport.tcp", c.Transport.TCP)
}

func overTCP(at string, t *apiserver.TCPTransport) (*Proxy, error) {
	u, err := url.Parse(t.URL)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%s.url: Invalid value: %q: want http://host:port or https://host:port", at, t.URL)
	}
	p := &Proxy{network: "tcp", address: u.Host}
	if u.Port() == "" {
		p.address = net.JoinHostPort(u.Hostname(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	}
	switch {
	case u.Scheme == "http" && t.TLSConfig != nil:
		return nil, fmt.Errorf("%s.tlsConfig: must be absent with http", at)
	case u.Scheme == "http":
		return p, nil
	case t.TLSConfig == nil:
		return nil, fmt.Errorf("%s.tlsConfig: Required value with https", at)
	}
	p.files = &files{ca: t.TLSConfig.CABundle, cert: t.TLSConfig.ClientCert, key: t.TLSConfig.ClientKey, host: cmp.Or(t.TLSConfig.TLSServerName, u.Hostname())}
	if (p.files.cert == "") != (p.files.key == "") {
		return nil, fmt.Errorf("%s.tlsConfig: clientCert and clientKey go together", at)
	}
	if _, err := p.files.config(); err != nil {
		return nil, fmt.Errorf("%s.tlsConfig: %w", at, err)
	}
	return p, nil
}
