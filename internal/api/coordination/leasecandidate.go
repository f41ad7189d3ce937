package coordination

import (
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1alpha2 "k8s.io/api/coordination/v1alpha2"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/kemudi/kemudi/internal/resource"
)

// LeaseCandidates are who would hold a lease that a control plane gives away.
var LeaseCandidates = resource.Define(resource.Spec[*coordinationv1beta1.LeaseCandidate]{
	Names: resource.Names{
		Group: "coordination.k8s.io", Version: "v1beta1", Kind: "LeaseCandidate", Plural: "leasecandidates", Namespaced: true, OptIn: true,
		NameRule: func(name string, _ bool) []string { return validation.IsConfigMapKey(name) },
	},
	Update:   resource.UpdateNeedsRevision,
	Validate: validateLeaseCandidate,
	Columns: []resource.Column[*coordinationv1beta1.LeaseCandidate]{
		{Name: "LeaseName", Description: coordinationv1alpha2.LeaseCandidateSpec{}.SwaggerDoc()["leaseName"], Value: func(c *coordinationv1beta1.LeaseCandidate) any { return c.Spec.LeaseName }},
		{Name: "BinaryVersion", Value: func(c *coordinationv1beta1.LeaseCandidate) any { return c.Spec.BinaryVersion }},
		{Name: "EmulationVersion", Value: func(c *coordinationv1beta1.LeaseCandidate) any { return c.Spec.EmulationVersion }},
	},
	Versions: []resource.Version[*coordinationv1beta1.LeaseCandidate]{resource.SameWire[*coordinationv1alpha2.LeaseCandidate](resource.Version[*coordinationv1beta1.LeaseCandidate]{
		Group: "coordination.k8s.io", Version: "v1alpha2",
		Deprecated: "coordination.k8s.io/v1alpha2 LeaseCandidate is deprecated in v1.35+, unavailable in v1.38+",
	})},
})

func validateLeaseCandidate(obj, old *coordinationv1beta1.LeaseCandidate, errs *resource.Errors) {
	s := &obj.Spec
	if s.LeaseName == "" {
		errs.Required("spec.leaseName", "")
	}
	emulated := parseVersion("spec.emulationVersion", s.EmulationVersion, errs)
	if s.BinaryVersion == "" {
		errs.Required("spec.binaryVersion", "")
	}
	binary := parseVersion("spec.binaryVersion", s.BinaryVersion, errs)
	if s.BinaryVersion != "" && s.EmulationVersion != "" && binary.LessThan(emulated) {
		errs.Invalid("spec.binaryVersion", s.BinaryVersion, "must be greater than or equal to `emulationVersion`")
	}
	if s.Strategy == "" {
		errs.Required("spec.strategy", "")
	} else {
		if s.Strategy == coordinationv1.OldestEmulationVersion && emulated.EqualTo(noVersion) {
			errs.Required("spec.emulationVersion", "must be specified when `strategy` is 'OldestEmulationVersion'")
		}
		validateStrategy(s.Strategy, errs)
	}
	if old != nil && s.LeaseName != old.Spec.LeaseName {
		errs.Immutable("spec.leaseName", s.LeaseName)
	}
}

// noVersion is lower than all others.
var noVersion = version.MustParseSemantic("0.0.0")

// parseVersion reads a semantic version; what cannot be read, or is not there, is lower than all others.
func parseVersion(path, text string, errs *resource.Errors) *version.Version {
	if text == "" {
		return noVersion
	}
	v, err := version.ParseSemantic(text)
	if err != nil || text[0] < '0' || text[0] > '9' { // the parser minds neither spaces nor a v in front
		errs.Invalid(path, text, "must be a valid semantic version")
		return noVersion
	}
	return v
}

// validateStrategy refuses names of strategies that are neither known nor somebody's own. Upstream's paths of them are longer than
// the field's.
func validateStrategy(s coordinationv1.CoordinatedLeaseStrategy, errs *resource.Errors) {
	if strings.Contains(string(s), "/") {
		errs.Refuse("spec.strategy.strategy", s, validation.IsQualifiedName(string(s)))
	} else if s != coordinationv1.OldestEmulationVersion {
		resource.NotSupported(errs, "spec.strategy.strategy", s, coordinationv1.OldestEmulationVersion)
	}
}
