package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kemudi/kemudi/internal/podnet/nettest"
	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

// relayPort is where [testRelays] is reached, and relayBackend where its endpoint is, on the neighbour.
const relayPort, relayBackend = "18443", "18444"

// repeatFirstLines serves at relayBackend of a host: it answers with the first line that it is sent, and says no more.
func repeatFirstLines(t *testing.T, h *nettest.Host) {
	t.Helper()
	var l net.Listener
	h.Must(func() (err error) {
		l, err = net.Listen("tcp", net.JoinHostPort(neighbourIP, relayBackend))
		return err
	})
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				text, _ := bufio.NewReader(conn).ReadString('\n')
				_, _ = io.WriteString(conn, text)
			}()
		}
	}()
}

// testRelays reaches by TLS, at the address of the node, a program on another machine that hears by the PROXY protocol
// who asks; at a second port it does so without TLS.
func testRelays(t *testing.T, c *cluster) {
	k := c.kubectl().in(c.namespace(t))
	chain, key := selfSigned(t, "web.example.com")
	other, otherKey := selfSigned(t, "other.example.com")
	repeatFirstLines(t, k.neighbour)
	code := base64.StdEncoding.EncodeToString
	secret := func(chain, key []byte) string {
		return fmt.Sprintf("{apiVersion: v1, kind: Secret, metadata: {name: pair}, type: kubernetes.io/tls, data: {tls.crt: %s, tls.key: %s}}\n", code(chain), code(key))
	}
	k.apply(t, `
apiVersion: v1
kind: Service
metadata:
  name: web
  annotations:
    kemudi.io/load-balancer-certificate: pair
    service.beta.kubernetes.io/aws-load-balancer-ssl-ports: "`+relayPort+`"
    service.beta.kubernetes.io/aws-load-balancer-proxy-protocol: "*"
    service.beta.kubernetes.io/aws-load-balancer-access-log-enabled: "true"
spec: {type: LoadBalancer, loadBalancerSourceRanges: [`+neighbourIP+`/32], ports: [{name: tls, port: `+relayPort+`}, {name: plain, port: 18445}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: tls, port: `+relayBackend+`}, {name: plain, port: `+relayBackend+`}]
endpoints: [{addresses: [`+neighbourIP+`]}]
`)
	k.wants(t, []string{"<pending>"}, "get", "service", "web", "--no-headers")
	dial := dialer(k.neighbour)
	// ask is what the backend was told of a client that trusts a certificate; none: without TLS.
	ask := func(port string, trusted []byte) error {
		conn, err := dial(t.Context(), "tcp", net.JoinHostPort(machineIP, port))
		if err != nil {
			return err
		}
		defer conn.Close()
		from := conn.LocalAddr().(*net.TCPAddr).Port
		if err := conn.SetDeadline(time.Now().Add(wait.Patience)); err != nil {
			return err
		}
		if trusted != nil {
			pool := x509.NewCertPool()
			pool.AppendCertsFromPEM(trusted)
			name := "web.example.com"
			if string(trusted) == string(other) {
				name = "other.example.com"
			}
			conn = tls.Client(conn, &tls.Config{ServerName: name, RootCAs: pool})
		}
		if _, err := fmt.Fprintln(conn, "hello"); err != nil {
			return err
		}
		got, err := bufio.NewReader(conn).ReadString('\n')
		if want := fmt.Sprintf("PROXY TCP4 %s %s %d %s\r\n", neighbourIP, machineIP, from, port); err != nil || got != want {
			return fmt.Errorf("the backend was told %q, %v; want %q", got, err, want)
		}
		return nil
	}
	k.apply(t, secret(chain, key))
	wait.Until(t, func() error { return errors.Join(ask(relayPort, chain), ask("18445", nil)) })
	trace.Proves(t, "SVC-124", "SVC-125", "SVC-129", "SVC-130", "SVC-132")
	trace.Proves(t, "SVC-180")
	k.apply(t, secret(other, otherKey)) // which counts without a restart
	wait.Until(t, func() error { return ask(relayPort, other) })
	trace.Proves(t, "SVC-133")
	wait.Until(t, func() error {
		log, err := os.ReadFile(filepath.Join(k.DataDir, "edge-access.log"))
		if want := "service=" + k.namespace + "/web client=" + neighbourIP; err != nil || !strings.Contains(string(log), want) {
			return fmt.Errorf("the access log: got %q, %v; want %q", log, err, want)
		}
		return nil
	})
	// Who comes past the rules of the balancer, at the port where the edge listens, gets the backend as it is, by the node
	// port's own way: no header, and no TLS.
	number := k.do(t, "get", "service", "web", "-o", "jsonpath={.spec.ports[0].nodePort}")
	conn, err := dial(context.WithoutCancel(t.Context()), "tcp", net.JoinHostPort(machineIP, number))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(wait.Patience)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(conn, "plain")
	if got, err := bufio.NewReader(conn).ReadString('\n'); got != "plain\n" {
		t.Errorf("by the node port: got %q, %v; want what was sent", got, err)
	}
}
