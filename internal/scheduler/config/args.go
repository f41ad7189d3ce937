package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	configv1 "k8s.io/kube-scheduler/config/v1"

	"github.com/kemudi/kemudi/internal/scheduler/plugins"
)

// argsOf is a plugin with arguments: where they go, and the check of them, which
// fills in defaults first.
type argsOf struct {
	into  any // pointer to the arguments
	check func(path *field.Path) field.ErrorList
}

// of makes the arguments of a plugin, and has them checked.
func of[T any](at **T, check func(args *T, path *field.Path) field.ErrorList) argsOf {
	*at = new(T)
	return argsOf{*at, func(path *field.Path) field.ErrorList { return check(*at, path) }}
}

// readArgs reads the arguments that a profile gives its plugins; plugins that it does
// not name get the defaults.
func readArgs(a *plugins.Args, list []configv1.PluginConfig, path *field.Path) (errs field.ErrorList) {
	known := map[string]argsOf{
		"DefaultPreemption":               of(&a.DefaultPreemption, checkPreemption),
		"InterPodAffinity":                of(&a.InterPodAffinity, checkInterPodAffinity),
		"NodeAffinity":                    of(&a.NodeAffinity, checkNodeAffinity),
		"NodeResourcesBalancedAllocation": of(&a.NodeResourcesBalancedAllocation, checkBalanced),
		"NodeResourcesFit":                of(&a.NodeResourcesFit, checkFit),
		"PodTopologySpread":               of(&a.PodTopologySpread, checkSpread),
		"VolumeBinding":                   of(&a.VolumeBinding, checkVolumeBinding),
		"DynamicResources":                of(&a.DynamicResources, checkDynamic),
	}
	seen := map[string]bool{}
	for i, c := range list {
		at := path.Index(i)
		if seen[c.Name] {
			errs = append(errs, field.Duplicate(at, c.Name))
			continue
		}
		seen[c.Name] = true
		if gone[c.Name] {
			errs = append(errs, field.Invalid(at, c.Name, wasInvalid()))
			continue
		}
		args, ok := known[c.Name]
		if !ok || len(c.Args.Raw) == 0 {
			continue
		}
		if err := decodeArgs(c, args.into); err != nil {
			errs = append(errs, field.Invalid(at.Child("args"), c.Name, err.Error()))
			continue
		}
		errs = append(errs, args.check(at.Child("args"))...)
		delete(known, c.Name)
	}
	for name, args := range known {
		if more := args.check(nil); len(more) > 0 && !seen[name] {
			panic(fmt.Sprintf("default arguments of %s: %v", name, more))
		}
	}
	return errs
}

func decodeArgs(c configv1.PluginConfig, into any) error {
	var meta metav1.TypeMeta
	if err := json.Unmarshal(c.Args.Raw, &meta); err != nil {
		return err
	}
	if want := c.Name + "Args"; meta.Kind != "" && meta.Kind != want {
		return fmt.Errorf("args for plugin %s were not of type %s.%s, got %s.%s", c.Name, want, configv1.GroupName, meta.Kind, meta.GroupVersionKind().Group)
	}
	return strictly(c.Args.Raw, into)
}

func checkPreemption(a *configv1.DefaultPreemptionArgs, path *field.Path) (errs field.ErrorList) {
	setDefault(&a.MinCandidateNodesPercentage, 10)
	setDefault(&a.MinCandidateNodesAbsolute, 100)
	percentage, absolute := *a.MinCandidateNodesPercentage, *a.MinCandidateNodesAbsolute
	if percentage < 0 || percentage > 100 {
		errs = append(errs, field.Invalid(path.Child("minCandidateNodesPercentage"), percentage, "not in valid range [0, 100]"))
	}
	if absolute < 0 {
		errs = append(errs, field.Invalid(path.Child("minCandidateNodesAbsolute"), absolute, "not in valid range [0, inf)"))
	}
	if percentage == 0 && absolute == 0 {
		errs = append(errs,
			field.Invalid(path.Child("minCandidateNodesPercentage"), percentage, "cannot be zero at the same time as minCandidateNodesAbsolute"),
			field.Invalid(path.Child("minCandidateNodesAbsolute"), absolute, "cannot be zero at the same time as minCandidateNodesPercentage"))
	}
	return errs
}

func checkInterPodAffinity(a *configv1.InterPodAffinityArgs, path *field.Path) field.ErrorList {
	setDefault(&a.HardPodAffinityWeight, 1)
	if w := *a.HardPodAffinityWeight; w < 0 || w > 100 {
		return field.ErrorList{field.Invalid(path.Child("hardPodAffinityWeight"), w, "not in valid range [0, 100]")}
	}
	return nil
}

func checkNodeAffinity(a *configv1.NodeAffinityArgs, path *field.Path) (errs field.ErrorList) {
	if a.AddedAffinity == nil {
		return nil
	}
	added := path.Child("addedAffinity")
	note := func(at string, err error) {
		for _, e := range unwrapped(err) {
			var fe *field.Error
			if !errors.As(e, &fe) {
				fe = field.Invalid(added.Child(at), "", e.Error())
			}
			errs = append(errs, fe)
		}
	}
	if required := a.AddedAffinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		const at = "requiredDuringSchedulingIgnoredDuringExecution"
		_, err := nodeaffinity.NewNodeSelector(required, field.WithPath(added.Child(at)))
		note(at, err)
	}
	if terms := a.AddedAffinity.PreferredDuringSchedulingIgnoredDuringExecution; len(terms) > 0 {
		const at = "preferredDuringSchedulingIgnoredDuringExecution"
		_, err := nodeaffinity.NewPreferredSchedulingTerms(terms, field.WithPath(added.Child(at)))
		note(at, err)
	}
	return errs
}

// unwrapped is the errors that one is made of.
func unwrapped(err error) []error {
	var many interface{ Errors() []error }
	switch {
	case err == nil:
		return nil
	case errors.As(err, &many):
		return many.Errors()
	}
	return []error{err}
}

func checkBalanced(a *configv1.NodeResourcesBalancedAllocationArgs, path *field.Path) (errs field.ErrorList) {
	if len(a.Resources) == 0 {
		a.Resources = cpuAndMemory()
	}
	setWeights(a.Resources)
	seen := map[string]bool{}
	for i, r := range a.Resources {
		at := path.Child("resources").Index(i)
		if seen[r.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), r.Name))
		}
		seen[r.Name] = true
		if r.Weight != 1 {
			errs = append(errs, field.Invalid(at.Child("weight"), r.Weight, "must be 1"))
		}
	}
	return errs
}

func checkFit(a *configv1.NodeResourcesFitArgs, path *field.Path) (errs field.ErrorList) {
	for i, name := range a.IgnoredResources {
		errs = append(errs, metavalidation.ValidateLabelName(name, path.Child("ignoredResources").Index(i))...)
	}
	for i, group := range a.IgnoredResourceGroups {
		at := path.Child("ignoredResourceGroups").Index(i)
		if strings.Contains(group, "/") {
			errs = append(errs, field.Invalid(at, group, "resource group name can't contain '/'"))
		}
		errs = append(errs, metavalidation.ValidateLabelName(group, at)...)
	}
	if a.ScoringStrategy == nil {
		a.ScoringStrategy = &configv1.ScoringStrategy{Type: configv1.LeastAllocated}
	}
	return append(errs, checkStrategy(a.ScoringStrategy, path.Child("scoringStrategy"))...)
}

func checkStrategy(s *configv1.ScoringStrategy, path *field.Path) (errs field.ErrorList) {
	if len(s.Resources) == 0 {
		s.Resources = cpuAndMemory()
	}
	setWeights(s.Resources)
	switch s.Type {
	case configv1.LeastAllocated, configv1.MostAllocated, configv1.RequestedToCapacityRatio:
	default:
		errs = append(errs, field.NotSupported(path.Child("type"), s.Type,
			[]configv1.ScoringStrategyType{configv1.LeastAllocated, configv1.MostAllocated, configv1.RequestedToCapacityRatio}))
	}
	for i, r := range s.Resources {
		if r.Weight <= 0 || r.Weight > 100 {
			errs = append(errs, field.Invalid(path.Child("resources").Index(i).Child("weight"), r.Weight,
				fmt.Sprintf("resource weight of %v not in valid range (0, 100]", r.Name)))
		}
	}
	ratio := path.Child("requestedToCapacityRatio")
	switch {
	case s.Type != configv1.RequestedToCapacityRatio && s.RequestedToCapacityRatio != nil:
		errs = append(errs, field.Forbidden(ratio, "must be nil when type is not RequestedToCapacityRatio"))
	case s.Type != configv1.RequestedToCapacityRatio:
	case s.RequestedToCapacityRatio == nil:
		errs = append(errs, field.Required(ratio, "must be specified when type is RequestedToCapacityRatio"))
	default:
		errs = append(errs, checkShape(s.RequestedToCapacityRatio.Shape, ratio.Child("shape"))...)
	}
	return errs
}

func checkShape(shape []configv1.UtilizationShapePoint, path *field.Path) (errs field.ErrorList) {
	if len(shape) == 0 {
		return field.ErrorList{field.Required(path, "at least one point must be specified")}
	}
	for i := 1; i < len(shape); i++ {
		if shape[i-1].Utilization >= shape[i].Utilization {
			errs = append(errs, field.Invalid(path.Index(i).Child("utilization"), shape[i].Utilization, "values must be sorted in increasing order"))
			break
		}
	}
	for i, p := range shape {
		if p.Utilization < 0 || p.Utilization > 100 {
			errs = append(errs, field.Invalid(path.Index(i).Child("utilization"), p.Utilization, "not in valid range [0, 100]"))
		}
		if p.Score < 0 || p.Score > 10 {
			errs = append(errs, field.Invalid(path.Index(i).Child("score"), p.Score, "not in valid range [0, 10]"))
		}
	}
	return errs
}

func checkSpread(a *configv1.PodTopologySpreadArgs, path *field.Path) (errs field.ErrorList) {
	if a.DefaultingType == "" {
		a.DefaultingType = configv1.SystemDefaulting
	}
	kind := path.Child("defaultingType")
	switch {
	case a.DefaultingType != configv1.SystemDefaulting && a.DefaultingType != configv1.ListDefaulting:
		errs = append(errs, field.NotSupported(kind, a.DefaultingType,
			[]configv1.PodTopologySpreadConstraintsDefaulting{configv1.SystemDefaulting, configv1.ListDefaulting}))
	case a.DefaultingType == configv1.SystemDefaulting && len(a.DefaultConstraints) > 0:
		errs = append(errs, field.Invalid(kind, a.DefaultingType, "when .defaultConstraints are not empty"))
	}
	list := path.Child("defaultConstraints")
	for i := range a.DefaultConstraints {
		errs = append(errs, checkConstraint(&a.DefaultConstraints[i], list.Index(i))...)
		for _, other := range a.DefaultConstraints[:i] {
			if c := &a.DefaultConstraints[i]; c.TopologyKey == other.TopologyKey && c.WhenUnsatisfiable == other.WhenUnsatisfiable {
				errs = append(errs, field.Duplicate(list.Index(i), fmt.Sprintf("{%v, %v}", c.TopologyKey, c.WhenUnsatisfiable)))
				break
			}
		}
	}
	return errs
}

func checkConstraint(c *corev1.TopologySpreadConstraint, path *field.Path) (errs field.ErrorList) {
	if c.MaxSkew <= 0 {
		errs = append(errs, field.Invalid(path.Child("maxSkew"), c.MaxSkew, "not in valid range (0, inf)"))
	}
	if c.TopologyKey == "" {
		errs = append(errs, field.Required(path.Child("topologyKey"), "can not be empty"))
	} else {
		errs = append(errs, metavalidation.ValidateLabelName(c.TopologyKey, path.Child("topologyKey"))...)
	}
	switch c.WhenUnsatisfiable {
	case corev1.DoNotSchedule, corev1.ScheduleAnyway:
	case "":
		errs = append(errs, field.Required(path.Child("whenUnsatisfiable"), "can not be empty"))
	default:
		errs = append(errs, field.NotSupported(path.Child("whenUnsatisfiable"), c.WhenUnsatisfiable,
			[]corev1.UnsatisfiableConstraintAction{corev1.DoNotSchedule, corev1.ScheduleAnyway}))
	}
	if c.LabelSelector != nil {
		errs = append(errs, field.Forbidden(path.Child("labelSelector"), "constraint must not define a selector, as they deduced for each pod"))
	}
	return errs
}

func checkVolumeBinding(a *configv1.VolumeBindingArgs, path *field.Path) (errs field.ErrorList) {
	setDefault(&a.BindTimeoutSeconds, 600)
	if *a.BindTimeoutSeconds < 0 {
		errs = append(errs, field.Invalid(path.Child("bindTimeoutSeconds"), *a.BindTimeoutSeconds, "invalid BindTimeoutSeconds, should not be a negative value"))
	}
	if len(a.Shape) == 0 {
		a.Shape = plugins.EmptiestVolumes()
	}
	return append(errs, checkShape(a.Shape, path.Child("shape"))...)
}

func checkDynamic(a *configv1.DynamicResourcesArgs, path *field.Path) (errs field.ErrorList) {
	setDefault(&a.FilterTimeout, metav1.Duration{Duration: configv1.DynamicResourcesFilterTimeoutDefault})
	setDefault(&a.BindingTimeout, metav1.Duration{Duration: configv1.DynamicResourcesBindingTimeoutDefault})
	if a.FilterTimeout.Duration < 0 {
		errs = append(errs, field.Invalid(path.Child("filterTimeout"), a.FilterTimeout, "must be zero or positive"))
	}
	if a.BindingTimeout.Seconds() < 1 {
		errs = append(errs, field.Invalid(path.Child("bindingTimeout"), a.BindingTimeout, "must be at least 1 second"))
	}
	return errs
}
