package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

// testSharing looks at what a pod shares with its machine and what it does not.
func testSharing(t *testing.T, c *cluster) {
	ns := c.namespace(t)
	profiles := filepath.Join(c.DataDir, "kubelet/seccomp")
	if err := os.MkdirAll(profiles, 0o755); err != nil {
		t.Fatal(err)
	}
	const noChmod = `{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["chmod", "fchmod", "fchmodat", "fchmodat2"], "action": "SCMP_ACT_ERRNO"}]}`
	if err := os.WriteFile(filepath.Join(profiles, "no-chmod.json"), []byte(noChmod), 0o644); err != nil {
		t.Fatal(err)
	}
	const ipc, net, pid = "readlink /proc/self/ns/ipc", "readlink /proc/self/ns/net", "readlink /proc/self/ns/pid"
	link := func(name string) string {
		t.Helper()
		return must(os.Readlink("/proc/self/ns/" + name))(t)
	}
	for _, tc := range []struct{ name, pod, script, want, proves string }{
		{"ipc", "hostIPC: true", ipc, link("ipc"), ""},
		{"pid", "hostPID: true", pid, link("pid"), ""},
		{"own", "enableServiceLinks: false", fmt.Sprintf("[ $(%s) = %s ] && echo ipc; [ $(%s) = %s ] && echo net; [ $(%s) = %s ] && echo pid; echo own", ipc, link("ipc"), net, link("net"), pid, link("pid")), "own", "POD-007 WHAT-018/from-the-machine"},
		{"net", "hostNetwork: true", "ip -4 addr show eth0 | grep -o 'inet " + machineIP + "'; hostname", "inet " + machineIP + "\n" + must(os.Hostname())(t), ""},
		{"unconfined", "securityContext: {seccompProfile: {type: Unconfined}}", "grep Seccomp: /proc/self/status | tr -d '[:space:]'", "Seccomp:0", ""},
		{"localhost", "securityContext: {seccompProfile: {type: Localhost, localhostProfile: no-chmod.json}}", "touch /f && chmod 0700 /f || echo refused", "chmod: /f: Operation not permitted\nrefused", ""},
		{"hostname", "hostname: custom, subdomain: sub", "hostname; hostname -f", "custom\ncustom.sub." + ns + ".svc.cluster.local", ""},
		{"fqdn", "hostname: f, subdomain: s, setHostnameAsFQDN: true, securityContext: {runAsUser: 5}", "hostname | cut -d. -f1-2; id -u", "f.s\n5", ""},
		{"strict", "securityContext: {runAsUser: 0, supplementalGroups: [7], supplementalGroupsPolicy: Strict}", "id -G", "0 7", ""},
		{"setuid", "securityContext: {runAsUser: 1000}", "grep -E 'CapEff|CapPrm' /proc/self/status | tr -d '[:space:]'", "CapPrm:0000000000000000CapEff:0000000000000000", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if tc.name == "fqdn" && len("f.s."+ns+".svc.cluster.local") > 64 {
				tc.want = "" // too long for a kernel: see below
			}
			manifest := fmt.Sprintf("metadata: {name: %s}\nspec: {%s, restartPolicy: Never, containers: [{name: c, image: kemudi.local/busybox:1, command: [sh, -c, %q]}]}\n", tc.name, tc.pod, "exec 2>&1; "+tc.script)
			if tc.want == "" {
				c.create(t, ns, manifest)
				c.awaitEvent(t, ns, tc.name, "FailedCreatePodSandBox", "is too long (64 characters is the max")
				return
			}
			if tc.proves != "" {
				trace.Proves(t, strings.Fields(tc.proves)...)
			}
			pod, got := c.finish(t, ns, manifest)
			if strings.TrimSpace(got) != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if tc.name == "net" && (pod.Status.PodIP != machineIP || pod.Status.HostIP != machineIP) {
				t.Errorf("addresses: got %s, %s", pod.Status.PodIP, pod.Status.HostIP)
			}
		})
	}
	t.Run("hosts file", func(t *testing.T) {
		t.Parallel()
		trace.Proves(t, "C-273", "HOST-001", "HOST-011")
		k := c.kubectl().in(ns)
		k.do(t, "create", "configmap", "hosts", "--from-literal=hosts=127.0.0.1 mine")
		const container = "image: kemudi.local/busybox:1, command: [sh, -c, 'cat /etc/hosts; echo 127.0.0.9 added >> /etc/hosts; [ -e /d/again ] && exec sleep 1000; touch /d/again'], "
		c.create(t, ns, "metadata: {name: hosts}\nspec:\n  terminationGracePeriodSeconds: 0\n  hostAliases: [{ip: 127.0.0.1, hostnames: [alias.local]}]\n  volumes: [{name: h, configMap: {name: hosts}}, {name: d, emptyDir: {}}]\n  containers:\n  - {name: managed, "+container+"volumeMounts: [{name: d, mountPath: /d}]}\n  - {name: own, image: kemudi.local/busybox:1, command: [sh, -c, 'cat /etc/hosts; echo; sleep 1000'], volumeMounts: [{name: h, mountPath: /etc/hosts, subPath: hosts}]}\n")
		c.await(t, ns, "hosts", func(pod *corev1.Pod) error { return or(isReady(pod), hasRestarted(1)(pod)) })
		wait.Until(t, func() error { // until they have printed it
			managed := c.logs(t, ns, "hosts", corev1.PodLogOptions{Container: "managed"})
			if !strings.HasPrefix(managed, "# Kubernetes-managed hosts file.\n") || !strings.Contains(managed, "127.0.0.1\talias.local\n") || strings.Contains(managed, "127.0.0.9") {
				return fmt.Errorf("managed, after a restart of the container: got %q", managed)
			}
			if got := c.logs(t, ns, "hosts", corev1.PodLogOptions{Container: "own"}); got != "127.0.0.1 mine\n" {
				return fmt.Errorf("a file of its own: got %q", got)
			}
			return nil
		})
		trace.Proves(t, "HOST-003")
		for _, container := range []string{"managed", "own"} {
			if got := k.do(t, "exec", "hosts", "-c", container, "--", "grep", "-c", " /etc/hosts ", "/proc/mounts"); got != "1\n" {
				t.Errorf("mounts of a hosts file in container %s: got %q, want 1", container, got)
			}
		}
		if got := k.do(t, "exec", "hosts", "-c", "managed", "--", "ping", "-c1", "-w60", "alias.local"); !strings.Contains(got, "127.0.0.1") {
			t.Errorf("name of the hosts file: got %q", got)
		}
		_, got := c.finish(t, ns, "metadata: {name: hosts-net}\nspec: {hostNetwork: true, restartPolicy: Never, containers: [{name: c, image: kemudi.local/busybox:1, command: [cat, /etc/hosts]}]}\n")
		if strings.Contains(got, "# Kubernetes-managed hosts file.\n") || !strings.Contains(got, strings.TrimSpace(string(must(os.ReadFile("/etc/hosts"))(t)))) {
			t.Errorf("in the machine's network: got %q", got)
		}
	})
	t.Run("neighbours in a pod", func(t *testing.T) {
		t.Parallel()
		c.twoInAPod(t, ns)
	})
}

// twoInAPod runs two containers in a pod that share its network and a volume.
func (c *cluster) twoInAPod(t *testing.T, ns string) {
	t.Helper()
	pod, got := c.finish(t, ns, `
metadata: {name: neighbours}
spec:
  restartPolicy: Never
  volumes: [{name: d, emptyDir: {}}]
  containers:
  - name: a
    image: kemudi.local/busybox:1
    command: [sh, -c, 'until wget -q -O - http://127.0.0.1:9000/ip > /d/got 2>/dev/null; do sleep 0.1; done; echo $(cat /d/got); httpd -f -p 9000 2>&1 | grep -o "Address already in use"; [ "$(cat /d/ip)" = "$(hostname -i)" ] && echo one address; touch /d/done']
    volumeMounts: [{name: d, mountPath: /d}]
  - {name: b, image: kemudi.local/busybox:1, command: [sh, -c, 'hostname -i > /d/ip; httpd -p 9000 -h /d; until [ -e /d/done ]; do sleep 0.1; done'], volumeMounts: [{name: d, mountPath: /d}]}
`)
	if pod.Status.Phase != corev1.PodSucceeded {
		t.Errorf("got %s %q", pod.Status.Phase, got)
	}
	trace.Proves(t, "POD-001", "POD-004", "PODO-002", "PODO-010")
	wantLines(t, got, pod.Status.PodIP) // asked of the other on localhost
	trace.Proves(t, "EMPTY-004/same-path", "POD-008", "PODO-009", "PODO-012", "VOL-015/same-path")
	wantLines(t, got, "one address") // by a file of the other
	trace.Proves(t, "POD-004", "POD-016", "PODO-009", "PODO-011")
	wantLines(t, got, "Address already in use")
}

// or is the first error there is.
func or(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// testWebHooks has hooks ask a web server when containers start and stop.
func testWebHooks(t *testing.T, c *cluster) {
	ns := c.namespace(t)
	c.create(t, ns, "metadata: {name: handler}\nspec: {terminationGracePeriodSeconds: 0, containers: [{name: c, image: kemudi.local/agnhost:1, args: [netexec], readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1, timeoutSeconds: 60}}]}\n")
	ip := c.await(t, ns, "handler", isReady).Status.PodIP
	hook := func(what string) string {
		return fmt.Sprintf("{httpGet: {host: %s, port: 8080, path: '/echo?msg=%s'}}", ip, what)
	}
	heard := func(what string) {
		t.Helper()
		wait.Until(t, func() error {
			if got := c.logs(t, ns, "handler", corev1.PodLogOptions{}); !strings.Contains(got, "GET /echo?msg="+what+"\n") {
				return fmt.Errorf("the handler has not heard of %s: %q", what, got)
			}
			return nil
		})
	}
	c.create(t, ns, "metadata: {name: hooked}\nspec: {terminationGracePeriodSeconds: 600, containers: [{name: c, image: kemudi.local/agnhost:1, lifecycle: {postStart: "+hook("started")+", preStop: "+hook("stopping")+"}}]}\n")
	c.await(t, ns, "hooked", isReady)
	trace.Proves(t, "C-243", "HOOK-005", "HOOK-010/HTTP", "HOOK-013")
	heard("started")
	c.kubectl().in(ns).do(t, "delete", "pod", "hooked")
	trace.Proves(t, "C-245", "HOOK-009")
	heard("stopping")

	// Who takes no request is not asked again.
	var l net.Listener
	c.host.Must(func() (err error) {
		l, err = net.Listen("tcp", "127.0.0.1:0")
		return err
	})
	var asked atomic.Int32
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			asked.Add(1)
			_ = conn.Close()
		}
	})
	defer func() { _ = l.Close(); wg.Wait() }()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	// It serves before it is deleted: a first process that is still starting hears no signal.
	c.create(t, ns, "metadata: {name: unheard}\nspec: {terminationGracePeriodSeconds: 600, containers: [{name: c, image: kemudi.local/agnhost:1, args: [netexec], readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1, timeoutSeconds: 60}, lifecycle: {preStop: {httpGet: {host: 127.0.0.1, port: "+port+"}}}}]}\n")
	c.await(t, ns, "unheard", isReady)
	c.kubectl().in(ns).do(t, "delete", "pod", "unheard", patient)
	trace.Proves(t, "HOOK-023")
	if got := asked.Load(); got != 1 {
		t.Errorf("the receiver that takes nothing was asked %d times, want once", got)
	}
}
