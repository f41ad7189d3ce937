package edgefeed

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/port"
	"github.com/kemudi/kemudi/test/serve"
	"github.com/kemudi/kemudi/test/wait"
)

// pair is a Secret with a certificate for a name.
func (b *bed) pair(name, host string) *corev1.Secret {
	b.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{host}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		b.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		b.Fatal(err)
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{
			corev1.TLSCertKey:       pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
			corev1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
		},
	}
}

// first is a pod that answers with its name and the first line that it is sent.
func (b *bed) first(name string) (at string) {
	_, at, _ = net.SplitHostPort(serve.TCP(b, func(c net.Conn) {
		text, _ := bufio.NewReader(c).ReadString('\n')
		fmt.Fprint(c, name, " ", text)
	}))
	return at
}

// TestBalancersAreServedByTheEdge has a Service with TLS and the PROXY protocol, whose Secret comes late and changes, beside
// one whose Secret is broken.
func TestBalancersAreServedByTheEdge(t *testing.T) {
	b := newBed(t)
	pod := b.first("pod")
	number := map[string]uint16{"web": port.Reserve(t), "broken": port.Reserve(t)}
	put := func(name, annotations string) {
		b.api.Put(
			object[corev1.Service](b, fmt.Sprintf("metadata: {namespace: team, name: %s, annotations: {%s}}\nspec: {type: LoadBalancer, ports: [{port: 443, nodePort: %d, protocol: TCP}]}\n"+
				"status: {loadBalancer: {ingress: [{ip: 127.0.0.1}]}, conditions: [{type: kemudi.io/Balanced, status: 'True', reason: Balanced}]}", name, annotations, number[name])),
			object[discoveryv1.EndpointSlice](b, "metadata: {namespace: team, name: "+name+"-x, labels: {kubernetes.io/service-name: "+name+"}}\naddressType: IPv4\nports: [{name: '', port: "+pod+"}]\nendpoints: [{addresses: [127.0.0.1]}]"),
		)
	}
	b.start("v1")
	put("web", "kemudi.io/load-balancer-certificate: pair, kemudi.io/load-balancer-proxy-protocol: v1")
	put("broken", "kemudi.io/load-balancer-certificate: broken")
	b.api.Put(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "broken"}, Data: map[string][]byte{corev1.TLSCertKey: []byte("x"), corev1.TLSPrivateKeyKey: []byte("x")}})
	// say tells which certificate is shown, and what the pod was told.
	say := func(name string) (shows, told string, err error) {
		c, err := tls.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(number[name]))), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			return "", "", err
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
			return "", "", err
		}
		if _, err := fmt.Fprintln(c, "hello"); err != nil {
			return "", "", err
		}
		text, err := bufio.NewReader(c).ReadString('\n')
		return c.ConnectionState().PeerCertificates[0].DNSNames[0], strings.TrimSpace(text), err
	}
	for _, host := range []string{"first.com", "second.com"} { // the Secret comes, and changes
		b.api.Put(b.pair("pair", host))
		wait.Until(t, func() error {
			shows, told, err := say("web")
			if want := "pod PROXY TCP4 127.0.0.1 127.0.0.1 "; err != nil || shows != host || !strings.HasPrefix(told, want) {
				return fmt.Errorf("got %q, %q, %v; want %s, %q", shows, told, err, host, want)
			}
			return nil
		})
	}
	trace.Proves(t, "SVC-124", "SVC-125", "SVC-180")
	if shows, _, err := say("broken"); err == nil {
		t.Errorf("with a broken Secret: got a certificate of %q, want none", shows)
	}
	b.api.Put(b.pair("broken", "mended.com"))
	wait.Until(t, func() error {
		if shows, _, err := say("broken"); shows != "mended.com" {
			return fmt.Errorf("got %q, %v, want mended.com", shows, err)
		}
		return nil
	})
	// Without such a Service there is no process.
	put("web", "")
	put("broken", "")
	wait.Until(t, func() error {
		c, err := net.Dial("unix", Socket(b.dir))
		if err == nil {
			c.Close()
			return errors.New("the edge runs")
		}
		if _, err := os.Stat(Socket(b.dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}
