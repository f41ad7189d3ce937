package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

// testCommands starts containers with and without commands and arguments of the pod's own.
func testCommands(t *testing.T, c *cluster) {
	ns := c.namespace(t)
	for _, tc := range []struct{ name, spec, want, proves string }{
		{"args", "args: [entrypoint-tester, a, b]", "[/agnhost entrypoint-tester a b]", "C-251"},
		{"command", "command: [/agnhost-2, entrypoint-tester]", "[/agnhost-2 entrypoint-tester]", "C-252"},
		{"both", "command: [/agnhost-2], args: [entrypoint-tester, x]", "[/agnhost-2 entrypoint-tester x]", "C-253"},
		{"expanded", `env: [{name: A, value: one}, {name: B, value: $(A)-two}], command: [/agnhost, entrypoint-tester, "$(A)"], args: ["$(B)", "$$(A)", "$(NONE)"]`, "[/agnhost entrypoint-tester one one-two $(A) $(NONE)]", "C-332"},
		{"workdir", "command: [sh, -c, 'pwd; hostname'], workingDir: /tmp", "/tmp\nworkdir", "ENV-004 DNS-014/name"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			trace.Proves(t, strings.Fields(tc.proves)...)
			pod, got := c.finish(t, ns, fmt.Sprintf("metadata: {name: %s}\nspec:\n  restartPolicy: Never\n  containers:\n  - {name: c, image: kemudi.local/agnhost:1, %s}\n", tc.name, tc.spec))
			if strings.TrimSpace(got) != tc.want || pod.Status.Phase != corev1.PodSucceeded {
				t.Errorf("got phase %s, log %q; want Succeeded, %q", pod.Status.Phase, got, tc.want)
			}
		})
	}
	t.Run("defaults", func(t *testing.T) {
		t.Parallel()
		c.create(t, ns, "metadata: {name: defaults}\nspec:\n  terminationGracePeriodSeconds: 0\n  containers:\n  - {name: c, image: kemudi.local/agnhost:1}\n")
		c.await(t, ns, "defaults", isReady)
		trace.Proves(t, "C-254")
		wait.Until(t, func() error {
			if got := c.logs(t, ns, "defaults", corev1.PodLogOptions{}); !strings.Contains(got, "Paused") {
				return fmt.Errorf("got %q, want Paused", got)
			}
			return nil
		})
		// Programs that gather logs find them there, by names that say whose they are, while there is the pod.
		linked := func() []string {
			links, err := filepath.Glob("/var/log/containers/defaults_" + ns + "_c-*.log")
			if err != nil {
				t.Fatal(err)
			}
			return links
		}
		links := linked()
		if len(links) != 1 {
			t.Fatalf("got links %q to its log, want one", links)
		}
		if text, err := os.ReadFile(links[0]); err != nil || !strings.Contains(string(text), "Paused") {
			t.Errorf("%s: got %q, %v, want Paused", links[0], text, err)
		}
		if err := c.client.CoreV1().Pods(ns).Delete(t.Context(), "defaults", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		wait.Until(t, func() error {
			if links := linked(); len(links) > 0 {
				return fmt.Errorf("its pod is deleted: got links %q", links)
			}
			return nil
		})
	})
}

// testEnvironment gives a container variables from every source.
func testEnvironment(t *testing.T, c *cluster) {
	ns := c.namespace(t)
	k := c.kubectl().in(ns)
	k.apply(t, `
apiVersion: v1
kind: ConfigMap
metadata: {name: config}
data: {data-1: value-1, two: value-2}
---
apiVersion: v1
kind: Secret
metadata: {name: secret}
stringData: {password: "s3cret\nline"}
---
apiVersion: v1
kind: Service
metadata: {name: redis-master}
spec: {ports: [{port: 6379}]}
---
apiVersion: v1
kind: Service
metadata: {name: only-a-name}
spec: {type: ExternalName, externalName: foo.example.com, ports: [{port: 80}]}
`)
	redis := k.do(t, "get", "service", "redis-master", "-o", "jsonpath={.spec.clusterIP}")
	pod, got := c.finish(t, ns, `
metadata: {name: env, labels: {color: blue}, annotations: {note: "hello\nworld"}}
spec:
  restartPolicy: Never
  containers:
  - name: c
    image: kemudi.local/busybox:1
    command: [env]
    resources: {limits: {cpu: 1200m, memory: 64Mi}, requests: {cpu: 100m, memory: 32Mi}}
    envFrom:
    - {configMapRef: {name: config}}
    - {prefix: "p-", configMapRef: {name: config}}
    - {prefix: "1-", configMapRef: {name: config}}
    - {prefix: "#%&@", configMapRef: {name: config}}
    - {secretRef: {name: none, optional: true}}
    env:
    - {name: FOO, value: foo-value}
    - {name: BAR, value: bar-value}
    - {name: FOOBAR, value: $(FOO);;$(BAR)}
    - {name: FROM_MAP, valueFrom: {configMapKeyRef: {name: config, key: two}}}
    - {name: FROM_SECRET, valueFrom: {secretKeyRef: {name: secret, key: password}}}
    - {name: MISSING, valueFrom: {configMapKeyRef: {name: config, key: none, optional: true}}}
    - {name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    - {name: NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
    - {name: POD_UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
    - {name: COLOR, valueFrom: {fieldRef: {fieldPath: "metadata.labels['color']"}}}
    - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
    - {name: ACCOUNT, valueFrom: {fieldRef: {fieldPath: spec.serviceAccountName}}}
    - {name: HOST_IP, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}
    - {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
    - {name: CPU_LIMIT, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}
    - {name: CPU_CORES, valueFrom: {resourceFieldRef: {resource: requests.cpu}}}
    - {name: CPU_REQUEST, valueFrom: {resourceFieldRef: {resource: requests.cpu, divisor: 1m}}}
    - {name: MEMORY_LIMIT, valueFrom: {resourceFieldRef: {resource: limits.memory}}}
    - {name: MEMORY_REQUEST, valueFrom: {resourceFieldRef: {resource: requests.memory, divisor: 1Mi}}}
    - {name: STORAGE_LIMIT, valueFrom: {resourceFieldRef: {resource: limits.ephemeral-storage}}}
`)
	node, err := c.client.CoreV1().Nodes().Get(t.Context(), pod.Spec.NodeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	trace.Proves(t, "C-236", "C-238")
	wantLines(t, got, "data-1=value-1", "two=value-2", "p-data-1=value-1", "p-two=value-2", "1-data-1=value-1", "#%&@data-1=value-1")
	trace.Proves(t, "C-237", "C-318", "C-330", "ENV-006")
	wantLines(t, got, "FROM_MAP=value-2", "FROM_SECRET=s3cret", "line", "FOOBAR=foo-value;;bar-value", "FOO=foo-value", "BAR=bar-value")
	trace.Proves(t, "C-257", "C-260", "ENV-002", "ENV-005")
	wantLines(t, got, "NAME=env", "NAMESPACE="+ns, "POD_UID="+string(pod.UID), "COLOR=blue", "NODE="+pod.Spec.NodeName, "ACCOUNT=default",
		"HOST_IP="+machineIP, "POD_IP="+pod.Status.PodIP, "HOSTNAME=env")
	trace.Proves(t, "C-255")
	wantLines(t, got, "CPU_LIMIT=2", "CPU_CORES=1", "CPU_REQUEST=100", "MEMORY_LIMIT=67108864", "MEMORY_REQUEST=32")
	wantLines(t, got, fmt.Sprintf("STORAGE_LIMIT=%d", node.Status.Allocatable.StorageEphemeral().Value()))
	if strings.Contains(got, "MISSING=") {
		t.Errorf("an optional variable without a source is set: %q", got)
	}
	wantServiceVariables(t, got, redis)
	_, got = c.finish(t, ns, `
metadata: {name: few}
spec:
  enableServiceLinks: false
  restartPolicy: Never
  containers:
  - name: c
    image: kemudi.local/busybox:1
    command: [env]
    env:
    - {name: CPU_LIMIT, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}
    - {name: MEMORY_LIMIT, valueFrom: {resourceFieldRef: {resource: limits.memory}}}
`)
	if strings.Contains(got, "REDIS") || !strings.Contains(got, "KUBERNETES_SERVICE_HOST=10.96.0.1\n") {
		t.Errorf("without service links: got %q", got)
	}
	trace.Proves(t, "C-256")
	wantLines(t, got, fmt.Sprintf("CPU_LIMIT=%d", node.Status.Allocatable.Cpu().Value()), fmt.Sprintf("MEMORY_LIMIT=%d", node.Status.Allocatable.Memory().Value()))
}

// wantServiceVariables expects the variables of the services of [testEnvironment].
func wantServiceVariables(t *testing.T, got, redis string) {
	t.Helper()
	trace.Proves(t, "CONN-026", "SVC-070")
	wantLines(t, got, "KUBERNETES_SERVICE_HOST=10.96.0.1", "KUBERNETES_SERVICE_PORT=443", "KUBERNETES_SERVICE_PORT_HTTPS=443",
		"REDIS_MASTER_SERVICE_HOST="+redis, "REDIS_MASTER_SERVICE_PORT=6379")
	trace.Proves(t, "ENV-003", "ENV-010", "SVC-071", "SVC-072", "SVC-076/environment")
	wantLines(t, got, "REDIS_MASTER_SERVICE_HOST="+redis, "REDIS_MASTER_SERVICE_PORT=6379")
	trace.Proves(t, "SVC-073")
	wantLines(t, got, "REDIS_MASTER_PORT=tcp://"+redis+":6379", "REDIS_MASTER_PORT_6379_TCP=tcp://"+redis+":6379",
		"REDIS_MASTER_PORT_6379_TCP_PROTO=tcp", "REDIS_MASTER_PORT_6379_TCP_PORT=6379", "REDIS_MASTER_PORT_6379_TCP_ADDR="+redis)
	trace.Proves(t, "C-294", "SVC-074") // with those above: these and no others
	if n := strings.Count("\n"+got, "\nREDIS_MASTER_"); n != 7 {
		t.Errorf("got %d variables of the service, want 7: %q", n, got)
	}
	trace.Proves(t, "SVC-083/environment")
	if strings.Contains(got, "ONLY_A_NAME") {
		t.Errorf("a service that is only a name has variables: %q", got)
	}
}

// testMissingSources starts a container once what its variables come from exists.
func testMissingSources(t *testing.T, c *cluster) {
	ns := c.namespace(t)
	c.create(t, ns, "metadata: {name: later}\nspec:\n  restartPolicy: Never\n  containers:\n  - {name: c, image: kemudi.local/busybox:1, command: [env], envFrom: [{configMapRef: {name: later}}]}\n")
	c.await(t, ns, "later", isWaiting("CreateContainerConfigError"))
	c.awaitEvent(t, ns, "later", "Failed", `Error: configmap "later" not found`)
	c.kubectl().in(ns).do(t, "create", "configmap", "later", "--from-literal=WHEN=later")
	c.await(t, ns, "later", hasEnded)
	wantLines(t, c.logs(t, ns, "later", corev1.PodLogOptions{}), "WHEN=later")
}

// testSecurity runs containers with other users, rights and limits.
func testSecurity(t *testing.T, c *cluster) {
	ns := c.namespace(t)
	for _, tc := range []struct{ name, pod, container, script, want, proves string }{
		{"users", "securityContext: {runAsUser: 1001, runAsGroup: 2002, supplementalGroups: [3003], fsGroup: 4004}", "", "id -u; id -g; id -G", "1001\n2002\n2002 3003 4004", "C-326"},
		{"container-user", "securityContext: {runAsUser: 1001, runAsGroup: 2002}", "securityContext: {runAsUser: 1005, runAsGroup: 2005}", "id -u; id -g", "1005\n2005", "C-325"},
		{"read-only", "", "securityContext: {readOnlyRootFilesystem: true}", "touch /x 2>&1 | grep -o 'Read-only file system'", "Read-only file system", ""},
		{"writable", "", "securityContext: {readOnlyRootFilesystem: false}", "touch /x && echo written", "written", "C-324"},
		{"unprivileged", "", "securityContext: {privileged: false}", "ip link add dummy0 type dummy 2>&1 | grep -o 'Operation not permitted'", "Operation not permitted", "C-323"},
		{"privileged", "", "securityContext: {privileged: true}", "mkdir /m && mount -t tmpfs t /m && grep CapEff /proc/self/status | tr -d '[:space:]'", "CapEff:" + machineCaps(t), "POD-054"},
		{"no-capabilities", "", "securityContext: {capabilities: {drop: [ALL]}}", "grep CapEff /proc/self/status | tr -d '[:space:]'", "CapEff:0000000000000000", ""},
		{"one-capability", "", "securityContext: {capabilities: {drop: [ALL], add: [NET_ADMIN]}}", "grep CapEff /proc/self/status | tr -d '[:space:]'", "CapEff:0000000000001000", ""},
		{"no-new-privileges", "", "securityContext: {allowPrivilegeEscalation: false}", "grep NoNewPrivs /proc/self/status | tr -d '[:space:]'", "NoNewPrivs:1", ""},
		{"seccomp", "securityContext: {seccompProfile: {type: RuntimeDefault}}", "", "grep 'Seccomp:' /proc/self/status | tr -d '[:space:]'", "Seccomp:2", ""},
		{"sysctl", "securityContext: {sysctls: [{name: kernel.shm_rmid_forced, value: '1'}]}", "", "cat /proc/sys/kernel/shm_rmid_forced", "1", "C-329"},
		{"host-pid", "hostPID: true", "", fmt.Sprintf("tr '\\0' ' ' < /proc/%d/cmdline | grep -o ' server --data-dir '", c.proc.Process.Pid), "server --data-dir", ""},
		{"own-pid", "", "", "cat /proc/1/comm; :", "sh", ""},
		{"limits", "", "resources: {limits: {cpu: 500m, memory: 100Mi}}", "cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null; cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us 2>/dev/null || cut -d' ' -f1 /sys/fs/cgroup/cpu.max", "104857600\n50000", "WHAT-021"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if tc.proves != "" {
				trace.Proves(t, tc.proves)
			}
			container := tc.container
			if container != "" {
				container = ", " + container
			}
			pod, got := c.finish(t, ns, fmt.Sprintf("metadata: {name: %s}\nspec:\n  %s\n  restartPolicy: Never\n  containers:\n  - {name: c, image: kemudi.local/busybox:1, command: [sh, -c, %q]%s}\n", tc.name, tc.pod, tc.script, container))
			if strings.TrimSpace(got) != tc.want || pod.Status.Phase != corev1.PodSucceeded {
				t.Errorf("got phase %s, log %q; want Succeeded, %q", pod.Status.Phase, got, tc.want)
			}
		})
	}
	for name, tc := range map[string]struct{ spec, reason, message string }{
		"unsafe-sysctl":  {"securityContext: {sysctls: [{name: kernel.msgmax, value: '65536'}]}", "SysctlForbidden", `forbidden sysctl: "kernel.msgmax" not allowlisted`},
		"other-system":   {"os: {name: windows}", "PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS"},
		"unsafe-slashes": {"securityContext: {sysctls: [{name: net/core/somaxconn, value: '100'}]}", "SysctlForbidden", `forbidden sysctl: "net.core.somaxconn" not allowlisted`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.create(t, ns, fmt.Sprintf("metadata: {name: %s}\nspec:\n  %s\n  containers:\n  - {name: c, image: kemudi.local/busybox:1, command: [sleep, '1000']}\n", name, tc.spec))
			pod := c.await(t, ns, name, hasEnded)
			if pod.Status.Phase != corev1.PodFailed || pod.Status.Reason != tc.reason || pod.Status.Message != "Pod was rejected: "+tc.message {
				t.Errorf("got %s %s %q, want Failed %s %q", pod.Status.Phase, pod.Status.Reason, pod.Status.Message, tc.reason, tc.message)
			}
			c.awaitEvent(t, ns, name, tc.reason, tc.message)
		})
	}
	t.Run("root refused", func(t *testing.T) {
		t.Parallel()
		c.create(t, ns, "metadata: {name: root}\nspec:\n  securityContext: {runAsNonRoot: true}\n  containers:\n  - {name: c, image: kemudi.local/busybox:1, command: [sleep, '1000']}\n")
		c.await(t, ns, "root", isWaiting("CreateContainerConfigError"))
		c.awaitEvent(t, ns, "root", "Failed", "container has runAsNonRoot and image will run as root")
	})
	t.Run("shared processes", func(t *testing.T) {
		t.Parallel()
		_, got := c.finish(t, ns, "metadata: {name: shared}\nspec:\n  shareProcessNamespace: true\n  restartPolicy: Never\n  terminationGracePeriodSeconds: 0\n  containers:\n  - {name: c, image: kemudi.local/busybox:1, command: [sh, -c, 'until killall -9 tail 2>/dev/null; do sleep 0.1; done; echo seen; cat /proc/1/comm']}\n  - {name: d, image: kemudi.local/busybox:1, command: [tail, -f, /dev/null]}\n")
		wantLines(t, got, "seen", "pause")
	})
	t.Run("out of memory", func(t *testing.T) {
		t.Parallel()
		trace.Proves(t, "PLC-092", "PLC-007")
		pod, _ := c.finish(t, ns, "metadata: {name: oom}\nspec:\n  restartPolicy: Never\n  containers:\n  - {name: c, image: kemudi.local/busybox:1, command: [sh, -c, 'exec tail /dev/zero'], resources: {limits: {memory: 20Mi}}}\n")
		end := pod.Status.ContainerStatuses[0].State.Terminated
		if pod.Status.Phase != corev1.PodFailed || end.Reason != "OOMKilled" || end.ExitCode != 137 {
			t.Errorf("got phase %s, %+v; want Failed, OOMKilled, 137", pod.Status.Phase, end)
		}
		if pod.Status.QOSClass != corev1.PodQOSBurstable {
			t.Errorf("QoS class: got %s, want Burstable", pod.Status.QOSClass)
		}
	})
	t.Run("guaranteed", func(t *testing.T) {
		t.Parallel()
		trace.Proves(t, "C-290")
		pod := c.create(t, ns, "metadata: {name: guaranteed}\nspec:\n  terminationGracePeriodSeconds: 0\n  containers:\n  - {name: c, image: kemudi.local/agnhost:1, resources: {requests: {cpu: 10m, memory: 20Mi}, limits: {cpu: 10m, memory: 20Mi}}}\n")
		if pod.Status.QOSClass != corev1.PodQOSGuaranteed {
			t.Errorf("QoS class of the new pod: got %s, want Guaranteed", pod.Status.QOSClass)
		}
	})
}

// machineCaps are the capabilities that this machine has to give, in hexadecimal.
func machineCaps(t *testing.T) string {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "CapBnd:")
	return strings.Fields(rest)[0]
}
