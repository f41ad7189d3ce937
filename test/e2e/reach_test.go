package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/kemudi/kemudi/internal/podnet/nettest"
	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

// farAway are pods of an agent: one with addresses of both families, by which services
// lead to it, and one in the machine's own network.
const farAway = `
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  nodeName: agent
  terminationGracePeriodSeconds: 0
  containers: [{name: c, image: "kemudi.local/agnhost:1", args: [netexec], ports: [{containerPort: 8080}], readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}}]
---
apiVersion: v1
kind: Pod
metadata: {name: host}
spec:
  nodeName: agent
  hostNetwork: true
  terminationGracePeriodSeconds: 0
  containers: [{name: c, image: "kemudi.local/agnhost:1", args: [netexec, --http-port=8090], ports: [{containerPort: 8090}], readinessProbe: {httpGet: {path: /healthz, port: 8090}, periodSeconds: 1}}]
---
apiVersion: v1
kind: Service
metadata: {name: four}
spec: {selector: {app: web}, ipFamilies: [IPv4], ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: six}
spec: {selector: {app: web}, ipFamilies: [IPv6], ports: [{port: 80, targetPort: 8080}]}
`

// newFarCluster is a server and the machine of an agent, whose pods have addresses of
// both families; flags are the server's.
func newFarCluster(t *testing.T, flags ...string) (*cluster, *agent, kubectl) {
	t.Helper()
	c := &cluster{machine: newMachine(t), args: flags}
	a, k := c.farAway(t)
	return c, a, k
}

// farAway sets out on a cluster whose machine there is, and has the machine of an agent join it.
func (c *cluster) farAway(t *testing.T) (*agent, kubectl) {
	t.Helper()
	c.args = append([]string{"--cluster-cidr=10.244.0.0/16,fd00:10:244::/56", "--service-cluster-ip-range=10.96.0.0/16,fd00:10:96::/112"}, c.args...)
	c.setOutBare(t)
	a := c.newAgent(t)
	k := c.kubectl().in(c.namespace(t))
	k.apply(t, farAway)
	for _, pod := range []string{"web", "host"} {
		c.await(t, k.namespace, pod, isReady)
	}
	return a, k
}

// firewall puts rules for what comes in from outside, and for what goes out, in the place
// of those that there were.
func (a *agent) firewall(t *testing.T, in, out string) {
	t.Helper()
	text := "table inet cut {}\ndelete table inet cut\n"
	if in != "" {
		// After conntrack has seen a packet, and before anything else does.
		text += "table inet cut { chain in { type filter hook prerouting priority -150; iifname eth0 " + in + "; }; }\n"
	}
	if out != "" {
		text += "table inet cut { chain out { type filter hook output priority 0; " + out + "; }; }\n"
	}
	if o := a.run(context.WithoutCancel(t.Context()), strings.NewReader(text), "nft", "-f", "-"); o.code != 0 {
		t.Fatalf("cut the ways to the agent: %s", o.all())
	}
}

// far is a command that goes to a node, and what it is to print.
type far struct {
	want    string
	command []string
}

// ways are all that leads to pods and nodes through the API server.
func (k kubectl) ways() []far {
	in := "/api/v1/namespaces/" + k.namespace
	return []far{
		{"Started HTTP server on port 8080", []string{"logs", "web"}},
		{"netexec", []string{"exec", "web", "--", "/agnhost", "help"}},
		{"web", []string{"get", "--raw", in + "/pods/web:8080/proxy/hostname"}},
		{"web", []string{"get", "--raw", in + "/services/four:80/proxy/hostname"}},
		{"web", []string{"get", "--raw", in + "/services/six:80/proxy/hostname"}},
		{"8090", []string{"get", "--raw", "/api/v1/nodes/agent:8090/proxy/serverport"}},
		{"ok", []string{"get", "--raw", "/api/v1/nodes/agent/proxy/healthz"}},
	}
}

// wantWays goes all of them, and forwards a port.
func (k kubectl) wantWays(t *testing.T) {
	t.Helper()
	for _, w := range k.ways() {
		if got := k.do(t, w.command...); !strings.Contains(got, w.want) {
			t.Errorf("%v: got %q, want %q", w.command, got, w.want)
		}
	}
	forward := k.begin(t, false, k.line("port-forward", "pod/web", ":8080")...)
	port := forward.finds(t, regexp.MustCompile(`Forwarding from 127\.0\.0\.1:(\d+) ->`))[1]
	if got, err := get(k.host, "http://127.0.0.1:"+port+"/hostname"); err != nil || got != "web" {
		t.Errorf("through the forwarded port: got %q, %v; kubectl says %s", got, err, forward.all())
	}
	forward.interrupt()
	forward.exits(t)
}

// TestNodesBehindAFirewallAreReached lets nothing in to the machine of an agent but what
// answers to it: its tunnel is the one way to it and its pods.
func TestNodesBehindAFirewallAreReached(t *testing.T) {
	t.Parallel()
	_, a, k := newFarCluster(t, "--disable-agent")
	if o := a.run(t.Context(), nil, a.bin, "kubectl", "--kubeconfig", filepath.Join(a.DataDir, "kubelet.kubeconfig"), "get", "node", "agent", "-o", "name"); o.stdout != "node/agent\n" {
		t.Errorf("by the address that the API has on the agent's machine: got %s", o.all())
	}
	defer a.firewall(t, "", "")
	a.firewall(t, "ct state new counter drop", "")
	k.wantWays(t)
	k.wantOnlyTheAPI(t)
	if o := a.run(t.Context(), nil, "nft", "list", "table", "inet", "cut"); o.code != 0 || strings.Contains(o.stdout, "counter packets 0 ") {
		t.Errorf("nothing came to the firewall, so that it shows nothing: %s", o.all())
	}
}

// wantOnlyTheAPI goes all ways from a machine that reaches the API and nothing else, and expects that
// nothing else was tried.
func (k kubectl) wantOnlyTheAPI(t *testing.T) {
	t.Helper()
	outside := []string{"nsenter", "--net=" + k.neighbour.Path()}
	rules := "table inet door { chain out { type filter hook output priority 0; ip daddr " + machineIP + " tcp dport 6443 accept; oifname lo accept; ip6 nexthdr icmpv6 accept; ct state new counter drop; }; }"
	if o := k.run(t.Context(), strings.NewReader(rules), append(slices.Clone(outside), "nft", "-f", "-")...); o.code != 0 {
		t.Fatalf("shut a machine in: %s", o.all())
	}
	trace.Proves(t, "CON-014")
	for _, w := range k.ways() {
		command := append(slices.Clone(outside), k.bin, "kubectl", "--kubeconfig", k.adminKubeconfig(), "--server", "https://"+machineIP+":6443", "-n", k.namespace)
		if o := k.run(t.Context(), nil, append(command, w.command...)...); o.code != 0 || !strings.Contains(o.stdout, w.want) {
			t.Errorf("%v by the API alone: got %s, want %q", w.command, o.all(), w.want)
		}
	}
	if o := k.run(t.Context(), nil, append(slices.Clone(outside), "nft", "list", "table", "inet", "door")...); o.code != 0 || !strings.Contains(o.stdout, "counter packets 0 ") {
		t.Errorf("kubectl has asked somebody else than the API: %s", o.all())
	}
}

// TestNodesBehindAddressTranslationAreReached has a router between a server with a node and an agent that gives what the
// agent sends its own address, and lets nothing in to it but VXLAN: all ways lead to the node, and pods reach each other.
func TestNodesBehindAddressTranslationAreReached(t *testing.T) {
	t.Parallel()
	c := &cluster{machine: newMachine(t), router: `
table ip translate {
	chain in { type nat hook prerouting priority -100; iifname eth0 udp dport 4789 dnat to ` + agentIP + `; }
	chain out { type nat hook postrouting priority 100; oifname eth0 masquerade; }
	chain through { type filter hook forward priority 0; iifname eth0 ct state new ct status & dnat == 0 counter drop; }
}
`}
	a, k := c.farAway(t)
	c.importImages(t, c.images[slices.IndexFunc(c.images, func(file string) bool { return filepath.Base(file) == "agnhost-1.tar" })])
	k.do(t, "annotate", "node", agentName, "kemudi.io/vxlan-address="+neighbourIP)
	k.wantWays(t)
	far := k.do(t, "get", "pod", "web", "-o", "jsonpath={.status.podIP}")
	node := k.do(t, "get", "nodes", "-o", `jsonpath={.items[?(@.metadata.name!="`+agentName+`")].metadata.name}`)
	k.apply(t, `
apiVersion: v1
kind: Pod
metadata: {name: near}
spec:
  nodeName: `+node+`
  terminationGracePeriodSeconds: 0
  containers: [{name: c, image: "kemudi.local/agnhost:1", args: [netexec], readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}}]
`)
	c.await(t, k.namespace, "near", isReady)
	near := k.do(t, "get", "pod", "near", "-o", "jsonpath={.status.podIP}")
	for _, ask := range []struct {
		by       *machine
		from, to string
		want     string
	}{{c.machine, near, far, "web"}, {a.machine, far, near, "near"}} {
		wait.Until(t, func() error { // nodes hear of each other in their own time
			got, err := get(ask.by.host, "http://"+ask.from+":8080/dial?request=hostname&protocol=http&tries=1&host="+ask.to+"&port=8080")
			if err != nil || !strings.Contains(got, ask.want) {
				return fmt.Errorf("from %s to %s: got %q, %v, want %s", ask.from, ask.to, got, err, ask.want)
			}
			return nil
		})
	}
	if o := c.run(t.Context(), nil, "nsenter", "--net="+c.neighbour.Path(), "nft", "list", "table", "ip", "translate"); o.code != 0 || strings.Contains(o.stdout, "counter packets 0 ") {
		t.Errorf("nothing was kept out by the router, so that it shows nothing: %s", o.all())
	}
}

// TestNodesAreReachedBySSH has Debian's SSH server on the machine of an agent, as the
// documents have it: with its port open all ways work, and with all others open none does.
func TestNodesAreReachedBySSH(t *testing.T) {
	t.Parallel()
	const sshd = "/usr/sbin/sshd"
	if _, err := os.Stat(sshd); err != nil {
		t.Skip("there is no SSH server: apt-get install openssh-server")
	}
	dir := t.TempDir()
	user, host := filepath.Join(dir, "user"), filepath.Join(dir, "host")
	for _, file := range []string{user, host} {
		if out, err := exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", file).CombinedOutput(); err != nil {
			t.Fatalf("make a key: %v\n%s", err, out)
		}
	}
	c, a, k := newFarCluster(t, "--ssh-user=root", "--ssh-keyfile="+user)
	a.serveSSH(t, sshd, "HostKey "+host+"\nAuthorizedKeysFile "+user+".pub\n")
	defer a.firewall(t, "", "")
	a.firewall(t, "ct state new tcp dport != 22 counter drop", "")
	trace.Proves(t, "COMM-017")
	k.wantWays(t)
	trace.Proves(t, "COMM-023")
	if o := a.run(t.Context(), nil, "nft", "list", "table", "inet", "cut"); o.code != 0 || !strings.Contains(o.stdout, "counter packets 0 ") {
		t.Errorf("something came to the node beside the tunnel, in the open: %s", o.all())
	}
	known, err := os.ReadFile(filepath.Join(c.DataDir, "ssh-known-hosts"))
	if err != nil || !strings.HasPrefix(string(known), "agent ssh-ed25519 ") {
		t.Errorf("the key of the node's SSH server: got %q, %v, want it noted", known, err)
	}

	a.firewall(t, "tcp dport 22 reject with tcp reset", "")
	for _, w := range k.ways()[1:] { // a log that cannot be had, the first, is a warning of the server
		trace.Proves(t, "COMM-022")
		if o := k.try(t, "", w.command...); o.code == 0 || !strings.Contains(o.stderr, "by SSH") {
			t.Errorf("%v, with all ways open but SSH: got %s", w.command, o.all())
		}
	}
}

// serveSSH starts an SSH server on the machine until the test ends.
func (a *agent) serveSSH(t *testing.T, program, config string) {
	t.Helper()
	const privilegeDir = "/run/sshd"
	if err := os.Mkdir(privilegeDir, 0o755); err == nil {
		t.Cleanup(func() { _ = os.Remove(privilegeDir) })
	}
	file := filepath.Join(t.TempDir(), "sshd_config")
	config += "ListenAddress " + agentIP + "\nPidFile none\nUsePAM no\nStrictModes no\nPasswordAuthentication no\nPermitRootLogin yes\n"
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := a.command(context.WithoutCancel(t.Context()), program, "-D", "-e", "-f", file)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID} // its sessions end with it
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := a.machine.start(cmd); err != nil {
		t.Fatal(err)
	}
	listens, ended := make(chan struct{}), make(chan struct{})
	var log strings.Builder // belongs to the goroutine until it has ended
	go func() {
		defer close(ended)
		listening := sync.OnceFunc(func() { close(listens) })
		for lines := bufio.NewScanner(said); lines.Scan(); {
			fmt.Fprintln(&log, lines.Text())
			if strings.HasPrefix(lines.Text(), "Server listening") {
				listening()
			}
		}
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		if t.Failed() {
			t.Logf("the SSH server says:\n%s", log.String())
		}
	})
	select {
	case <-listens:
	case <-ended:
		t.Fatal("the SSH server has ended")
	}
}

// secondIP is the address of the machine of a second server.
const secondIP = "192.168.80.2"

// newSecond has another machine become a server of the cluster, without a node.
func (c *cluster) newSecond(t *testing.T) *cluster {
	t.Helper()
	return c.newServer(t, "second", 80, "--disable-agent",
		"--cluster-cidr=10.244.0.0/16,fd00:10:244::/56", "--service-cluster-ip-range=10.96.0.0/16,fd00:10:96::/112")
}

// newServer has another machine become a server of the cluster. It is behind the neighbour
// of the first, in the network 192.168.NET.0/24.
func (c *cluster) newServer(t *testing.T, name string, net int, flags ...string) *cluster {
	t.Helper()
	m := &machine{build: c.build, host: nettest.New(t, name), neighbour: c.neighbour}
	link, router := fmt.Sprintf("eth%d", net), fmt.Sprintf("192.168.%d.1", net)
	nettest.Link(m.host, "eth0", m.neighbour, link)
	m.host.Addr("eth0", fmt.Sprintf("192.168.%d.2/24", net))
	m.neighbour.Addr(link, router+"/24")
	m.neighbour.Router()
	m.host.Route("0.0.0.0/0", router)
	// Each server misses the other in the end.
	c.killed = true
	s := &cluster{machine: m.furnish(t), killed: true, args: append([]string{
		"--node-name=" + name, "--server=" + machineIP, "--token=" + c.token(t, "--for", "server"),
	}, flags...)}
	s.setOutBare(t)
	return s
}

// TestServerReachesNodesByTheTunnelsToAnother has an agent that can reach one of two
// servers, and that neither can reach: what the other is asked goes by that one.
func TestServerReachesNodesByTheTunnelsToAnother(t *testing.T) {
	t.Parallel()
	c, a, k := newFarCluster(t, "--disable-agent")
	defer a.firewall(t, "", "")
	a.firewall(t, "ct state new counter drop", "ip daddr "+secondIP+" counter drop")
	second := c.newSecond(t)
	second.kubectl().in(k.namespace).wantWays(t)
}

// TestServerHoldsItsVirtualAddress asks the API at it from the neighbour, who verifies the
// server's certificate, and has the server killed and stopped.
func TestServerHoldsItsVirtualAddress(t *testing.T) {
	t.Parallel()
	const virtual = "192.168.77.100"
	c := &cluster{machine: newMachine(t), args: []string{"--disable-agent", "--virtual-ip=" + virtual}}
	c.setOutBare(t)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.config.CAData)
	client := httpClient(c.neighbour)
	client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: roots}
	holds := func() error {
		res, err := client.Get("https://" + virtual + ":6443/livez")
		if err != nil {
			return err
		}
		return res.Body.Close()
	}
	wait.Until(t, holds)
	c.kill(syscall.SIGKILL)
	c.serve(t)
	wait.Until(t, holds)
	c.kill(syscall.SIGTERM)
	if o := c.run(t.Context(), nil, "ip", "address", "show", "dev", "eth0"); o.code != 0 || strings.Contains(o.stdout, virtual) {
		t.Errorf("after the server was stopped: got %s", o.all())
	}
}
