package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

// selfSigned makes a certificate for a name and its key, in PEM.
func selfSigned(t *testing.T, name string) (chain, key []byte) {
	t.Helper()
	private := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: true, IsCA: true,
	}
	der := must(x509.CreateCertificate(rand.Reader, template, template, private.Public(), private))(t)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: must(x509.MarshalPKCS8PrivateKey(private))(t)})
}

// secureService has a Service of type NodePort be served by TLS, as the documents do it: a certificate, a Secret that
// has it, and pods that mount the Secret: one that serves, and one that asks. It returns the certificate in PEM, and the
// pod that serves when both are ready.
func secureService(t *testing.T, c *cluster, k kubectl) (chain []byte, server *corev1.Pod) {
	t.Helper()
	chain, key := selfSigned(t, "my-nginx")
	code := base64.StdEncoding.EncodeToString
	const volumes = "volumes: [{name: secret-volume, secret: {secretName: nginxsecret}}]"
	const mounts = "volumeMounts: [{name: secret-volume, mountPath: /etc/nginx/ssl}]"
	k.apply(t, fmt.Sprintf(`
apiVersion: v1
kind: Secret
metadata: {name: nginxsecret}
data: {nginx.crt: %s, nginx.key: %s}
---
apiVersion: v1
kind: Service
metadata: {name: my-nginx}
spec: {type: NodePort, selector: {run: my-nginx}, ports: [{name: https, port: 443, protocol: TCP}]}
---
apiVersion: v1
kind: Pod
metadata: {name: server, labels: {run: my-nginx}}
spec:
  terminationGracePeriodSeconds: 0
  %s
  containers:
  - name: c
    image: kemudi.local/agnhost:1
    args: [netexec, --http-port=443, --udp-port=-1, --tls-cert-file=/etc/nginx/ssl/nginx.crt, --tls-private-key-file=/etc/nginx/ssl/nginx.key]
    readinessProbe: {tcpSocket: {port: 443}, periodSeconds: 1}
    %s
---
apiVersion: v1
kind: Pod
metadata: {name: curlpod}
spec: {terminationGracePeriodSeconds: 0, %[3]s, containers: [{name: c, image: kemudi.local/agnhost:1, args: [pause], %[4]s}]}
`, code(chain), code(key), volumes, mounts))
	c.await(t, k.namespace, "curlpod", isReady)
	return chain, c.await(t, k.namespace, "server", isReady)
}

func testSecureService(t *testing.T, c *cluster) {
	k := c.kubectl().in(c.namespace(t))
	chain, pod := secureService(t, c, k)
	trace.Proves(t, "CONN-039")
	if got := k.do(t, "exec", "server", "--", "ls", "/etc/nginx/ssl"); got != "nginx.crt\nnginx.key\n" {
		t.Errorf("the volume has %q, want the keys of the secret as files", got)
	}
	trace.Proves(t, "CONN-044")
	wait.Until(t, func() error {
		if got := k.try(t, "", "exec", "curlpod", "--", "curl", "-sS", "https://my-nginx/hostname", "--cacert", "/etc/nginx/ssl/nginx.crt"); got.stdout != "server" {
			return fmt.Errorf("by name, verified: got %q", got.all())
		}
		return nil
	})
	believed := x509.NewCertPool()
	believed.AppendCertsFromPEM(chain)
	address := "https://" + pod.Status.PodIP + "/hostname"
	for insecure, want := range map[bool]string{false: "x509", true: ""} {
		client := httpClient(c.host)
		client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{InsecureSkipVerify: insecure, RootCAs: believed}
		resp, err := client.Get(address)
		if err == nil {
			resp.Body.Close()
		}
		trace.Proves(t, "CONN-043")
		if (err == nil) != (want == "") || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("by the pod's address, without verification: %v: got %v, want an error %q", insecure, err, want)
		}
	}
}
