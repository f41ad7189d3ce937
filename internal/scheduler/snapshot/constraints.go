package snapshot

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// Constraints are what a pod's spec asks of a node beyond resources, parsed once for
// all pods of a namespace that ask the same.
type Constraints struct {
	// Err says why the spec cannot be understood; such a pod is not scheduled.
	Err error

	Required  *Required       // nil: every node will do
	Preferred []PreferredNode // node affinity that adds to a score

	Affinity, AntiAffinity []PodTerm
	PreferredPods          []WeightedPodTerm

	Spread []Spread

	Tolerations    []corev1.Toleration
	TolerationsKey string // the same for equal tolerations
	tolerated      []toleratedTaints

	own    []ownTerm
	number uint64
	used   uint64 // last sweep that saw it asked for
}

// Required is a pod's node selector and required node affinity.
type Required struct {
	Key string // the same for equal conditions
	// Names are the only nodes that can match, if the affinity is by name; nil: any.
	Names []string

	affinity nodeaffinity.RequiredNodeAffinity
}

// Matches reports whether a node is what is required.
func (r *Required) Matches(n *Node) bool {
	ok, err := r.affinity.Match(n.Obj)
	return ok && err == nil
}

// PreferredNode adds Weight to the score of nodes that it matches.
type PreferredNode struct {
	Weight int64

	selector *nodeaffinity.NodeSelector
}

// Matches reports whether a node is preferred.
func (p *PreferredNode) Matches(n *Node) bool { return p.selector.Match(n.Obj) }

// PodTerm is a (anti-)affinity term: pods, and what counts as near them.
type PodTerm struct {
	Matcher     *Matcher
	TopologyKey string
}

// WeightedPodTerm is a preference; its weight is negative for anti-affinity.
type WeightedPodTerm struct {
	PodTerm
	Weight int64
}

// Spread is a topology spread constraint.
type Spread struct {
	Matcher       *Matcher
	TopologyKey   string
	MaxSkew       int32
	MinDomains    int32 // at least 1
	Hard          bool  // DoNotSchedule
	HonorAffinity bool  // nodes outside the pod's node affinity do not count
	HonorTaints   bool  // nodes with taints that the pod does not tolerate do not count
}

// constraintsOf returns the constraints of a pod, shared with others that ask the same.
func (s *Snapshot) constraintsOf(p *corev1.Pod) *Constraints {
	key := constraintsKey(p)
	c := s.constraints[key]
	if c == nil {
		c = &Constraints{number: s.shapes.number()}
		if err := c.parse(p); err != nil {
			c.Err = err
		}
		s.constraints[key] = c
	}
	c.used = s.epoch
	return c
}

func constraintsKey(p *corev1.Pod) string {
	if len(p.Spec.NodeSelector) == 0 && p.Spec.Affinity == nil && len(p.Spec.Tolerations) == 0 && len(p.Spec.TopologySpreadConstraints) == 0 {
		return p.Namespace
	}
	part := corev1.PodSpec{
		NodeSelector: p.Spec.NodeSelector, Affinity: p.Spec.Affinity,
		Tolerations: p.Spec.Tolerations, TopologySpreadConstraints: p.Spec.TopologySpreadConstraints,
	}
	b, err := part.Marshal()
	if err != nil {
		panic(fmt.Sprintf("encode parts of a pod's spec: %v", err)) // it has been decoded
	}
	var key strings.Builder
	key.WriteString(p.Namespace)
	key.WriteByte('\n')
	key.Write(b)
	for i := range p.Spec.TopologySpreadConstraints {
		for _, k := range p.Spec.TopologySpreadConstraints[i].MatchLabelKeys {
			v, ok := p.Labels[k]
			fmt.Fprintf(&key, "\n%s %t %s", k, ok, v)
		}
	}
	return key.String()
}

func (c *Constraints) parse(p *corev1.Pod) error {
	c.Tolerations = p.Spec.Tolerations
	c.TolerationsKey = fmt.Sprint(c.Tolerations)
	a := p.Spec.Affinity
	if a == nil {
		a = &corev1.Affinity{}
	}
	if err := c.parseNodes(p, a.NodeAffinity); err != nil {
		return err
	}
	if err := c.parsePods(p, a); err != nil {
		return err
	}
	return c.parseSpread(p)
}

func (c *Constraints) parseNodes(p *corev1.Pod, a *corev1.NodeAffinity) error {
	var required *corev1.NodeSelector
	if a != nil {
		required = a.RequiredDuringSchedulingIgnoredDuringExecution
	}
	if len(p.Spec.NodeSelector) > 0 || required != nil {
		r := &Required{affinity: nodeaffinity.GetRequiredNodeAffinity(p)}
		r.Key = labels.SelectorFromSet(p.Spec.NodeSelector).String()
		if required != nil {
			r.Key += " " + required.String()
			r.Names = onlyNames(required.NodeSelectorTerms)
		}
		c.Required = r
	}
	if a == nil {
		return nil
	}
	var err error
	if c.Preferred, err = preferredNodes(a); err != nil {
		return fmt.Errorf("parse preferred node affinity: %w", err)
	}
	return nil
}

func preferredNodes(a *corev1.NodeAffinity) (list []PreferredNode, err error) {
	for i := range a.PreferredDuringSchedulingIgnoredDuringExecution {
		t := &a.PreferredDuringSchedulingIgnoredDuringExecution[i]
		if t.Weight == 0 || len(t.Preference.MatchExpressions)+len(t.Preference.MatchFields) == 0 {
			continue
		}
		sel, err := nodeaffinity.NewNodeSelector(&corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{t.Preference}})
		if err != nil {
			return nil, err
		}
		list = append(list, PreferredNode{Weight: int64(t.Weight), selector: sel})
	}
	return list, nil
}

// AddedAffinity is node affinity that a profile adds to that of each pod.
type AddedAffinity struct {
	Preferred []PreferredNode

	required *nodeaffinity.LazyErrorNodeSelector // nil: none
}

// NewAddedAffinity parses node affinity, which has been checked.
func NewAddedAffinity(a *corev1.NodeAffinity) *AddedAffinity {
	added := &AddedAffinity{}
	added.Preferred, _ = preferredNodes(a) // checked
	if r := a.RequiredDuringSchedulingIgnoredDuringExecution; r != nil {
		added.required = nodeaffinity.NewLazyErrorNodeSelector(r)
	}
	return added
}

// Matches reports whether a node has what is required.
func (a *AddedAffinity) Matches(n *Node) bool {
	if a.required == nil {
		return true
	}
	ok, err := a.required.Match(n.Obj)
	return ok && err == nil
}

// onlyNames returns the nodes that terms can match, if all of them are by
// name; the result is not nil then, but may be empty.
func onlyNames(terms []corev1.NodeSelectorTerm) []string {
	names := []string{}
	for i := range terms {
		named := false
		for _, f := range terms[i].MatchFields {
			if f.Key == metav1.ObjectNameField && f.Operator == corev1.NodeSelectorOpIn {
				names, named = append(names, f.Values...), true
			}
		}
		if !named {
			return nil
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (c *Constraints) parsePods(p *corev1.Pod, a *corev1.Affinity) (err error) {
	if pa := a.PodAffinity; pa != nil {
		if c.Affinity, err = podTerms(p, pa.RequiredDuringSchedulingIgnoredDuringExecution); err != nil {
			return fmt.Errorf("parse pod affinity: %w", err)
		}
		if err = c.preferPods(p, pa.PreferredDuringSchedulingIgnoredDuringExecution, +1); err != nil {
			return fmt.Errorf("parse preferred pod affinity: %w", err)
		}
	}
	if pa := a.PodAntiAffinity; pa != nil {
		if c.AntiAffinity, err = podTerms(p, pa.RequiredDuringSchedulingIgnoredDuringExecution); err != nil {
			return fmt.Errorf("parse pod anti-affinity: %w", err)
		}
		if err = c.preferPods(p, pa.PreferredDuringSchedulingIgnoredDuringExecution, -1); err != nil {
			return fmt.Errorf("parse preferred pod anti-affinity: %w", err)
		}
	}
	for _, t := range c.AntiAffinity {
		c.hold(Avoidance, t, 1)
	}
	for _, t := range c.Affinity {
		c.hold(Attraction, t, 1)
	}
	for _, t := range c.PreferredPods {
		c.hold(Preference, t.PodTerm, t.Weight)
	}
	return nil
}

func (c *Constraints) hold(kind TermKind, t PodTerm, summand int64) {
	key := fmt.Sprintf("%d %s %s", kind, t.TopologyKey, t.Matcher.key)
	c.own = append(c.own, ownTerm{kind: kind, key: key, term: t, summand: summand})
}

func (c *Constraints) preferPods(p *corev1.Pod, terms []corev1.WeightedPodAffinityTerm, sign int64) error {
	for i := range terms {
		t, err := podTerm(p, &terms[i].PodAffinityTerm)
		if err != nil {
			return err
		}
		c.PreferredPods = append(c.PreferredPods, WeightedPodTerm{t, sign * int64(terms[i].Weight)})
	}
	return nil
}

func podTerms(p *corev1.Pod, terms []corev1.PodAffinityTerm) ([]PodTerm, error) {
	var out []PodTerm
	for i := range terms {
		t, err := podTerm(p, &terms[i])
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

func podTerm(p *corev1.Pod, t *corev1.PodAffinityTerm) (PodTerm, error) {
	sel, err := metav1.LabelSelectorAsSelector(t.LabelSelector)
	if err != nil {
		return PodTerm{}, err
	}
	namespaces, nsSelector := t.Namespaces, labels.Selector(nil)
	if t.NamespaceSelector != nil {
		if nsSelector, err = metav1.LabelSelectorAsSelector(t.NamespaceSelector); err != nil {
			return PodTerm{}, err
		}
	} else if len(namespaces) == 0 {
		namespaces = []string{p.Namespace}
	}
	return PodTerm{NewMatcher(namespaces, nsSelector, sel), t.TopologyKey}, nil
}

func (c *Constraints) parseSpread(p *corev1.Pod) error {
	for i := range p.Spec.TopologySpreadConstraints {
		t := &p.Spec.TopologySpreadConstraints[i]
		sel, err := metav1.LabelSelectorAsSelector(t.LabelSelector)
		if err != nil {
			return fmt.Errorf("parse topology spread constraint: %w", err)
		}
		if own := ownLabels(p, t.MatchLabelKeys); len(own) > 0 {
			requirements, _ := sel.Requirements()
			sel = labels.SelectorFromSet(own).Add(requirements...)
		}
		c.Spread = append(c.Spread, NewSpread(t, NewMatcher([]string{p.Namespace}, nil, sel)))
	}
	return nil
}

// NewSpread parses a constraint about the pods that a matcher is about.
func NewSpread(t *corev1.TopologySpreadConstraint, m *Matcher) Spread {
	s := Spread{
		Matcher: m, TopologyKey: t.TopologyKey,
		MaxSkew: t.MaxSkew, MinDomains: 1, Hard: t.WhenUnsatisfiable == corev1.DoNotSchedule, HonorAffinity: true,
	}
	if t.MinDomains != nil {
		s.MinDomains = *t.MinDomains
	}
	if t.NodeAffinityPolicy != nil {
		s.HonorAffinity = *t.NodeAffinityPolicy == corev1.NodeInclusionPolicyHonor
	}
	if t.NodeTaintsPolicy != nil {
		s.HonorTaints = *t.NodeTaintsPolicy == corev1.NodeInclusionPolicyHonor
	}
	return s
}

// ownLabels is the pod's labels with the keys.
func ownLabels(p *corev1.Pod, keys []string) labels.Set {
	own := labels.Set{}
	for _, k := range keys {
		if v, ok := p.Labels[k]; ok {
			own[k] = v
		}
	}
	return own
}
