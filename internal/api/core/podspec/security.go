package podspec

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/node/util/sysctl"

	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/resource"
)

// validateSecurityContext checks the security context of a container.
func validateSecurityContext(errs *resource.Errors, sc *corev1.SecurityContext, p *podFacts) {
	check.UserID(errs, "runAsUser", sc.RunAsUser)
	check.GroupID(errs, "runAsGroup", sc.RunAsGroup)
	if sc.ProcMount != nil {
		check.OneOf(errs, "procMount", *sc.ProcMount, corev1.DefaultProcMount, corev1.UnmaskedProcMount)
		if *sc.ProcMount == corev1.UnmaskedProcMount && p.hostUsers() {
			errs.Invalid("procMount", *sc.ProcMount, "`hostUsers` must be false to use `Unmasked`")
		}
	}
	validateSeccompProfile(errs.At("seccompProfile"), sc.SeccompProfile)
	if sc.AllowPrivilegeEscalation != nil && !*sc.AllowPrivilegeEscalation {
		if sc.Privileged != nil && *sc.Privileged {
			errs.Invalid("", sc, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true")
		}
		if sc.Capabilities != nil && slices.Contains(sc.Capabilities.Add, "CAP_SYS_ADMIN") {
			errs.Invalid("", sc, "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN")
		}
	}
	validateWindowsOptions(errs.At("windowsOptions"), sc.WindowsOptions)
	validateAppArmorProfile(errs.At("appArmorProfile"), sc.AppArmorProfile)
}

// validatePodSecurityContext checks the security context of a pod.
func validatePodSecurityContext(errs *resource.Errors, s *corev1.PodSpec) {
	sc := s.SecurityContext
	if sc == nil {
		return
	}
	check.GroupID(errs, "fsGroup", sc.FSGroup)
	check.UserID(errs, "runAsUser", sc.RunAsUser)
	check.GroupID(errs, "runAsGroup", sc.RunAsGroup)
	for i := range sc.SupplementalGroups {
		check.GroupID(errs.At("supplementalGroups[%d]", i), "", &sc.SupplementalGroups[i])
	}
	if s.ShareProcessNamespace != nil && *s.ShareProcessNamespace && s.HostPID {
		errs.Invalid("shareProcessNamespace", true, "ShareProcessNamespace and HostPID cannot both be enabled")
	}
	validateSysctls(errs, s)
	if sc.FSGroupChangePolicy != nil {
		check.OneOf(errs, "fsGroupChangePolicy", *sc.FSGroupChangePolicy, corev1.FSGroupChangeAlways, corev1.FSGroupChangeOnRootMismatch)
	}
	validateSeccompProfile(errs.At("seccompProfile"), sc.SeccompProfile)
	validateWindowsOptions(errs.At("windowsOptions"), sc.WindowsOptions)
	validateAppArmorProfile(errs.At("appArmorProfile"), sc.AppArmorProfile)
	if sc.SupplementalGroupsPolicy != nil {
		check.OneOf(errs, "supplementalGroupsPolicy", *sc.SupplementalGroupsPolicy,
			corev1.SupplementalGroupsPolicyMerge, corev1.SupplementalGroupsPolicyStrict)
	}
	if sc.SELinuxChangePolicy != nil {
		check.OneOf(errs, "seLinuxChangePolicy", *sc.SELinuxChangePolicy,
			corev1.SELinuxChangePolicyMountOption, corev1.SELinuxChangePolicyRecursive)
	}
}

const sysctlMaxLength = 253

var sysctlName = regexp.MustCompile(`^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$`)

func validateSysctls(errs *resource.Errors, s *corev1.PodSpec) {
	list := s.SecurityContext.Sysctls
	for i := range list {
		name, at := list[i].Name, errs.At("sysctls[%d]", i)
		switch {
		case name == "":
			at.Required("name", "")
		case len(name) > sysctlMaxLength || !sysctlName.MatchString(name):
			at.Invalid("name", name, fmt.Sprintf("must have at most %d characters and match regex %s", sysctlMaxLength, sysctlName))
		case slices.ContainsFunc(list[:i], func(o corev1.Sysctl) bool { return o.Name == name }):
			at.Duplicate("name", name)
		}
		switch namespace, _, _ := sysctl.GetNamespace(name); {
		case s.HostNetwork && namespace == sysctl.NetNamespace:
			at.Invalid("name", name, "may not be specified when 'hostNetwork' is true")
		case s.HostIPC && namespace == sysctl.IPCNamespace:
			at.Invalid("name", name, "may not be specified when 'hostIPC' is true")
		}
	}
}

func validateSeccompProfile(errs *resource.Errors, p *corev1.SeccompProfile) {
	if p == nil {
		return
	}
	if p.Type == "" {
		errs.Required("type", "type is required when seccompProfile is set")
	} else {
		check.OneOf(errs, "type", p.Type, corev1.SeccompProfileTypeLocalhost,
			corev1.SeccompProfileTypeRuntimeDefault, corev1.SeccompProfileTypeUnconfined)
	}
	switch local := p.Type == corev1.SeccompProfileTypeLocalhost; {
	case local && p.LocalhostProfile == nil:
		errs.Required("localhostProfile", "must be set when seccomp type is Localhost")
	case local:
		check.DescendingPath(errs, "localhostProfile", *p.LocalhostProfile)
	case p.LocalhostProfile != nil:
		errs.Invalid("localhostProfile", p, "can only be set when seccomp type is Localhost")
	}
}

func validateAppArmorProfile(errs *resource.Errors, p *corev1.AppArmorProfile) {
	if p == nil {
		return
	}
	switch p.Type {
	case corev1.AppArmorProfileTypeLocalhost:
		validateAppArmorFile(errs, p.LocalhostProfile)
	case corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined:
		if p.LocalhostProfile != nil {
			errs.Invalid("localhostProfile", *p.LocalhostProfile, "can only be set when AppArmor type is Localhost")
		}
	case "":
		errs.Required("type", "type is required when appArmorProfile is set")
	default:
		resource.NotSupported(errs, "type", p.Type, corev1.AppArmorProfileTypeLocalhost,
			corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined)
	}
}

func validateAppArmorFile(errs *resource.Errors, file *string) {
	const missing = "must be set when AppArmor type is Localhost"
	if file == nil {
		errs.Required("localhostProfile", missing)
		return
	}
	switch {
	case strings.TrimSpace(*file) != *file:
		errs.Invalid("localhostProfile", *file, "must not be padded with whitespace")
	case *file == "":
		errs.Required("localhostProfile", missing)
	}
	const longest = 4095 // PATH_MAX without the final zero
	if len(*file) > longest {
		errs.TooLong("localhostProfile", longest)
	}
}

var (
	controlCharacter = regexp.MustCompile(`[[:cntrl:]]`)
	netBIOSDomain    = regexp.MustCompile(`^[^\\/:\*\?"<>|\.][^\\/:\*\?"<>|]{0,14}$`)
	windowsDNSDomain = regexp.MustCompile(`^[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*$`)
	dotsAndSpaces    = regexp.MustCompile(`^[\. ]+$`)
)

func validateWindowsOptions(errs *resource.Errors, o *corev1.WindowsSecurityContextOptions) {
	if o == nil {
		return
	}
	if o.GMSACredentialSpecName != nil {
		check.DNSSubdomain(errs, "gmsaCredentialSpecName", *o.GMSACredentialSpecName)
	}
	if o.GMSACredentialSpec != nil {
		switch n := len(*o.GMSACredentialSpec); {
		case n == 0:
			errs.Invalid("gmsaCredentialSpec", *o.GMSACredentialSpec, "gmsaCredentialSpec cannot be an empty string")
		case n > 64*1024:
			errs.Invalid("gmsaCredentialSpec", *o.GMSACredentialSpec, "gmsaCredentialSpec size must be under 64 KiB")
		}
	}
	if o.RunAsUserName != nil {
		for _, detail := range windowsUserNameProblems(*o.RunAsUserName) {
			errs.Invalid("runAsUserName", *o.RunAsUserName, detail)
		}
	}
}

// windowsUserNameProblems says what is wrong with `DOMAIN\user` or `user`.
func windowsUserNameProblems(name string) []string {
	if name == "" {
		return []string{"runAsUserName cannot be an empty string"}
	}
	if controlCharacter.MatchString(name) {
		return []string{"runAsUserName cannot contain control characters"}
	}
	domain, user, hasDomain := strings.Cut(name, `\`)
	if !hasDomain {
		domain, user = "", name
	}
	if strings.Contains(user, `\`) {
		return []string{"runAsUserName cannot contain more than one backslash"}
	}
	var problems []string
	if len(domain) >= 256 {
		problems = append(problems, "runAsUserName's Domain length must be under 256 characters")
	}
	if hasDomain && !netBIOSDomain.MatchString(domain) && !windowsDNSDomain.MatchString(domain) {
		problems = append(problems, "runAsUserName's Domain doesn't match the NetBios nor the DNS format")
	}
	if user == "" {
		problems = append(problems, "runAsUserName's User cannot be empty")
	} else if len(user) > 104 {
		problems = append(problems, "runAsUserName's User length must not be longer than 104 characters")
	}
	if dotsAndSpaces.MatchString(user) {
		problems = append(problems, "runAsUserName's User cannot contain only periods or spaces")
	}
	if strings.ContainsAny(user, `"/\:;|=,+*?<>@[]`) {
		problems = append(problems, `runAsUserName's User cannot contain the following characters: "/\:;|=,+*?<>@[]`)
	}
	return problems
}
