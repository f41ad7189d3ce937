package main

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/internal/version"
)

// partFlags are the flags of a part after its command line.
func partFlags(t *testing.T, args ...string) (*cobra.Command, *pflag.FlagSet) {
	t.Helper()
	c, rest, err := newRoot().Find(args)
	if err == nil {
		err = c.ParseFlags(rest)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c, c.Flags()
}

const kubeletFile = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
maxPods: 50
clusterDNS: [10.96.0.10, "fd00::a"]
authentication: {anonymous: {enabled: false}, webhook: {cacheTTL: 0s, enabled: true}, x509: {clientCAFile: /pki/ca.crt}}
evictionHard: {memory.available: 100Mi, nodefs.available: 10%}
kubeReserved: {cpu: 100m}
registerWithTaints: [{key: a, value: b, effect: NoSchedule}, {key: c, effect: NoExecute}]
healthzPort: 0
rotateCertificates: true
containerLogMaxFiles: 7
cgroupDriver: systemd
logging: {verbosity: 2}
featureGates: {Some: true}
syncFrequency: 0s
nodeStatusReportFrequency: 3m
nodeStatusUpdateFrequency: 10s
shutdownGracePeriod: 0s
shutdownGracePeriodByPodPriority: [{priority: 1000, shutdownGracePeriodSeconds: 20}, {priority: 0, shutdownGracePeriodSeconds: 10}]
topologyManagerPolicy: ""
topologyManagerScope: pod
topologyManagerPolicyOptions: {prefer-closest-numa-nodes: "true"}
cpuManagerPolicy: static
cpuManagerPolicyOptions: {full-pcpus-only: "true", strict-cpu-reservation: "true"}
cpuManagerReconcilePeriod: 10s
reservedSystemCPUs: 0-1,8
memoryManagerPolicy: Static
reservedMemory: [{numaNode: 1, limits: {memory: 1Gi, hugepages-2Mi: 4Mi}}, {numaNode: 0, limits: {memory: 2Gi}}]
memorySwap: {swapBehavior: LimitedSwap}
podPidsLimit: 4096
tlsMinVersion: VersionTLS13
tlsCipherSuites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384]
evictionSoft: {memory.available: 1Gi}
evictionSoftGracePeriod: {memory.available: 1m30s}
evictionMaxPodGracePeriod: 60
evictionMinimumReclaim: {nodefs.available: 500Mi}
seccompDefault: true
cpuCFSQuota: false
crashLoopBackOff: {maxContainerRestartPeriod: 30s}
protectKernelDefaults: true
defaultPodSysctls: {net.core.somaxconn: "1024", net.ipv4.tcp_rmem: 4096 87380 6291456}
tracing: {samplingRatePerMillion: 100}
providerID: cloud://a/5
imagePullCredentialsVerificationPolicy: AlwaysVerify
`

func TestPartTakesItsConfigurationFile(t *testing.T) {
	_, f := partFlags(t, "kubelet", "--container-log-max-files=3")
	idle, err := kubeletConfig().apply(f, []byte(kubeletFile))
	if err != nil {
		t.Fatal(err)
	}
	for flag, want := range map[string]string{
		"max-pods": "50", "cluster-dns": "10.96.0.10,fd00::a", "client-ca-file": "/pki/ca.crt", "healthz-port": "0", "rotate-certificates": "true", "kube-reserved": "cpu=100m",
		"register-with-taints": "a=b:NoSchedule,c:NoExecute", "eviction-hard": "memory.available<100Mi,nodefs.available<10%",
		"container-log-max-files":      "3", // the command line goes before the file
		"cluster-domain":               "",
		"node-status-update-frequency": "3m0s",
		"pod-max-pids":                 "4096", "seccomp-default": "true", "cpu-cfs-quota": "false", "max-container-restart-period": "30s",
		"eviction-soft": "memory.available<1Gi", "eviction-soft-grace-period": "memory.available=1m30s", "eviction-max-pod-grace-period": "60", "eviction-minimum-reclaim": "nodefs.available=500Mi",
		"shutdown-grace-period-by-pod-priority": "1000=20s,0=10s",
		"tls-min-version":                       "VersionTLS13", "tls-cipher-suites": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "memory-swap-behavior": "LimitedSwap",
		"cpu-manager-policy": "static", "cpu-manager-policy-options": "[full-pcpus-only=true,strict-cpu-reservation=true]", "reserved-cpus": "0-1,8",
		"memory-manager-policy": "Static", "reserved-memory": "0:memory=2Gi,1:hugepages-2Mi=4Mi,memory=1Gi", "topology-manager-policy": "none", "topology-manager-scope": "pod",
		"topology-manager-policy-options": "[prefer-closest-numa-nodes=true]",
		"default-pod-sysctls":             "[net.core.somaxconn=1024,net.ipv4.tcp_rmem=4096 87380 6291456]",
		"node-tracing":                    "samplingRatePerMillion=100",
		"provider-id":                     "cloud://a/5", "image-pull-credentials-verification-policy": "AlwaysVerify",
	} {
		if got := f.Lookup(flag).Value.String(); got != want {
			t.Errorf("--%s: got %q, want %q", flag, got, want)
		}
	}
	_, other := partFlags(t, "kubelet")
	if _, err := kubeletConfig().apply(other, []byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nnodeStatusReportFrequency: 0s\nnodeStatusUpdateFrequency: 20s\n")); err != nil {
		t.Error(err)
	}
	if got := other.Lookup("node-status-update-frequency").Value.String(); got != "20s" {
		t.Errorf("--node-status-update-frequency of the other field: got %s, want 20s", got)
	}
	var fields []string
	for _, i := range idle {
		fields = append(fields, i.field)
	}
	if got, want := strings.Join(fields, " "), "cgroupDriver cpuManagerReconcilePeriod featureGates.Some logging.verbosity protectKernelDefaults"; got != want {
		t.Errorf("without effect: got %s, want %s", got, want)
	}
}

func TestPartsTakeTheFlagsOfUpstreamsScripts(t *testing.T) {
	text, err := os.ReadFile("testdata/upstreamflags.txt")
	if err != nil {
		t.Fatal(err)
	}
	var flags *pflag.FlagSet
	for line := range strings.Lines(string(text)) {
		word := strings.TrimSpace(line)
		switch {
		case word == "" || strings.HasPrefix(word, "#"):
		case line[0] != '\t':
			_, flags = partFlags(t, word)
		case flags.Lookup(word) == nil:
			t.Errorf("there is no --%s", word)
		}
	}
}

func TestFilesOfTheDirectoryGoBeforeTheConfigurationFile(t *testing.T) {
	dir := t.TempDir()
	const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	for name, text := range map[string]string{
		"base.yaml":      head + "maxPods: 10\nsystemReserved: {cpu: 1, memory: 1Gi}\nallowedUnsafeSysctls: [kernel.msgmax]\nclusterDomain: base\nevictionHard: {memory.available: 1Gi}",
		"d/20.conf":      head + "maxPods: 30\nsystemReserved: {cpu: 2}",
		"d/10.conf":      head + "maxPods: 20\nallowedUnsafeSysctls: [net.core.somaxconn]\nmergeDefaultEvictionSettings: true",
		"d/30.yaml":      head + "maxPods: 40",
		"d/deep/05.conf": head + "podPidsLimit: 77",
	} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755), os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	_, f := partFlags(t, "kubelet", "--config="+dir+"/base.yaml", "--config-dir="+dir+"/d")
	if err := (&part{config: kubeletConfig()}).settle(f, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	for flag, want := range map[string]string{
		"max-pods": "30", "system-reserved": "cpu=2,memory=1Gi", "allowed-unsafe-sysctls": "[net.core.somaxconn]", "cluster-domain": "base", "pod-max-pids": "77",
		"eviction-hard": "memory.available<1Gi,nodefs.available<5%,nodefs.inodesFree<5%,imagefs.available<5%,imagefs.inodesFree<5%",
	} {
		if got := f.Lookup(flag).Value.String(); got != want {
			t.Errorf("--%s: got %q, want %q", flag, got, want)
		}
	}
	_, f = partFlags(t, "kubelet", "--config-dir="+dir+"/none")
	if err := (&part{config: kubeletConfig()}).settle(f, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "--config-dir: ") {
		t.Errorf("a directory that is not there: got %v", err)
	}
}

func TestFieldsThatAreNotThereAreRefusedByTheirPaths(t *testing.T) {
	kubelet, proxy := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n", "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
	for _, c := range []struct{ part, file, want string }{
		{"kubelet", "kind: KubeProxyConfiguration", "want apiVersion: kubelet.config.k8s.io/v1beta1 and kind: KubeletConfiguration"},
		{"kubelet", kubelet + "authentication: {x509: {clientCA: a}}", "authentication.x509.clientCA: there is no such field here"},
		{"kubelet", kubelet + "staticPodURLHeader: {a: 1}", "staticPodURLHeader: want a list of values for each name"},
		{"kubelet", kubelet + "shutdownGracePeriodByPodPriority: [7]", "shutdownGracePeriodByPodPriority: [0]: want a map of priority and shutdownGracePeriodSeconds"},
		{"kubelet", kubelet + "reservedMemory: [7]", "reservedMemory: [0]: want a map of numaNode and limits"},
		{"kubelet", kubelet + "reservedMemory: [{numaNode: 0, limits: {cpu: 1}}]", "reservedMemory: invalid argument"},
		{"kubelet", kubelet + "maxPods: many", "maxPods: "},
		{"kubelet", kubelet + "evictionHard: 7", "evictionHard: want a map of signals to values"},
		{"kubelet", kubelet + "registerWithTaints: [a]", "registerWithTaints: [0]: want a map of key, value and effect"},
		{"kubelet", kubelet + "maxPods: 1\nmaxPods: 2", "already set"},
		{"kube-proxy", proxy + "detectLocalMode: BridgeInterface", "detectLocalMode: BridgeInterface: want ClusterCIDR, as there is nothing else here"},
		{"kube-proxy", proxy + "modus: nftables", "modus: there is no such field here"},
	} {
		_, f := partFlags(t, c.part)
		kind := kubeletConfig()
		if c.part == "kube-proxy" {
			kind = proxyConfig()
		}
		if _, err := kind.apply(f, []byte(c.file)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s with %s: got %v, want %s", c.part, c.file, err, c.want)
		}
	}
}

func TestProxyTakesItsConfigurationFile(t *testing.T) {
	_, f := partFlags(t, "kube-proxy")
	_, err := proxyConfig().apply(f, []byte(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
bindAddress: 0.0.0.0
clientConnection: {acceptContentTypes: "", burst: 0, kubeconfig: /conf, qps: 0}
clusterCIDR: 10.244.0.0/16
conntrack: {maxPerCore: null, min: null}
healthzBindAddress: "127.0.0.1"
metricsBindAddress: ":9999"
mode: ""
nodePortAddresses: null
winkernel: {enableDSR: false, networkName: "", sourceVip: ""}
`))
	if err != nil {
		t.Fatal(err)
	}
	for flag, want := range map[string]string{
		"kubeconfig": "/conf", "cluster-cidr": "10.244.0.0/16", "healthz-bind-address": "127.0.0.1:10256", "metrics-bind-address": "127.0.0.1:9999",
	} {
		if got := f.Lookup(flag).Value.String(); got != want {
			t.Errorf("--%s: got %q, want %q", flag, got, want)
		}
	}
}

func TestProgramIsThePartThatItIsCalled(t *testing.T) {
	t.Parallel()
	for _, name := range partNames() {
		for _, c := range []call{{name: "/usr/local/bin/" + name}, {}} {
			args := []string{"--help"}
			if c.name == "" {
				args = []string{name, "--help"}
			}
			r := c.run(t, args...)
			if r.code != 0 || !strings.Contains(r.stdout, "kemudi "+name+" [flags]") {
				t.Errorf("%s %v: got %+v", c.name, args, r)
			}
		}
	}
}

func TestPartsPrintTheirVersion(t *testing.T) {
	t.Parallel()
	want := "Kubernetes " + version.Git() + "\n"
	for _, name := range partNames() {
		if r := (call{name: "/usr/bin/" + name}).run(t, "--version"); r.code != 0 || r.stdout != want || r.stderr != "" {
			t.Errorf("%s --version: got %+v, want %q", name, r, want)
		}
	}
	trace.Proves(t, "IMG-029")
	if r := (call{name: kubeletName}).run(t, "--version=true"); r.code != 0 || r.stdout != want || r.stderr != "" {
		t.Errorf("kubelet --version=true: got %+v, want %q", r, want)
	}
	if r := (call{}).run(t, kubeletName, "--version=raw"); r.code != 0 || !strings.Contains(r.stdout, `GitVersion:"`+version.Git()+`"`) {
		t.Errorf("kubelet --version=raw: got %+v", r)
	}
	if r := (call{}).run(t, kubeletName, "--version=v1.2.3"); r.code != exitUsage || !strings.Contains(r.stderr, "want true, false or raw") {
		t.Errorf("kubelet --version=v1.2.3: got %+v", r)
	}
}

func TestPartsRefuseWhatIsWrong(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, []byte("apiVersion: v1\nkind: Config\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, want string }{
		{"kube-apiserver", "--etcd-servers: want the addresses"},
		{"kube-apiserver --etcd-servers https://127.0.0.1:1", "--service-account-signing-key-file: want the key"},
		{"kube-apiserver --etcd-servers https://127.0.0.1:1 --service-account-signing-endpoint @a --service-account-key-file a", "can't set --service-account-signing-key-file and/or --service-account-key-file with --service-account-signing-endpoint"},
		{"kube-apiserver --etcd-servers a --service-account-signing-key-file a --authorization-mode Nobody", `--authorization-mode: authorization-mode "Nobody" is not a valid mode`},
		{"kube-apiserver --etcd-servers a --service-account-signing-key-file a --etcd-servers-overrides a", "--etcd-servers-overrides invalid, must be of format: group/resource#servers"},
		{"kube-apiserver --etcd-servers a --service-account-signing-key-file a --etcd-servers-overrides /events#https://b,/pods#https://b", "--etcd-servers-overrides /pods: all resources but events are kept in one store"},
		{"kube-apiserver --etcd-servers a --service-account-signing-key-file a --emulated-version 1.20", "emulation version 1.20 is not between ["},
		{"kube-apiserver --etcd-servers a --service-account-signing-key-file a --emulation-forward-compatible", "cannot be set to true if the emulation version is the same as the binary version"},
		{"kube-apiserver --etcd-servers a --service-account-signing-key-file a --emulated-version 1.34 --feature-gates NodeDeclaredFeatures=true", "cannot set feature gate NodeDeclaredFeatures to true, feature is PreAlpha at emulated version 1.34"},
		{"kube-controller-manager --emulated-version wardle=1.2", "component not registered: wardle"},
		{"kube-scheduler --min-compatibility-version 1.20", "minCompatibilityVersion version 1.20 is not between ["},
		{"kube-apiserver --tls-min-version VersionTLS10", `unknown tls version "VersionTLS10": want VersionTLS12 or VersionTLS13`},
		{"kube-apiserver --default-not-ready-toleration-seconds -1", "-1: want 0 or more"},
		{"kube-apiserver --kubeconfig a", "unknown flag: --kubeconfig"},
		{"kube-controller-manager --kubeconfig " + file + " --cluster-signing-cert-file a", "--cluster-signing-cert-file and --cluster-signing-key-file go together"},
		{"kube-controller-manager --kubeconfig /nothing", "find the API (--kubeconfig)"},
		{"kube-controller-manager --allocate-node-cidrs", "--cluster-cidr, which is missing"},
		{"kube-controller-manager --controllers nothing", "--controllers: 'nothing' is not in the list"},
		{"kube-scheduler --config /nothing", "--config: open /nothing"},
		{"kube-scheduler --leader-elect-resource-name a,b", "want one name"},
		{"kube-scheduler --policy-config-file a", "unknown flag: --policy-config-file"},
		{"kubelet", "--kubeconfig: want the file"},
		{"kubelet --kubeconfig a --anonymous-auth", "--anonymous-auth: nobody gets at the node agent"},
		{"kubelet --kubeconfig a --read-only-port 10255", "--read-only-port 10255: nothing is served without TLS"},
		{"kubelet --kubeconfig a --cloud-provider gce", "--cloud-provider gce: want external"},
		{"kube-proxy --proxy-mode kernelspace", "--proxy-mode kernelspace: want nftables, iptables, ipvs, userspace"},
		{"kube-proxy --config " + file, "want apiVersion: kubeproxy.config.k8s.io/v1alpha1"},
		{"kube-proxy --kubeconfig /nothing", "find the API (--kubeconfig)"},
	} {
		words := strings.Fields(c.args)
		r := call{name: words[0]}.run(t, words[1:]...)
		if r.code == 0 || !strings.Contains(r.stderr, c.want) {
			t.Errorf("%s: got %+v, want %s", c.args, r, c.want)
		}
	}
}
