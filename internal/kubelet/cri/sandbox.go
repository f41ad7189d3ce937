package cri

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/node/util/sysctl"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/api/core"
)

// Sandbox is the configuration of the pod's sandbox number attempt.
func Sandbox(pod *v1.Pod, n *Node, attempt int) (*runtimeapi.PodSandboxConfig, []Note, error) {
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{
			Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID), Attempt: uint32(attempt),
		},
		LogDirectory: PodLogDir(n.PodLogsDir, pod.Namespace, pod.Name, string(pod.UID)),
		Labels:       maps.Clone(pod.Labels),
		Annotations:  maps.Clone(pod.Annotations),
		Linux:        sandboxLinux(pod, n),
	}
	if config.Labels == nil {
		config.Labels = map[string]string{}
	}
	if config.Annotations == nil {
		config.Annotations = map[string]string{}
	}
	maps.Copy(config.Labels, podLabels(pod))
	config.Annotations[annotationSandboxConfigFrom] = "api"
	config.Annotations[annotationSandboxSeen] = pod.CreationTimestamp.Format("2006-01-02T15:04:05Z07:00")
	if !pod.Spec.HostNetwork || overriding(pod) != "" {
		name, err := kernelHostname(pod, n.ClusterDomain)
		if err != nil {
			return nil, nil, err
		}
		config.Hostname = name
	}
	var notes []Note
	config.DnsConfig, notes = DNS(pod, n)
	config.PortMappings = portMappings(pod)
	return config, notes, nil
}

// portMappings names the host ports, which the network plugin may serve.
func portMappings(pod *v1.Pod) []*runtimeapi.PortMapping {
	var out []*runtimeapi.PortMapping
	add := func(list []v1.Container) {
		for i := range list {
			for _, p := range list[i].Ports {
				if p.HostPort == 0 || pod.Spec.HostNetwork {
					continue
				}
				out = append(out, &runtimeapi.PortMapping{
					Protocol: protocol(p.Protocol), ContainerPort: p.ContainerPort, HostPort: p.HostPort, HostIp: p.HostIP,
				})
			}
		}
	}
	add(pod.Spec.Containers)
	for i := range pod.Spec.InitContainers {
		if core.IsSidecar(&pod.Spec.InitContainers[i]) {
			add(pod.Spec.InitContainers[i : i+1])
		}
	}
	return out
}

func protocol(p v1.Protocol) runtimeapi.Protocol {
	switch p {
	case v1.ProtocolUDP:
		return runtimeapi.Protocol_UDP
	case v1.ProtocolSCTP:
		return runtimeapi.Protocol_SCTP
	}
	return runtimeapi.Protocol_TCP
}

// ownSysctls are those of kernel parameters that a pod has for itself.
func ownSysctls(pod *v1.Pod, values map[string]string) map[string]string {
	out := map[string]string{}
	for name, value := range values {
		namespace, plain, _ := sysctl.GetNamespace(name)
		shared := false
		switch namespace {
		case sysctl.IPCNamespace:
			shared = pod.Spec.HostIPC
		case sysctl.NetNamespace, sysctl.UTSNamespace:
			shared = pod.Spec.HostNetwork
		case sysctl.UserNamespace:
			shared = !HasOwnUsers(pod)
		}
		if !shared {
			out[plain] = value
		}
	}
	return out
}

func sandboxLinux(pod *v1.Pod, n *Node) *runtimeapi.LinuxPodSandboxConfig {
	sc := &runtimeapi.LinuxSandboxSecurityContext{
		Privileged:       hasPrivileged(pod),
		NamespaceOptions: namespaces(pod),
		// The pause process needs nothing, so it gets nothing.
		Seccomp:            &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
		SeccompProfilePath: "runtime/default",
	}
	if n.SandboxSeccomp != "" {
		sc.Seccomp = &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: n.SandboxSeccomp}
		sc.SeccompProfilePath = "localhost/" + n.SandboxSeccomp
	}
	out := &runtimeapi.LinuxPodSandboxConfig{
		CgroupParent: n.Cgroup(pod, core.QOSClass(pod)), SecurityContext: sc, Sysctls: ownSysctls(pod, n.Sysctls),
		Resources: podResources(pod, n),
	}
	p := pod.Spec.SecurityContext
	if p == nil {
		return out
	}
	for _, s := range p.Sysctls {
		out.Sysctls[sysctl.NormalizeName(s.Name)] = s.Value
	}
	if p.RunAsUser != nil {
		sc.RunAsUser = &runtimeapi.Int64Value{Value: *p.RunAsUser}
		if p.RunAsGroup != nil {
			sc.RunAsGroup = &runtimeapi.Int64Value{Value: *p.RunAsGroup}
		}
	}
	sc.SupplementalGroups = groups(p)
	sc.SupplementalGroupsPolicy = groupsPolicy(p)
	sc.SelinuxOptions = selinux(p.SELinuxOptions)
	return out
}

// hasPrivileged also of a container that was added to a pod that runs: the runtime goes by what it is told with that.
func hasPrivileged(pod *v1.Pod) bool {
	privileged := func(sc *v1.SecurityContext) bool { return sc != nil && isTrue(sc.Privileged) }
	one := func(c v1.Container) bool { return privileged(c.SecurityContext) }
	return slices.ContainsFunc(pod.Spec.InitContainers, one) || slices.ContainsFunc(pod.Spec.Containers, one) ||
		slices.ContainsFunc(pod.Spec.EphemeralContainers, func(c v1.EphemeralContainer) bool { return privileged(c.SecurityContext) })
}

// namespaces says which namespaces a pod shares and with whom.
func namespaces(pod *v1.Pod) *runtimeapi.NamespaceOption {
	out := &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER}
	if pod.Spec.HostNetwork {
		out.Network = runtimeapi.NamespaceMode_NODE
	}
	if pod.Spec.HostIPC {
		out.Ipc = runtimeapi.NamespaceMode_NODE
	}
	switch {
	case pod.Spec.HostPID:
		out.Pid = runtimeapi.NamespaceMode_NODE
	case pod.Spec.ShareProcessNamespace != nil && *pod.Spec.ShareProcessNamespace:
		out.Pid = runtimeapi.NamespaceMode_POD
	}
	return out
}
