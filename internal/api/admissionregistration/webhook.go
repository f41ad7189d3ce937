package admissionregistration

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	admissionregistrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/resource"
)

// webhook is a webhook of either kind.
type webhook admissionregistrationv1.MutatingWebhook

// policies are what is meant by a webhook that does not say it.
type policies struct {
	failure admissionregistrationv1.FailurePolicyType
	match   admissionregistrationv1.MatchPolicyType
	timeout int32 // seconds
}

// now and before are the defaults of v1 and of v1beta1.
var (
	now    = policies{admissionregistrationv1.Fail, admissionregistrationv1.Equivalent, 10}
	before = policies{admissionregistrationv1.Ignore, admissionregistrationv1.Exact, 30}
)

func (w *webhook) defaults(p policies) {
	w.FailurePolicy, w.MatchPolicy, w.TimeoutSeconds = or(w.FailurePolicy, p.failure), or(w.MatchPolicy, p.match), or(w.TimeoutSeconds, p.timeout)
	w.NamespaceSelector, w.ObjectSelector = or(w.NamespaceSelector, metav1.LabelSelector{}), or(w.ObjectSelector, metav1.LabelSelector{})
	if s := w.ClientConfig.Service; s != nil {
		s.Port = or(s.Port, 443)
	}
	for i := range w.Rules {
		w.Rules[i].Scope = or(w.Rules[i].Scope, admissionregistrationv1.AllScopes)
	}
}

// legacy are the fields of a webhook of v1beta1 that have other defaults there.
type legacy struct {
	failure     **admissionregistrationv1beta1.FailurePolicyType
	match       **admissionregistrationv1beta1.MatchPolicyType
	sideEffects **admissionregistrationv1beta1.SideEffectClass
	timeout     **int32
	versions    *[]string
}

func (l legacy) defaults() {
	*l.failure = or(*l.failure, admissionregistrationv1beta1.FailurePolicyType(before.failure))
	*l.match = or(*l.match, admissionregistrationv1beta1.MatchPolicyType(before.match))
	*l.sideEffects = or(*l.sideEffects, admissionregistrationv1beta1.SideEffectClassUnknown)
	*l.timeout = or(*l.timeout, before.timeout)
	if len(*l.versions) == 0 {
		*l.versions = []string{admissionregistrationv1beta1.SchemeGroupVersion.Version}
	}
}

// rules are what webhooks must fulfil that some which are stored already do not, because they were
// written through v1beta1 or by an earlier release.
type rules struct {
	noSideEffects  bool
	knownReviews   bool
	distinctNames  bool
	selectorValues bool // that are values of labels
	conditions     bool // that can be compiled
}

// strict are the rules of v1 and lenient those of v1beta1, for new objects.
var (
	strict  = rules{noSideEffects: true, knownReviews: true, distinctNames: true, selectorValues: true, conditions: true}
	lenient = rules{knownReviews: true, selectorValues: true, conditions: true}
)

// of are the rules for an update: what the stored webhooks have broken may stay so, and
// conditions that nobody has changed are not compiled again.
func (r rules) of(update bool, is, was []admissionregistrationv1.MutatingWebhook) rules {
	if !update {
		return r
	}
	names := map[string]bool{}
	conditions := func(a, b admissionregistrationv1.MutatingWebhook) bool {
		return slices.Equal(a.MatchConditions, b.MatchConditions)
	}
	r.conditions = !slices.EqualFunc(is, was, conditions)
	for i := range was {
		w := &was[i]
		r.noSideEffects = r.noSideEffects && w.SideEffects != nil && slices.Contains(noSideEffects, *w.SideEffects)
		r.knownReviews = r.knownReviews && (len(w.AdmissionReviewVersions) == 0 || slices.ContainsFunc(w.AdmissionReviewVersions, knownReview))
		r.distinctNames = r.distinctNames && !names[w.Name]
		r.selectorValues = r.selectorValues && validSelector(w.NamespaceSelector) && validSelector(w.ObjectSelector)
		names[w.Name] = true
	}
	return r
}

func validSelector(s *metav1.LabelSelector) bool {
	return s == nil || len(metavalidation.ValidateLabelSelector(s, metavalidation.LabelSelectorValidationOptions{}, nil)) == 0
}

var (
	noSideEffects  = []admissionregistrationv1.SideEffectClass{admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.SideEffectClassNoneOnDryRun}
	anySideEffects = append(slices.Clone(noSideEffects), admissionregistrationv1.SideEffectClassSome, admissionregistrationv1.SideEffectClassUnknown)
)

// Reviews are the versions of AdmissionReview that webhooks may ask for.
var Reviews = []string{"v1", "v1beta1"}

func knownReview(version string) bool { return slices.Contains(Reviews, version) }

func validateWebhooks(errs *resource.Errors, is, was []admissionregistrationv1.MutatingWebhook, r rules) {
	names, stored := map[string]bool{}, map[string]bool{}
	for i := range was {
		for _, c := range was[i].MatchConditions {
			stored[c.Expression] = true
		}
	}
	for i := range is {
		w := &is[i]
		at := errs.At("webhooks[%d]", i)
		(*webhook)(w).validate(at, r)
		if r.conditions {
			validateConditions(at, "matchConditions", w.MatchConditions, conditionRules{stored: stored})
		}
		validateReviews(at, w.AdmissionReviewVersions, r)
		if r.distinctNames && w.Name != "" && names[w.Name] {
			at.Duplicate("name", w.Name)
		}
		names[w.Name] = true
	}
}

func (w *webhook) validate(errs *resource.Errors, r rules) {
	errs.Add(utilvalidation.IsFullyQualifiedName(errs.Path("name"), w.Name)...)
	for i := range w.Rules {
		ValidateRule(errs.At("rules[%d]", i), &w.Rules[i])
	}
	if w.FailurePolicy != nil {
		check.OneOf(errs, "failurePolicy", *w.FailurePolicy, admissionregistrationv1.Fail, admissionregistrationv1.Ignore)
	}
	if w.MatchPolicy != nil {
		check.OneOf(errs, "matchPolicy", *w.MatchPolicy, admissionregistrationv1.Equivalent, admissionregistrationv1.Exact)
	}
	allowed := anySideEffects
	if r.noSideEffects {
		allowed = noSideEffects
	}
	if w.SideEffects != nil {
		check.OneOf(errs, "sideEffects", *w.SideEffects, allowed...)
	} else {
		errs.Required("sideEffects", "must specify one of "+joined(allowed))
	}
	if t := w.TimeoutSeconds; t != nil && (*t < 1 || *t > 30) {
		errs.Invalid("timeoutSeconds", *t, "the timeout value must be between 1 and 30 seconds")
	}
	o := metavalidation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: !r.selectorValues}
	if w.NamespaceSelector != nil {
		errs.Add(metavalidation.ValidateLabelSelector(w.NamespaceSelector, o, errs.Path("namespaceSelector"))...)
	}
	if w.ObjectSelector != nil {
		errs.Add(metavalidation.ValidateLabelSelector(w.ObjectSelector, o, errs.Path("objectSelector"))...)
	}
	switch c := &w.ClientConfig; {
	case (c.URL == nil) == (c.Service == nil):
		errs.Required("clientConfig", "exactly one of url or service is required")
	case c.URL != nil:
		check.WebhookURL(errs, "clientConfig.url", *c.URL)
	default:
		s := check.WebhookService{Namespace: c.Service.Namespace, Name: c.Service.Name, Path: c.Service.Path}
		if c.Service.Port != nil {
			s.Port = *c.Service.Port
		}
		s.Check(errs.At("clientConfig.service"))
	}
}

func validateReviews(errs *resource.Errors, versions []string, r rules) {
	if len(versions) == 0 {
		errs.Required("admissionReviewVersions", "must specify one of "+joined(Reviews))
		return
	}
	known := false
	for i, v := range versions {
		if slices.Contains(versions[:i], v) {
			errs.At("admissionReviewVersions[%d]", i).Invalid("", v, "duplicate version")
			continue
		}
		errs.At("admissionReviewVersions[%d]", i).Refuse("", v, utilvalidation.IsDNS1035Label(v))
		known = known || knownReview(v)
	}
	if r.knownReviews && !known {
		errs.Invalid("admissionReviewVersions", versions, "must include at least one of "+joined(Reviews))
	}
}

// joined lists values in a message.
func joined[S ~string](values []S) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = string(v)
	}
	return strings.Join(texts, ", ")
}
