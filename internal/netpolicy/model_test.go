package netpolicy

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/api/networking"
	"github.com/kemudi/kemudi/internal/texttest"
	"github.com/kemudi/kemudi/internal/trace"
)

// TestPolicyScripts runs testdata/*.txt. Each is a list of sections, which are done in order:
//
//	proves        IDs of what the next section that holds an answer shows
//	apply         objects, as YAML documents, that are new or changed; the node is n1
//	delete        lines "policy ns/name", "pod ns/name uid", "namespace name"
//	attach        lines "ns/name uid address...": what has been given to a pod of the node
//	rechecked     the connections that had to be looked at have been
//	changes ip    what the next Commit changes in the table of the family, without the chains that are always there
//	ask           lines "source -> destination protocol/port", and whether that may be: so says the
//	              model, and so the rules
//
// Run with -update to write what the model says into the scripts.
func TestPolicyScripts(t *testing.T) {
	texttest.Sections(t, "testdata/*.txt", func(t *testing.T, file string) func(texttest.Section) (string, bool) {
		s := &script{t: t, cites: trace.NewScript(t, file), m: NewModel("n1"), image: newImage(t)}
		t.Cleanup(s.cites.End)
		return s.cited
	})
}

type script struct {
	t     *testing.T
	cites *trace.Script
	m     *Model
	image *image
}

// cited does one section and notes what it proves.
func (s *script) cited(sec texttest.Section) (got string, output bool) {
	s.t.Helper()
	if sec.Name == "proves" {
		s.cites.Cites(sec.Line, sec.Text)
		return "", false
	}
	got, output = s.section(sec.Name, sec.Text)
	if output {
		s.cites.Passed()
	}
	return got, output
}

func (s *script) section(name, text string) (got string, output bool) {
	s.t.Helper()
	switch name {
	case "apply":
		for _, doc := range strings.Split(text, "---\n") {
			s.apply(doc)
		}
	case "delete":
		for line := range strings.Lines(text) {
			s.delete(strings.Fields(line))
		}
	case "attach":
		for line := range strings.Lines(text) {
			words := strings.Fields(line)
			s.m.Attach(keyOf(words[0]), types.UID(words[1]), addrsOf(words[2:]...))
		}
	case "rechecked":
		round, _ := s.m.Round()
		s.m.Rechecked(round)
	case "changes ip", "changes ip6":
		i := 0
		if name == "changes ip6" {
			i = 1
		}
		changes := s.m.Commit()
		s.image.apply(changes)
		c := changes[i]
		for j := len(c.Chains) - 1; j >= 0; j-- {
			if n := c.Chains[j].Name; n == chainForward || n == chainKnown || n == chainJudge || n == chainStray {
				c.Chains = append(c.Chains[:j:j], c.Chains[j+1:]...)
			}
		}
		return c.Text(), true
	case "ask":
		s.image.apply(s.m.Commit())
		var b strings.Builder
		for line := range strings.Lines(text) {
			b.WriteString(s.ask(line) + "\n")
		}
		return b.String(), true
	default:
		s.t.Fatalf("unknown section %q", name)
	}
	return "", false
}

func keyOf(text string) types.NamespacedName {
	namespace, name, _ := strings.Cut(text, "/")
	return types.NamespacedName{Namespace: namespace, Name: name}
}

func (s *script) apply(doc string) {
	s.t.Helper()
	var kind metav1.TypeMeta
	parse(s.t, doc, &kind)
	switch kind.Kind {
	case "NetworkPolicy":
		var p networkingv1.NetworkPolicy
		parse(s.t, doc, &p)
		networking.NetworkPolicies.Default(&p)
		s.m.SetPolicy(&p)
	case "Pod":
		var p corev1.Pod
		parse(s.t, doc, &p)
		s.m.SetPod(&p)
	case "Namespace":
		var n corev1.Namespace
		parse(s.t, doc, &n)
		s.m.SetNamespace(&n)
	default:
		s.t.Fatalf("unknown kind %q in %q", kind.Kind, doc)
	}
}

func parse(t testing.TB, doc string, into any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(doc), into); err != nil {
		t.Fatalf("parse %q: %v", doc, err)
	}
}

func (s *script) delete(words []string) {
	key := keyOf(words[1])
	switch words[0] {
	case "policy":
		s.m.DeletePolicy(key.Namespace, key.Name)
	case "pod":
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		if len(words) > 2 {
			p.UID = types.UID(words[2])
		}
		s.m.DeletePod(p)
	case "namespace":
		s.m.DeleteNamespace(words[1])
	}
}

// ask reads "10.0.0.1 -> 10.0.0.2 tcp/80", and adds the answer.
func (s *script) ask(line string) string {
	s.t.Helper()
	w := strings.Fields(line)
	name, port, _ := strings.Cut(w[3], "/")
	protocols := map[string]uint8{"tcp": 6, "udp": 17, "sctp": 132, "icmp": 1}
	n, _ := strconv.Atoi(port)
	f := Flow{Src: netip.MustParseAddr(w[0]), Dst: netip.MustParseAddr(w[2]), Proto: protocols[name], Port: uint16(n)}
	allowed := s.m.Allows(f)
	if by := s.image.passes(packet{Flow: f}); by != allowed {
		s.t.Errorf("%s: the model says %t, the rules say %t", line, allowed, by)
	}
	answer := "no"
	if allowed {
		answer = "yes"
	}
	return fmt.Sprintf("%s -> %s %s %s", w[0], w[2], w[3], answer)
}
