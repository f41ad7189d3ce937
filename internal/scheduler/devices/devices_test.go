package devices

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/texttest"
)

// TestAllocatesAsTheScriptsSay runs testdata/*.txt. A script is lines of
//
//	# comment
//	node NAME LABEL=VALUE...
//	class NAME SPEC             the spec of a DeviceClass
//	slice NAME SPEC             the spec of a ResourceSlice; of the driver d.io, alone in the pool of its name, unless it says otherwise
//	rule NAME SPEC              the spec of a DeviceTaintRule
//	claim NAME DEVICES          what is under spec.devices of a ResourceClaim
//	gone class|slice|rule NAME
//	steps N                     how many steps a search may take from now on
//	try CLAIM... on NODE        whether they can be allocated together, and how much the alternatives are preferred
//	show CLAIM... on NODE       their allocation as it would be
//	take CLAIM... on NODE       the same, and they have it from now on
//	release CLAIM               it has nothing any more
//
// An expression is ATTRIBUTE=VALUE; "driver" is the driver's; one that cannot be compiled is "bad", and one that fails is "fails".
// What is asked is followed by a line "= RESULT".
func TestAllocatesAsTheScriptsSay(t *testing.T) {
	texttest.Run(t, "testdata/*.txt", func(t *testing.T, _, text string) string { return newScript(t).run(text) })
}

type script struct {
	t      *testing.T
	v      *Inventory
	nodes  map[string]*corev1.Node
	claims map[string]*resourcev1.ResourceClaim
	steps  int
	shares int
}

func newScript(t *testing.T) *script {
	return &script{t: t, v: New(testCompile), nodes: map[string]*corev1.Node{}, claims: map[string]*resourcev1.ResourceClaim{}, steps: MaxSteps}
}

func testCompile(expression string) (Matcher, error) {
	if expression == "bad" {
		return nil, errors.New("syntax error")
	}
	name, want, _ := strings.Cut(expression, "=")
	return func(driver string, d *resourcev1.Device) (bool, error) {
		switch a := d.Attributes[resourcev1.QualifiedName(name)]; {
		case name == "fails":
			return false, errors.New("no such key: x")
		case name == "driver":
			return driver == want, nil
		case a.StringValue != nil:
			return *a.StringValue == want, nil
		}
		return false, nil
	}, nil
}

func (s *script) run(text string) string {
	var out []string
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(line, "= ") {
			continue
		}
		out = append(out, line)
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		if result := s.do(words, line); result != "" {
			for part := range strings.SplitSeq(result, "\n") {
				out = append(out, "= "+part)
			}
		}
	}
	return strings.Join(out, "\n")
}

func (s *script) do(words []string, line string) string {
	spec := func(into any) {
		if err := yaml.UnmarshalStrict([]byte(strings.SplitN(line, " ", 3)[2]), into); err != nil {
			s.t.Fatalf("%s: %v", line, err)
		}
	}
	named := func() metav1.ObjectMeta { return metav1.ObjectMeta{Name: words[1]} }
	switch words[0] {
	case "node":
		n := &corev1.Node{ObjectMeta: named()}
		n.Labels = map[string]string{}
		for _, w := range words[2:] {
			key, value, _ := strings.Cut(w, "=")
			n.Labels[key] = value
		}
		s.nodes[n.Name] = n
	case "class":
		c := &resourcev1.DeviceClass{ObjectMeta: named()}
		spec(&c.Spec)
		s.v.SetClass(c)
	case "slice":
		s.v.SetSlice(s.slice(words[1], spec))
	case "rule":
		r := &resourcev1.DeviceTaintRule{ObjectMeta: named()}
		spec(&r.Spec)
		s.v.SetRule(r)
	case "claim":
		c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: words[1], UID: types.UID(words[1])}}
		spec(&c.Spec.Devices)
		s.claims[words[1]] = c
	case "gone":
		map[string]func(string){"class": s.v.RemoveClass, "slice": s.v.RemoveSlice, "rule": s.v.RemoveRule}[words[1]](words[2])
	case "steps":
		if _, err := fmt.Sscan(words[1], &s.steps); err != nil {
			s.t.Fatal(err)
		}
	case "release":
		s.v.Release(types.UID(words[1]))
	case "try", "show", "take":
		return s.ask(words[0], words[1:len(words)-2], words[len(words)-1])
	default:
		s.t.Fatalf("unknown verb %q", words[0])
	}
	return ""
}

func (s *script) slice(name string, spec func(any)) *resourcev1.ResourceSlice {
	obj := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}}
	spec(&obj.Spec)
	if obj.Spec.Driver == "" {
		obj.Spec.Driver = "d.io"
	}
	if obj.Spec.Pool.Name == "" {
		obj.Spec.Pool.Name = name
	}
	if obj.Spec.Pool.ResourceSliceCount == 0 {
		obj.Spec.Pool.ResourceSliceCount = 1
	}
	return obj
}

func (s *script) ask(verb string, names []string, node string) string {
	var claims []*resourcev1.ResourceClaim
	for _, name := range names {
		if s.claims[name] == nil {
			s.t.Fatalf("no claim %s", name)
		}
		claims = append(claims, s.claims[name])
	}
	p, err := s.v.Plan(claims)
	if err != nil {
		return told(err)
	}
	preference, err := s.v.Try(p, s.nodes[node], s.steps)
	if verb == "try" {
		if err != nil {
			return told(err)
		}
		return fmt.Sprint("yes ", preference)
	}
	if err != nil {
		return told(err)
	}
	results, err := s.v.Allocate(p, s.nodes[node], func() types.UID {
		s.shares++
		return types.UID(fmt.Sprint("share-", s.shares))
	})
	if err != nil {
		return told(err)
	}
	var lines []string
	for i := range results {
		lines = append(lines, claims[i].Name+": "+write(&results[i]))
		if verb == "take" {
			s.v.Take(claims[i].UID, &results[i])
		}
	}
	return strings.Join(lines, "\n")
}

func told(err error) string {
	if _, ok := errors.AsType[Refusal](err); ok {
		return "no: " + err.Error()
	}
	return "error: " + err.Error()
}

// write is an allocation in one line.
func write(a *resourcev1.AllocationResult) string {
	var words []string
	for i := range a.Devices.Results {
		r := &a.Devices.Results[i]
		w := r.Request + "=" + r.Pool + "/" + r.Device
		if r.AdminAccess != nil {
			w += " (admin)"
		}
		if r.ShareID != nil {
			w += " (" + string(*r.ShareID)
			for _, name := range slices.Sorted(maps.Keys(r.ConsumedCapacity)) {
				q := r.ConsumedCapacity[name]
				w += " " + string(name) + "=" + q.String()
			}
			w += ")"
		}
		if len(r.BindingConditions) > 0 {
			w += fmt.Sprintf(" waits for %v unless %v", r.BindingConditions, r.BindingFailureConditions)
		}
		if len(r.Tolerations) > 0 {
			w += fmt.Sprintf(" tolerates %d", len(r.Tolerations))
		}
		words = append(words, w)
	}
	for i := range a.Devices.Config {
		c := &a.Devices.Config[i]
		words = append(words, fmt.Sprintf("%s%v=%s", c.Source, c.Requests, c.Opaque.Parameters.Raw))
	}
	if a.NodeSelector != nil {
		for _, r := range slices.Concat(a.NodeSelector.NodeSelectorTerms[0].MatchFields, a.NodeSelector.NodeSelectorTerms[0].MatchExpressions) {
			words = append(words, fmt.Sprintf("where %s %s %v", r.Key, r.Operator, r.Values))
		}
	}
	return strings.Join(words, ", ")
}
