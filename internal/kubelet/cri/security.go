package cri

import (
	"fmt"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ImageUser is the user that an image runs as by itself.
type ImageUser struct {
	UID  *int64
	Name string // if it is not a number
}

// Paths of /proc and /sys that a container with the default procMount does not
// see, or cannot write.
var (
	maskedPaths = []string{
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware",
		"/sys/devices/virtual/powercap",
	}
	readonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)

// security is the container's security context, merged with the pod's.
func (in *ContainerInput) security() (*runtimeapi.LinuxContainerSecurityContext, error) {
	pod := in.Pod.Spec.SecurityContext
	if pod == nil {
		pod = &v1.PodSecurityContext{}
	}
	sc := in.Container.SecurityContext
	if sc == nil {
		sc = &v1.SecurityContext{}
	}
	out := &runtimeapi.LinuxContainerSecurityContext{
		Privileged:               isTrue(sc.Privileged),
		ReadonlyRootfs:           isTrue(sc.ReadOnlyRootFilesystem),
		NoNewPrivs:               sc.AllowPrivilegeEscalation != nil && !*sc.AllowPrivilegeEscalation,
		NamespaceOptions:         in.namespaces(),
		SupplementalGroups:       groups(pod),
		SupplementalGroupsPolicy: groupsPolicy(pod),
		SelinuxOptions:           selinux(or(sc.SELinuxOptions, pod.SELinuxOptions)),
		MaskedPaths:              slices.Concat(maskedPaths, in.Node.Masked),
		ReadonlyPaths:            readonlyPaths,
	}
	if sc.ProcMount != nil && *sc.ProcMount == v1.UnmaskedProcMount {
		out.MaskedPaths, out.ReadonlyPaths = []string{}, []string{}
	}
	if sc.Capabilities != nil {
		out.Capabilities = &runtimeapi.Capability{}
		for _, c := range sc.Capabilities.Add {
			out.Capabilities.AddCapabilities = append(out.Capabilities.AddCapabilities, string(c))
		}
		for _, c := range sc.Capabilities.Drop {
			out.Capabilities.DropCapabilities = append(out.Capabilities.DropCapabilities, string(c))
		}
	}
	if err := in.setUser(out, or(sc.RunAsUser, pod.RunAsUser), or(sc.RunAsGroup, pod.RunAsGroup), or(sc.RunAsNonRoot, pod.RunAsNonRoot)); err != nil {
		return nil, err
	}
	var err error
	if out.Seccomp, err = seccomp(or(sc.SeccompProfile, pod.SeccompProfile), in.Node); err != nil {
		return nil, err
	}
	out.Apparmor = appArmor(or(sc.AppArmorProfile, pod.AppArmorProfile))
	return out, nil
}

func or[T any](a, b *T) *T {
	if a != nil {
		return a
	}
	return b
}

// setUser sets who the container runs as, and refuses root where the pod does.
func (in *ContainerInput) setUser(out *runtimeapi.LinuxContainerSecurityContext, user, group *int64, nonRoot *bool) error {
	who := fmt.Sprintf("(pod: %q, container: %s)", fmt.Sprintf("%s_%s(%s)", in.Pod.Name, in.Pod.Namespace, in.Pod.UID), in.Container.Name)
	if isTrue(nonRoot) {
		switch {
		case user != nil && *user == 0:
			return fmt.Errorf("container's runAsUser breaks non-root policy %s", who)
		case user != nil:
		case in.ImageUser.UID != nil && *in.ImageUser.UID == 0:
			return fmt.Errorf("container has runAsNonRoot and image will run as root %s", who)
		case in.ImageUser.UID == nil && in.ImageUser.Name != "":
			return fmt.Errorf("container has runAsNonRoot and image has non-numeric user (%s), cannot verify user is non-root %s", in.ImageUser.Name, who)
		case in.ImageUser.UID == nil:
			return fmt.Errorf("container has runAsNonRoot and image will run as root %s", who)
		}
	}
	switch {
	case user != nil:
		out.RunAsUser = &runtimeapi.Int64Value{Value: *user}
	case in.ImageUser.UID != nil:
		out.RunAsUser = &runtimeapi.Int64Value{Value: *in.ImageUser.UID}
	default:
		out.RunAsUsername = in.ImageUser.Name
	}
	if group != nil {
		out.RunAsGroup = &runtimeapi.Int64Value{Value: *group}
		if out.RunAsUser == nil && out.RunAsUsername == "" {
			// The runtime wants to know the user of a group.
			out.RunAsUser = &runtimeapi.Int64Value{Value: 0}
		}
	}
	return nil
}

// namespaces is as for the pod; an ephemeral container may look into another
// container's processes.
func (in *ContainerInput) namespaces() *runtimeapi.NamespaceOption {
	out := namespaces(in.Pod)
	if in.TargetID != "" && out.Pid == runtimeapi.NamespaceMode_CONTAINER {
		out.Pid, out.TargetId = runtimeapi.NamespaceMode_TARGET, in.TargetID
	}
	return out
}

func groups(p *v1.PodSecurityContext) []int64 {
	out := slices.Clone(p.SupplementalGroups)
	if p.FSGroup != nil {
		out = append(out, *p.FSGroup)
	}
	return out
}

func groupsPolicy(p *v1.PodSecurityContext) runtimeapi.SupplementalGroupsPolicy {
	if p.SupplementalGroupsPolicy != nil && *p.SupplementalGroupsPolicy == v1.SupplementalGroupsPolicyStrict {
		return runtimeapi.SupplementalGroupsPolicy_Strict
	}
	return runtimeapi.SupplementalGroupsPolicy_Merge
}

func selinux(o *v1.SELinuxOptions) *runtimeapi.SELinuxOption {
	if o == nil {
		return nil
	}
	return &runtimeapi.SELinuxOption{User: o.User, Role: o.Role, Type: o.Type, Level: o.Level}
}

func seccomp(p *v1.SeccompProfile, n *Node) (*runtimeapi.SecurityProfile, error) {
	switch {
	case p == nil && n.SeccompDefault:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}, nil
	case p == nil || p.Type == v1.SeccompProfileTypeUnconfined:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}, nil
	case p.Type == v1.SeccompProfileTypeRuntimeDefault:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}, nil
	case p.Type == v1.SeccompProfileTypeLocalhost && p.LocalhostProfile != nil && *p.LocalhostProfile != "":
		if !filepath.IsLocal(*p.LocalhostProfile) {
			return nil, fmt.Errorf("localhostProfile %q must be a descending relative path", *p.LocalhostProfile)
		}
		return &runtimeapi.SecurityProfile{
			ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: filepath.Join(n.SeccompDir, *p.LocalhostProfile),
		}, nil
	case p.Type == v1.SeccompProfileTypeLocalhost:
		return nil, fmt.Errorf("localhostProfile must be set if seccompProfile type is Localhost")
	}
	return nil, fmt.Errorf("unknown seccomp profile type %q", p.Type)
}

func appArmor(p *v1.AppArmorProfile) *runtimeapi.SecurityProfile {
	if p == nil {
		return nil
	}
	switch p.Type {
	case v1.AppArmorProfileTypeRuntimeDefault:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}
	case v1.AppArmorProfileTypeLocalhost:
		ref := ""
		if p.LocalhostProfile != nil {
			ref = *p.LocalhostProfile
		}
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: ref}
	}
	return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}
}
