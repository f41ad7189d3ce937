package podspec

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/resource"
)

// eachContainer calls f with every container of a pod and the place of its errors.
func eachContainer(errs *resource.Errors, s *corev1.PodSpec, f func(at *resource.Errors, c *corev1.Container)) {
	for i := range s.InitContainers {
		f(errs.At("initContainers[%d]", i), &s.InitContainers[i])
	}
	for i := range s.Containers {
		f(errs.At("containers[%d]", i), &s.Containers[i])
	}
	for i := range s.EphemeralContainers {
		f(errs.At("ephemeralContainers[%d]", i), (*corev1.Container)(&s.EphemeralContainers[i].EphemeralContainerCommon))
	}
}

// validateOS checks that a pod which says its operating system asks for nothing
// that the system does not have.
func validateOS(errs *resource.Errors, s *corev1.PodSpec) {
	if s.OS == nil {
		return
	}
	switch s.OS.Name {
	case "":
		errs.Required("os.name", "cannot be empty")
	case corev1.Linux:
		forbidWindowsFields(errs, s)
	case corev1.Windows:
		forbidLinuxFields(errs, s)
	default:
		resource.NotSupported(errs, "os", s.OS.Name, corev1.Linux, corev1.Windows)
	}
}

func forbidWindowsFields(errs *resource.Errors, s *corev1.PodSpec) {
	const detail = "windows options cannot be set for a linux pod"
	if s.SecurityContext != nil && s.SecurityContext.WindowsOptions != nil {
		errs.Forbidden("securityContext.windowsOptions", detail)
	}
	eachContainer(errs, s, func(at *resource.Errors, c *corev1.Container) {
		if c.SecurityContext != nil && c.SecurityContext.WindowsOptions != nil {
			at.Forbidden("securityContext.windowsOptions", detail)
		}
	})
}

func forbidLinuxFields(errs *resource.Errors, s *corev1.PodSpec) {
	forbid := func(at *resource.Errors, path string, set bool) {
		if set {
			at.Forbidden(path, "cannot be set for a windows pod")
		}
	}
	if sc := s.SecurityContext; sc != nil {
		forbid(errs, "securityContext.appArmorProfile", sc.AppArmorProfile != nil)
		forbid(errs, "securityContext.seLinuxOptions", sc.SELinuxOptions != nil)
		forbid(errs, "securityContext.seccompProfile", sc.SeccompProfile != nil)
		forbid(errs, "securityContext.fsGroup", sc.FSGroup != nil)
		forbid(errs, "securityContext.fsGroupChangePolicy", sc.FSGroupChangePolicy != nil)
		forbid(errs, "securityContext.sysctls", len(sc.Sysctls) > 0)
		forbid(errs, "securityContext.runAsUser", sc.RunAsUser != nil)
		forbid(errs, "securityContext.runAsGroup", sc.RunAsGroup != nil)
		forbid(errs, "securityContext.supplementalGroups", sc.SupplementalGroups != nil)
		forbid(errs, "securityContext.supplementalGroupsPolicy", sc.SupplementalGroupsPolicy != nil)
		forbid(errs, "securityContext.seLinuxChangePolicy", sc.SELinuxChangePolicy != nil)
	}
	forbid(errs, "hostUsers", s.HostUsers != nil)
	forbid(errs, "hostPID", s.HostPID)
	forbid(errs, "hostIPC", s.HostIPC)
	forbid(errs, "shareProcessNamespace", s.ShareProcessNamespace != nil)
	eachContainer(errs, s, func(at *resource.Errors, c *corev1.Container) {
		sc := c.SecurityContext
		if sc == nil {
			return
		}
		forbid(at, "securityContext.appArmorProfile", sc.AppArmorProfile != nil)
		forbid(at, "securityContext.seLinuxOptions", sc.SELinuxOptions != nil)
		forbid(at, "securityContext.seccompProfile", sc.SeccompProfile != nil)
		forbid(at, "securityContext.capabilities", sc.Capabilities != nil)
		forbid(at, "securityContext.readOnlyRootFilesystem", sc.ReadOnlyRootFilesystem != nil)
		forbid(at, "securityContext.privileged", sc.Privileged != nil)
		forbid(at, "securityContext.allowPrivilegeEscalation", sc.AllowPrivilegeEscalation != nil)
		forbid(at, "securityContext.procMount", sc.ProcMount != nil)
		forbid(at, "securityContext.runAsUser", sc.RunAsUser != nil)
		forbid(at, "securityContext.runAsGroup", sc.RunAsGroup != nil)
	})
}

// validateHostUsers refuses user namespaces of their own for pods that share
// other namespaces with the node, or devices: whose those are cannot be mapped.
func validateHostUsers(errs *resource.Errors, s *corev1.PodSpec) {
	if s.HostUsers == nil || *s.HostUsers {
		return
	}
	const detail = "when `hostUsers` is false"
	if s.HostNetwork {
		errs.Forbidden("hostNetwork", detail)
	}
	if s.HostPID {
		errs.Forbidden("hostPID", detail)
	}
	if s.HostIPC {
		errs.Forbidden("hostIPC", detail)
	}
	eachContainer(errs, s, func(at *resource.Errors, c *corev1.Container) {
		if len(c.VolumeDevices) > 0 {
			at.Forbidden("volumeDevices", detail)
		}
	})
}

// validateHostProcess checks Windows pods whose containers run on the host: all
// of them do, or none.
func validateHostProcess(errs *resource.Errors, s *corev1.PodSpec) {
	var ofPod *bool
	if s.SecurityContext != nil && s.SecurityContext.WindowsOptions != nil {
		ofPod = s.SecurityContext.WindowsOptions.HostProcess
	}
	all, onHost := 0, 0
	eachContainer(errs, s, func(at *resource.Errors, c *corev1.Container) {
		all++
		var own *bool
		if c.SecurityContext != nil && c.SecurityContext.WindowsOptions != nil {
			own = c.SecurityContext.WindowsOptions.HostProcess
		}
		if ofPod != nil && own != nil && *ofPod != *own {
			at.Invalid("securityContext.windowsOptions.hostProcess", *own,
				fmt.Sprintf("pod hostProcess value must be identical if both are specified, was %v", *ofPod))
		}
		if own != nil && *own || own == nil && ofPod != nil && *ofPod {
			onHost++
		}
	})
	if onHost == 0 {
		return
	}
	if onHost != all {
		errs.Invalid("", "", "If pod contains any hostProcess containers then all containers must be HostProcess containers")
	}
	if !s.HostNetwork {
		errs.Invalid("hostNetwork", s.HostNetwork, "hostNetwork must be true if pod contains any hostProcess containers")
	}
}
