package proxy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/podnet/nft/table"
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
//	changes ip     what the next Commit changes in the table of the family, but for the chains that services share
//	full ip        all that the table holds, except those and the chains that are always there
//	base ip        the chains that are always there
//	chain ip NAME  one chain
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
	total [len(families)]table.Changes
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
		return unshared(s.commit().Tables[familyIndex(arg)]), true
	case "full", "base":
		s.commit()
		return s.full(arg, verb == "base"), true
	case "chain":
		family, name, _ := strings.Cut(arg, " ")
		return s.chain(family, name), true
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
			s.total[i] = table.Changes{Table: tableOf(families[i]), Chains: baseChains(&s.cfg, &NodeFacts{}, families[i]), Add: baseElems(families[i])}
		}
		s.total[i] = addUp(s.t, s.total[i], s.last.Tables[i])
		if got, want := s.total[i].Text(), full.Tables[i].Text(); got != want {
			s.t.Errorf("the changes add up to\n%s\nbut all there should be is\n%s", got, want)
		}
	}
	return s.last
}

// addUp applies changes to the content of a table.
func addUp(t *testing.T, c, ch table.Changes) table.Changes {
	t.Helper()
	for _, d := range ch.Del {
		i := slices.Index(c.Add, d)
		if i < 0 {
			t.Errorf("deleted element %s @%s does not exist", d, d.Set.Name)
			continue
		}
		c.Add = slices.Delete(slices.Clone(c.Add), i, i+1)
	}
	for _, a := range ch.Add {
		if slices.ContainsFunc(c.Add, func(e table.Elem) bool { return e.ID == a.ID }) {
			t.Errorf("added element %s @%s exists already", a, a.Set.Name)
		}
	}
	c.Add = append(c.Add, ch.Add...)
	for _, changed := range ch.Chains {
		c.Chains = slices.DeleteFunc(slices.Clone(c.Chains), func(x table.Chain) bool { return x.Name == changed.Name })
		c.Chains = append(c.Chains, changed)
	}
	for _, name := range ch.DelChains {
		before := len(c.Chains)
		c.Chains = slices.DeleteFunc(slices.Clone(c.Chains), func(x table.Chain) bool { return x.Name == name })
		if len(c.Chains) == before {
			t.Errorf("deleted chain %s does not exist", name)
		}
	}
	return c
}

func (s *script) full(family string, base bool) string {
	c := s.model().Full().Tables[familyIndex(family)]
	var names []string
	for _, ch := range baseChains(&s.cfg, &NodeFacts{}, c.Table.Family) {
		names = append(names, ch.Name)
	}
	c.Chains = slices.DeleteFunc(c.Chains, func(ch table.Chain) bool { return slices.Contains(names, ch.Name) != base })
	c.Add = slices.DeleteFunc(c.Add, func(e table.Elem) bool { return slices.Contains(baseElems(c.Table.Family), e) != base })
	if base {
		return c.Text()
	}
	return unshared(c)
}

// unshared leaves out the chains that services share, and what leads to them: they are
// the same whatever there is.
func unshared(c table.Changes) string {
	isAction := func(e table.Elem) bool { return strings.HasSuffix(e.Set.Name, "actions") }
	c.Add = slices.DeleteFunc(slices.Clone(c.Add), isAction)
	c.Del = slices.DeleteFunc(slices.Clone(c.Del), isAction)
	c.Chains = slices.DeleteFunc(slices.Clone(c.Chains), func(ch table.Chain) bool { return isWay(ch.Name) })
	c.DelChains = slices.DeleteFunc(slices.Clone(c.DelChains), isWay)
	return c.Text()
}

// isWay says whether the chain is one of those that services share.
func isWay(name string) bool {
	return slices.ContainsFunc(names[:], func(what string) bool { return what != "" && strings.HasPrefix(name, what) })
}

// chain is one chain of the table.
func (s *script) chain(family, name string) string {
	s.commit()
	for _, ch := range s.model().Full().Tables[familyIndex(family)].Chains {
		if ch.Name == name {
			return ch.Text(families[familyIndex(family)])
		}
	}
	return ""
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

func endpointsText(eps []netip.AddrPort) string {
	words := make([]string, len(eps))
	for i, ep := range eps {
		words[i] = endpointText(ep)
	}
	return strings.Join(words, ", ")
}

// scaled is a slice of n endpoints, every third of them on n1.
func scaled(name string, n int) *discoveryv1.EndpointSlice {
	slice := backends(name)
	for i := range n {
		node := []string{"n1", "n2", "n3"}[i%3]
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.1.%d.%d", i/250, i%250)}, NodeName: &node})
	}
	return slice
}

// TestEndpointChangesAreElementsAlone scales services of every kind through many sizes.
func TestEndpointChangesAreElementsAlone(t *testing.T) {
	m := NewModel(Config{NodeName: "n1", ClusterCIDRs: mustPrefixes("10.244.0.0/16")})
	local := func(svc *corev1.Service) {
		svc.Spec.Type = corev1.ServiceTypeLoadBalancer
		svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		svc.Spec.LoadBalancerSourceRanges = []string{"10.0.0.0/8"}
		svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.7"}}
	}
	kinds := map[string][]func(*corev1.Service){"plain": nil, "port": {nodePort}, "sticky": {sticking}, "local": {nodePort, local}, "both": {nodePort, local, sticking}}
	i := 0
	for name, change := range kinds {
		i++
		svc := service(name, fmt.Sprintf("10.96.0.%d", i), change...)
		for j := range svc.Spec.Ports {
			svc.Spec.Ports[j].NodePort += int32(i)
		}
		m.SetService(svc)
	}
	m.Commit()
	for _, n := range []int{0, 1, 2, 3, 5, 1, 4, 17, 100, 257, 8, 0, 1000, 999} {
		for name := range kinds {
			m.SetSlice(scaled(name, n))
		}
		for _, c := range m.Commit().Tables {
			if len(c.Chains)+len(c.DelChains)+len(c.Sets)+len(c.DelSets) > 0 {
				t.Errorf("%d endpoints: got changes of chains %v and %v, want of elements alone", n, c.Chains, c.DelChains)
			}
		}
	}
}

// TestTimeoutsOutOfUseAreBounded gives a service many timeouts, one after another.
func TestTimeoutsOutOfUseAreBounded(t *testing.T) {
	m := NewModel(Config{NodeName: "n1"})
	most := 0
	for n := range 300 {
		m.SetService(service("web", "10.96.0.10", sticking, func(svc *corev1.Service) {
			svc.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To(int32(n + 1))}}
		}))
		m.Commit()
		chains := len(m.Full().Tables[0].Chains)
		if n == 0 {
			most = chains + maxIdle
		}
		if chains > most {
			t.Fatalf("%d timeouts: got %d chains, want at most %d", n+1, chains, most)
		}
	}
}

// TestPlacesAreDrawnAlike draws as the rules do, for each number of endpoints.
func TestPlacesAreDrawnAlike(t *testing.T) {
	const seed = 1
	rng := rand.New(rand.NewPCG(seed, seed))
	for _, n := range []int{1, 2, 3, 4, 5, 7, 9, 13, 25, 33, 100, 129, 1025} {
		counts := make([]int, n)
		const each = 2000
		for range n * each {
			for _, size := range tries(sizeOf(n)) {
				if place := rng.IntN(int(size)); place < n {
					counts[place]++
					break
				}
			}
		}
		for place, got := range counts {
			if got < each*85/100 || got > each*115/100 {
				t.Errorf("%d endpoints (seed %d): place %d was drawn %d times, want about %d", n, seed, place, got, each)
			}
		}
	}
}
