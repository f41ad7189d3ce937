package abac

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	kjson "sigs.k8s.io/json"
)

// Policies allow what one of them allows. They deny nothing.
type Policies []policy

var (
	_ authorizer.UnconditionalAuthorizer = Policies(nil)
	_ authorizer.RuleResolver            = Policies(nil)
)

// document is a line of the file.
type document struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       policy `json:"spec"`
}

// policy says whom it is about and what they may do; * is anything.
type policy struct {
	User            string `json:"user"`
	Group           string `json:"group"`
	Readonly        bool   `json:"readonly"`
	APIGroup        string `json:"apiGroup"`
	Resource        string `json:"resource"`
	Namespace       string `json:"namespace"`
	NonResourcePath string `json:"nonResourcePath"`
}

// oldPolicy is a line without a version, as the first releases had them.
type oldPolicy struct {
	User      string `json:"user"`
	Group     string `json:"group"`
	Readonly  bool   `json:"readonly"`
	Resource  string `json:"resource"`
	Namespace string `json:"namespace"`
}

// Read reads a file of policies. Empty lines and those that begin with # say nothing.
func Read(file string) (Policies, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read policy file: %w", err)
	}
	all := Policies{}
	n := 0
	for line := range bytes.Lines(data) {
		n++
		if line = bytes.TrimSpace(line); len(line) == 0 || line[0] == '#' {
			continue
		}
		p, err := parse(line)
		if err != nil {
			return nil, fmt.Errorf("error reading policy file %s, line %d: %s: %w", file, n, line, err)
		}
		all = append(all, p)
	}
	return all, nil
}

func parse(line []byte) (policy, error) {
	var is struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(line, &is); err != nil {
		return policy{}, err
	}
	if is.APIVersion == "" && is.Kind == "" {
		var old oldPolicy
		if err := strict(line, &old); err != nil {
			return policy{}, err
		}
		return old.today(), nil
	}
	if is.APIVersion != "abac.authorization.kubernetes.io/v1beta1" || is.Kind != "Policy" {
		return policy{}, fmt.Errorf("is %s %s, want abac.authorization.kubernetes.io/v1beta1 Policy", is.APIVersion, is.Kind)
	}
	var doc document
	if err := strict(line, &doc); err != nil {
		return policy{}, err
	}
	return doc.Spec.whole(), nil
}

// strict refuses fields that do not exist: a policy with a mistake in it may allow more than was meant.
func strict(line []byte, into any) error {
	wrong, err := kjson.UnmarshalStrict(line, into)
	if err != nil {
		return err
	}
	return errors.Join(wrong...)
}

// whole has a user or group of * mean everybody who is known.
func (p policy) whole() policy {
	if p.User == "*" || p.Group == "*" {
		p.User, p.Group = "", user.AllAuthenticated
	}
	return p
}

// today is what a line without a version means: what it does not say is anything.
func (o oldPolicy) today() policy {
	p := policy{User: o.User, Group: o.Group, Readonly: o.Readonly, APIGroup: "*", Resource: o.Resource, Namespace: o.Namespace}
	if p.User == "" && p.Group == "" {
		p.Group = "*"
	}
	if o.Namespace == "" {
		p.Namespace = "*"
	}
	if o.Resource == "" {
		p.Resource = "*"
	}
	if o.Namespace == "" && o.Resource == "" {
		p.NonResourcePath = "*"
	}
	return p.whole()
}

// Authorize decides about one request.
func (l Policies) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	for i := range l {
		if l[i].allows(a) {
			return authorizer.DecisionAllow, "", nil
		}
	}
	return authorizer.DecisionNoOpinion, "No policy matched.", nil
}

func (p *policy) allows(a authorizer.Attributes) bool {
	if !p.means(a.GetUser()) || p.Readonly && !a.IsReadOnly() {
		return false
	}
	if a.IsResourceRequest() {
		return matches(p.Namespace, a.GetNamespace()) && matches(p.Resource, a.GetResource()) && matches(p.APIGroup, a.GetAPIGroup())
	}
	if before, some := strings.CutSuffix(p.NonResourcePath, "*"); some {
		return strings.HasPrefix(a.GetPath(), strings.TrimRight(before, "*"))
	}
	return p.NonResourcePath == a.GetPath()
}

func matches(want, got string) bool { return want == "*" || want == got }

// means reports whether the policy is about a user: by the name, the group or both, whichever it has.
func (p *policy) means(u user.Info) bool {
	if u == nil || p.User == "" && p.Group == "" {
		return false
	}
	return (p.User == "" || p.User == u.GetName()) && (p.Group == "" || slices.Contains(u.GetGroups(), p.Group))
}

// RulesFor lists what the user may do in a namespace.
func (l Policies) RulesFor(_ context.Context, u user.Info, namespace string) (res []authorizer.ResourceRuleInfo, non []authorizer.NonResourceRuleInfo, incomplete bool, err error) {
	for i := range l {
		p := &l[i]
		if !p.means(u) || !matches(p.Namespace, namespace) {
			continue
		}
		verbs := []string{"*"}
		if p.Readonly {
			verbs = []string{"get", "list", "watch"}
		}
		if p.Resource != "" {
			res = append(res, &authorizer.DefaultResourceRuleInfo{Verbs: verbs, APIGroups: []string{p.APIGroup}, Resources: []string{p.Resource}})
		}
		if p.NonResourcePath != "" {
			non = append(non, &authorizer.DefaultNonResourceRuleInfo{Verbs: verbs, NonResourceURLs: []string{p.NonResourcePath}})
		}
	}
	return res, non, false, nil
}
