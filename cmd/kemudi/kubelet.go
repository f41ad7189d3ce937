package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kemudi/kemudi/internal/cluster"
)

// Reasons that flags of node agents, and fields of their file, have.
const (
	ownCgroup     = "the pods of a node have a cgroup of their own, made directly"
	alwaysServes  = "the agent always serves"
	ownBounds     = "calls of the container runtime have bounds of their own"
	kernelStays   = "parameters of the kernel stay as they are"
	noFlexVolumes = "there are no flex volumes"
	oneRuntime    = "images are those of --container-runtime-endpoint"
	bothCgroups   = "both versions of cgroups do"
	diskLookedAt  = "what pods hold on disk is always looked at"
	networkSays   = "the network's own configuration says so"
	noChains      = "there are no such chains"
	pullsAtATime  = "--max-parallel-image-pulls says how many images are pulled at a time"
	scoreStays    = "the process keeps the score that it was started with"
	openFiles     = "as many files may be open as the machine allows"
	byControllers = "volumes of nodes are attached by controllers alone"
	lastKept      = "of each container the last one that has ended is kept"
	usageAsked    = "what containers use is read when somebody asks"
)

func newKubelet() *cobra.Command {
	o := cluster.KubeletDefaults()
	set := kubeletSettings{}
	return part{
		name: kubeletName, short: "Run a node agent alone, in the foreground",
		long: `Runs the pods of a node, by the built-in container runtime or by that of
--container-runtime-endpoint. Their network is configured by others, in --cni-conf-dir; service proxy and
DNS are others', too.`,
		example: `  kemudi kubelet --kubeconfig kubelet.conf --bootstrap-kubeconfig bootstrap-kubelet.conf --config config.yaml
  ln -s $(command -v kemudi) /usr/local/bin/kubelet`,
		flags:  func(f *pflag.FlagSet) { addKubeletPartFlags(f, &o, &set) },
		config: kubeletConfig(),
		idle: []idleFlag{
			featureGates,
			{name: "cgroup-driver", why: "cgroups of pods are made directly"},
			{name: "cgroup-root", why: "the pods of a node have a cgroup of their own"},
			{name: "runtime-cgroups", why: "programs stay in the cgroups that they were started in"},
			{name: "kubelet-cgroups", why: "programs stay in the cgroups that they were started in"},
			{name: "container-runtime", why: "it is reached by CRI alone"},
			{name: "network-plugin", why: "it is CNI, by the container runtime"},
			{name: "cni-bin-dir", why: "plugins are those that are built in, and those of /opt/cni/bin"},
			{name: "pod-infra-container-image", why: "the container runtime has its own"},
			{name: "fail-swap-on", why: "swap is left as it is", bool: true},
			{name: "cpu-manager-reconcile-period", why: actedOn},
			{name: "allow-privileged", why: "who may run privileged containers is for Pod Security to say", bool: true},
			{name: "sync-frequency", why: actedOn},
			{name: "file-check-frequency", why: actedOn},
			{name: "http-check-frequency", why: actedOn},
			{name: "volume-stats-agg-period", why: actedOn},
			{name: "kernel-memcg-notification", why: actedOn, bool: true},
			{name: "event-qps", why: byNumber},
			{name: "event-burst", why: byNumber},
			{name: "registry-qps", why: byNumber},
			{name: "registry-burst", why: byNumber},
			{name: "cgroups-per-qos", why: ownCgroup, bool: true},
			{name: "system-cgroups", why: "programs stay in the cgroups that they were started in"},
			{name: "enable-server", why: alwaysServes, bool: true},
			{name: "runtime-request-timeout", why: ownBounds},
			{name: "protect-kernel-defaults", why: kernelStays, bool: true},
			{name: "volume-plugin-dir", why: noFlexVolumes},
			{name: "image-service-endpoint", why: oneRuntime},
			{name: "fail-cgroupv1", why: bothCgroups, bool: true},
			{name: "local-storage-capacity-isolation", why: diskLookedAt, bool: true},
			{name: "hairpin-mode", why: networkSays},
			{name: "make-iptables-util-chains", why: noChains, bool: true},
			{name: "iptables-drop-bit", why: noChains},
			{name: "iptables-masquerade-bit", why: noChains},
			{name: "serialize-image-pulls", why: pullsAtATime, bool: true},
			{name: "oom-score-adj", why: scoreStays},
			{name: "max-open-files", why: openFiles},
			{name: "enable-controller-attach-detach", why: byControllers, bool: true},
			{name: "pod-cidr", why: networkSays},
			{name: "lock-file", why: "the directory of the agent has a lock of its own"},
			{name: "exit-on-lock-contention", why: "the directory of the agent has a lock of its own", bool: true},
			{name: "keep-terminated-pod-volumes", why: "volumes go when their pods have ended", bool: true},
			{name: "maximum-dead-containers", why: lastKept},
			{name: "maximum-dead-containers-per-container", why: lastKept},
			{name: "minimum-container-ttl-duration", why: lastKept},
			{name: "housekeeping-interval", why: usageAsked},
			{name: "global-housekeeping-interval", why: usageAsked},
			{name: "containerd", why: "it is --container-runtime-endpoint"},
			{name: "containerd-namespace", why: "it is --container-runtime-endpoint"},
		},
		shared: slices.Concat(clientIdle, portIdle),
		run: func(ctx context.Context, log *slog.Logger, step func(string, bool)) error {
			if err := set.check(); err != nil {
				return errUsage{err}
			}
			o.Logger, o.Step = log, step
			return cluster.RunKubelet(ctx, o)
		},
	}.command()
}

// kubeletSettings are what may be said in one way alone.
type kubeletSettings struct {
	anonymous bool
	webhook   bool
	mode      string
	readOnly  uint16
}

func (k *kubeletSettings) check() error {
	switch {
	case k.anonymous:
		return errors.New("--anonymous-auth: nobody gets at the node agent who does not show who they are")
	case !k.webhook:
		return errors.New("--authentication-token-webhook=false: tokens are always shown to the API server")
	case k.mode != "Webhook":
		return fmt.Errorf("--authorization-mode %s: the API server says who may do what: Webhook", k.mode)
	case k.readOnly != 0:
		return fmt.Errorf("--read-only-port %d: nothing is served without TLS; want 0", k.readOnly)
	}
	return nil
}

func addKubeletPartFlags(f *pflag.FlagSet, o *cluster.KubeletOptions, set *kubeletSettings) {
	f.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "file that says where the API is, and who the node is there")
	f.StringVar(&o.Bootstrap, "bootstrap-kubeconfig", o.Bootstrap, "kubeconfig by which the node gets a certificate, and --kubeconfig is made, where that is missing")
	f.StringVar(&o.CertDir, "cert-dir", o.CertDir, "directory of the certificates that the node gets")
	f.BoolVar(&o.Rotate, "rotate-certificates", o.Rotate, "renew the certificate that the node has got by --bootstrap-kubeconfig")
	f.BoolVar(&o.ServingRequested, "rotate-server-certificates", o.ServingRequested, "have the cluster sign the certificate that the agent serves with")
	f.StringVar(&o.ServingCert, "tls-cert-file", o.ServingCert, "certificate to serve with; default one that nobody has signed")
	f.StringVar(&o.ServingKey, "tls-private-key-file", o.ServingKey, "key of that certificate")
	o.Agent.TLS.AddFlags(f)
	f.StringVar(&o.ClientCA, "client-ca-file", o.ClientCA, "certificates of the authority that clients of the agent are known by")
	f.VarPF((*addrsFlag)(&o.ClusterDNS), "cluster-dns", "", "addresses of the DNS service, in the order in which pods ask")
	f.StringVar(&o.ClusterDomain, "cluster-domain", o.ClusterDomain, "DNS domain of the cluster")
	f.StringVar(&o.CNIConfDir, "cni-conf-dir", o.CNIConfDir, "directory of the configuration of the pods' network, for the built-in container runtime")
	f.StringVar(&o.CloudProvider, "cloud-provider", o.CloudProvider, "external, if a cloud is to say what the node is")
	f.Var((*addrFlag)(&o.HealthzAddress), "healthz-bind-address", "address to serve /healthz on")
	f.Uint16Var(&o.HealthzPort, "healthz-port", o.HealthzPort, "port to serve /healthz on; 0: it is not served")
	f.DurationVar(&o.Agent.StatusPeriod, "node-status-update-frequency", o.Agent.StatusPeriod, "how often the node's status is posted although nothing has changed; what has is posted at once")
	f.StringVar(&o.Agent.ProviderID, "provider-id", o.Agent.ProviderID, "who the node is in its cloud, for that to know; default the cloud says it")
	f.VarPF((*notFlag)(&o.NodeClosed), "register-schedulable", "", "take pods as soon as the node registers; if false, when somebody has uncordoned it").NoOptDefVal = "true"
	f.StringVar(&o.NodeName, "hostname-override", o.NodeName, "name of the node; default the host name")
	f.BoolVar(&set.anonymous, "anonymous-auth", false, "must be false: nobody gets at the agent who does not show who they are")
	f.BoolVar(&set.webhook, "authentication-token-webhook", true, "must be true: the API server says whose tokens are")
	f.StringVar(&set.mode, "authorization-mode", "Webhook", "who says who may do what; there is nothing else")
	f.Uint16Var(&set.readOnly, "read-only-port", 0, "must be 0: nothing is served without TLS")
	addNodeAgentFlags(f, &o.Machine)
	f.Lookup("root-dir").Usage = "directory of the volumes and other files of pods"
}

// kubeletConfig is the configuration file of node agents. What of it is a flag means the same.
func kubeletConfig() *configKind {
	flags := map[string]configField{
		"evictionHard": {flag: "eviction-hard", text: thresholds},
		"evictionSoft": {flag: "eviction-soft", text: thresholds},

		"shutdownGracePeriodByPodPriority": {flag: "shutdown-grace-period-by-pod-priority", text: shutdownGroups},
		"staticPodURLHeader":               {flag: "manifest-url-header", text: headerTexts},
		"registerWithTaints":               {flag: "register-with-taints", text: taintTexts},
		"reservedMemory":                   {flag: "reserved-memory", text: memoryTexts},
	}
	for path, flag := range map[string]string{
		"address": "address", "port": "port", "staticPodPath": "pod-manifest-path", "staticPodURL": "manifest-url", "tlsCertFile": "tls-cert-file", "tlsPrivateKeyFile": "tls-private-key-file",
		"serverTLSBootstrap": "rotate-server-certificates", "rotateCertificates": "rotate-certificates", "authentication.x509.clientCAFile": "client-ca-file",
		"healthzBindAddress": "healthz-bind-address", "clusterDomain": "cluster-domain", "clusterDNS": "cluster-dns", "resolvConf": "resolv-conf",
		"maxPods": "max-pods", "podsPerCore": "pods-per-core", "evictionPressureTransitionPeriod": "eviction-pressure-transition-period",
		"imageGCHighThresholdPercent": "image-gc-high-threshold", "imageGCLowThresholdPercent": "image-gc-low-threshold",
		"imageMinimumGCAge": "minimum-image-ttl-duration", "imageMaximumGCAge": "image-maximum-gc-age", "maxParallelImagePulls": "max-parallel-image-pulls",
		"kubeReserved": "kube-reserved", "systemReserved": "system-reserved", "enforceNodeAllocatable": "enforce-node-allocatable", "kubeReservedCgroup": "kube-reserved-cgroup",
		"systemReservedCgroup": "system-reserved-cgroup", "allowedUnsafeSysctls": "allowed-unsafe-sysctls",
		"containerLogMaxSize": "container-log-max-size", "containerLogMaxFiles": "container-log-max-files", "containerRuntimeEndpoint": "container-runtime-endpoint",
		"podLogsDir": "pod-logs-dir", "podPidsLimit": "pod-max-pids", "defaultPodSysctls": "default-pod-sysctls", "seccompDefault": "seccomp-default", "cpuCFSQuotaPeriod": "cpu-cfs-quota-period",
		"singleProcessOOMKill": "single-process-oom-kill", "crashLoopBackOff.maxContainerRestartPeriod": "max-container-restart-period",
		"evictionSoftGracePeriod":   "eviction-soft-grace-period",
		"evictionMaxPodGracePeriod": "eviction-max-pod-grace-period", "evictionMinimumReclaim": "eviction-minimum-reclaim",
		"shutdownGracePeriod":             "shutdown-grace-period",
		"shutdownGracePeriodCriticalPods": "shutdown-grace-period-critical-pods", "tlsMinVersion": "tls-min-version", "tlsCipherSuites": "tls-cipher-suites", "tlsCurvePreferences": "tls-curve-preferences", "memorySwap.swapBehavior": "memory-swap-behavior",
		"memoryThrottlingFactor": "memory-throttling-factor", "memoryReservationPolicy": "memory-reservation-policy", "qosReserved": "qos-reserved",
		"cpuManagerPolicy": "cpu-manager-policy", "cpuManagerPolicyOptions": "cpu-manager-policy-options", "reservedSystemCPUs": "reserved-cpus",
		"memoryManagerPolicy": "memory-manager-policy", "topologyManagerPolicy": "topology-manager-policy",
		"topologyManagerScope": "topology-manager-scope", "topologyManagerPolicyOptions": "topology-manager-policy-options",
		"nodeStatusMaxImages": "node-status-max-images", "providerID": "provider-id",
		"streamingConnectionIdleTimeout":         "streaming-connection-idle-timeout",
		"imagePullCredentialsVerificationPolicy": "image-pull-credentials-verification-policy",
		"preloadedImagesVerificationAllowlist":   "preloaded-images-verification-allowlist",
		// Of both the first one counts, which says it of a status that has not changed; by itself the second one does.
		"nodeStatusReportFrequency": "node-status-update-frequency", "nodeStatusUpdateFrequency": "node-status-update-frequency",
	} {
		flags[path] = configField{flag: flag}
	}
	for path, flag := range map[string]string{
		"healthzPort": "healthz-port", "readOnlyPort": "read-only-port", "enableSystemLogHandler": "enable-system-log-handler", "enableSystemLogQuery": "enable-system-log-query",
		"enableDebuggingHandlers": "enable-debugging-handlers", "enableProfilingHandler": "enable-profiling-handler", "enableDebugFlagsHandler": "enable-debug-flags-handler",
		"cpuCFSQuota": "cpu-cfs-quota", "registerNode": "register-node",
		"authentication.anonymous.enabled": "anonymous-auth", "authentication.webhook.enabled": "authentication-token-webhook",
	} {
		flags[path] = configField{flag: flag, zero: true}
	}
	flags["tracing"] = configField{flag: "node-tracing", zero: true} // without any field, too
	flags["authorization.mode"] = configField{flag: "authorization-mode"}
	return &configKind{
		apiVersion: "kubelet.config.k8s.io/v1beta1", kind: "KubeletConfiguration", dropIns: true, flags: flags, settle: mergeThresholds,
		only: map[string][]string{
			"contentType":              {"application/vnd.kubernetes.protobuf", "application/json"},
			"userNamespaces.idsPerPod": {"65536"}, "mergeDefaultEvictionSettings": {"true"},
		},
		idle: map[string]string{
			"logging": loggedElsewhere, "featureGates": featureGates.why,
			"syncFrequency": actedOn, "fileCheckFrequency": actedOn, "httpCheckFrequency": actedOn,
			"volumeStatsAggPeriod": actedOn, "cpuManagerReconcilePeriod": actedOn, "configMapAndSecretChangeDetectionStrategy": actedOn,
			"authentication.webhook.cacheTTL": remembered, "authorization.webhook": remembered,
			"eventRecordQPS": byNumber, "eventBurst": byNumber, "kubeAPIQPS": byNumber, "kubeAPIBurst": byNumber, "registryPullQPS": byNumber, "registryBurst": byNumber,
			"cgroupDriver": ownCgroup, "cgroupRoot": ownCgroup, "cgroupsPerQOS": ownCgroup, "kubeletCgroups": ownCgroup, "systemCgroups": ownCgroup,
			"enableContentionProfiling": notWaited, "enableServer": alwaysServes,
			"runtimeRequestTimeout": ownBounds,
			"protectKernelDefaults": kernelStays, "kernelMemcgNotification": actedOn, "containerLogMonitorInterval": actedOn, "containerLogMaxWorkers": actedOn,
			"volumePluginDir": noFlexVolumes, "imageServiceEndpoint": oneRuntime, "showHiddenMetricsForVersion": "nothing is hidden",
			"failCgroupV1": bothCgroups, "localStorageCapacityIsolation": diskLookedAt,
			"podCIDR":    networkSays,
			"failSwapOn": "swap is left as it is", "hairpinMode": networkSays,
			"makeIPTablesUtilChains": noChains, "iptablesDropBit": noChains, "iptablesMasqueradeBit": noChains,
			"serializeImagePulls": pullsAtATime, "oomScoreAdj": scoreStays,
			"nodeLeaseDurationSeconds": "a lease is good for 40 s", "maxOpenFiles": openFiles, "enableControllerAttachDetach": byControllers,
		},
	}
}
