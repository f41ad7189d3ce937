package cri

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/kubelet/podstep"
	"github.com/kemudi/kemudi/internal/trace"
)

func podOf(t *testing.T, spec string) *v1.Pod {
	t.Helper()
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "web", UID: "u1", Labels: map[string]string{"b": "2", "a": `x"y`}, Annotations: map[string]string{"note": "hi"},
	}}
	if err := yaml.UnmarshalStrict([]byte(spec), &pod.Spec); err != nil {
		t.Fatal(err)
	}
	return pod
}

var testNode = &Node{
	Name: "n1", IPs: []string{"192.0.2.1", "2001:db8::1"}, MemoryCapacity: 8 << 30, ClusterDNS: []string{"10.96.0.10"}, ClusterDomain: "cluster.local",
	Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("3500m"), v1.ResourceMemory: resource.MustParse("6Gi")},
	HostDNS:     Resolv{Servers: []string{"9.9.9.9"}, Searches: []string{"example.org", "cluster.local"}, Options: []string{"edns0"}},
	HostHosts:   "127.0.0.1 localhost\n", CgroupParent: "/kemudi", PodLogsDir: "/var/log/pods", SeccompDir: "/seccomp",
}

// objects holds what a test's environment refers to.
type objects struct{}

var errMissing = errors.New("not found")

func (objects) ConfigMap(_, name string) (*v1.ConfigMap, error) {
	if name != "cm" {
		return nil, fmt.Errorf("configmaps %q %w", name, errMissing)
	}
	return &v1.ConfigMap{Data: map[string]string{"k": "v", "data-1": "value-1"}}, nil
}

func (objects) Secret(_, name string) (*v1.Secret, error) {
	if name != "s" {
		return nil, fmt.Errorf("secrets %q %w", name, errMissing)
	}
	return &v1.Secret{Data: map[string][]byte{"p": []byte("pw")}}, nil
}

func (objects) Services(namespace string) []*v1.Service {
	service := func(name, ip string, ports ...v1.ServicePort) *v1.Service {
		return &v1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.ServiceSpec{ClusterIP: ip, Ports: ports}}
	}
	if namespace == v1.NamespaceDefault {
		return []*v1.Service{service("kubernetes", "10.96.0.1", v1.ServicePort{Name: "https", Port: 443, Protocol: v1.ProtocolTCP}), service("other", "10.96.0.2", v1.ServicePort{Port: 1})}
	}
	return []*v1.Service{
		service("redis-master", "10.0.0.11", v1.ServicePort{Port: 6379, Protocol: v1.ProtocolTCP}),
		service("two", "10.0.0.12", v1.ServicePort{Name: "main-port", Port: 80, Protocol: v1.ProtocolTCP}, v1.ServicePort{Port: 53, Protocol: v1.ProtocolUDP}),
		service("headless", v1.ClusterIPNone, v1.ServicePort{Port: 1}),
	}
}

func input(t *testing.T, spec string) *ContainerInput {
	t.Helper()
	pod := podOf(t, spec)
	return &ContainerInput{
		Pod: pod, Container: &pod.Spec.Containers[0], Node: testNode, PodIPs: []string{"10.1.2.3", "fd00::3"},
		Objects: objects{}, IsMissing: func(err error) bool { return errors.Is(err, errMissing) }, ImageRef: "sha256:x",
	}
}

func envOf(t *testing.T, in *ContainerInput) []string {
	t.Helper()
	kvs, err := Env(in)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, kv := range kvs {
		out = append(out, kv.Key+"="+string(kv.Value))
	}
	return out
}

func TestEnvironmentHasTheUsersVariablesOverThoseOfServices(t *testing.T) {
	got := envOf(t, input(t, `
containers:
- name: c
  envFrom: [{prefix: "1-", configMapRef: {name: cm}}, {prefix: '!"#~', configMapRef: {name: cm}}, {prefix: "p-", configMapRef: {name: cm}}, {configMapRef: {name: cm}},
    {secretRef: {name: s}}, {configMapRef: {name: none, optional: true}}]
  env:
  - {name: FOO, value: foo-value}
  - {name: BAR, value: "$(FOO);;$(REDIS_MASTER_SERVICE_HOST);$(LATER);$$(FOO);$(FOO"}
  - {name: LATER, value: x}
  - {name: K, valueFrom: {configMapKeyRef: {name: cm, key: k}}}
  - {name: P, valueFrom: {secretKeyRef: {name: s, key: p}}}
  - {name: NO, valueFrom: {secretKeyRef: {name: none, key: p, optional: true}}}
  - {name: NO2, valueFrom: {configMapKeyRef: {name: cm, key: none, optional: true}}}
  - {name: KUBERNETES_SERVICE_HOST, value: mine}
`))
	want := []string{
		"1-data-1=value-1", "1-k=v", `!"#~data-1=value-1`, `!"#~k=v`, "p-data-1=value-1", "p-k=v", "data-1=value-1", "k=v",
		"p=pw", "FOO=foo-value", "BAR=foo-value;;10.0.0.11;$(LATER);$(FOO);$(FOO", "LATER=x", "K=v", "P=pw", "KUBERNETES_SERVICE_HOST=mine",
		"KUBERNETES_PORT=tcp://10.96.0.1:443", "KUBERNETES_PORT_443_TCP=tcp://10.96.0.1:443", "KUBERNETES_PORT_443_TCP_ADDR=10.96.0.1",
		"KUBERNETES_PORT_443_TCP_PORT=443", "KUBERNETES_PORT_443_TCP_PROTO=tcp", "KUBERNETES_SERVICE_PORT=443", "KUBERNETES_SERVICE_PORT_HTTPS=443",
		"REDIS_MASTER_PORT=tcp://10.0.0.11:6379", "REDIS_MASTER_PORT_6379_TCP=tcp://10.0.0.11:6379",
		"REDIS_MASTER_PORT_6379_TCP_ADDR=10.0.0.11", "REDIS_MASTER_PORT_6379_TCP_PORT=6379", "REDIS_MASTER_PORT_6379_TCP_PROTO=tcp",
		"REDIS_MASTER_SERVICE_HOST=10.0.0.11", "REDIS_MASTER_SERVICE_PORT=6379",
		"TWO_PORT=tcp://10.0.0.12:80", "TWO_PORT_53_UDP=udp://10.0.0.12:53", "TWO_PORT_53_UDP_ADDR=10.0.0.12", "TWO_PORT_53_UDP_PORT=53", "TWO_PORT_53_UDP_PROTO=udp",
		"TWO_PORT_80_TCP=tcp://10.0.0.12:80", "TWO_PORT_80_TCP_ADDR=10.0.0.12", "TWO_PORT_80_TCP_PORT=80", "TWO_PORT_80_TCP_PROTO=tcp",
		"TWO_SERVICE_HOST=10.0.0.12", "TWO_SERVICE_PORT=80", "TWO_SERVICE_PORT_MAIN_PORT=80",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	for _, c := range []struct {
		proves string
		want   []string
	}{
		{"ENV-006", []string{"FOO=foo-value", "LATER=x"}},
		{"C-236", []string{"1-k=v", `!"#~k=v`, "p-k=v"}},
		{"C-237", []string{"K=v"}},
		{"C-238", []string{"data-1=value-1", "p-data-1=value-1"}},
		{"C-318", []string{"P=pw"}},
		{"C-330", []string{"BAR=foo-value;;10.0.0.11;$(LATER);$(FOO);$(FOO"}},
	} {
		trace.Proves(t, c.proves)
		for _, want := range c.want {
			if !slices.Contains(got, want) {
				t.Errorf("no %s in %q", want, got)
			}
		}
	}
	redis := slices.DeleteFunc(got, func(s string) bool { return !strings.HasPrefix(s, "REDIS_MASTER_") })
	trace.Proves(t, "ENV-009", "ENV-010", "SVC-074", "C-294")
	if want := []string{
		"REDIS_MASTER_PORT=tcp://10.0.0.11:6379", "REDIS_MASTER_PORT_6379_TCP=tcp://10.0.0.11:6379", "REDIS_MASTER_PORT_6379_TCP_ADDR=10.0.0.11", "REDIS_MASTER_PORT_6379_TCP_PORT=6379",
		"REDIS_MASTER_PORT_6379_TCP_PROTO=tcp", "REDIS_MASTER_SERVICE_HOST=10.0.0.11", "REDIS_MASTER_SERVICE_PORT=6379",
	}; !slices.Equal(redis, want) {
		t.Errorf("of the one port of a service: got %q, want %q", redis, want)
	}
	off := envOf(t, input(t, `{enableServiceLinks: false, containers: [{name: c}]}`))
	if slices.ContainsFunc(off, func(s string) bool { return strings.HasPrefix(s, "REDIS") }) || len(off) != 8 {
		t.Errorf("without service links: got %q, want those of kubernetes only", off)
	}
}

func TestEnvironmentKnowsThePodAndItsResources(t *testing.T) {
	fields := []string{}
	for _, path := range []string{"metadata.name", "metadata.namespace", "metadata.uid", "metadata.labels['b']", "metadata.annotations['note']", "spec.nodeName",
		"spec.serviceAccountName", "status.podIP", "status.podIPs", "status.hostIP", "status.hostIPs"} {
		fields = append(fields, fmt.Sprintf(`{name: %q, valueFrom: {fieldRef: {fieldPath: %q}}}`, path, path))
	}
	for _, r := range []string{"requests.cpu", "limits.cpu", "requests.memory", "limits.memory"} {
		fields = append(fields, fmt.Sprintf(`{name: %q, valueFrom: {resourceFieldRef: {resource: %q}}}`, r, r))
	}
	fields = append(fields, `{name: Mi, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}}`, `{name: m, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1m}}}`)
	spec := `{enableServiceLinks: false, nodeName: n1, serviceAccountName: default, containers: [{name: c, resources: %s, env: [` + strings.Join(fields, ",") + `]}]}`
	in := input(t, fmt.Sprintf(spec, "{requests: {cpu: 250m, memory: 32Mi}, limits: {cpu: 1250m, memory: 64Mi}}"))
	in.Objects = nil
	want := []string{
		"metadata.name=web", "metadata.namespace=ns", "metadata.uid=u1", "metadata.labels['b']=2", "metadata.annotations['note']=hi", "spec.nodeName=n1",
		"spec.serviceAccountName=default", "status.podIP=10.1.2.3", "status.podIPs=10.1.2.3,fd00::3", "status.hostIP=192.0.2.1", "status.hostIPs=192.0.2.1,2001:db8::1",
		"requests.cpu=1", "limits.cpu=2", "requests.memory=33554432", "limits.memory=67108864", "Mi=64", "m=1250",
	}
	trace.Proves(t, "ENV-002", "C-255", "C-257", "C-260")
	if got := envOf(t, in); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	in = input(t, fmt.Sprintf(spec, "{}"))
	in.Objects = nil
	trace.Proves(t, "C-256")
	if got := envOf(t, in)[11:]; !slices.Equal(got, []string{"requests.cpu=0", "limits.cpu=4", "requests.memory=0", "limits.memory=6442450944", "Mi=6144", "m=3500"}) {
		t.Errorf("without limits: got %q, want what the node has", got)
	}
	if got, err := Field(in.Pod, "metadata.labels", nil, nil); err != nil || got != "a=\"x\\\"y\"\nb=\"2\"" {
		t.Errorf("labels: got %q, %v", got, err)
	}
}

func TestMissingReferencesAreErrorsThatTell(t *testing.T) {
	for env, want := range map[string]string{
		`env: [{name: A, valueFrom: {configMapKeyRef: {name: none, key: k}}}]`: `configmaps "none" not found`,
		`env: [{name: A, valueFrom: {configMapKeyRef: {name: cm, key: x}}}]`:   "couldn't find key x in ConfigMap ns/cm",
		`env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: x}}}]`:       "couldn't find key x in Secret ns/s",
		`envFrom: [{secretRef: {name: none}}]`:                                 `secrets "none" not found`,
		`env: [{name: A, valueFrom: {fieldRef: {fieldPath: spec.x}}}]`:         "unsupported fieldPath: spec.x",
	} {
		_, err := Container(input(t, `{containers: [{name: c, `+env+`}]}`))
		if err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", env, err, want)
		}
	}
}

func TestResolverSettingsThatPodsCannotHaveAreTold(t *testing.T) {
	domains := func(n, length int) string {
		return "search" + strings.Repeat(" "+strings.Repeat("a", length), n) + "\n"
	}
	for _, tc := range []struct{ content, domain, want string }{
		{domains(29, 5), "cluster.local", ""},
		{domains(30, 5), "cluster.local", "Resolv.conf file '/r' contains search line consisting of more than 29 domains!"},
		{domains(32, 5), "", ""},
		{domains(33, 5), "", "Resolv.conf file '/r' contains search line consisting of more than 32 domains!"},
		{domains(29, 80), "cluster.local", "Resolv.conf file '/r' contains search line which length is more than allowed 2048 chars!"},
	} {
		if got := ResolvUnfit("/r", tc.domain, func(string) ([]byte, error) { return []byte(tc.content), nil }); got != tc.want {
			t.Errorf("%q: got %q, want %q", tc.content, got, tc.want)
		}
	}
	if got := ResolvUnfit("/none", "", os.ReadFile); got != "open /none: no such file or directory" {
		t.Errorf("without a file: got %q", got)
	}
}

func TestDNSFollowsThePolicy(t *testing.T) {
	trace.Proves(t, "COMP-030")
	cases := []struct{ spec, want, note string }{
		{`{}`, "10.96.0.10 | ns.svc.cluster.local svc.cluster.local cluster.local example.org | ndots:5", ""},
		{`{dnsPolicy: Default}`, "9.9.9.9 | example.org cluster.local | edns0", ""},
		{`{hostNetwork: true, dnsPolicy: ClusterFirst}`, "9.9.9.9 | example.org cluster.local | edns0", ""},
		{`{hostNetwork: true, dnsPolicy: ClusterFirstWithHostNet}`, "10.96.0.10 | ns.svc.cluster.local svc.cluster.local cluster.local example.org | ndots:5", ""},
		{`{dnsPolicy: None, dnsConfig: {nameservers: [1.1.1.1], searches: [a.b], options: [{name: ndots, value: "2"}, {name: edns0}]}}`, "1.1.1.1 | a.b | ndots:2 edns0", ""},
		{`{dnsConfig: {nameservers: [10.96.0.10, 1.1.1.1], options: [{name: ndots, value: "1"}]}}`, "10.96.0.10 1.1.1.1 | ns.svc.cluster.local svc.cluster.local cluster.local example.org | ndots:1", ""},
		{`{dnsPolicy: None, dnsConfig: {nameservers: [1.1.1.1, 1.1.1.2, 1.1.1.3, 1.1.1.4]}}`, "1.1.1.1 1.1.1.2 1.1.1.3 |  | ",
			"DNSConfigForming Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: 1.1.1.1 1.1.1.2 1.1.1.3"},
		{`{dnsPolicy: None, dnsConfig: {nameservers: [1.1.1.1], searches: [a.b, ` + strings.Repeat("a.", 127) + `b, c.d]}}`, "1.1.1.1 | a.b c.d | ",
			"DNSConfigForming Search Line limits were exceeded, some search paths have been omitted, the applied search line is: a.b c.d"},
	}
	for _, tc := range cases {
		c, notes := DNS(podOf(t, tc.spec), testNode)
		got := strings.Join(c.Servers, " ") + " | " + strings.Join(c.Searches, " ") + " | " + strings.Join(c.Options, " ")
		note := ""
		for _, n := range notes {
			note += n.Reason + " " + n.Message
		}
		if got != tc.want || note != tc.note {
			t.Errorf("%s: got %q %q, want %q %q", tc.spec, got, note, tc.want, tc.note)
		}
	}
	alone := *testNode
	alone.ClusterDNS = nil
	if c, notes := DNS(podOf(t, `{}`), &alone); len(notes) != 1 || notes[0].Reason != "MissingClusterDNS" || c.Servers[0] != "9.9.9.9" {
		t.Errorf("without cluster DNS: got %v, %v", c, notes)
	}
	if got := ParseResolv("# x\nnameserver 1.1.1.1\ndomain a\nsearch b. c\noptions ndots:3 rotate\n"); fmt.Sprint(got) != "{[1.1.1.1] [b c] [ndots:3 rotate]}" {
		t.Errorf("ParseResolv: got %v", got)
	}
}

func TestHostnameAndHostsFile(t *testing.T) {
	trace.Proves(t, "ENV-004", "POD-018")
	cases := []struct{ spec, name, line string }{
		{`{}`, "web", "10.1.2.3\tweb\n"},
		{`{hostname: h, hostnameOverride: ""}`, "h", "10.1.2.3\th\n"}, // as if it were not said
		{`{hostname: h, subdomain: sub, hostnameOverride: o.example}`, "o.example", "10.1.2.3\to.example\n"},
		{`{hostname: h, subdomain: sub}`, "h", "10.1.2.3\th.sub.ns.svc.cluster.local\th\n"},
		{`{subdomain: sub, setHostnameAsFQDN: true}`, "web.sub.ns.svc.cluster.local", "10.1.2.3\tweb.sub.ns.svc.cluster.local\tweb\n"},
		{`{hostname: ` + strings.Repeat("a", 62) + `-b}`, strings.Repeat("a", 62), "10.1.2.3\t" + strings.Repeat("a", 62) + "\n"},
	}
	for _, tc := range cases {
		pod := podOf(t, tc.spec)
		config, _, err := Sandbox(pod, testNode, 0)
		if err != nil || config.Hostname != tc.name {
			t.Errorf("%s: host name: got %v, %v, want %s", tc.spec, config.GetHostname(), err, tc.name)
		}
		if got := HostsFile(pod, testNode, []string{"10.1.2.3"}); !strings.HasPrefix(got, "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n") || !strings.HasSuffix(got, tc.line) {
			t.Errorf("%s: hosts file: got %q", tc.spec, got)
		}
	}
	long := podOf(t, `{subdomain: `+strings.Repeat("s", 60)+`, setHostnameAsFQDN: true}`)
	if _, _, err := Sandbox(long, testNode, 0); err == nil || !strings.Contains(err.Error(), "(64 characters is the max, 85 characters requested)") {
		t.Errorf("long FQDN: got %v", err)
	}
	host := podOf(t, `{hostNetwork: true, hostAliases: [{ip: 1.2.3.4, hostnames: [a, b]}]}`)
	if got := HostsFile(host, testNode, nil); got != "# Kubernetes-managed hosts file (host network).\n127.0.0.1 localhost\n\n# Entries added by HostAliases.\n1.2.3.4\ta\tb\n" {
		t.Errorf("in the host's network: got %q", got)
	}
}

func TestSandboxSharesWhatThePodAsksFor(t *testing.T) {
	mode := func(spec string) string {
		c, _, err := Sandbox(podOf(t, spec), testNode, 2)
		if err != nil {
			t.Fatal(err)
		}
		n := c.Linux.SecurityContext.NamespaceOptions
		return fmt.Sprintf("%s %s %s", n.Network, n.Pid, n.Ipc)
	}
	trace.Proves(t, "POD-003", "POD-005", "WHAT-020")
	if got := mode(`{}`); got != "POD CONTAINER POD" {
		t.Errorf("a plain pod: got %s, want network and IPC of the pod, processes of each container", got)
	}
	trace.Proves(t, "EPH-012")
	if got := mode(`{shareProcessNamespace: true}`); got != "POD POD POD" {
		t.Errorf("a pod that shares processes: got %s", got)
	}
	if got := mode(`{hostNetwork: true, hostPID: true, hostIPC: true}`); got != "NODE NODE NODE" {
		t.Errorf("a pod with all of the node: got %s", got)
	}
	c, _, err := Sandbox(podOf(t, `{securityContext: {sysctls: [{name: a.b, value: "1"}, {name: c/d.e, value: "2"}]}, containers: [{name: c, ports: [{containerPort: 80, hostPort: 8080, protocol: UDP}]}]}`), testNode, 2)
	if err != nil {
		t.Fatal(err)
	}
	if c.Metadata.Attempt != 2 || c.LogDirectory != "/var/log/pods/ns_web_u1" || c.Linux.CgroupParent != "/kemudi/kubepods/besteffort/podu1" ||
		c.Labels["io.kubernetes.pod.uid"] != "u1" || c.Labels["b"] != "2" || c.Annotations["note"] != "hi" || c.Linux.Sysctls["a.b"] != "1" || c.Linux.Sysctls["c.d/e"] != "2" || c.PortMappings[0].HostPort != 8080 {
		t.Errorf("sandbox: got %+v", c)
	}
	(*Users)(nil).Sandbox(c)
	if got := c.Linux.SecurityContext.NamespaceOptions.UsernsOptions; got != nil {
		t.Errorf("a pod with the node's users: got %+v", got)
	}
	own := &Users{First: 131072, Count: 65536}
	own.Sandbox(c)
	one := &runtimeapi.ContainerConfig{
		Linux:  &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{NamespaceOptions: &runtimeapi.NamespaceOption{}}},
		Mounts: []*runtimeapi.Mount{{HostPath: "/a", ContainerPath: "/b"}},
	}
	own.Container(one)
	want := "[host_id:131072 length:65536]"
	for what, got := range map[string][]*runtimeapi.IDMapping{
		"users of the sandbox":    c.Linux.SecurityContext.NamespaceOptions.UsernsOptions.GetUids(),
		"groups of the sandbox":   c.Linux.SecurityContext.NamespaceOptions.UsernsOptions.GetGids(),
		"users of the container":  one.Linux.SecurityContext.NamespaceOptions.UsernsOptions.GetUids(),
		"groups of the container": one.Linux.SecurityContext.NamespaceOptions.UsernsOptions.GetGids(),
		"users of a mount":        one.Mounts[0].UidMappings,
		"groups of a mount":       one.Mounts[0].GidMappings,
	} {
		if len(got) != 1 || got[0].HostId != 131072 || got[0].ContainerId != 0 || got[0].Length != 65536 {
			t.Errorf("%s: got %v, want %s", what, got, want)
		}
	}
}

func TestPodsHaveTheNodesSysctlsInTheirOwnNamespaces(t *testing.T) {
	n := *testNode
	n.Sysctls = map[string]string{"kernel.sem": "1", "net/core/somaxconn": "2", "kernel.domainname": "3", "user.max_net_namespaces": "4"}
	for spec, want := range map[string]string{
		`{}`:                  "map[kernel.domainname:3 kernel.sem:1 net.core.somaxconn:2]",
		`{hostIPC: true}`:     "map[kernel.domainname:3 net.core.somaxconn:2]",
		`{hostNetwork: true}`: "map[kernel.sem:1]",
		`{hostUsers: false}`:  "map[kernel.domainname:3 kernel.sem:1 net.core.somaxconn:2 user.max_net_namespaces:4]",
		`{securityContext: {sysctls: [{name: net.core.somaxconn, value: "9"}]}}`: "map[kernel.domainname:3 kernel.sem:1 net.core.somaxconn:9]",
	} {
		c, _, err := Sandbox(podOf(t, spec), &n, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(c.Linux.Sysctls); got != want {
			t.Errorf("%s: got %s, want %s", spec, got, want)
		}
	}
}

func TestSandboxIsPrivilegedWhenAContainerIs(t *testing.T) {
	for spec, want := range map[string]bool{
		`{containers: [{name: c}]}`:                                                                                           false,
		`{containers: [{name: c, securityContext: {privileged: false}}]}`:                                                     false,
		`{containers: [{name: c}, {name: d, securityContext: {privileged: true}}]}`:                                           true,
		`{initContainers: [{name: i, securityContext: {privileged: true}}], containers: [{name: c}]}`:                         true,
		`{containers: [{name: c}], ephemeralContainers: [{name: debugger, securityContext: {privileged: true}, image: any}]}`: true,
	} {
		c, _, err := Sandbox(podOf(t, spec), testNode, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Linux.SecurityContext.Privileged; got != want {
			t.Errorf("%s: got %v, want %v", spec, got, want)
		}
	}
}

func TestResourcesBecomeLimitsOfTheKernel(t *testing.T) {
	trace.Proves(t, "WHAT-021")
	cases := []struct{ spec, want, pod string }{
		{`{}`, "shares=2 quota=0 memory=0 oom=1000", "shares=2 quota=0 memory=0"},
		{`{requests: {cpu: 500m, memory: 4Gi}}`, "shares=512 quota=0 memory=0 oom=500", "shares=512 quota=0 memory=0"},
		{`{limits: {cpu: 5m, memory: 1Gi}, requests: {cpu: 1m, memory: 1Gi}}`, "shares=2 quota=1000 memory=1073741824 oom=875", "shares=2 quota=1000 memory=1073741824"},
		{`{limits: {cpu: 2, memory: 1Gi}, requests: {cpu: 2, memory: 1Gi}}`, "shares=2048 quota=200000 memory=1073741824 oom=-997", "shares=2048 quota=200000 memory=1073741824"},
		{`{requests: {memory: 8Gi}}`, "shares=2 quota=0 memory=0 oom=3", "shares=2 quota=0 memory=0"},
		{`{requests: {cpu: 10m}}`, "shares=10 quota=0 memory=0 oom=999", "shares=10 quota=0 memory=0"},
	}
	for _, tc := range cases {
		pod := podOf(t, `{containers: [{name: c, resources: `+tc.spec+`}]}`)
		r, p := Resources(pod, &pod.Spec.Containers[0], testNode), PodCgroup(pod, testNode)
		got := fmt.Sprintf("shares=%d quota=%d memory=%d oom=%d", r.CpuShares, r.CpuQuota, r.MemoryLimitInBytes, r.OomScoreAdj)
		gotPod := fmt.Sprintf("shares=%d quota=%d memory=%d", p.CpuShares, p.CpuQuota, p.MemoryLimitInBytes)
		if got != tc.want || gotPod != tc.pod {
			t.Errorf("%s: got %s, pod %s, want %s, pod %s", tc.spec, got, gotPod, tc.want, tc.pod)
		}
	}
	first := podOf(t, `{initContainers: [{name: i, resources: {limits: {cpu: 3, memory: 2Gi}}}], containers: [{name: a, resources: {limits: {cpu: 1, memory: 1Gi}}}, {name: b, resources: {limits: {cpu: 1, memory: 512Mi}}}]}`)
	trace.Proves(t, "INIT-041")
	if p := PodCgroup(first, testNode); p.CpuShares != 3072 || p.CpuQuota != 300000 || p.MemoryLimitInBytes != 2<<30 {
		t.Errorf("pod whose init container asks for more than the others together: got %v, want what that one asks for", p)
	}
	whole, huge := podOf(t, `{resources: {limits: {hugepages-2Mi: 8Mi}}, containers: [{name: a, resources: {limits: {hugepages-2Mi: 2Mi}}}, {name: b}]}`), *testNode
	huge.HugePageSizes = []string{"2Mi"}
	for i, want := range []uint64{2 << 20, 8 << 20} { // what a container may have that asks for none itself
		if got := Resources(whole, &whole.Spec.Containers[i], &huge).HugepageLimits; len(got) != 1 || got[0].PageSize != "2MB" || got[0].Limit != want {
			t.Errorf("huge pages of container %d: got %v, want %d", i, got, want)
		}
	}
	half := podOf(t, `{containers: [{name: a, resources: {limits: {cpu: 1, memory: 1Gi}}}, {name: b}]}`)
	if p := PodCgroup(half, testNode); p.CpuQuota != 0 || p.MemoryLimitInBytes != 0 {
		t.Errorf("pod with an unlimited container: got %v, want no limits", p)
	}
	v2 := *testNode
	v2.CgroupV2 = true
	for _, c := range half.Spec.Containers { // with and without a limit of memory
		v2.LimitSwap = false
		if got, want := Resources(half, &c, &v2).Unified, (map[string]string{"memory.oom.group": "1"}); !maps.Equal(got, want) {
			t.Errorf("%s, version 2 on a kernel that does not account for swap: got %v, want %v", c.Name, got, want)
		}
		v2.LimitSwap = true
		if got, want := Resources(half, &c, &v2).Unified, (map[string]string{"memory.oom.group": "1", "memory.swap.max": "0"}); !maps.Equal(got, want) {
			t.Errorf("%s, version 2: got %v, want %v", c.Name, got, want)
		}
	}
}

func TestLimitsAreAsTheOperatorOfTheNodeWantsThem(t *testing.T) {
	pod := podOf(t, `{containers: [{name: c, resources: {limits: {cpu: 500m, memory: 1Gi}}}]}`)
	for _, tc := range []struct {
		set  func(*Node)
		want string
	}{
		{func(*Node) {}, "quota=50000 of 100000, memory=1073741824"},
		{func(n *Node) { n.NoCPULimits = true }, "quota=0 of 100000, memory=1073741824"},
		{func(n *Node) { n.CPUPeriod = 20 * time.Millisecond }, "quota=10000 of 20000, memory=1073741824"},
		{func(n *Node) { n.CgroupV2 = true }, "quota=50000 of 100000, memory=1073741824, memory.oom.group=1"},
		{func(n *Node) { n.CgroupV2, n.OneProcess = true, true }, "quota=50000 of 100000, memory=1073741824"},
	} {
		n := *testNode
		tc.set(&n)
		for _, r := range []*runtimeapi.LinuxContainerResources{Resources(pod, &pod.Spec.Containers[0], &n), PodCgroup(pod, &n)} {
			got := fmt.Sprintf("quota=%d of %d, memory=%d", r.CpuQuota, r.CpuPeriod, r.MemoryLimitInBytes)
			want := tc.want
			for _, name := range slices.Sorted(maps.Keys(r.Unified)) {
				got += ", " + name + "=" + r.Unified[name]
			}
			if r.Unified == nil { // of the pod as a whole
				want, _, _ = strings.Cut(want, ", memory.oom")
			}
			if got != want {
				t.Errorf("%+v: got %s, want %s", n, got, want)
			}
		}
	}
}

func TestMemoryIsKeptAndThrottledByClass(t *testing.T) {
	page := int64(os.Getpagesize())
	high := func(n float64) string { return strconv.FormatInt(int64(n)/page*page, 10) }
	const mi = 1 << 20
	for name, c := range map[string]struct {
		spec           string
		container, pod map[string]string
	}{
		"guaranteed": {`{containers: [{name: c, resources: {limits: {cpu: 1, memory: 100Mi}}}]}`, map[string]string{"memory.min": "104857600"}, map[string]string{"memory.min": "104857600"}},
		"burstable with a limit": {`{containers: [{name: c, resources: {requests: {memory: 100Mi}, limits: {memory: 200Mi}}}]}`,
			map[string]string{"memory.low": "104857600", "memory.high": high(190 * mi)}, map[string]string{"memory.low": "104857600"}},
		"burstable without one": {`{containers: [{name: c, resources: {requests: {memory: 100Mi}}}]}`,
			map[string]string{"memory.low": "104857600", "memory.high": high(100*mi + 0.9*(1000-100)*mi)}, map[string]string{"memory.low": "104857600"}},
		"best effort": {`{containers: [{name: c}]}`, map[string]string{}, map[string]string{}},
		"limits of the pod": {`{resources: {requests: {memory: 100Mi}, limits: {memory: 300Mi}}, containers: [{name: c}]}`,
			map[string]string{"memory.high": high(270 * mi)}, map[string]string{"memory.low": "104857600", "memory.high": high(280 * mi)}},
	} {
		n := *testNode
		n.CgroupV2, n.OneProcess, n.Memory = true, true, MemoryQoS{Throttle: 0.9, Tiered: true}
		n.Allocatable = v1.ResourceList{v1.ResourceMemory: resource.MustParse("1000Mi")}
		pod := podOf(t, c.spec)
		core.Pods.Default(pod)
		if got := Resources(pod, &pod.Spec.Containers[0], &n).Unified; !maps.Equal(got, c.container) {
			t.Errorf("%s: the container has %v, want %v", name, got, c.container)
		}
		if got := PodCgroup(pod, &n).Unified; !maps.Equal(got, c.pod) {
			t.Errorf("%s: the pod has %v, want %v", name, got, c.pod)
		}
		n.CgroupV2 = false
		if got := Resources(pod, &pod.Spec.Containers[0], &n).Unified; got != nil {
			t.Errorf("%s under version 1: got %v", name, got)
		}
	}
}

func TestSwapIsSharedAsMemoryIs(t *testing.T) {
	n := *testNode // which has 8Gi
	n.CgroupV2, n.LimitSwap, n.Swap = true, true, 4<<30
	trace.Proves(t, "KEP-2400")
	for spec, want := range map[string]string{
		`{containers: [{name: c, resources: {requests: {memory: 2Gi}}}]}`:                        "1073741824",
		`{containers: [{name: c, resources: {requests: {memory: 1Gi}, limits: {memory: 2Gi}}}]}`: "536870912",
		`{containers: [{name: c, resources: {requests: {memory: 2Gi}, limits: {memory: 2Gi}}}]}`: "0",
		`{containers: [{name: c, resources: {requests: {cpu: 1}}}]}`:                             "0",
		`{containers: [{name: c}]}`: "0",
		`{containers: [{name: c, resources: {requests: {cpu: 1, memory: 2Gi}, limits: {cpu: 1, memory: 2Gi}}}]}`: "0",
		`{priority: 2000000000, containers: [{name: c, resources: {requests: {memory: 2Gi}}}]}`:                  "0",
	} {
		pod := podOf(t, spec)
		if got := Resources(pod, &pod.Spec.Containers[0], &n).Unified["memory.swap.max"]; got != want {
			t.Errorf("%s: got %s, want %s", spec, got, want)
		}
	}
}

func TestSecurityContextsAreMerged(t *testing.T) {
	for _, c := range []struct{ spec, proves string }{
		{`{containers: [{name: c, securityContext: {runAsUser: 1001, runAsGroup: 2002}}]}`, "C-325"},
		{`{securityContext: {runAsUser: 1001, runAsGroup: 2002}, containers: [{name: c}]}`, "C-326"},
	} {
		one, err := Container(input(t, c.spec))
		if err != nil {
			t.Fatal(err)
		}
		trace.Proves(t, c.proves)
		if sc := one.Linux.SecurityContext; sc.RunAsUser.GetValue() != 1001 || sc.RunAsGroup.GetValue() != 2002 {
			t.Errorf("%s: got user %v and group %v", c.spec, sc.RunAsUser, sc.RunAsGroup)
		}
	}
	in := input(t, `
securityContext: {runAsUser: 1000, runAsGroup: 2000, fsGroup: 3000, supplementalGroups: [4000], seccompProfile: {type: RuntimeDefault}, supplementalGroupsPolicy: Strict}
containers:
- name: c
  securityContext:
    runAsUser: 1001
    readOnlyRootFilesystem: true
    allowPrivilegeEscalation: false
    capabilities: {add: [NET_ADMIN], drop: [ALL]}
    procMount: Unmasked
    seccompProfile: {type: Localhost, localhostProfile: p.json}
`)
	c, err := Container(in)
	if err != nil {
		t.Fatal(err)
	}
	sc := c.Linux.SecurityContext
	if sc.RunAsUser.Value != 1001 || sc.RunAsGroup.Value != 2000 || !slices.Equal(sc.SupplementalGroups, []int64{4000, 3000}) || !sc.ReadonlyRootfs || !sc.NoNewPrivs ||
		sc.Capabilities.AddCapabilities[0] != "NET_ADMIN" || sc.Capabilities.DropCapabilities[0] != "ALL" || len(sc.MaskedPaths) != 0 ||
		sc.Seccomp.LocalhostRef != "/seccomp/p.json" || sc.SupplementalGroupsPolicy != runtimeapi.SupplementalGroupsPolicy_Strict {
		t.Errorf("got %+v", sc)
	}
	plain, err := Container(input(t, `{containers: [{name: c}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if sc := plain.Linux.SecurityContext; sc.Seccomp.ProfileType != runtimeapi.SecurityProfile_Unconfined || sc.NoNewPrivs || sc.RunAsUser != nil || len(sc.MaskedPaths) == 0 {
		t.Errorf("defaults: got %+v", sc)
	}
	confining := *testNode
	confining.SeccompDefault, confining.Masked = true, []string{"/sys/devices/system/cpu/cpu0/thermal_throttle"}
	trace.Proves(t, "KEP-2413")
	for spec, want := range map[string]runtimeapi.SecurityProfile_ProfileType{
		`{containers: [{name: c}]}`: runtimeapi.SecurityProfile_RuntimeDefault,
		`{containers: [{name: c, securityContext: {seccompProfile: {type: Unconfined}}}]}`: runtimeapi.SecurityProfile_Unconfined,
	} {
		in := input(t, spec)
		in.Node = &confining
		if c, err := Container(in); err != nil || c.Linux.SecurityContext.Seccomp.ProfileType != want || !slices.Contains(c.Linux.SecurityContext.MaskedPaths, confining.Masked[0]) {
			t.Errorf("%s, where there is a default, and something to mask: got %+v, %v, want %s", spec, c, err, want)
		}
	}
}

func TestSandboxesHaveTheSeccompProfileOfTheNode(t *testing.T) {
	pod := podOf(t, `{containers: [{name: c}]}`)
	if sc := sandboxLinux(pod, testNode).SecurityContext; sc.Seccomp.ProfileType != runtimeapi.SecurityProfile_RuntimeDefault {
		t.Errorf("node without one: got %v, want the runtime's default", sc.Seccomp)
	}
	own := *testNode
	own.SandboxSeccomp = "/data/sandbox.json"
	if sc := sandboxLinux(pod, &own).SecurityContext; sc.Seccomp.ProfileType != runtimeapi.SecurityProfile_Localhost || sc.Seccomp.LocalhostRef != "/data/sandbox.json" {
		t.Errorf("node with one: got %v, want /data/sandbox.json", sc.Seccomp)
	}
}

func TestRootIsRefusedWhereThePodMustNotRunAsRoot(t *testing.T) {
	uid := func(n int64) *int64 { return &n }
	who := ` (pod: "web_ns(u1)", container: c)`
	cases := []struct {
		spec  string
		image ImageUser
		want  string
	}{
		{`{runAsUser: 0}`, ImageUser{}, "container's runAsUser breaks non-root policy" + who},
		{`{runAsUser: 1}`, ImageUser{UID: uid(0)}, ""},
		{`{}`, ImageUser{UID: uid(0)}, "container has runAsNonRoot and image will run as root" + who},
		{`{}`, ImageUser{UID: uid(65534)}, ""},
		{`{}`, ImageUser{Name: "nobody"}, "container has runAsNonRoot and image has non-numeric user (nobody), cannot verify user is non-root" + who},
		{`{}`, ImageUser{}, "container has runAsNonRoot and image will run as root" + who},
	}
	for _, tc := range cases {
		in := input(t, `{securityContext: {runAsNonRoot: true}, containers: [{name: c, securityContext: `+tc.spec+`}]}`)
		in.ImageUser = tc.image
		_, err := Container(in)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || err.Error() != tc.want) {
			t.Errorf("%s %+v: got %v, want %q", tc.spec, tc.image, err, tc.want)
		}
	}
}

func TestContainerIsRecognizedByALaterProcess(t *testing.T) {
	in := input(t, `{terminationGracePeriodSeconds: 7, enableServiceLinks: false, containers: [{name: c, image: i, command: ["$(A)"], args: ["$$(A)", "$(B)"], env: [{name: A, value: x}],
		terminationMessagePath: /msg, terminationMessagePolicy: FallbackToLogsOnError, resources: {limits: {cpu: 1}}, ports: [{name: p, containerPort: 80}],
		lifecycle: {preStop: {exec: {command: [bye]}}}}]}`)
	in.Start = podstep.Action{Attempt: 3, Backoff: 40e9}
	c, err := Container(in)
	if err != nil {
		t.Fatal(err)
	}
	trace.Proves(t, "C-332")
	if c.LogPath != "c/3.log" || c.Command[0] != "x" || !slices.Equal(c.Args, []string{"$(A)", "$(B)"}) {
		t.Errorf("config: got %+v", c)
	}
	st := &runtimeapi.ContainerStatus{Id: "id", Metadata: c.Metadata, State: runtimeapi.ContainerState_CONTAINER_EXITED, Labels: c.Labels, Annotations: c.Annotations, ExitCode: 5}
	got := ObservedContainer(st, "sb")
	if got.Name != "c" || got.Attempt != 3 || got.Backoff != 40e9 || got.Hash != podstep.Hash(in.Container) || got.State != podstep.Exited || got.SandboxID != "sb" || got.Resources.Limits.Cpu().Value() != 1 {
		t.Errorf("observed: got %+v", got)
	}
	if path, fallback := TerminationMessage(st); path != "/msg" || !fallback {
		t.Errorf("termination message: got %s, %v", path, fallback)
	}
	if o := OrphanContainer(st); o.Lifecycle.PreStop.Exec.Command[0] != "bye" || o.Ports[0].Name != "p" {
		t.Errorf("orphan: got %+v", o)
	}
	if h := podstep.Hash(&v1.Container{Name: "c", Image: "i"}); h != "b54a579f" {
		t.Errorf("hash: got %s: it must never change, or an upgrade restarts every container", h)
	}
}

func TestContainerHasNotEndedBeforeItBegan(t *testing.T) {
	began := time.Unix(1_700_000_001, 0)
	for name, c := range map[string]struct{ finished, want time.Time }{
		"it runs":                                {time.Time{}, began},
		"it ended later":                         {began.Add(time.Second), began},
		"it ended before its start was recorded": {began.Add(-time.Second), began.Add(-time.Second)},
	} {
		s := &runtimeapi.ContainerStatus{StartedAt: began.UnixNano()}
		if !c.finished.IsZero() {
			s.FinishedAt = c.finished.UnixNano()
		}
		if got := ObservedContainer(s, "").StartedAt; !got.Equal(c.want) {
			t.Errorf("%s: got the start at %v, want %v", name, got, c.want)
		}
	}
}

func TestSubPathExpressionNeedsItsVariables(t *testing.T) {
	trace.Proves(t, "C-333")
	env := []*runtimeapi.KeyValue{{Key: "A", Value: []byte("x")}}
	if got, err := SubPath(&v1.VolumeMount{SubPathExpr: "$(A)/y"}, env); err != nil || got != "x/y" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := SubPath(&v1.VolumeMount{SubPathExpr: "$(B)"}, env); err == nil || err.Error() != `missing value for "B"` {
		t.Errorf("got %v", err)
	}
}

func TestAddressesOfAPodAreInTheOrderOfTheNodes(t *testing.T) {
	for node, want := range map[string]string{"192.0.2.1": "10.0.0.1 fd00::1", "2001:db8::1": "fd00::1 10.0.0.1"} {
		for _, reported := range []string{"10.0.0.1 fd00::1", "fd00::1 10.0.0.1"} {
			ips := strings.Fields(reported)
			SortIPs(ips, node)
			if got := strings.Join(ips, " "); got != want {
				t.Errorf("node %s, runtime says %s: got %s, want %s", node, reported, got, want)
			}
		}
	}
}

// Servers on the machine's own loopback link are no use to a pod.
func TestPodsGetAResolverThatTheyCanReach(t *testing.T) {
	const stub = "nameserver 127.0.0.53\noptions edns0 trust-ad\nsearch example.org\n"
	for _, tc := range []struct{ name, etc, behind, want, host string }{
		{"a plain file", "nameserver 192.0.2.53\nnameserver 127.0.0.1\n", "nameserver 9.9.9.9\n", "192.0.2.53 127.0.0.1", "192.0.2.53 127.0.0.1"},
		{"systemd-resolved", stub, "# by hand\nnameserver 192.0.2.53\nnameserver fe80::1%eth0\nsearch example.org\n", "192.0.2.53 fe80::1%eth0", "192.0.2.53 fe80::1%eth0"},
		{"systemd-resolved without a server", stub, "search .\n", "10.96.0.10", "127.0.0.53"},
		{"another local resolver", "nameserver ::1\nnameserver 127.0.0.1\nsearch example.org\n", "", "10.96.0.10", "::1 127.0.0.1"},
		{"no server at all", "search example.org\n", "nameserver 192.0.2.53\n", "", ""},
	} {
		n := &Node{ClusterDNS: []string{"10.96.0.10"}, HostDNS: HostResolv("/etc/resolv.conf", func(file string) ([]byte, error) {
			content := map[string]string{"/etc/resolv.conf": tc.etc, "/run/systemd/resolve/resolv.conf": tc.behind}[file]
			if content == "" {
				return nil, fs.ErrNotExist
			}
			return []byte(content), nil
		})}
		pod := &v1.Pod{Spec: v1.PodSpec{DNSPolicy: v1.DNSDefault}}
		if got, _ := DNS(pod, n); strings.Join(got.Servers, " ") != tc.want {
			t.Errorf("%s: got servers %v, want %s", tc.name, got.Servers, tc.want)
		}
		pod.Spec.HostNetwork = true
		if got, _ := DNS(pod, n); strings.Join(got.Servers, " ") != tc.host {
			t.Errorf("%s, in the host's network: got servers %v, want %s", tc.name, got.Servers, tc.host)
		}
	}
}
