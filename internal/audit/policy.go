package audit

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/kemudi/kemudi/internal/wire"
)

// readPolicy reads the policy in a file. strict is what is wrong with it that it can be
// used without: fields that do not exist, and such as are there twice.
func readPolicy(file string) (p *auditv1.Policy, strict []error, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, fmt.Errorf("loading audit policy file: failed to read file path %q: %w", file, err)
	}
	p, strict, err = parsePolicy(data)
	if err != nil {
		return nil, nil, fmt.Errorf("loading audit policy file: %w: from file %v", err, file)
	}
	return p, strict, nil
}

func parsePolicy(data []byte) (p *auditv1.Policy, strict []error, err error) {
	p = &auditv1.Policy{}
	doc, twice, err := wire.YAMLToJSON(data, true)
	if err == nil {
		strict, err = wire.DecodeJSONStrict(doc, p)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("failed decoding: %w", err)
	}
	if twice != nil {
		strict = append(strict, twice)
	}
	switch {
	case p.Kind == "":
		return nil, nil, errors.New("failed decoding: Object 'Kind' is missing")
	case p.APIVersion != version, p.Kind != "Policy":
		return nil, nil, fmt.Errorf("unknown group version field %s, Kind=%s in policy: want %s, Kind=Policy", p.APIVersion, p.Kind, version)
	}
	if errs := checkPolicy(p); len(errs) > 0 {
		return nil, nil, errs.ToAggregate()
	}
	if len(p.Rules) == 0 {
		return nil, nil, errors.New("loaded illegal policy with 0 rules")
	}
	return p, strict, nil
}

// levels and stages are those that there are, as refusals list them.
var (
	levels = []auditv1.Level{auditv1.LevelNone, auditv1.LevelMetadata, auditv1.LevelRequest, auditv1.LevelRequestResponse}
	stages = []auditv1.Stage{auditv1.StageRequestReceived, auditv1.StageResponseStarted, auditv1.StageResponseComplete, auditv1.StagePanic}
)

// checkPolicy says what is wrong with a policy, in upstream's words.
func checkPolicy(p *auditv1.Policy) field.ErrorList {
	errs := checkStages(p.OmitStages, field.NewPath("omitStages"))
	for i := range p.Rules {
		errs = append(errs, checkRule(&p.Rules[i], field.NewPath("rules").Index(i))...)
	}
	return errs
}

func checkRule(r *auditv1.PolicyRule, at *field.Path) (errs field.ErrorList) {
	switch {
	case r.Level == "":
		errs = append(errs, field.Required(at.Child("level"), ""))
	case !slices.Contains(levels, r.Level):
		errs = append(errs, field.NotSupported(at.Child("level"), r.Level, levels))
	}
	for i, url := range r.NonResourceURLs {
		if url == "*" {
			continue
		}
		if !strings.HasPrefix(url, "/") {
			errs = append(errs, field.Invalid(at.Child("nonResourceURLs").Index(i), url, "non-resource URL rules must begin with a '/' character"))
		}
		if url != "" && strings.Contains(url[:len(url)-1], "*") {
			errs = append(errs, field.Invalid(at.Child("nonResourceURLs").Index(i), url, "non-resource URL wildcards '*' must be the final character of the rule"))
		}
	}
	for i := range r.Resources {
		errs = append(errs, checkResources(&r.Resources[i], at.Child("resources"))...)
	}
	errs = append(errs, checkStages(r.OmitStages, at.Child("omitStages"))...)
	if len(r.NonResourceURLs) > 0 && (len(r.Resources) > 0 || len(r.Namespaces) > 0) {
		errs = append(errs, field.Invalid(at.Child("nonResourceURLs"), r.NonResourceURLs, "rules cannot apply to both regular resources and non-resource URLs"))
	}
	return errs
}

func checkResources(r *auditv1.GroupResources, at *field.Path) (errs field.ErrorList) {
	if r.Group != "" && r.Group != "*" {
		if wrong := validation.NameIsDNSSubdomain(r.Group, false); len(wrong) > 0 {
			errs = append(errs, field.Invalid(at.Child("group"), r.Group, strings.Join(wrong, ",")))
		}
	}
	if len(r.ResourceNames) > 0 && len(r.Resources) == 0 {
		errs = append(errs, field.Invalid(at.Child("resourceNames"), r.ResourceNames, "using resourceNames requires at least one resource"))
	}
	return errs
}

func checkStages(omitted []auditv1.Stage, at *field.Path) (errs field.ErrorList) {
	for i, stage := range omitted {
		if !slices.Contains(stages, stage) {
			errs = append(errs, field.Invalid(at.Index(i), string(stage), "allowed stages are RequestReceived,ResponseStarted,ResponseComplete,Panic"))
		}
	}
	return errs
}
