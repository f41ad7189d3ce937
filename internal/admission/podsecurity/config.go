package podsecurity

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/pod-security-admission/api"

	"github.com/kemudi/kemudi/internal/admission"
)

// configuration is a PodSecurityConfiguration: what holds for namespaces without labels, and
// for whom nothing does.
type configuration struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Defaults   levels `json:"defaults"`
	Exemptions struct {
		Usernames      []string `json:"usernames"`
		Namespaces     []string `json:"namespaces"`
		RuntimeClasses []string `json:"runtimeClasses"`
	} `json:"exemptions"`
}

// levels are the levels, and the versions of the standards, of namespaces without
// labels; empty: privileged and latest.
type levels struct {
	Enforce        string `json:"enforce"`
	EnforceVersion string `json:"enforce-version"`
	Audit          string `json:"audit"`
	AuditVersion   string `json:"audit-version"`
	Warn           string `json:"warn"`
	WarnVersion    string `json:"warn-version"`
}

func readConfig(o *admission.Options) (c configuration, defaults api.Policy, err error) {
	const group = "pod-security.admission.config.k8s.io/"
	const kind = " PodSecurityConfiguration"
	if err := o.Config.Read(name, &c, group+"v1"+kind, group+"v1beta1"+kind, group+"v1alpha1"+kind); err != nil {
		return c, defaults, err
	}
	var errs field.ErrorList
	for _, m := range []struct {
		name, level, version string
		to                   *api.LevelVersion
	}{
		{"enforce", c.Defaults.Enforce, c.Defaults.EnforceVersion, &defaults.Enforce},
		{"warn", c.Defaults.Warn, c.Defaults.WarnVersion, &defaults.Warn},
		{"audit", c.Defaults.Audit, c.Defaults.AuditVersion, &defaults.Audit},
	} {
		*m.to = api.LevelVersion{Level: api.LevelPrivileged, Version: api.LatestVersion()}
		if m.level != "" {
			if m.to.Level, err = api.ParseLevel(m.level); err != nil {
				errs = append(errs, field.Invalid(field.NewPath("defaults", m.name), m.level, err.Error()))
			}
		}
		if m.version != "" {
			if m.to.Version, err = api.ParseVersion(m.version); err != nil {
				errs = append(errs, field.Invalid(field.NewPath("defaults", m.name+"-version"), m.version, err.Error()))
			}
		}
	}
	errs = append(errs, checkNames("namespaces", c.Exemptions.Namespaces, func(name string) []string { return validation.ValidateNamespaceName(name, false) })...)
	errs = append(errs, checkNames("runtimeClasses", c.Exemptions.RuntimeClasses, func(name string) []string { return validation.NameIsDNSSubdomain(name, false) })...)
	errs = append(errs, checkNames("usernames", c.Exemptions.Usernames, func(name string) []string {
		if name == "" {
			return []string{"username must not be empty"}
		}
		return nil
	})...)
	if len(errs) > 0 {
		return c, defaults, admission.Misconfigured(name, errs.ToAggregate())
	}
	return c, defaults, nil
}

// checkNames checks a list of those who are exempt.
func checkNames(list string, names []string, check func(name string) []string) (errs field.ErrorList) {
	seen := map[string]bool{}
	for i, name := range names {
		at := field.NewPath("exemptions", list).Index(i)
		if faults := check(name); len(faults) > 0 {
			errs = append(errs, field.Invalid(at, name, strings.Join(faults, ", ")))
		} else if seen[name] {
			errs = append(errs, field.Duplicate(at, name))
		}
		seen[name] = true
	}
	return errs
}
