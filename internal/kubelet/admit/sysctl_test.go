package admit

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestSysctlsAreAllowedByName(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kernel string
		unsafe []string
		host   string // what of the node the pod uses
		sysctl string
		want   string // empty: allowed
	}{
		"safe":                            {"6.1.0", nil, "", "kernel.shm_rmid_forced", ""},
		"safe, with slashes":              {"6.1.0", nil, "", "net/ipv4/tcp_syncookies", ""},
		"safe, with a recent kernel":      {"4.15.0-1-generic", nil, "", "net.ipv4.tcp_rmem", ""},
		"safe, with an old kernel":        {"4.14.336", nil, "", "net.ipv4.tcp_rmem", `forbidden sysctl: "net.ipv4.tcp_rmem" not allowlisted`},
		"safe since 1.37":                 {"6.1.0", nil, "", "net.ipv4.tcp_slow_start_after_idle", ""},
		"and with older kernels":          {"4.14.0", nil, "", "net.ipv4.tcp_notsent_lowat", ""},
		"safe, on a simulated node":       {"", nil, "", "net.ipv4.tcp_rmem", ""},
		"unsafe":                          {"6.1.0", nil, "", "kernel.msgmax", `forbidden sysctl: "kernel.msgmax" not allowlisted`},
		"unsafe, with slashes":            {"6.1.0", nil, "", "kernel/msgmax", `forbidden sysctl: "kernel.msgmax" not allowlisted`},
		"the machine's":                   {"6.1.0", nil, "", "vm.swappiness", `forbidden sysctl: "vm.swappiness" not allowlisted`},
		"unsafe but named":                {"6.1.0", []string{"kernel.sem", "kernel.msgmax"}, "", "kernel.msgmax", ""},
		"unsafe but named with slashes":   {"6.1.0", []string{"net/core/somaxconn"}, "", "net.core.somaxconn", ""},
		"unsafe, another is named":        {"6.1.0", []string{"kernel.msgmax"}, "", "kernel.msgmaxi", `forbidden sysctl: "kernel.msgmaxi" not allowlisted`},
		"unsafe but of a named beginning": {"6.1.0", []string{"kernel.msg*"}, "", "kernel.msgmnb", ""},
		"of all of the network":           {"6.1.0", []string{"net.*"}, "", "net.core.somaxconn", ""},
		"the network is the node's":       {"6.1.0", nil, "network", "net.ipv4.tcp_syncookies", `forbidden sysctl: "net.ipv4.tcp_syncookies" not allowed with host Net enabled`},
		"so it is, and named":             {"6.1.0", []string{"net.core.*"}, "network", "net.core.somaxconn", `forbidden sysctl: "net.core.somaxconn" not allowed with host Net enabled`},
		"memory is shared with the node":  {"6.1.0", nil, "ipc", "kernel.shm_rmid_forced", `forbidden sysctl: "kernel.shm_rmid_forced" not allowed with host IPC enabled`},
		"something else is the node's":    {"6.1.0", nil, "ipc", "net.ipv4.tcp_syncookies", ""},
	} {
		s, err := NewSysctls(c.kernel, c.unsafe)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		pod := &v1.Pod{Spec: v1.PodSpec{HostNetwork: c.host == "network", HostIPC: c.host == "ipc", SecurityContext: &v1.PodSecurityContext{Sysctls: []v1.Sysctl{{Name: c.sysctl, Value: "1"}}}}}
		reason, got := s.Refuse(pod)
		if got != c.want || (reason == "SysctlForbidden") != (c.want != "") {
			t.Errorf("%s: got %s %q, want %q", name, reason, got, c.want)
		}
	}
}

func TestSysctlsOfTheWholeMachineCannotBeAllowed(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]string{
		"vm.swappiness":          `the sysctls "vm.swappiness" are not known to be namespaced`,
		"kernel.*":               `the sysctls "kernel." are not known to be namespaced`,
		"*":                      `the sysctls "" are not known to be namespaced`,
		"":                       `sysctl "" must have at most 253 characters and match regex `,
		"net.*.x":                `sysctl "net.*.x" must have at most 253 characters and match regex `,
		strings.Repeat("n", 254): "must have at most 253 characters",
	} {
		if _, err := NewSysctls("6.1.0", []string{pattern}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", pattern, err, want)
		}
	}
}

func TestSysctlsOfAllPodsAreTheirOwn(t *testing.T) {
	for name, want := range map[string]string{
		"kernel.shmall": "", "net/ipv4/ip_forward": "", "user.max_net_namespaces": "", "kernel.domainname": "",
		"vm.swappiness": "not known to be namespaced", "net.*": "want one name", "Net": "must have at most",
	} {
		err := CheckOwn(map[string]string{name: "1"})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
	}
	if err := CheckOwn(map[string]string{"net.ipv4.ip_forward": "1", "net/ipv4/ip_forward": "0"}); err == nil || !strings.Contains(err.Error(), "there twice") {
		t.Errorf("one name in two forms: got %v", err)
	}
}
