package e2e

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/podnet/nettest"
	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

// testNames looks names up in a pod, whole and in part, and reads its resolver settings.
func testNames(t *testing.T, c *cluster) {
	k := c.kubectl().in(c.namespace(t))
	ns := k.namespace
	// The pod is older than the services that it asks for.
	k.apply(t, `
apiVersion: v1
kind: Pod
metadata: {name: backend, labels: {app: backend}}
spec:
  hostname: host-a
  subdomain: headless
  terminationGracePeriodSeconds: 0
  containers: [{name: c, image: kemudi.local/agnhost:1, args: [netexec]}]
---
apiVersion: v1
kind: Service
metadata: {name: plain}
spec: {selector: {app: backend}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: headless}
spec: {selector: {app: backend}, ports: [{name: http, port: 8080}], clusterIP: None}
---
apiVersion: v1
kind: Service
metadata: {name: elsewhere}
spec: {type: ExternalName, externalName: plain.`+ns+`.svc.cluster.local}
`)
	ip := c.await(t, ns, "backend", isReady).Status.PodIP
	plain := k.do(t, "get", "service", "plain", "-o", "jsonpath={.spec.clusterIP}")
	k.lookUp(t, "backend", answers(ns, plain, ip))
	ask := func(args ...string) string {
		return k.try(t, "", append([]string{"exec", "backend", "--"}, args...)...).all()
	}
	trace.Proves(t, "DNS-002", "DNS-004")
	if got := ask("cat", "/etc/resolv.conf"); !strings.HasPrefix(got, "search "+ns+".svc.cluster.local svc.cluster.local cluster.local") || !strings.Contains(got, "\nnameserver 10.96.0.10\n") || !strings.Contains(got, "options ndots:5") {
		t.Errorf("resolv.conf: got %q", got)
	}
	trace.Proves(t, "CONN-028")
	if got := strings.Join(strings.Fields(c.kubectl().in("kube-system").do(t, "get", "services", "kube-dns", "--no-headers"))[:5], " "); got != "kube-dns ClusterIP 10.96.0.10 <none> 53/UDP,53/TCP,9153/TCP" {
		t.Errorf("the service of DNS: got %s", got)
	}
	trace.Proves(t, "DNS-014/hostname", "DNS-015", "DNS-018")
	if got := ask("sh", "-c", "hostname; hostname -f"); got != "host-a\nhost-a.headless."+ns+".svc.cluster.local\n" {
		t.Errorf("host name: got %q", got)
	}
	trace.Proves(t, "CONN-029", "ENV-011")
	wait.Until(t, func() error {
		if got := ask("sh", "-c", "wget -q -O - http://plain/hostname; echo; wget -q -O - http://headless:8080/hostname"); got != "host-a\nhost-a" {
			return fmt.Errorf("by name: got %q", got)
		}
		return nil
	})
}

// answer is what a question of [kubectl.lookUp] must be answered with, and what that proves.
type answer struct{ question, want, proves string }

// answers are what a pod must hear of the services of [testNames].
func answers(ns, plain, headless string) []answer {
	domain := ns + ".svc.cluster.local"
	list := []answer{
		{"a:kubernetes.default.svc.cluster.local", "10.96.0.1", "C-196"},
		{"ping:kubernetes.default", "PING kubernetes.default (10.96.0.1)", "C-196 DNS-005/elsewhere SVC-081/elsewhere"},
		{"ping:kubernetes.default.svc", "PING kubernetes.default.svc (10.96.0.1)", "C-196"},
		{"search-a:kubernetes", "NXDOMAIN", "SVC-081/elsewhere"},
		{"ping:kubernetes", "bad address", "NS-020 SVC-081/elsewhere"},
		{"a:kube-dns.kube-system.svc.cluster.local", "10.96.0.10", "DNS-001/Service DNS-003"},
		{"a:plain." + domain, plain, "DNS-003 DNS-007 NS-017 SVC-076/names"},
		{"ping:plain", "PING plain (" + plain + ")", "DNS-005/own-namespace NS-018 SVC-079 SVC-081/own-namespace"},
		{"ping:plain." + ns, "PING plain." + ns + " (" + plain + ")", "SVC-080"},
		{"ping:plain." + ns + ".svc", "PING plain." + ns + ".svc (" + plain + ")", "C-197"},
		{"search-a:plain", "Server:\t\t10.96.0.10", "CONN-031"},
		{"a:elsewhere." + domain, plain, ""},
		{"srv:_http._tcp.plain." + domain, "0 100 80 plain." + domain, ""},
		{"a:headless." + domain, headless, "C-194 SVC-088"},
		{"ping:headless", "PING headless (" + headless + ")", "C-197"},
		{"a:host-a.headless." + domain, headless, "C-193/record DNS-016"},
		{"ping:host-a", "PING host-a (" + headless + ")", "C-193/bare"},
		{"a:backend." + domain, "NXDOMAIN", "DNS-021"}, // a pod has no record by its name alone
	}
	for service, ip := range map[string]string{"plain": plain, "headless": headless} {
		for _, name := range []string{service, service + "." + ns, service + "." + ns + ".svc"} {
			list = append(list, answer{"search-a:" + name, "Address: " + ip, "C-195/short-names C-197"}, answer{"search-srv:_http._tcp." + name, service + "." + domain, "C-197"})
		}
	}
	return list
}

// lookUp asks questions in a pod, all at once, until each answer has the text
// wanted. What is before the colon is a type of records; a name to be tried with
// each domain of the search list, as a resolver does, after "search-"; or ping,
// which leaves that to its resolver (busybox's nslookup does not try them).
func (k kubectl) lookUp(t *testing.T, pod string, want []answer) {
	t.Helper()
	var questions []string
	for _, a := range want {
		if a.proves != "" {
			trace.Proves(t, strings.Fields(a.proves)...)
		}
		questions = append(questions, a.question)
	}
	const script = `ask() {
  type=${1%%:*} name=${1#*:}
  case $type in
  ping) ping -c1 -W1 $name ;;
  search-*) for d in $(sed -n 's/^search //p' /etc/resolv.conf); do nslookup -type=${type#search-} $name.$d && return; done ;;
  *) nslookup -type=$type $name ;;
  esac
}
for q; do { r=$(ask $q 2>&1); printf '\n== %s\n%s\n' "$q" "$r"; } & done; wait`
	wait.Until(t, func() error {
		out := k.try(t, "", append([]string{"exec", pod, "--", "sh", "-c", script, "sh"}, questions...)...)
		for _, a := range want {
			_, got, _ := strings.Cut(out.stdout, "\n== "+a.question+"\n")
			if got, _, _ = strings.Cut(got, "\n== "); !strings.Contains(got, a.want) {
				return fmt.Errorf("%s: got %q (%s), want %q", a.question, got, out.stderr, a.want)
			}
		}
		return nil
	})
}

// testResolverSettings follows the DNS policy of pods.
func testResolverSettings(t *testing.T, c *cluster) {
	ns := c.namespace(t)
	for _, tc := range []struct {
		name, spec string
		proves     []string
		want       []string
	}{
		{"none", "dnsPolicy: None, dnsConfig: {nameservers: [1.2.3.4], searches: [ns1.svc.cluster.local, my.dns.search.suffix], options: [{name: ndots, value: '2'}, {name: edns0}]}", []string{"DNS-029", "DNS-039", "C-198"}, []string{"nameserver 1.2.3.4", "search ns1.svc.cluster.local my.dns.search.suffix", "options ndots:2 edns0"}},
		{"merged", "dnsConfig: {nameservers: [1.2.3.4], searches: [extra.example], options: [{name: ndots, value: '3'}]}", []string{"DNS-030", "DNS-034", "DNS-036", "DNS-038"}, []string{"nameserver 10.96.0.10", "nameserver 1.2.3.4", "search " + ns + ".svc.cluster.local svc.cluster.local cluster.local extra.example", "options ndots:3"}},
		{"default", "dnsPolicy: Default", []string{"DNS-026"}, machineServers(t)},
		{"host-net", "hostNetwork: true, dnsPolicy: ClusterFirstWithHostNet", []string{"DNS-028"}, []string{"nameserver 10.96.0.10", "options ndots:5"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			trace.Proves(t, tc.proves...)
			_, got := c.finish(t, ns, fmt.Sprintf("metadata: {name: %s}\nspec: {restartPolicy: Never, %s, containers: [{name: c, image: kemudi.local/busybox:1, command: [cat, /etc/resolv.conf]}]}\n", tc.name, tc.spec))
			for _, line := range tc.want {
				if !strings.Contains(got, line) {
					t.Errorf("got\n%s\nwant %q", got, line)
				}
			}
		})
	}
	t.Run("hosts", func(t *testing.T) {
		t.Parallel()
		k := c.kubectl().in(ns)
		const manifest = "apiVersion: v1\nkind: Pod\nmetadata: {name: hosts}\nspec: {restartPolicy: Never, hostAliases: [{ip: 127.0.0.1, hostnames: [foo.local, bar.local]}, {ip: 10.1.2.3, hostnames: [foo.remote, bar.remote]}], containers: [{name: c, image: kemudi.local/busybox:1, command: [cat, /etc/hosts]}]}\n"
		created := k.try(t, manifest, "apply", "-f", "-")
		pod := c.await(t, ns, "hosts", hasEnded)
		trace.Proves(t, "HOST-010")
		if shown := strings.Join(strings.Fields(k.do(t, "get", "pod", "hosts", "--no-headers"))[:3], " "); created.stdout != "pod/hosts created\n" || shown != "hosts 0/1 Completed" {
			t.Errorf("got %q, and then %q", created.all(), shown)
		}
		got := k.try(t, "", "logs", "hosts").stdout
		want := "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n" +
			pod.Status.PodIP + "\thosts\n\n# Entries added by HostAliases.\n127.0.0.1\tfoo.local\tbar.local\n10.1.2.3\tfoo.remote\tbar.remote\n"
		trace.Proves(t, "HOST-002", "HOST-004", "HOST-005", "HOST-008", "HOST-009")
		trace.Proves(t, "HOST-010")
		if got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	})
}

// machineServers are the lines of this machine's DNS servers.
func machineServers(t *testing.T) (lines []string) {
	t.Helper()
	conf, err := os.ReadFile("/etc/resolv.conf")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(conf)) {
		if strings.HasPrefix(line, "nameserver ") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// testServiceAccount uses a pod's own credentials against the API.
func testServiceAccount(t *testing.T, c *cluster) {
	trace.Proves(t, "INIT-049", "C-190", "COMM-005", "COMM-006", "COMM-007")
	k := c.kubectl().in(c.namespace(t))
	c.create(t, k.namespace, "metadata: {name: client}\nspec: {terminationGracePeriodSeconds: 0, containers: [{name: c, image: kemudi.local/agnhost:1}]}\n")
	c.await(t, k.namespace, "client", isReady)
	const ask = `cd /var/run/secrets/kubernetes.io/serviceaccount; [ "$(cat namespace)" = "$0" ] && grep -q CERTIFICATE ca.crt && curl -s -k -H "Authorization: Bearer $(cat token)" https://kubernetes.default.svc/api/v1/namespaces/$0/pods?limit=1`
	says := func(texts ...string) {
		t.Helper()
		wait.Until(t, func() error {
			got := k.try(t, "", "exec", "client", "--", "sh", "-c", ask, k.namespace)
			if !slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(got.stdout, text) }) {
				return fmt.Errorf("got %.300q, want %q", got.all(), texts)
			}
			return nil
		})
	}
	says(`pods is forbidden: User \"system:serviceaccount:` + k.namespace + `:default\" cannot list resource \"pods\"`)
	k.do(t, "create", "rolebinding", "view", "--clusterrole=view", "--serviceaccount="+k.namespace+":default")
	says(`"kind":"PodList"`, `"kind": "PodList"`)
	token := k.do(t, "create", "token", "default")
	if o := k.try(t, "", "get", "pods", "--token="+strings.TrimSpace(token), "--kubeconfig=/dev/null", "--server=https://127.0.0.1:6443", "--insecure-skip-tls-verify"); o.code != 0 || !strings.Contains(o.stdout, "client") {
		t.Errorf("with a created token: got %+v", o)
	}
	if o := k.try(t, "", "get", "pods", "--token=not-a-token", "--kubeconfig=/dev/null", "--server=https://127.0.0.1:6443", "--insecure-skip-tls-verify"); o.code == 0 || !strings.Contains(o.stderr, "Unauthorized") && !strings.Contains(o.stderr, "must be logged in") {
		t.Errorf("with a wrong token: got %+v", o)
	}
	_, text := c.finish(t, k.namespace, "metadata: {name: none}\nspec: {restartPolicy: Never, automountServiceAccountToken: false, containers: [{name: c, image: kemudi.local/busybox:1, command: [sh, -c, 'ls /var/run/secrets 2>&1; true']}]}\n")
	if !strings.Contains(text, "No such file") {
		t.Errorf("without a token: got %q", text)
	}
}

// testHostPorts publishes ports of pods on the host.
func testHostPorts(t *testing.T, c *cluster) {
	trace.Proves(t, "CONN-008", "C-348", "C-257")
	ns := c.namespace(t)
	c.create(t, ns, "metadata: {name: port}\nspec: {terminationGracePeriodSeconds: 0, containers: [{name: c, image: kemudi.local/agnhost:1, args: [netexec], ports: [{containerPort: 8080, hostPort: 18080}, {containerPort: 8081, hostPort: 18081, protocol: UDP}]}]}\n")
	c.create(t, ns, "metadata: {name: net}\nspec: {hostNetwork: true, terminationGracePeriodSeconds: 0, containers: [{name: c, image: kemudi.local/agnhost:1, args: [netexec, --http-port=18090, --udp-port=-1]}]}\n")
	c.await(t, ns, "port", isReady)
	pod := c.await(t, ns, "net", isReady)
	if pod.Status.PodIP != machineIP || pod.Status.HostIP != machineIP {
		t.Errorf("pod on the host's network: got address %s on %s, want %s", pod.Status.PodIP, pod.Status.HostIP, machineIP)
	}
	for url, want := range map[string]string{"http://" + machineIP + ":18080/hostname": "port", "http://" + machineIP + ":18090/hostname": c.hostname(t)} {
		wait.Until(t, func() error {
			got, err := get(c.neighbour, url)
			if err == nil && got != want {
				err = fmt.Errorf("got %q, want %q", got, want)
			}
			return err
		})
	}
	wait.Until(t, func() error {
		conn, err := c.neighbour.Dial("udp", machineIP+":18081")
		if err != nil {
			return err
		}
		defer conn.Close()
		return askUDP(conn, "hostname", "port")
	})
	proxyIsAsExpected(t, c)
	c.create(t, ns, "metadata: {name: taken}\nspec: {containers: [{name: c, image: kemudi.local/agnhost:1, ports: [{containerPort: 1, hostPort: 18080}]}]}\n")
	c.awaitEvent(t, ns, "taken", "FailedScheduling", "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports.")
}

// proxyIsAsExpected asks the node what programs of others expect of kube-proxy there.
func proxyIsAsExpected(t *testing.T, c *cluster) {
	t.Helper()
	if got, err := get(c.host, "http://127.0.0.1:10249/proxyMode"); err != nil || got != "nftables" {
		t.Errorf("the mode of the service proxy: got %q, %v, want nftables", got, err)
	}
	var kept []byte
	err := c.host.Do(func() (err error) {
		kept, err = os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_close_wait")
		return err
	})
	if got := strings.TrimSpace(string(kept)); err != nil || got != "3600" {
		t.Errorf("connections that one end has closed are tracked for %q s, %v; want 3600", got, err)
	}
}

func askUDP(conn net.Conn, question, want string) error {
	if _, err := conn.Write([]byte(question)); err != nil {
		return err
	}
	_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second)) // then it is lost
	buf := make([]byte, 100)
	n, err := conn.Read(buf)
	if err != nil {
		return err
	}
	if got := strings.TrimSpace(string(buf[:n])); got != want {
		return fmt.Errorf("over UDP: got %q, want %q", got, want)
	}
	return nil
}

// hostname is the machine's, which it shares with the host of the tests.
func (c *cluster) hostname(t *testing.T) string {
	t.Helper()
	nodes, err := c.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return nodes.Items[0].Name
}

// testAffinity sends one client always to the same pod.
func testAffinity(t *testing.T, c *cluster) {
	trace.Proves(t, "SVC-062", "C-232", "CONN-011", "SVC-048")
	k := c.kubectl().in(c.namespace(t))
	k.do(t, "create", "deployment", "web", "--image=kemudi.local/web:1", "--replicas=3")
	k.rolledOut(t, "web")
	trace.Proves(t, "CONN-014")
	if got := k.do(t, "expose", "deployment/web", "--port=80", "--target-port=8080"); got != "service/web exposed\n" {
		t.Errorf("expose: got %q", got)
	}
	ip := k.do(t, "get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")
	names := func() map[string]int {
		seen := map[string]int{}
		for range 40 {
			got, err := get(c.host, "http://"+ip)
			if err != nil {
				return nil
			}
			seen[strings.Fields(got)[0]]++
		}
		return seen
	}
	expect := func(want int) {
		t.Helper()
		wait.Until(t, func() error {
			if seen := names(); len(seen) != want {
				return fmt.Errorf("got answers from %v, want %d pods", seen, want)
			}
			return nil
		})
	}
	expect(3)
	k.do(t, "patch", "service", "web", "-p", `{"spec":{"sessionAffinity":"ClientIP"}}`)
	expect(1)
	k.do(t, "patch", "service", "web", "-p", `{"spec":{"sessionAffinity":"None"}}`)
	expect(3)
}

// testServiceTypes turns a service that is only another name into one with
// addresses and node ports, and back, and reaches it in every way there is.
func testServiceTypes(t *testing.T, c *cluster) {
	k := c.kubectl().in(c.namespace(t))
	k.do(t, "create", "deployment", "web", "--image=kemudi.local/web:1", "--replicas=2")
	c.create(t, k.namespace, "metadata: {name: client}\nspec: {terminationGracePeriodSeconds: 0, containers: [{name: c, image: kemudi.local/agnhost:1}]}\n")
	k.apply(t, "apiVersion: v1\nkind: Service\nmetadata: {name: svc}\nspec: {type: ExternalName, externalName: foo.example.com}\n")
	k.rolledOut(t, "web")
	c.await(t, k.namespace, "client", isReady)
	inPod := func(args ...string) string {
		return k.try(t, "", append([]string{"exec", "client", "--"}, args...)...).all()
	}
	full := "svc." + k.namespace + ".svc.cluster.local"
	soon := func(want string, ask func() string) {
		t.Helper()
		wait.Until(t, func() error {
			if got := ask(); !strings.Contains(got, want) {
				return fmt.Errorf("got %q, want %q", got, want)
			}
			return nil
		})
	}
	reached := func(from, addr string, ask func() string) {
		t.Helper()
		wait.Until(t, func() error {
			if got := ask(); !strings.Contains(got, "web-") {
				return fmt.Errorf("%s asks %s: got %q, want a pod's name", from, addr, got)
			}
			return nil
		})
	}
	trace.Proves(t, "C-222", "SVC-083/virtual-IP")
	if ip := k.do(t, "get", "service", "svc", "-o", "jsonpath={.spec.clusterIP}"); ip != "" {
		t.Errorf("a service that is only a name has the address %q", ip)
	}
	trace.Proves(t, "C-192")
	soon("foo.example.com", func() string { return inPod("nslookup", "-type=cname", full) })
	k.do(t, "patch", "service", "svc", "-p", `{"spec":{"externalName":"baz.example.com"}}`)
	soon("baz.example.com", func() string { return inPod("nslookup", "-type=cname", full) })
	const spec = `{"spec":{"type":%q,"externalName":null,"selector":{"app":"web"},"ports":[{"name":"http","port":80,"targetPort":8080}]}}`
	for _, tc := range []struct{ kind, proves string }{{"ClusterIP", "C-222"}, {"NodePort", "C-223 C-225"}} {
		k.do(t, "patch", "service", "svc", "-p", fmt.Sprintf(spec, tc.kind))
		ip := k.do(t, "get", "service", "svc", "-o", "jsonpath={.spec.clusterIP}")
		trace.Proves(t, "SVC-165")
		if net.ParseIP(ip) == nil {
			t.Errorf("address of the service with pods: got %q", ip)
		}
		trace.Proves(t, "C-192")
		soon(ip, func() string { return inPod("nslookup", "-type=a", full) })
		trace.Proves(t, strings.Fields(tc.proves+" CONN-016")...)
		for _, url := range []string{"http://svc", "http://" + ip} {
			reached("the pod", url, func() string { return inPod("wget", "-q", "-O", "-", url) })
		}
		if tc.kind == "NodePort" {
			port := k.do(t, "get", "service", "svc", "-o", "jsonpath={.spec.ports[0].nodePort}")
			url := "http://" + machineIP + ":" + port
			trace.Proves(t, "C-223", "C-225", "SVC-101")
			reached("the pod", url, func() string { return inPod("wget", "-q", "-O", "-", url) })
			trace.Proves(t, "CONN-045/NodePort")
			for name, from := range map[string]*nettest.Host{"the machine": c.host, "the neighbour": c.neighbour} {
				reached(name, url, func() string {
					got, err := get(from, url)
					return fmt.Sprint(got, err)
				})
			}
			reached("the machine", "127.0.0.1", func() string {
				got, err := get(c.host, "http://127.0.0.1:"+port)
				return fmt.Sprint(got, err)
			})
		}
		k.do(t, "patch", "service", "svc", "-p", `{"spec":{"type":"ExternalName","externalName":"bar.example.com","selector":null,"clusterIP":null,"clusterIPs":null}}`)
		soon("bar.example.com", func() string { return inPod("nslookup", "-type=cname", full) })
	}
}

// testExtendedResources runs pods on what an administrator says that the node has.
func testExtendedResources(t *testing.T, c *cluster) {
	ns, node := c.namespace(t), c.hostname(t)
	k := c.kubectl()
	k.do(t, "patch", "node", node, "--subresource=status", "--type=json", "-p", `[{"op": "add", "path": "/status/capacity/example.com~1dongle", "value": "4"}]`)
	t.Cleanup(func() {
		k.do(t, "patch", "node", node, "--subresource=status", "--type=json", "-p", `[{"op": "remove", "path": "/status/capacity/example.com~1dongle"}]`)
	})
	for i := range 5 {
		c.create(t, ns, fmt.Sprintf("metadata: {name: pod-%d}\nspec: {terminationGracePeriodSeconds: 0, containers: [{name: c, image: kemudi.local/agnhost:1, resources: {limits: {example.com/dongle: 1}}}]}\n", i))
	}
	var waits string
	wait.Until(t, func() error {
		running, waiting := 0, []string{}
		for _, pod := range c.pods(t, ns, "") {
			if isReady(&pod) == nil {
				running++
			} else {
				waiting = append(waiting, pod.Name+" "+string(pod.Status.Phase))
			}
		}
		if running != 4 || len(waiting) != 1 || !strings.HasSuffix(waiting[0], " Pending") {
			return fmt.Errorf("got %d pods that are ready, and %q, want 4 and one that is Pending", running, waiting)
		}
		waits = strings.Fields(waiting[0])[0]
		return nil
	})
	c.awaitEvent(t, ns, waits, "FailedScheduling", "0/1 nodes are available: 1 Insufficient example.com/dongle.")
	if got := k.do(t, "get", "node", node, "-o", `jsonpath={.status.capacity.example\.com/dongle} {.status.allocatable.example\.com/dongle}`); got != "4 4" {
		t.Errorf("capacity and allocatable: got %q, want 4 4", got)
	}
}

// testUnschedulable says why a pod finds no node.
func testUnschedulable(t *testing.T, c *cluster) {
	trace.Proves(t, "PLC-019", "C-345", "C-346")
	ns := c.namespace(t)
	const pod = "metadata: {name: %s}\nspec: {terminationGracePeriodSeconds: 0, containers: [{name: c, image: kemudi.local/agnhost:1, resources: {requests: {cpu: %s}}}], nodeSelector: {%s}}\n"
	c.create(t, ns, fmt.Sprintf(pod, "large", "'1000'", ""))
	c.awaitEvent(t, ns, "large", "FailedScheduling", "0/1 nodes are available: 1 Insufficient cpu.")
	got := c.await(t, ns, "large", func(pod *corev1.Pod) error { return hasCondition(pod, corev1.PodScheduled, corev1.ConditionFalse) })
	unschedulable := func(c corev1.PodCondition) bool { return c.Type == corev1.PodScheduled && c.Reason == "Unschedulable" }
	if !slices.ContainsFunc(got.Status.Conditions, unschedulable) || got.Status.Phase != corev1.PodPending {
		t.Errorf("got phase %s, conditions %+v; want Pending, Unschedulable", got.Status.Phase, got.Status.Conditions)
	}
	c.create(t, ns, fmt.Sprintf(pod, "picky", "1m", "e2e.kemudi.io/disk: ssd"))
	c.awaitEvent(t, ns, "picky", "FailedScheduling", "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.")
	node := c.hostname(t)
	c.kubectl().do(t, "label", "node", node, "e2e.kemudi.io/disk=ssd")
	t.Cleanup(func() { c.kubectl().do(t, "label", "node", node, "e2e.kemudi.io/disk-") })
	c.await(t, ns, "picky", isReady)
}
