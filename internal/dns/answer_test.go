package dns

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/coredns/caddy"
	"github.com/miekg/dns"

	"github.com/kemudi/kemudi/internal/texttest"
	"github.com/kemudi/kemudi/internal/trace"
)

// TestAnswerScripts runs testdata/*.txt. Each is a list of sections, which are
// done in order:
//
//	proves   IDs of what the next section "ask" shows
//	apply    objects, as YAML documents, that are new or changed
//	delete   objects, as YAML documents, that are gone
//	domain   the cluster's domain from here on, if it is not cluster.local
//	rules    the directive kubernetes of a Corefile, from here on
//	ask      lines "TYPE name", each followed by its answer, further in
//
// An answer is its records (after "+" the additional ones), sorted, "nothing" if the name
// exists without such records, or "no such name". Run with -update to write the
// answers into the scripts.
func TestAnswerScripts(t *testing.T) {
	texttest.Sections(t, "testdata/*.txt", func(t *testing.T, file string) func(texttest.Section) (string, bool) {
		cites := trace.NewScript(t, file)
		t.Cleanup(cites.End)
		o := newObjects()
		rules := rulesOf("cluster.local.")
		return func(s texttest.Section) (string, bool) {
			switch s.Name {
			case "proves":
				cites.Cites(s.Line, s.Text)
			case "apply":
				o.apply(t, s.Text)
			case "delete":
				o.delete(t, s.Text)
			case "domain":
				rules = rulesOf(dns.Fqdn(strings.TrimSpace(s.Text)))
			case "rules":
				rules = parsed(t, s.Text)
			case "ask":
				cites.Passed()
				return answers(t, NewNames(newView(o, "n1"), rules, netip.MustParseAddr("10.96.0.10")), s.Text), true
			default:
				t.Fatalf("unknown section %q", s.Name)
			}
			return "", false
		}
	})
}

// rulesOf are those by which a domain has all its names.
func rulesOf(domain string) Rules {
	return Rules{Zones: []string{domain, "in-addr.arpa.", "ip6.arpa."}, TTL: defaultTTL, Pods: PodsInsecure}
}

// parsed reads a directive.
func parsed(t *testing.T, text string) Rules {
	t.Helper()
	c := caddy.NewTestController("dns", text)
	rules, err := parseRules(c)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// answers repeats the questions of a section with the answers there are.
func answers(t *testing.T, names *Names, text string) string {
	t.Helper()
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "\t") {
			continue
		}
		b.WriteString(line)
		kind, name, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok {
			continue
		}
		qtype, known := dns.StringToType[kind]
		if !known {
			t.Fatalf("unknown type of record in %q", line)
		}
		name = dns.Fqdn(name)
		var a Answer
		if ip, ok := reverseAddress(name); ok {
			a = names.Reverse(name, ip)
		} else {
			a = names.Resolve(names.rules.primary(), name, qtype)
		}
		b.WriteString(answerText(a))
	}
	return b.String()
}

func answerText(a Answer) string {
	var b strings.Builder
	var lines []string // in no order, as slices are
	for _, r := range a.Records {
		lines = append(lines, strings.ReplaceAll("\t"+r.String(), "\t", " "))
	}
	for _, r := range a.Extra {
		lines = append(lines, strings.ReplaceAll("+\t"+r.String(), "\t", " "))
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(strings.TrimSpace(a), strings.TrimSpace(b)) })
	for _, l := range lines {
		fmt.Fprintf(&b, "\t%s\n", strings.TrimSpace(l))
	}
	switch {
	case a.Chase != "":
		fmt.Fprintf(&b, "\tthen %s\n", a.Chase)
	case !a.Exists:
		b.WriteString("\tno such name\n")
	case len(a.Records) == 0:
		b.WriteString("\tnothing\n")
	}
	return b.String()
}
