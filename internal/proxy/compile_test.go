package proxy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/texttest"
	"github.com/kemudi/kemudi/internal/trace"
)

// TestCompileScripts runs testdata/*.txt. Each is a list of sections, which are
// done in order:
//
//	proves         IDs of what the next section that holds an answer shows
//	config         lines of a Config: node, cluster-cidr, service-cidr, nodeport-address, nodeport-primary, masquerade-all
//	apply          objects, as YAML documents, that are new or changed
//	delete         lines "service ns/name", "slice ns/name service", "pod ns/name"
//	changes ip     what the next Commit changes in the table of the family
//	full ip        all that the table holds, except the chains that are always there
//	base ip        the chains that are always there
//	flows          the UDP ports whose connections the last Commit wants looked through
//	health         the health check ports
//
// Run with -update to write what the model says into the scripts.
func TestCompileScripts(t *testing.T) {
	texttest.Sections(t, "testdata/*.txt", func(t *testing.T, file string) func(texttest.Section) (string, bool) {
		s := &script{t: t, cites: trace.NewScript(t, file)}
		t.Cleanup(s.cites.End)
		return s.cited
	})
}

type script struct {
	t     *testing.T
	cites *trace.Script
	cfg   Config
	m     *Model
	last  *Step
	total [len(families)]Changes
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

// section does one section. output says that got is what it ought to hold.
func (s *script) section(name, text string) (got string, output bool) {
	s.t.Helper()
	verb, arg, _ := strings.Cut(name, " ")
	switch verb {
	case "config":
		s.config(text)
	case "apply":
		s.apply(text)
	case "delete":
		s.delete(text)
	case "changes":
		return s.commit().Tables[familyIndex(arg)].Text(), true
	case "full", "base":
		s.commit()
		return s.full(arg, verb == "base"), true
	case "flows":
		return flowsText(s.commit().Flows), true
	case "health":
		s.commit()
		var b strings.Builder
		for _, h := range s.model().Health() {
			fmt.Fprintf(&b, "%s port %d local %d\n", h.NamespacedName, h.Port, h.Local)
		}
		return b.String(), true
	default:
		s.t.Fatalf("unknown section %q", name)
	}
	return "", false
}

func familyIndex(name string) int {
	if name == "ip6" {
		return 1
	}
	return 0
}

func (s *script) config(text string) {
	prefixes := func(words []string) (out []netip.Prefix) {
		for _, w := range words {
			out = append(out, netip.MustParsePrefix(w))
		}
		return out
	}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		switch words[0] {
		case "node":
			s.cfg.NodeName = words[1]
		case "cluster-cidr":
			s.cfg.ClusterCIDRs = prefixes(words[1:])
		case "service-cidr":
			s.cfg.ServiceCIDRs = prefixes(words[1:])
		case "nodeport-address":
			s.cfg.NodePortAddresses = prefixes(words[1:])
		case "nodeport-primary":
			s.cfg.NodePortPrimary = true
		case "masquerade-all":
			s.cfg.MasqueradeAll = true
		default:
			s.t.Fatalf("unknown setting %q", line)
		}
	}
}

func (s *script) model() *Model {
	if s.m == nil {
		s.m = NewModel(s.cfg)
	}
	return s.m
}

func (s *script) apply(text string) {
	s.last = nil
	for _, doc := range strings.Split(text, "---\n") {
		var kind struct{ Kind string }
		s.parse(doc, &kind)
		switch kind.Kind {
		case "Service":
			s.model().SetService(parse[corev1.Service](s, doc))
		case "EndpointSlice":
			s.model().SetSlice(parse[discoveryv1.EndpointSlice](s, doc))
		case "Pod":
			s.model().SetPod(parse[corev1.Pod](s, doc))
		case "Node":
			s.model().SetNode(parse[corev1.Node](s, doc))
		default:
			s.t.Fatalf("unknown kind %q in %q", kind.Kind, doc)
		}
	}
}

func parse[T any](s *script, doc string) *T {
	var o T
	s.parse(doc, &o)
	return &o
}

func (s *script) parse(doc string, into any) {
	s.t.Helper()
	if err := yaml.Unmarshal([]byte(doc), into); err != nil {
		s.t.Fatalf("parse %q: %v", doc, err)
	}
}

func (s *script) delete(text string) {
	s.last = nil
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		namespace, name, _ := strings.Cut(words[1], "/")
		switch words[0] {
		case "service":
			s.model().DeleteService(namespace, name)
		case "pod":
			s.model().DeletePod(namespace, name)
		case "slice":
			gone := &discoveryv1.EndpointSlice{}
			gone.Namespace, gone.Name = namespace, name
			gone.Labels = map[string]string{discoveryv1.LabelServiceName: words[2]}
			s.model().DeleteSlice(gone)
		}
	}
}

// commit commits once after each change, and checks P3: the changes so far add up
// to what Full says.
func (s *script) commit() *Step {
	s.t.Helper()
	if s.last != nil {
		return s.last
	}
	fresh := s.m == nil || s.total[0].Chains == nil
	s.last = s.model().Commit()
	full := s.model().Full()
	for i := range families {
		if fresh {
			s.total[i] = Changes{Family: families[i], Chains: baseChains(&s.cfg, &NodeFacts{}, families[i]), Add: baseElems()}
		}
		s.total[i] = addUp(s.t, s.total[i], s.last.Tables[i])
		if got, want := s.total[i].Text(), full.Tables[i].Text(); got != want {
			s.t.Errorf("the changes add up to\n%s\nbut all there should be is\n%s", got, want)
		}
	}
	return s.last
}

// addUp applies changes to the content of a table.
func addUp(t *testing.T, c, ch Changes) Changes {
	t.Helper()
	for _, d := range ch.Del {
		i := slices.Index(c.Add, d)
		if i < 0 {
			t.Errorf("deleted element %s @%s does not exist", d, d.Set)
			continue
		}
		c.Add = slices.Delete(slices.Clone(c.Add), i, i+1)
	}
	for _, a := range ch.Add {
		if slices.ContainsFunc(c.Add, func(e Elem) bool { return e.Key == a.Key }) {
			t.Errorf("added element %s @%s exists already", a, a.Set)
		}
	}
	c.Add = append(c.Add, ch.Add...)
	for _, changed := range ch.Chains {
		c.Chains = slices.DeleteFunc(slices.Clone(c.Chains), func(x Chain) bool { return x.Name == changed.Name })
		c.Chains = append(c.Chains, changed)
	}
	for _, name := range ch.DelChains {
		before := len(c.Chains)
		c.Chains = slices.DeleteFunc(slices.Clone(c.Chains), func(x Chain) bool { return x.Name == name })
		if len(c.Chains) == before {
			t.Errorf("deleted chain %s does not exist", name)
		}
	}
	return c
}

func (s *script) full(family string, base bool) string {
	c := s.model().Full().Tables[familyIndex(family)]
	var names []string
	for _, ch := range baseChains(&s.cfg, &NodeFacts{}, c.Family) {
		names = append(names, ch.Name)
	}
	c.Chains = slices.DeleteFunc(c.Chains, func(ch Chain) bool { return slices.Contains(names, ch.Name) != base })
	c.Add = slices.DeleteFunc(c.Add, func(e Elem) bool { return slices.Contains(baseElems(), e) != base })
	return c.Text()
}

func flowsText(flows []flow) string {
	var lines []string
	for _, f := range flows {
		addr := "node"
		if f.Addr.IsValid() {
			addr = f.Addr.String()
		}
		lines = append(lines, fmt.Sprintf("%s . %d valid { %s }\n", addr, f.Port, endpointsText(f.Valid)))
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

func TestEndpointsKeepTheirPlaces(t *testing.T) {
	eps := func(s string) (out []netip.AddrPort) {
		for _, c := range s {
			out = append(out, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(c)}), 80))
		}
		return out
	}
	for _, c := range []struct{ before, want, placed string }{
		{"", "abc", "abc"},
		{"abc", "abc", "abc"},
		{"abc", "bc", "cb"},
		{"abc", "ab", "ab"},
		{"cb", "abc", "cba"},
		{"abc", "xbc", "xbc"},
		{"abc", "x", "x"},
		{"abc", "", ""},
		{"abcd", "ad", "ad"},
		{"abcd", "cdxy", "xycd"},
	} {
		if got := keepPlaces(eps(c.before), eps(c.want)); !slices.Equal(got, eps(c.placed)) {
			t.Errorf("keepPlaces(%q, %q): got %v, want %q", c.before, c.want, got, c.placed)
		}
	}
}

func mustPrefixes(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// TestIdlePickChainsAreBounded scales a service through many sizes.
func TestIdlePickChainsAreBounded(t *testing.T) {
	m := NewModel(Config{NodeName: "n1"})
	m.SetService(service("web", "10.96.0.10"))
	for n := range 300 {
		slice := backends("web")
		for i := range n {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.1.%d.%d", i/250, i%250)}})
		}
		m.SetSlice(slice)
		m.Commit()
		if chains := len(m.Full().Tables[0].Chains); chains > len(baseChains(&m.cfg, &m.node, families[0]))+maxIdlePicks+1 {
			t.Fatalf("%d endpoints: got %d chains, want at most %d idle ones", n, chains, maxIdlePicks)
		}
	}
}
