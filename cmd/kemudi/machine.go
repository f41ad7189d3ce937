package main

import (
	"net/netip"

	"github.com/spf13/pflag"

	"github.com/kemudi/kemudi/internal/cluster"
)

// addMachineFlags adds what servers and agents have in common.
func addMachineFlags(f *pflag.FlagSet, o *cluster.Machine) {
	addNodePortFlags(f, &o.NodePorts.Addresses, nodePorts{&o.NodePorts.Primary, &o.NodePorts.MasqueradeAll})
	f.Var((*addrPortFlag)(&o.NodePorts.Healthz), "proxy-healthz-bind-address", "where to serve /healthz of the service proxy, which balancers ask; port 0: nowhere")
	f.Var((*addrPortFlag)(&o.NodePorts.Status), "proxy-metrics-bind-address", "where to serve /metrics and /proxyMode of the service proxy; port 0: nowhere")
	f.Uint16Var(&o.Edge.HTTP, "ingress-http-port", o.Edge.HTTP, "port of this machine on which Ingresses are served, once there are some; 0: none")
	f.Uint16Var(&o.Edge.HTTPS, "ingress-https-port", o.Edge.HTTPS, "the same with TLS")
	f.Uint16Var(&o.Edge.Status, "ingress-status-port", o.Edge.Status, "port of 127.0.0.1 on which the process that serves Ingresses shows metrics and health; 0: none")
	f.StringSliceVar(&o.BGP, "load-balancer-bgp", o.BGP, "routers that are told by BGP which addresses of a balancer's pool lead to this machine: peer=ADDRESS[:PORT],peer-as=NUMBER,as=NUMBER, and if wanted hold-time=DURATION, 9s unless it is said, password-file=FILE, bfd=DURATION, bfd-multiplier=N, graceful-restart=DURATION, community=COMMUNITY, local-preference=N, and for=PREFIX before those of some routes; several peers one after the other")
	f.StringVar(&o.NodeName, "node-name", o.NodeName, "name of the node; default the host name")
	addNodeAgentFlags(f, o)
}

// nodePorts say how services are reached by the node's own addresses.
type nodePorts struct{ primary, masqueradeAll *bool }

// addNodePortFlags adds those of the service proxy.
func addNodePortFlags(f *pflag.FlagSet, addresses *[]netip.Prefix, n nodePorts) {
	f.Var(&nodePortsFlag{addresses, n.primary}, "nodeport-addresses", "addresses of the node that serve node ports: primary (its first of each family), localhost, all, or 127.0.0.0/8,192.0.2.7/32,...; default all")
	f.BoolVar(n.masqueradeAll, "masquerade-all", *n.masqueradeAll, "hide from pods who connects to them by a cluster IP")
}

// addNodeAgentFlags adds what a node agent has wherever it runs.
func addNodeAgentFlags(f *pflag.FlagSet, o *cluster.Machine) {
	f.StringVar(&o.DataDir, "data-dir", o.DataDir, "directory of the state of what runs here")
	f.StringVar(&o.RunDir, "run-dir", o.RunDir, "directory of sockets and process IDs; at most 40 characters")
	f.VarPF((*notFlag)(&o.NodeByHand), "register-node", "", "make the Node object; if false, people do").NoOptDefVal = "true"
	f.Var(&nodeIPFlag{&o.NodeIP, &o.SecondNodeIP}, "node-ip", "address of the node, or one of each family; default what it sends from to the world")
	f.StringToStringVar(&o.NodeLabels, "node-labels", o.NodeLabels, "labels of the node when it registers")
	f.Var((*taintsFlag)(&o.NodeTaints), "register-with-taints", "taints of the node when it registers: key=value:effect,...")
	f.IntVar(&o.Agent.MaxPods, "max-pods", o.Agent.MaxPods, "how many pods the node takes")
	f.IntVar(&o.Agent.PodsPerCore, "pods-per-core", o.Agent.PodsPerCore, "how many pods the node takes for each of its CPUs, if that are fewer; 0: as many as --max-pods")
	f.Var(&o.Agent.Tracing, "node-tracing", "where spans of what the node agent does go (OpenTelemetry), and of how many: endpoint=localhost:4317,samplingRatePerMillion=100; default nowhere")
	f.Var(&o.Agent.KubeReserved, "kube-reserved", "what the cluster's own programs need of the machine, and pods may not have: cpu=100m,memory=1Gi,ephemeral-storage=1Gi,pid=1000")
	f.Var(&o.Agent.SystemReserved, "system-reserved", "what everything else on the machine needs")
	f.StringSliceVar(&o.Agent.Enforce, "enforce-node-allocatable", o.Agent.Enforce, "what the kernel holds to all that: pods, which together get no more than is not reserved, system-reserved, kube-reserved; or none")
	f.StringVar(&o.Agent.KubeCgroup, "kube-reserved-cgroup", o.Agent.KubeCgroup, "cgroup of the cluster's own programs, which is held to --kube-reserved if that is enforced")
	f.StringVar(&o.Agent.SystemCgroup, "system-reserved-cgroup", o.Agent.SystemCgroup, "cgroup of everything else, which is held to --system-reserved if that is enforced")
	f.StringVar(&o.Agent.ManifestDir, "pod-manifest-path", o.Agent.ManifestDir, "directory with manifests of pods that run without the API")
	f.StringVar(&o.Agent.ManifestURL.Address, "manifest-url", o.Agent.ManifestURL.Address, "URL at which a manifest of a pod, or a list of them, is published, which runs without the API; it is asked every 20 s")
	f.Var(&o.Agent.ManifestURL.Header, "manifest-url-header", "headers of these questions, name:value,...; one with several values is given as often")
	f.StringSliceVar(&o.Agent.UnsafeSysctls, "allowed-unsafe-sysctls", o.Agent.UnsafeSysctls, "kernel parameters that pods may set beside the safe ones: names, or their beginnings with a *")
	f.Var(&o.Agent.LogMaxSize, "container-log-max-size", "how large a container's log grows before a new one is begun")
	f.IntVar(&o.Agent.LogMaxFiles, "container-log-max-files", o.Agent.LogMaxFiles, "how many files a container's log has at the most")
	f.DurationVar(&o.Agent.Shutdown.Period, "shutdown-grace-period", o.Agent.Shutdown.Period, "how long the machine's shutdown waits for pods to end, where systemd-logind tells of it; default it does not")
	f.DurationVar(&o.Agent.Shutdown.Critical, "shutdown-grace-period-critical-pods", o.Agent.Shutdown.Critical, "how much of that is for those that the cluster cannot do without, which end last")
	f.Var(&o.Agent.Shutdown.ByPriority, "shutdown-grace-period-by-pod-priority", "the same for pods from a priority on, in place of both")
	c := &o.Agent.Containers
	f.Int64Var(&c.Processes, "pod-max-pids", c.Processes, "how many processes and threads a pod may have; -1: as many as there may be")
	f.BoolVar(&c.SeccompDefault, "seccomp-default", c.SeccompDefault, "give the container runtime's seccomp profile to containers that ask for none")
	f.VarPF((*notFlag)(&c.NoCPULimits), "cpu-cfs-quota", "", "hold containers to their limits of CPUs").NoOptDefVal = "true"
	f.DurationVar(&c.CPUPeriod, "cpu-cfs-quota-period", c.CPUPeriod, "time in which a limit of CPUs holds")
	f.BoolVar(&c.OneProcess, "single-process-oom-kill", c.OneProcess, "leave the other processes of a container alone when the kernel ends one for want of memory")
	f.StringVar(&c.Swap, "memory-swap-behavior", c.Swap, "whether containers may swap, under version 2 of cgroups: NoSwap, or LimitedSwap, which lets burstable ones have their share")
	f.Float64Var(&c.Memory.Throttle, "memory-throttling-factor", c.Memory.Throttle, "how far containers may go from their request of memory to their limit, or else to all that pods may have, before they are slowed down, under version 2 of cgroups: 0.9 of the way; 0: all of it")
	f.StringVar(&c.Memory.Policy, "memory-reservation-policy", c.Memory.Policy, "whether the kernel keeps for pods the memory that they ask for, under version 2 of cgroups: None, the default, or TieredReservation, for guaranteed ones always, for burstable ones while there is other memory to be had")
	f.StringToStringVar(&c.Memory.Reserved, "qos-reserved", c.Memory.Reserved, "how much of what pods ask for those of lower classes cannot use: memory=50%")
	f.DurationVar(&c.RestartWait, "max-container-restart-period", c.RestartWait, "how long a container that exits again and again waits at the most")
	f.StringToStringVar(&c.Sysctls, "default-pod-sysctls", c.Sysctls, "kernel parameters of all pods that say nothing else, as far as a pod has them for itself: net.core.somaxconn=1024,...")
	addPinningFlags(f, o)
	f.IntVar(&o.Agent.MostImages, "node-status-max-images", o.Agent.MostImages, "how many images the node's status lists, the largest ones; -1: all")
	addServedFlags(f, o)
	f.Var(&o.Agent.Eviction, "eviction-hard", "how little may be left before pods are evicted; empty: never evict")
	f.Var(&o.Agent.Soft.Thresholds, "eviction-soft", "how little may be left for a while before pods are evicted, which then have time to end")
	f.Var(&o.Agent.Soft.Grace, "eviction-soft-grace-period", "how long that may be, for each of them")
	f.Int64Var(&o.Agent.Soft.MaxPodGrace, "eviction-max-pod-grace-period", o.Agent.Soft.MaxPodGrace, "how many seconds these pods have to end at the most")
	f.Var(&o.Agent.MinReclaim, "eviction-minimum-reclaim", "how much more than that must be left again, once pods have been evicted for it")
	f.DurationVar(&o.Agent.Transition, "eviction-pressure-transition-period", o.Agent.Transition, "how long a node stays under pressure after its cause has gone")
	f.Var((*addrFlag)(&o.Agent.Address), "address", "address to serve the node agent's API on; default all")
	f.Uint16Var(&o.Agent.Port, "port", o.Agent.Port, "port to serve the node agent's API on")
	f.StringVar(&o.Runtime.Endpoint, "container-runtime-endpoint", o.Runtime.Endpoint, "socket of another container runtime, which is to find CNI in cni/net.d and bin of the data directory; default the built-in one")
	f.Var(&o.Runtime.Handlers, "runtime-handlers", "what RuntimeClasses may name beside runc: programs that are called as it is, or shims: crun=/usr/bin/crun,kata=io.containerd.kata.v2,...")
	f.StringVar(&o.Agent.RootDir, "root-dir", o.Agent.RootDir, "directory of the volumes and other files of pods; default kubelet in the data directory")
	f.StringVar(&o.Agent.PodLogsDir, "pod-logs-dir", o.Agent.PodLogsDir, "directory of the containers' logs")
	f.StringVar(&o.Runtime.RegistryDir, "registry-config-dir", o.Runtime.RegistryDir, "directories, with colons between, in each of which REGISTRY/hosts.toml says how that one is reached; default /etc/kemudi/certs.d, /etc/containerd/certs.d and /etc/docker/certs.d")
	f.IntVar(&o.Images.HighPercent, "image-gc-high-threshold", o.Images.HighPercent, "how full the disk of the images gets, in percent, before unused ones are removed; 100: they never are")
	f.IntVar(&o.Images.LowPercent, "image-gc-low-threshold", o.Images.LowPercent, "how full it is when enough is removed")
	f.DurationVar(&o.Images.MinAge, "minimum-image-ttl-duration", o.Images.MinAge, "how long an unused image is kept at least")
	f.DurationVar(&o.Images.MaxAge, "image-maximum-gc-age", o.Images.MaxAge, "how long an unused image is kept at the most; default for ever")
	f.IntVar(&o.Images.MaxPulls, "max-parallel-image-pulls", o.Images.MaxPulls, "how many images are pulled at a time")
	f.StringVar(&o.Images.Verify.Policy, "image-pull-credentials-verification-policy", o.Images.Verify.Policy, "of which images that are here pods must show that they could pull them: NeverVerifyPreloadedImages (of those that were pulled for pods), NeverVerify, NeverVerifyAllowlistedImages or AlwaysVerify")
	f.StringSliceVar(&o.Images.Verify.Allowed, "preloaded-images-verification-allowlist", o.Images.Verify.Allowed, "images that NeverVerifyAllowlistedImages leaves out: names without tag, or their beginnings with /*")
	f.StringVar(&o.Images.ProviderConfig, "image-credential-provider-config", o.Images.ProviderConfig, "CredentialProviderConfig file, or directory of them, that names programs which know registry credentials")
	f.StringVar(&o.Images.ProviderBinDir, "image-credential-provider-bin-dir", o.Images.ProviderBinDir, "directory of these programs")
	f.StringVar(&o.ResolvConf, "resolv-conf", o.ResolvConf, "file that names the DNS servers for names outside of the cluster")
}

// addPinningFlags adds what says which processors and memory containers have for themselves.
func addPinningFlags(f *pflag.FlagSet, o *cluster.Machine) {
	p := &o.Agent.Pinning
	f.StringVar(&p.CPUPolicy, "cpu-manager-policy", p.CPUPolicy, "which containers have processors for themselves: none, or static, those of guaranteed pods that ask for whole ones")
	f.StringToStringVar(&p.CPUOptions, "cpu-manager-policy-options", p.CPUOptions, "which processors these are: full-pcpus-only, distribute-cpus-across-numa, align-by-socket, distribute-cpus-across-cores, strict-cpu-reservation or prefer-align-cpus-by-uncorecache, each =true")
	f.StringVar(&p.ReservedCPU, "reserved-cpus", p.ReservedCPU, "processors that no container has for itself, as 0-1,8; in place of what --kube-reserved and --system-reserved say of cpu")
	f.StringVar(&p.MemoryPolicy, "memory-manager-policy", p.MemoryPolicy, "which containers have memory of certain NUMA nodes: None, or Static, those of guaranteed pods")
	f.Var(&p.ReservedMemory, "reserved-memory", "what of the memory of each NUMA node is not for containers: 0:memory=1Gi,hugepages-2Mi=64Mi; as much together as is not for pods by other flags, --eviction-hard included")
	f.StringVar(&p.TopologyPolicy, "topology-manager-policy", p.TopologyPolicy, "whether processors, memory and devices are of the same NUMA nodes: none, best-effort, restricted or single-numa-node")
	f.StringVar(&p.TopologyScope, "topology-manager-scope", p.TopologyScope, "what of: each container by itself, or a pod as a whole")
	f.StringToStringVar(&p.TopologyOptions, "topology-manager-policy-options", p.TopologyOptions, "prefer-closest-numa-nodes=true, max-allowable-numa-nodes=NUMBER")
}

// addServedFlags adds what the node's agent serves of itself and of the machine.
func addServedFlags(f *pflag.FlagSet, o *cluster.Machine) {
	s := &o.Agent.Serve
	f.VarPF((*notFlag)(&s.NoSystemLogs), "enable-system-log-handler", "", "serve the files of /var/log to who may read nodes/log").NoOptDefVal = "true"
	f.BoolVar(&s.LogQueries, "enable-system-log-query", s.LogQueries, "answer what is asked of the machine's journal and of the files of /var/log by ?query=, as well")
	f.VarPF((*notFlag)(&s.NoDebugging), "enable-debugging-handlers", "", "serve logs, exec and what else lets people look into containers and the node's agent; if false, kubectl cannot either").NoOptDefVal = "true"
	f.VarPF((*notFlag)(&s.NoProfiles), "enable-profiling-handler", "", "serve profiles of the node's agent below /debug/pprof").NoOptDefVal = "true"
	f.VarPF((*notFlag)(&s.NoVerbosity), "enable-debug-flags-handler", "", "let people say how much is logged, by /debug/flags/v of the node's agent").NoOptDefVal = "true"
	f.DurationVar(&s.StreamIdle, "streaming-connection-idle-timeout", s.StreamIdle, "how long exec, attach and port-forward may be silent")
}
