package config

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	configv1 "k8s.io/kube-scheduler/config/v1"
)

// validate checks everything but what plugins are chosen and their arguments.
func validate(f *configv1.KubeSchedulerConfiguration) (errs field.ErrorList) {
	errs = append(errs, validateLeader(&f.LeaderElection)...)
	if f.ClientConnection.Burst < 0 {
		errs = append(errs, field.Invalid(field.NewPath("clientConnection.burst"), f.ClientConnection.Burst, "must be non-negative"))
	}
	if *f.Parallelism <= 0 {
		errs = append(errs, field.Invalid(field.NewPath("parallelism"), *f.Parallelism, "should be an integer value greater than zero"))
	}
	errs = append(errs, validateProfiles(f.Profiles)...)
	errs = append(errs, validatePercentage(field.NewPath("percentageOfNodesToScore"), f.PercentageOfNodesToScore)...)
	if *f.PodInitialBackoffSeconds <= 0 {
		errs = append(errs, field.Invalid(field.NewPath("podInitialBackoffSeconds"), *f.PodInitialBackoffSeconds, "must be greater than 0"))
	}
	if *f.PodMaxBackoffSeconds < *f.PodInitialBackoffSeconds {
		errs = append(errs, field.Invalid(field.NewPath("podMaxBackoffSeconds"), *f.PodMaxBackoffSeconds, "must be greater than or equal to PodInitialBackoffSeconds"))
	}
	const longest = 1 << 32 // seconds; what is beyond would not be a duration
	if *f.PodMaxBackoffSeconds > longest {
		errs = append(errs, field.Invalid(field.NewPath("podMaxBackoffSeconds"), *f.PodMaxBackoffSeconds, "must be less than or equal to 4294967296"))
	}
	return append(errs, validateExtenders(f.Extenders)...)
}

func validatePercentage(path *field.Path, percentage *int32) field.ErrorList {
	if percentage != nil && (*percentage < 0 || *percentage > 100) {
		return field.ErrorList{field.Invalid(path, *percentage, "not in valid range [0-100]")}
	}
	return nil
}

func validateProfiles(profiles []configv1.KubeSchedulerProfile) (errs field.ErrorList) {
	first := map[string]int{}
	for i := range profiles {
		p, path := &profiles[i], field.NewPath("profiles").Index(i)
		name := ""
		if p.SchedulerName != nil {
			name = *p.SchedulerName
		}
		if name == "" {
			errs = append(errs, field.Required(path.Child("schedulerName"), ""))
		}
		if at, taken := first[name]; taken {
			errs = append(errs, field.Duplicate(path.Child("schedulerName"), field.NewPath("profiles").Index(at).Child("schedulerName").String()))
		}
		first[name] = i
		errs = append(errs, validatePercentage(path.Child("percentageOfNodesToScore"), p.PercentageOfNodesToScore)...)
		errs = append(errs, validateGone(path.Child("plugins"), p.Plugins)...)
	}
	return errs
}

// gone are plugins that upstream has removed.
var gone = map[string]bool{"AzureDiskLimits": true, "CinderLimits": true, "EBSLimits": true, "GCEPDLimits": true}

func wasInvalid() string {
	return fmt.Sprintf("was invalid in version %q (KubeSchedulerConfiguration is version %q)", configv1.SchemeGroupVersion, configv1.SchemeGroupVersion)
}

func validateGone(path *field.Path, p *configv1.Plugins) (errs field.ErrorList) {
	if p == nil {
		return nil
	}
	for _, s := range pointSets(p) {
		for i, enabled := range s.set.Enabled {
			if gone[enabled.Name] {
				errs = append(errs, field.Invalid(path.Child(s.field).Child("enabled").Index(i), enabled.Name, wasInvalid()))
			}
		}
	}
	return errs
}

func validateExtenders(extenders []configv1.Extender) (errs field.ErrorList) {
	path := field.NewPath("extenders")
	binders, managed := 0, map[string]bool{}
	for i := range extenders {
		e, at := &extenders[i], path.Index(i)
		if e.URLPrefix == "" {
			errs = append(errs, field.Required(at.Child("urlPrefix"), ""))
		}
		if e.PrioritizeVerb != "" && e.Weight <= 0 {
			errs = append(errs, field.Invalid(at.Child("weight"), e.Weight, "must have a positive weight applied to it"))
		}
		if e.HTTPTimeout.Duration < 0 {
			errs = append(errs, field.Invalid(at.Child("httpTimeout"), e.HTTPTimeout, "must be non-negative"))
		}
		if e.BindVerb != "" {
			binders++
		}
		for j, r := range e.ManagedResources {
			name := at.Child("managedResources").Index(j).Child("name")
			errs = append(errs, validateExtended(name, r.Name)...)
			if managed[r.Name] {
				errs = append(errs, field.Invalid(name, r.Name, "duplicate extender managed resource name"))
			}
			managed[r.Name] = true
		}
	}
	if binders > 1 {
		errs = append(errs, field.Invalid(path, fmt.Sprintf("found %d extenders implementing bind", binders), "only one extender can implement bind"))
	}
	return errs
}

// validateExtended checks the name of an extended resource.
func validateExtended(path *field.Path, name string) (errs field.ErrorList) {
	for _, msg := range validation.IsQualifiedName(name) {
		errs = append(errs, field.Invalid(path, name, msg))
	}
	if len(errs) > 0 {
		return errs
	}
	own := !strings.Contains(name, "/") || strings.Contains(name, corev1.ResourceDefaultNamespacePrefix)
	if own || strings.HasPrefix(name, corev1.DefaultResourceRequestsPrefix) || len(validation.IsQualifiedName(corev1.DefaultResourceRequestsPrefix+name)) > 0 {
		return field.ErrorList{field.Invalid(path, name, "is an invalid extended resource name")}
	}
	return nil
}
