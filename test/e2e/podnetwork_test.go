package e2e

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/internal/podnet/nettest"
	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

// testPodNetwork lets pods, and a pod on the node's network, call each other by
// address, over HTTP and UDP.
func testPodNetwork(t *testing.T, c *cluster) {
	trace.Proves(t, "C-212", "C-213", "C-214", "CONN-042")
	ns := c.namespace(t)
	const pod = "metadata: {name: %s}\nspec: {terminationGracePeriodSeconds: 0, hostNetwork: %t, containers: [{name: c, image: kemudi.local/agnhost:1, args: [netexec, --http-port=%d, --udp-port=%d]}]}\n"
	c.create(t, ns, fmt.Sprintf(pod, "one", false, 8080, 8081))
	c.create(t, ns, fmt.Sprintf(pod, "two", false, 8080, 8081))
	c.create(t, ns, fmt.Sprintf(pod, "node", true, 18092, 18093))
	at := map[string]string{"node": machineIP + ":18092"}
	for _, name := range []string{"one", "two", "node"} {
		if got := c.await(t, ns, name, isReady).Status.PodIP; name != "node" {
			at[name] = got + ":8080"
		}
	}
	for caller, addr := range at {
		for _, server := range []string{"one", "two"} {
			for protocol, port := range map[string]int{"http": 8080, "udp": 8081} {
				host, _, _ := strings.Cut(at[server], ":")
				wait.Until(t, func() error { // a pod without a probe is ready before it listens
					got, err := get(c.host, fmt.Sprintf("http://%s/dial?request=hostname&protocol=%s&host=%s&port=%d&tries=1", addr, protocol, host, port))
					if want := `{"responses":["` + server + `"]}`; err != nil || got != want {
						return fmt.Errorf("%s calls %s over %s: got %q, %v, want %q", caller, server, protocol, got, err, want)
					}
					return nil
				})
			}
		}
	}
}

// testAPIService looks at the service by which pods find the API, and at what
// else this machine serves to others: nothing of the control plane. (Whether a node takes connections
// of services, which balancers ask on port 10256, is for everybody.)
func testAPIService(t *testing.T, c *cluster) {
	k := c.kubectl()
	trace.Proves(t, "C-190", "C-230")
	if got := k.do(t, "get", "services", "-A", "--field-selector=metadata.name=kubernetes", "-o", "jsonpath={.items[*].metadata.namespace} {.items[*].spec.ports}"); got != `default [{"name":"https","port":443,"protocol":"TCP","targetPort":6443}]` {
		t.Errorf("service: got %s", got)
	}
	endpoints := k.try(t, "", "get", "endpoints", "kubernetes", "-n", "default", "-o", "jsonpath={.subsets[*].addresses[*].ip} {.subsets[*].ports[*].name} {.subsets[*].ports[*].port}").stdout // kubectl warns of the kind
	slices := k.do(t, "get", "endpointslices", "-n", "default", "-l", "kubernetes.io/service-name=kubernetes", "-o", "jsonpath={.items[*].endpoints[*].addresses[*]} {.items[*].ports[*].name} {.items[*].ports[*].port}")
	trace.Proves(t, "C-189", "COMM-002/pods")
	if want := machineIP + " https 6443"; endpoints != want || slices != want {
		t.Errorf("endpoints %q and slices %q, want %q", endpoints, slices, want)
	}
	trace.Proves(t, "C-189")
	if got := k.do(t, "get", "endpointslices", "-n", "default", "-l", "kubernetes.io/service-name=kubernetes", "-o", "jsonpath={.items[*].endpoints[*].conditions.ready}"); got != "true" {
		t.Errorf("the API's endpoint is ready: got %q, want true", got)
	}
	trace.Proves(t, "COMM-003")
	for port, what := range map[int]string{2379: "etcd", 2380: "etcd's peers", 10259: "the scheduler", 10257: "the controllers", 10255: "the kubelet without a certificate", 8080: "the API without a certificate"} {
		if conn, err := c.neighbour.Dial("tcp", fmt.Sprintf("%s:%d", machineIP, port)); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("port %d, that of %s: got %v, %v, want a refusal", port, what, conn, err)
		}
	}
	conn, err := c.neighbour.Dial("tcp", machineIP+":6443")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(wait.Patience))
	buf := make([]byte, 100)
	if _, err := conn.Write([]byte("GET /livez HTTP/1.0\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	trace.Proves(t, "COMM-009")
	if n, _ := conn.Read(buf); !strings.HasPrefix(string(buf[:n]), "HTTP/1.0 400 Bad Request\r\n") {
		t.Errorf("the API without TLS: got %q, want 400", buf[:n])
	}
}

// TestDualStackCluster runs a cluster with both families, the second one first.
func TestDualStackCluster(t *testing.T) {
	t.Parallel()
	c := newDualStackCluster(t)
	k := c.kubectl().in(c.namespace(t))
	k.apply(t, `
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: NodePort, selector: {app: web}, ipFamilyPolicy: RequireDualStack, ports: [{port: 80, targetPort: 8080, nodePort: 30080}]}
---
apiVersion: v1
kind: Service
metadata: {name: first}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: second}
spec: {selector: {app: web}, ipFamilies: [IPv4], ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: chosen}
spec: {selector: {app: web}, ipFamilies: [IPv6], ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec: {terminationGracePeriodSeconds: 0, containers: [{name: c, image: kemudi.local/agnhost:1, args: [netexec]}]}
`)
	pod := c.await(t, k.namespace, "web", isReady)
	trace.Proves(t, "DUAL-001", "DUAL-008", "DUAL-020/non-routable", "DUALT-008/non-routable")
	if got := fmt.Sprint(pod.Status.PodIPs, pod.Status.HostIPs); got != "[{fd00:244::2} {10.244.0.2}] [{fd77::2} {"+machineIP+"}]" {
		t.Errorf("addresses of the pod and its node: got %s", got)
	}
	inPod := func(args ...string) func() (string, error) {
		return func() (string, error) {
			return k.try(t, "", append([]string{"exec", "web", "--"}, args...)...).all(), nil
		}
	}
	from := func(h *nettest.Host, url string) func() (string, error) {
		return func() (string, error) { return get(h, url) }
	}
	ip := func(service string, i int) string {
		return k.do(t, "get", "service", service, "-o", fmt.Sprintf("jsonpath={.spec.clusterIPs[%d]}", i))
	}
	for _, tc := range []struct {
		service       string
		i             int
		begin, proves string
	}{
		{"web", 0, "fd00:96::", "DUAL-001 DUAL-009"},
		{"web", 1, "10.96.", "DUAL-001 DUAL-009"},
		{"first", 0, "fd00:96::", "DUAL-017 DUALT-002 DUALT-006"},
		{"second", 0, "10.96.", "DUAL-016"},
		{"chosen", 0, "fd00:96::", "DUAL-016"},
	} {
		trace.Proves(t, strings.Fields(tc.proves)...)
		if got := ip(tc.service, tc.i); !strings.HasPrefix(got, tc.begin) {
			t.Errorf("address %d of service %s: got %s, want one of %s", tc.i, tc.service, got, tc.begin)
		}
	}
	trace.Proves(t, "DNS-040")
	resolver := fmt.Sprintf("search %s.svc.cluster.local svc.cluster.local cluster.local", k.namespace)
	if got, _ := inPod("cat", "/etc/resolv.conf")(); !strings.HasPrefix(got, resolver) || !strings.Contains(got, "\nnameserver fd00:96::a\n") || !strings.Contains(got, "options ndots:5\n") {
		t.Errorf("resolv.conf: got %q", got)
	}
	for name, tc := range map[string]struct {
		want string
		ask  func() (string, error)
	}{
		"AAAA":                 {ip("web", 0), inPod("nslookup", "-type=aaaa", "web."+k.namespace+".svc.cluster.local")},
		"A":                    {ip("web", 1), inPod("nslookup", "-type=a", "web."+k.namespace+".svc.cluster.local")},
		"by name":              {"web", inPod("curl", "-s", "http://first/hostname")},
		"IPv6 service":         {"web", from(c.host, "http://["+ip("web", 0)+"]/hostname")},
		"IPv4 service":         {"web", from(c.host, "http://"+ip("web", 1)+"/hostname")},
		"default family":       {"web", from(c.host, "http://["+ip("first", 0)+"]/hostname")},
		"chosen family":        {"web", from(c.host, "http://"+ip("second", 0)+"/hostname")},
		"IPv6 node port":       {"web", from(c.neighbour, "http://[fd77::2]:30080/hostname")},
		"IPv4 node port":       {"web", from(c.neighbour, "http://"+machineIP+":30080/hostname")},
		"the API from the pod": {`"major": "1"`, inPod("curl", "-s", "-k", "https://kubernetes.default/version")},
	} {
		wait.Until(t, func() error {
			if got, err := tc.ask(); err != nil || !strings.Contains(got, tc.want) {
				return fmt.Errorf("%s: got %q, %v, want %q", name, got, err, tc.want)
			}
			return nil
		})
	}
	reuseAddresses(t, c, k.namespace)
}

// reuseAddresses makes pods come and go until they have the addresses of earlier
// ones: the node, which has talked to those, reaches each at once.
func reuseAddresses(t *testing.T, c *cluster, ns string) {
	seen, again := map[string]bool{}, map[bool]bool{}
	for i := 0; len(again) < 2; i++ {
		name := fmt.Sprintf("guest-%d", i)
		c.create(t, ns, "metadata: {name: "+name+"}\nspec: {terminationGracePeriodSeconds: 0, containers: [{name: c, image: kemudi.local/busybox:1, command: [sleep, '1000']}]}\n")
		for _, ip := range c.await(t, ns, name, isReady).Status.PodIPs {
			if conn, err := c.host.Dial("tcp", net.JoinHostPort(ip.IP, "9")); !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("%s, of another pod before: %t: got %v, %v, want a refusal", ip.IP, seen[ip.IP], conn, err)
			}
			if seen[ip.IP] {
				again[strings.Contains(ip.IP, ":")] = true
			}
			seen[ip.IP] = true
		}
		c.kubectl().in(ns).do(t, "delete", "pod", name, "--now")
	}
}

// newDualStackCluster starts a cluster on a machine with addresses of both families.
func newDualStackCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{machine: newMachine(t), args: []string{
		"--cluster-cidr=fd00:244::/112,10.244.0.0/16", "--service-cluster-ip-range=fd00:96::/112,10.96.0.0/16",
		"--node-cidr-mask-size-ipv6=125", "--node-cidr-mask-size-ipv4=29", // few addresses, which are soon given again
	}}
	c.host.Addr("eth0", "fd77::2/64")
	c.neighbour.Addr("eth0", "fd77::1/64")
	c.before = c.look(t)
	return c.setOut(t)
}
