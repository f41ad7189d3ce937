package cpus

import (
	"strconv"
	"strings"
	"testing"

	"k8s.io/utils/cpuset"

	"github.com/kemudi/kemudi/internal/kubelet/fakemachine"
	"github.com/kemudi/kemudi/internal/kubelet/numa"
	"github.com/kemudi/kemudi/internal/texttest"
)

// TestProcessorsAreTaken runs the scripts of testdata/take.txt: the shape of a machine, and what is taken of its processors. What
// is taken stays so, until the next machine.
func TestProcessorsAreTaken(t *testing.T) {
	t.Parallel()
	texttest.Run(t, "testdata/take.txt", func(t *testing.T, file, text string) string {
		var m *numa.Machine
		free := cpuset.New()
		lines := strings.Split(text, "\n")
		for i, line := range lines {
			words := strings.Fields(line)
			switch {
			case strings.HasPrefix(line, "machine "):
				m = fakemachine.New(t, shapeOf(t, words[1:]))
				free = m.All()
			case strings.HasPrefix(line, "used "):
				set, err := cpuset.Parse(words[1])
				if err != nil {
					t.Fatal(err)
				}
				free = free.Difference(set)
			case strings.HasPrefix(line, "take "):
				asked, _, _ := strings.Cut(line, " -> ")
				words = strings.Fields(asked)
				options := map[string]string{}
				for _, name := range words[2:] {
					options[name] = "true"
				}
				rules, err := ParseRules(options)
				if err != nil {
					t.Fatal(err)
				}
				got, err := rules.take(m, free, number(t, words[1]))
				lines[i] = asked + " -> " + got.String()
				if err != nil {
					lines[i] = asked + " -> " + err.Error()
				}
				free = free.Difference(got)
			}
		}
		return strings.Join(lines, "\n")
	})
}

func shapeOf(t *testing.T, words []string) (s fakemachine.Shape) {
	t.Helper()
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		n := number(t, value)
		switch name {
		case "sockets":
			s.Sockets = n
		case "nodes":
			s.Nodes = n
		case "cores":
			s.Cores = n
		case "threads":
			s.Threads = n
		case "caches":
			s.Caches = n
		default:
			t.Fatalf("unknown word %q", word)
		}
	}
	return s
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestBadOptionsAreRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"x=true":                `unknown CPU Manager Policy option: "x"`,
		"full-pcpus-only=maybe": `bad value for option "full-pcpus-only": strconv.ParseBool: parsing "maybe": invalid syntax`,
		"full-pcpus-only=true distribute-cpus-across-cores=true":                 "static policy options full-pcpus-only and distribute-cpus-across-cores can not be used at the same time",
		"distribute-cpus-across-numa=true prefer-align-cpus-by-uncorecache=true": "static policy options prefer-align-cpus-by-uncorecache and distribute-cpus-across-numa can not be used at the same time",
	} {
		options := map[string]string{}
		for field := range strings.FieldsSeq(text) {
			name, value, _ := strings.Cut(field, "=")
			options[name] = value
		}
		if _, err := ParseRules(options); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}
