package e2e

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/internal/wholefile"
	"github.com/kemudi/kemudi/test/wait"
)

// etcdEnv makes this program an etcd with its own settings, as that of others, over the keys and
// the data of a directory.
const etcdEnv = "KEMUDI_E2E_ETCD"

// Where that etcd listens, on the loopback of its machine.
const (
	etcdURL     = "https://127.0.0.1:2379"
	etcdPeerURL = "http://127.0.0.1:2380"
)

// runEtcd is an etcd until it is told to end.
func runEtcd(ctx context.Context, dir string) error {
	at := func(text string) []url.URL {
		u, err := url.Parse(text)
		if err != nil {
			panic(err)
		}
		return []url.URL{*u}
	}
	c := embed.NewConfig()
	c.Name, c.Dir, c.LogLevel = "etcd", filepath.Join(dir, "etcd"), "error"
	c.UnsafeNoFsync = true
	c.ListenClientUrls, c.AdvertiseClientUrls, c.ListenPeerUrls, c.AdvertisePeerUrls = at(etcdURL), at(etcdURL), at(etcdPeerURL), at(etcdPeerURL)
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	c.MaxTxnOps, c.MaxRequestBytes = 10_000, 4718592
	c.ClientTLSInfo = transport.TLSInfo{
		ClientCertAuth: true, CertFile: filepath.Join(dir, "etcd.crt"), KeyFile: filepath.Join(dir, "etcd.key"), TrustedCAFile: filepath.Join(dir, "pki/ca.crt"),
	}
	e, err := embed.StartEtcd(c)
	if err != nil {
		return err
	}
	defer e.Close()
	select {
	case err := <-e.Err():
		return err
	case <-ctx.Done():
		return nil
	}
}

// apart is a cluster whose parts are processes of their own, by upstream's names, on one machine.
type apart struct {
	*cluster
	dir string // keys, kubeconfigs, and the names of the parts
	pki *pki.PKI
}

func newApart(t *testing.T) *apart {
	t.Helper()
	a := &apart{cluster: &cluster{machine: newMachine(t)}}
	a.dir = filepath.Join(a.Dir, "parts")
	var err error
	if a.pki, err = pki.Ensure(pki.Options{Dir: a.dir, Hosts: []string{machineIP, "10.96.0.1"}}); err != nil {
		t.Fatal(err)
	}
	a.issue(t, "etcd", pki.Subject{Name: "etcd", Hosts: []string{"127.0.0.1"}, Client: true, Server: true})
	for file, subject := range map[string]pki.Subject{
		"admin":              {Name: "kubernetes-admin", Organizations: []string{"system:masters"}},
		"controller-manager": {Name: "system:kube-controller-manager"},
		"scheduler":          {Name: "system:kube-scheduler"},
		"kube-proxy":         {Name: "system:kube-proxy"},
	} {
		subject.Client = true
		pair, err := a.pki.CA.Issue(subject)
		if err != nil {
			t.Fatal(err)
		}
		a.kubeconfig(t, file, pair)
	}
	if err := os.MkdirAll(a.DataDir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(a.file("admin.conf"), a.adminKubeconfig()); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *apart) file(name string) string { return filepath.Join(a.dir, name) }

func (a *apart) write(t *testing.T, name, text string) string {
	t.Helper()
	if err := wholefile.Private(a.file(name), []byte(text)); err != nil {
		t.Fatal(err)
	}
	return a.file(name)
}

func (a *apart) issue(t *testing.T, name string, s pki.Subject) {
	t.Helper()
	pair, err := a.pki.CA.Issue(s)
	if err != nil {
		t.Fatal(err)
	}
	key, err := pair.KeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	a.write(t, name+".crt", string(pair.CertPEM()))
	a.write(t, name+".key", string(key))
}

func (a *apart) kubeconfig(t *testing.T, name string, pair pki.Pair) {
	t.Helper()
	text, err := pki.Kubeconfig{Cluster: "kubernetes", Server: "https://" + machineIP + ":6443", CA: a.pki.CA.CertPEM(), User: name, Pair: pair}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	a.write(t, name+".conf", string(text))
}

// begin runs a program on the machine until the end of the test, or until it is stopped.
func (a *apart) begin(t *testing.T, cmd *exec.Cmd) (stop func()) {
	t.Helper()
	name := filepath.Base(cmd.Path)
	log, err := os.OpenFile(filepath.Join(a.Dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := a.machine.start(cmd); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(wait.Patience):
			t.Errorf("%s does not end", name)
			_ = cmd.Process.Kill()
			<-ended
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("what %s said:\n%s", name, tail(log.Name(), 30))
		}
		stop()
	})
	return stop
}

// part runs a part by its name, through a link.
func (a *apart) part(t *testing.T, name string, args ...string) (stop func()) {
	t.Helper()
	link := a.file(name)
	if err := os.Symlink(a.bin, link); err != nil && !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
	return a.begin(t, a.command(context.Background(), append([]string{link}, args...)...))
}

// status is what a part answers on the loopback of its machine, to who shows a certificate or nobody.
func (a *apart) status(t *testing.T, url string, shows *pki.Pair) (code int, body string) {
	t.Helper()
	config := &tls.Config{InsecureSkipVerify: true}
	if shows != nil {
		config.Certificates = []tls.Certificate{shows.TLS()}
	}
	c := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true, DialContext: dialer(a.host), TLSClientConfig: config}}
	res, err := c.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err.Error()
	}
	return res.StatusCode, string(text)
}

// answers waits until a part answers with a code.
func (a *apart) answers(t *testing.T, code int, url string, shows *pki.Pair) {
	t.Helper()
	wait.Until(t, func() error {
		if got, body := a.status(t, url, shows); got != code {
			return fmt.Errorf("%s: got %d %s, want %d", url, got, body, code)
		}
		return nil
	})
}

// tells holds that the administrator is shown a text at a URL.
func (a *apart) tells(t *testing.T, url, text string) {
	t.Helper()
	master, err := a.pki.Admin()
	if err != nil {
		t.Fatal(err)
	}
	if code, body := a.status(t, url, &master); code != http.StatusOK || !strings.Contains(body, text) {
		t.Errorf("%s: got %d %s, want %q", url, code, body, text)
	}
}

// tellOfThemselves holds that controller manager and scheduler show what they are and what they were told.
func (a *apart) tellOfThemselves(t *testing.T) {
	t.Helper()
	for port, conf := range map[string]string{"10257": "controller-manager.conf", "10259": "scheduler.conf"} {
		a.tells(t, "https://127.0.0.1:"+port+"/statusz", "\nPaths: /configz /debug /flagz /healthz /livez /metrics /readyz /statusz\n")
		a.tells(t, "https://127.0.0.1:"+port+"/flagz", "\nkubeconfig="+a.file(conf)+"\n")
		a.tells(t, "https://127.0.0.1:"+port+"/metrics", "\nkubernetes_feature_enabled{")
	}
}

// etcd starts the etcd of others.
func (a *apart) etcd(t *testing.T) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := a.command(context.Background(), self)
	cmd.Env = append(cmd.Env, etcdEnv+"="+a.dir)
	a.begin(t, cmd)
}

// apiServer starts the API server with the flags that upstream's installer gives it.
func (a *apart) apiServer(t *testing.T) (stop func()) {
	t.Helper()
	return a.part(t, "kube-apiserver",
		"--advertise-address="+machineIP, "--allow-privileged=true", "--authorization-mode=Node,RBAC", "--client-ca-file="+a.file("pki/ca.crt"),
		"--enable-admission-plugins=NodeRestriction", "--enable-bootstrap-token-auth=true",
		"--etcd-cafile="+a.file("pki/ca.crt"), "--etcd-certfile="+a.file("etcd.crt"), "--etcd-keyfile="+a.file("etcd.key"), "--etcd-servers="+etcdURL,
		"--kubelet-client-certificate="+a.file("pki/apiserver-kubelet-client.crt"), "--kubelet-client-key="+a.file("pki/apiserver-kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname",
		"--proxy-client-cert-file="+a.file("pki/front-proxy-client.crt"), "--proxy-client-key-file="+a.file("pki/front-proxy-client.key"),
		"--requestheader-allowed-names=front-proxy-client", "--requestheader-client-ca-file="+a.file("pki/front-proxy-ca.crt"),
		"--requestheader-extra-headers-prefix=X-Remote-Extra-", "--requestheader-group-headers=X-Remote-Group", "--requestheader-username-headers=X-Remote-User",
		"--secure-port=6443", "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file="+a.file("pki/sa.pub"), "--service-account-signing-key-file="+a.file("pki/sa.key"),
		"--service-cluster-ip-range=10.96.0.0/12", "--tls-cert-file="+a.file("pki/apiserver.crt"), "--tls-private-key-file="+a.file("pki/apiserver.key"))
}

func (a *apart) controllerManager(t *testing.T) (stop func()) {
	t.Helper()
	conf := a.file("controller-manager.conf")
	return a.part(t, "kube-controller-manager",
		"--allocate-node-cidrs=true", "--authentication-kubeconfig="+conf, "--authorization-kubeconfig="+conf, "--bind-address=127.0.0.1",
		"--client-ca-file="+a.file("pki/ca.crt"), "--cluster-cidr=10.244.0.0/16", "--cluster-name=kubernetes",
		"--cluster-signing-cert-file="+a.file("pki/ca.crt"), "--cluster-signing-key-file="+a.file("pki/ca.key"),
		"--controllers=*,bootstrapsigner,tokencleaner", "--kubeconfig="+conf, "--leader-elect=true",
		"--requestheader-client-ca-file="+a.file("pki/front-proxy-ca.crt"), "--root-ca-file="+a.file("pki/ca.crt"),
		"--service-account-private-key-file="+a.file("pki/sa.key"), "--service-cluster-ip-range=10.96.0.0/12", "--use-service-account-credentials=true")
}

// kubelet starts the node agent: with a bootstrap token, a configuration file as upstream's
// installer writes it, and a network that others configure.
func (a *apart) kubelet(t *testing.T, more ...string) (stop func()) {
	t.Helper()
	const token = "abcdef.0123456789abcdef"
	id, secret, _ := strings.Cut(token, ".")
	_, err := a.client.CoreV1().Secrets(metav1.NamespaceSystem).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-" + id}, Type: corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{
			"token-id": id, "token-secret": secret, "usage-bootstrap-authentication": "true", "auth-extra-groups": "system:bootstrappers:kubeadm:default-node-token",
		},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	bootstrap := a.write(t, "bootstrap-kubelet.conf", fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: k, cluster: {server: "https://%s:6443", certificate-authority: %s}}]
users: [{name: k, user: {token: %s}}]
contexts: [{name: k, context: {cluster: k, user: k}}]
current-context: k
`, machineIP, a.file("pki/ca.crt"), token))
	config := a.write(t, "config.yaml", fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {cacheTTL: 0s, enabled: true}, x509: {clientCAFile: %s}}
authorization: {mode: Webhook, webhook: {cacheAuthorizedTTL: 0s, cacheUnauthorizedTTL: 0s}}
cgroupDriver: cgroupfs
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
containerRuntimeEndpoint: ""
cpuManagerReconcilePeriod: 0s
evictionHard: {memory.available: 1Mi}
evictionPressureTransitionPeriod: 0s
healthzBindAddress: 127.0.0.1
healthzPort: 10248
imageGCHighThresholdPercent: 100
logging: {flushFrequency: 0, options: {json: {infoBufferSize: "0"}}, verbosity: 0}
memorySwap: {}
rotateCertificates: true
staticPodPath: %s
streamingConnectionIdleTimeout: 0s
`, a.file("pki/ca.crt"), a.file("manifests")))
	a.write(t, "cni/10-bridge.conflist", fmt.Sprintf(`{"cniVersion":"1.0.0","name":"bridge","plugins":[{"type":"bridge","bridge":"cni0","isGateway":true,
"ipam":{"type":"host-local","dataDir":%q,"ranges":[[{"subnet":"10.244.0.0/24"}]],"routes":[{"dst":"0.0.0.0/0"}]}}]}`, a.file("ipam")))
	return a.part(t, "kubelet", append(more, "--bootstrap-kubeconfig="+bootstrap, "--kubeconfig="+a.file("kubelet.conf"), "--config="+config,
		"--cert-dir="+a.file("kubelet-pki"), "--root-dir="+a.file("kubelet-root"), "--cni-conf-dir="+a.file("cni"), "--hostname-override=node1",
		"--data-dir="+a.DataDir, "--run-dir="+a.RunDir, "--pod-logs-dir="+a.LogsDir, "--pod-infra-container-image=registry.k8s.io/pause:3.10")...)
}

// isNode looks who the node agent is by its kubeconfig, and what its version says.
func (a *apart) isNode(t *testing.T, k kubectl) {
	t.Helper()
	trace.Proves(t, "NODE-068")
	if got := k.do(t, "--kubeconfig="+a.file("kubelet.conf"), "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"); got != "system:node:node1" {
		t.Errorf("by its kubeconfig the node agent is %q", got)
	}
	if got := k.do(t, "get", "node", "node1", "-o", "jsonpath={.status.nodeInfo.kubeletVersion}"); !strings.Contains(got, "+kemudi-kubelet.") {
		t.Errorf("version of a node agent alone: got %q, by which a server expects DNS and edges beside it", got)
	}
}

const webDeployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: web, image: kemudi.local/web:1, args: [--port=8080], readinessProbe: {httpGet: {path: /, port: 8080}}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
`

// TestPartsAloneMakeACluster starts an etcd of others and each part by its upstream name, with the
// flags of upstream's installer, one after the other: each does what its name says, and only that.
func TestPartsAloneMakeACluster(t *testing.T) {
	t.Parallel()
	a := newApart(t)
	a.etcd(t)
	stopAPI := a.apiServer(t)
	a.connect(t)
	a.answers(t, http.StatusOK, "https://"+machineIP+":6443/readyz", nil)
	admin := a.kubectl()
	admin.apply(t, webDeployment)

	a.controllerManager(t)
	a.answers(t, http.StatusOK, "https://127.0.0.1:10257/healthz", nil)
	a.until(t, "kube-controller-manager")
	pods := a.pods(t, 2, func(p *corev1.Pod) error {
		if p.Spec.NodeName != "" {
			return fmt.Errorf("pod %s is on node %s, and nobody schedules", p.Name, p.Spec.NodeName)
		}
		return nil
	})
	// The Deployment came before the controllers: they found it when they began, and nobody did before.
	trace.Proves(t, "CON-007", "COMP-012")
	if d, err := a.client.AppsV1().Deployments(metav1.NamespaceDefault).Get(t.Context(), "web", metav1.GetOptions{}); err != nil || d.Status.ObservedGeneration == 0 {
		t.Errorf("deployment: got %+v, %v", d, err)
	}
	if sa, err := a.client.CoreV1().ServiceAccounts(metav1.NamespaceSystem).Get(t.Context(), "replicaset-controller", metav1.GetOptions{}); err != nil {
		t.Errorf("the service account of a controller: got %v, %v", sa, err)
	}
	for _, p := range pods {
		if len(p.ManagedFields) == 0 || p.ManagedFields[0].Manager != "kube-controller-manager" {
			t.Errorf("pod %s: got %+v, want it made by the program that the controller is in", p.Name, p.ManagedFields)
		}
	}

	a.part(t, "kube-scheduler", "--authentication-kubeconfig="+a.file("scheduler.conf"), "--authorization-kubeconfig="+a.file("scheduler.conf"),
		"--bind-address=127.0.0.1", "--kubeconfig="+a.file("scheduler.conf"), "--leader-elect=true") // whose certificates are good it learns from the API server
	// The lease is the scheduler's and the controllers' by the API, which is on no other port.
	a.until(t, "kube-scheduler")
	trace.Proves(t, "API-005", "COMM-008")
	a.askOnlyTheAPI(t, "kube-controller-manager", "kube-scheduler")
	a.tellOfThemselves(t)
	for _, port := range []string{"10257", "10259"} {
		for _, path := range []string{"/healthz", "/livez", "/readyz"} {
			a.answers(t, http.StatusOK, "https://127.0.0.1:"+port+path, nil)
		}
		a.answers(t, http.StatusForbidden, "https://127.0.0.1:"+port+"/metrics", nil)
		master, err := a.pki.Admin()
		if err != nil {
			t.Fatal(err)
		}
		a.answers(t, http.StatusOK, "https://127.0.0.1:"+port+"/configz", &master)
	}

	a.kubelet(t)
	a.answers(t, http.StatusOK, "http://127.0.0.1:10248/healthz", nil)
	wait.Until(t, func() error { return second(a.client.CoreV1().Nodes().Get(t.Context(), "node1", metav1.GetOptions{})) })
	admin.do(t, "wait", patient, "--for=condition=Ready", "node/node1")
	a.isNode(t, admin)
	o := a.run(t.Context(), nil, append([]string{a.bin, "image", "import", "--data-dir", a.DataDir, "--run-dir", a.RunDir}, a.images...)...)
	if o.code != 0 {
		t.Fatalf("import images: %s", o.all())
	}
	admin.do(t, "wait", patient, "--for=condition=Available", "deployment/web")
	trace.Proves(t, "COMP-001", "COMP-006", "CON-006")
	if got := admin.do(t, "get", "--raw", "/api/v1/nodes/node1/proxy/configz"); !strings.HasPrefix(got, `{"kubeletconfig":{"kind":"KubeletConfiguration"`) {
		t.Errorf("the node agent's configuration: got %.200s", got)
	}
	// Logs and exec go from the API server to the node agent, which shows a certificate that nobody has signed.
	trace.Proves(t, "COMM-015")
	if got := admin.do(t, "exec", "deployment/web", "--", "/bin/busybox", "echo", "here"); !strings.Contains(got, "here") {
		t.Errorf("exec: got %q", got)
	}

	svc, err := a.client.CoreV1().Services(metav1.NamespaceDefault).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if body, err := get(a.host, "http://127.0.0.1:10256/healthz"); err == nil {
		t.Errorf("something proxies before kube-proxy runs: %s", body)
	}
	stopProxy := a.part(t, "kube-proxy", "--kubeconfig="+a.file("kube-proxy.conf"), "--hostname-override=node1", "--cluster-cidr=10.244.0.0/16")
	wait.Until(t, func() error { return second(get(a.host, "http://"+svc.Spec.ClusterIP+"/")) })
	trace.Proves(t, "CON-008", "COMP-026", "WHAT-013")
	a.answers(t, http.StatusOK, "http://127.0.0.1:10256/healthz", nil)
	a.answers(t, http.StatusOK, "http://127.0.0.1:10249/metrics", nil)
	a.answers(t, http.StatusOK, "http://127.0.0.1:10249/configz", nil)
	a.tells(t, "http://127.0.0.1:10249/flagz", "\nhostname-override=node1\n")

	trace.Proves(t, "API-005", "COMM-002/nodes")
	a.askOnlyTheAPI(t, "kubelet", "kube-proxy")
	a.comeAgain(t, stopAPI, "http://"+svc.Spec.ClusterIP+"/")
	stopProxy()
	if o := a.run(t.Context(), nil, a.file("kube-proxy"), "--cleanup"); o.code != 0 {
		t.Errorf("clean up: %s", o.all())
	}
	if o := a.run(t.Context(), nil, "ip", "link", "delete", "cni0"); o.code != 0 {
		t.Errorf("remove the network that the test has configured: %s", o.all())
	}
	a.host.Sysctl("net/ipv4/ip_forward", "0")
}

// comeAgain ends the API server and starts it again: the others go on, and take up their work.
func (a *apart) comeAgain(t *testing.T, stopAPI func(), url string) {
	t.Helper()
	admin := a.kubectl()
	stopAPI()
	if err := second(get(a.host, url)); err != nil {
		t.Errorf("without the API server: %v", err)
	}
	a.apiServer(t)
	a.answers(t, http.StatusOK, "https://"+machineIP+":6443/readyz", nil)
	admin.do(t, "scale", "deployment/web", "--replicas=3")
	admin.do(t, "rollout", "status", "deployment/web", patient)
	admin.do(t, "delete", "deployment/web", "--wait")
	wait.Until(t, func() error {
		left, err := a.client.CoreV1().Pods(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
		if err == nil && len(left.Items) > 0 {
			err = fmt.Errorf("%d pods are left", len(left.Items))
		}
		return err
	})
}

// askOnlyTheAPI looks at the connections of parts.
func (a *apart) askOnlyTheAPI(t *testing.T, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if to := a.connections(t, part); !slices.Equal(to, []string{machineIP + ":6443"}) {
			t.Errorf("%s has connections to %v, want them to the API's secure port alone", part, to)
		}
	}
}

// connections are where the connections lead that a part has begun, pods left out: a node agent asks
// them whether they are well.
func (a *apart) connections(t *testing.T, part string) []string {
	t.Helper()
	o := a.run(t.Context(), nil, "ss", "--no-header", "--tcp", "--numeric", "--processes", "state", "established")
	if o.code != 0 {
		t.Fatalf("ss: %s", o.all())
	}
	to := map[string]bool{}
	for line := range strings.Lines(o.stdout) {
		fields := strings.Fields(line)
		if len(fields) < 5 || !strings.Contains(fields[4], `"`+part[:min(len(part), 15)]+`"`) { // the kernel's names end there
			continue
		}
		local, remote := fields[2], fields[3]
		served := slices.ContainsFunc([]string{":10250", ":10248", ":10249", ":10256", ":10257", ":10259"}, func(port string) bool { return strings.HasSuffix(local, port) })
		inside := strings.HasPrefix(remote, "10.244.") || strings.HasPrefix(remote, "127.0.0.1:") && "https://"+remote != etcdURL // streams of its own runtime
		if !served && !inside {
			to[remote] = true
		}
	}
	return slices.Sorted(maps.Keys(to))
}

// until waits until somebody holds a lease of that name.
func (a *apart) until(t *testing.T, lease string) {
	t.Helper()
	wait.Until(t, func() error {
		l, err := a.client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(t.Context(), lease, metav1.GetOptions{})
		if err == nil && (l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "") {
			err = errors.New("nobody leads")
		}
		return err
	})
}

// pods waits until there are so many pods, and each is right.
func (a *apart) pods(t *testing.T, n int, right func(*corev1.Pod) error) (found []corev1.Pod) {
	t.Helper()
	wait.Until(t, func() error {
		list, err := a.client.CoreV1().Pods(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(list.Items) != n {
			return fmt.Errorf("there are %d pods, want %d", len(list.Items), n)
		}
		for i := range list.Items {
			if err := right(&list.Items[i]); err != nil {
				return err
			}
		}
		found = list.Items
		return nil
	})
	return found
}
