package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const head = "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\negressSelections:\n"

func TestConfigurationsThatCannotBeAreRefused(t *testing.T) {
	for doc, want := range map[string]string{
		"kind: Other":             "error decoding egress selector configuration: ",
		head + "- {nam: cluster}": `unknown field "egressSelections[0].nam"`,
		strings.TrimSuffix(head, "egressSelections:\n"):                                                                                               "egressSelections: Required value",
		head + "- {name: moon, connection: {proxyProtocol: Direct}}":                                                                                  `egressSelections[0].name: Unsupported value: "moon"`,
		head + "- {name: cluster, connection: {proxyProtocol: Direct}}\n- {name: cluster, connection: {proxyProtocol: Direct}}":                       `egressSelections[1].name: Duplicate value: "cluster"`,
		head + "- {name: cluster, connection: {proxyProtocol: Direct, transport: {uds: {udsName: /s}}}}":                                              "egressSelections[0].connection.transport: must be absent with Direct",
		head + "- {name: cluster, connection: {proxyProtocol: GRPC, transport: {tcp: {url: \"http://x\"}}}}":                                          "egressSelections[0].connection.transport: want uds alone with GRPC",
		head + "- {name: cluster, connection: {proxyProtocol: Pigeon}}":                                                                               `egressSelections[0].connection.proxyProtocol: Unsupported value: "Pigeon"`,
		head + "- {name: cluster, connection: {proxyProtocol: HTTPConnect}}":                                                                          "egressSelections[0].connection.transport: want one of tcp and uds",
		head + "- {name: cluster, connection: {proxyProtocol: HTTPConnect, transport: {uds: {}}}}":                                                    "egressSelections[0].connection.transport.uds.udsName: Required value",
		head + "- {name: cluster, connection: {proxyProtocol: HTTPConnect, transport: {tcp: {url: \"ftp://x\"}}}}":                                    `egressSelections[0].connection.transport.tcp.url: Invalid value: "ftp://x"`,
		head + "- {name: cluster, connection: {proxyProtocol: HTTPConnect, transport: {tcp: {url: \"https://x\"}}}}":                                  "egressSelections[0].connection.transport.tcp.tlsConfig: Required value with https",
		head + "- {name: cluster, connection: {proxyProtocol: HTTPConnect, transport: {tcp: {url: \"http://x\", tlsConfig: {}}}}}":                    "egressSelections[0].connection.transport.tcp.tlsConfig: must be absent with http",
		head + "- {name: cluster, connection: {proxyProtocol: HTTPConnect, transport: {tcp: {url: \"https://x\", tlsConfig: {clientKey: /k}}}}}":      "egressSelections[0].connection.transport.tcp.tlsConfig: clientCert and clientKey go together",
		head + "- {name: cluster, connection: {proxyProtocol: HTTPConnect, transport: {tcp: {url: \"https://x\", tlsConfig: {caBundle: /nowhere}}}}}": "egressSelections[0].connection.transport.tcp.tlsConfig: caBundle: open /nowhere",
	} {
		if _, err := parse([]byte(doc)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\n got %v\nwant %s", doc, err, want)
		}
	}
	if p, err := parse([]byte(head + "- {name: cluster, connection: {proxyProtocol: Direct}}\n- {name: etcd, connection: {proxyProtocol: Direct}}")); len(p) != 0 || err != nil {
		t.Errorf("got %v, %v, want none", p, err)
	}
	if _, err := Read("/nowhere"); err == nil || !strings.HasPrefix(err.Error(), "unable to read egress selector configuration: open /nowhere") {
		t.Errorf("got %v", err)
	}
}

// connects is a proxy that connects to what is asked for, and greets at once for who is reached.
func connects(t *testing.T) http.Handler {
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect || r.Host == "refused:1" {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		there, err := net.Dial("tcp", r.Host)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		here, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(here, "HTTP/1.1 200 Connection established\r\n\r\nhello ")
		wg.Go(func() {
			defer there.Close()
			_, _ = io.Copy(there, here)
		})
		wg.Go(func() {
			defer here.Close()
			_, _ = io.Copy(here, there)
		})
	})
}

// echo serves what it is sent, in a line.
func echo(t *testing.T) (address string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() { l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			line, _ := bufio.NewReader(c).ReadString('\n')
			_, _ = io.WriteString(c, line)
			c.Close()
		}
	})
	return l.Addr().String()
}

func TestConnectionsGoByTheProxy(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	byUnix := &httptest.Server{Listener: l, Config: &http.Server{Handler: connects(t)}}
	byUnix.Start()
	t.Cleanup(byUnix.Close)
	plain := httptest.NewServer(connects(t))
	t.Cleanup(plain.Close)
	secure := httptest.NewUnstartedServer(connects(t))
	secure.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	secure.StartTLS()
	t.Cleanup(secure.Close)
	ca, key := filepath.Join(dir, "ca"), filepath.Join(dir, "key")
	der, err := x509.MarshalPKCS8PrivateKey(secure.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{ca: {Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}, key: {Type: "PRIVATE KEY", Bytes: der}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for transport, name := range map[string]string{
		"uds: {udsName: " + socket + "}":    "uds",
		"tcp: {url: \"" + plain.URL + "\"}": "tcp",
		fmt.Sprintf("tcp: {url: %q, tlsConfig: {caBundle: %s, clientCert: %s, clientKey: %s}}", secure.URL, ca, ca, key): "tcp",
	} {
		all, err := parse([]byte(head + "- {name: etcd, connection: {proxyProtocol: HTTPConnect, transport: {" + transport + "}}}"))
		if err != nil {
			t.Fatalf("%s: %v", transport, err)
		}
		if all.To(Cluster) != nil || all.To(ControlPlane) != nil || Selection(nil).To(Store) != nil {
			t.Errorf("%s: more is sent by the proxy than the file says", transport)
		}
		p := all[Store]
		reg := prometheus.NewRegistry()
		p.Metrics = NewMetrics(reg)
		conn, err := all.To(Store)(t.Context(), "tcp", echo(t))
		if err != nil {
			t.Fatalf("%s: %v", transport, err)
		}
		if _, err := io.WriteString(conn, "world\n"); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(conn); string(got) != "hello world\n" {
			t.Errorf("%s: got %q, %v", transport, got, err)
		}
		conn.Close()
		if _, err := p.Dial(t.Context(), "refused:1"); err == nil || !strings.Contains(err.Error(), "while dialing refused:1, code 403") {
			t.Errorf("%s: got %v, want what the proxy says", transport, err)
		}
		for metric, want := range map[string]float64{"apiserver_egress_dialer_dial_start_total": 2, "apiserver_egress_dialer_dial_failure_count": 1} {
			if got := counted(t, reg, metric, name); got != want {
				t.Errorf("%s: got %s %v, want %v", transport, metric, got, want)
			}
		}
	}
	gone := &Proxy{network: "unix", address: filepath.Join(dir, "none")}
	if _, err := gone.Dial(t.Context(), "x:1"); err == nil || !strings.HasPrefix(err.Error(), "connect to the egress proxy at ") {
		t.Errorf("got %v", err)
	}
}

// counted is the sum of a metric for a transport.
func counted(t *testing.T, reg *prometheus.Registry, name, transport string) (sum float64) {
	t.Helper()
	all, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range all {
		for _, m := range family.GetMetric() {
			for _, l := range m.GetLabel() {
				if family.GetName() == name && l.GetName() == "transport" && l.GetValue() == transport {
					sum += m.GetCounter().GetValue()
				}
			}
		}
	}
	return sum
}

func TestAProxyThatSaysNothingIsNotWaitedForForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer there.Close()
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = io.Copy(io.Discard, there) })
		p := &Proxy{network: "tcp", address: "p:1"}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		if _, err := p.ask(ctx, here, "x:1"); err == nil || time.Since(began) != time.Minute {
			t.Errorf("got %v after %v, want an error after a minute", err, time.Since(began))
		}
		here.Close()
		wg.Wait()
	})
}
