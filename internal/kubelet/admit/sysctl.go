package admit

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-helpers/node/util/sysctl"
)

// safe are the kernel parameters that every pod may set: each pod has its own, and
// harms nobody with it. Before the kernel that since names it was that of the whole machine.
var safe = []struct{ name, since string }{
	{name: "kernel.shm_rmid_forced"},
	{name: "net.ipv4.ip_local_port_range"},
	{name: "net.ipv4.tcp_syncookies"},
	{name: "net.ipv4.ping_group_range"},
	{name: "net.ipv4.ip_unprivileged_port_start"},
	{name: "net.ipv4.ip_local_reserved_ports", since: "3.16"},
	{name: "net.ipv4.tcp_keepalive_time", since: "4.5"},
	{name: "net.ipv4.tcp_keepalive_intvl", since: "4.5"},
	{name: "net.ipv4.tcp_keepalive_probes", since: "4.5"},
	{name: "net.ipv4.tcp_fin_timeout", since: "4.6"},
	{name: "net.ipv4.tcp_rmem", since: "4.15"},
	{name: "net.ipv4.tcp_wmem", since: "4.15"},
	{name: "net.ipv4.tcp_slow_start_after_idle", since: "4.15"},
	{name: "net.ipv4.tcp_notsent_lowat", since: "4.6"},
}

const maxSysctl = 253

var sysctlPattern = regexp.MustCompile(`^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*([a-z0-9][-_a-z0-9]*)?[a-z0-9*]$`)

// Sysctls are the kernel parameters that the pods of a node may set.
type Sysctls struct {
	names    map[string]sysctl.Namespace
	prefixes map[string]sysctl.Namespace // of those that end in *
}

// NewSysctls allows what is safe with the kernel (its release; empty: a recent one) and
// those parameters that people allow besides, each a name or the beginning of names with a
// * behind it. Only what a namespace of the pod holds can be allowed.
func NewSysctls(kernel string, unsafe []string) (*Sysctls, error) {
	s := &Sysctls{names: map[string]sysctl.Namespace{}, prefixes: map[string]sysctl.Namespace{}}
	running, err := version.ParseGeneric(kernel)
	if err != nil && kernel != "" {
		return nil, fmt.Errorf("kernel release %q: %w", kernel, err)
	}
	for _, p := range safe {
		if p.since == "" || running == nil || running.AtLeast(version.MustParseGeneric(p.since)) {
			s.names[p.name], _, _ = sysctl.GetNamespace(p.name)
		}
	}
	for _, pattern := range unsafe {
		if err := checkName(pattern); err != nil {
			return nil, err
		}
		namespace, name, prefix := sysctl.GetNamespace(pattern)
		switch {
		case namespace == sysctl.UnknownNamespace:
			return nil, fmt.Errorf("the sysctls %q are not known to be namespaced", name)
		case prefix:
			s.prefixes[name] = namespace
		default:
			s.names[name] = namespace
		}
	}
	return s, nil
}

func checkName(name string) error {
	if len(name) > maxSysctl || !sysctlPattern.MatchString(name) {
		return fmt.Errorf("sysctl %q must have at most %d characters and match regex %s", name, maxSysctl, sysctlPattern)
	}
	return nil
}

// CheckOwn refuses kernel parameters that pods do not have for themselves, and such as are named twice.
func CheckOwn(values map[string]string) error {
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if err := checkName(name); err != nil {
			return err
		}
		namespace, plain, prefix := sysctl.GetNamespace(name)
		switch {
		case prefix:
			return fmt.Errorf("sysctl %q: want one name", name)
		case namespace == sysctl.UnknownNamespace:
			return fmt.Errorf("the sysctl %q is not known to be namespaced", plain)
		case seen[plain]:
			return fmt.Errorf("the sysctl %q is there twice", plain)
		}
		seen[plain] = true
	}
	return nil
}

// Refuse returns reason and message if the pod sets what it may not, or what it shares with the node.
func (s *Sysctls) Refuse(pod *v1.Pod) (reason, message string) {
	if pod.Spec.SecurityContext == nil {
		return "", ""
	}
	for _, p := range pod.Spec.SecurityContext.Sysctls {
		name := sysctl.NormalizeName(p.Name)
		switch namespace, ok := s.allowed(name); {
		case !ok:
			return "SysctlForbidden", fmt.Sprintf("forbidden sysctl: %q not allowlisted", name)
		case namespace == sysctl.IPCNamespace && pod.Spec.HostIPC, namespace == sysctl.NetNamespace && pod.Spec.HostNetwork:
			return "SysctlForbidden", fmt.Sprintf("forbidden sysctl: %q not allowed with host %s enabled", name, namespace)
		}
	}
	return "", ""
}

func (s *Sysctls) allowed(name string) (sysctl.Namespace, bool) {
	if namespace, ok := s.names[name]; ok {
		return namespace, true
	}
	for prefix, namespace := range s.prefixes {
		if strings.HasPrefix(name, prefix) {
			return namespace, true
		}
	}
	return sysctl.UnknownNamespace, false
}
