package numa_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kemudi/kemudi/internal/kubelet/fakemachine"
	"github.com/kemudi/kemudi/internal/kubelet/numa"
	"github.com/kemudi/kemudi/internal/texttest"
)

func TestMachineIsRead(t *testing.T) {
	t.Parallel()
	m := fakemachine.New(t, fakemachine.Shape{Sockets: 2, Nodes: 2, Cores: 4, Threads: 2, Caches: 2, Memory: 1024, HugePages: 16})
	if got, want := m.All().String(), "0-31"; got != want {
		t.Errorf("processors: got %s, want %s", got, want)
	}
	// The second thread of the third core of node 3.
	if got, want := m.CPUs[30], (numa.CPU{Core: 14, Cache: 14, Socket: 1, Node: 3}); got != want {
		t.Errorf("processor 30: got %+v, want %+v", got, want)
	}
	if got, want := m.In(numa.MaskOf(1)).String(), "4-7,20-23"; got != want {
		t.Errorf("processors of node 1: got %s, want %s", got, want)
	}
	n := m.Nodes[2]
	if n.ID != 2 || n.Memory != 1<<30 || n.HugePages["2Mi"] != 32<<20 || n.Distances[2] != 10 || n.Distances[3] != 12 || n.Distances[0] != 21 {
		t.Errorf("node 2: got %+v", n)
	}
	if got := m.PerCore(); got != 2 {
		t.Errorf("processors of a core: got %d, want 2", got)
	}
}

// A virtual machine may show no more than which processors are online, and some may be offline.
func TestMachineThatShowsLittleHasOneNode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "cpu"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "cpu/online"), []byte("0,2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	m, err := numa.Read(dir, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Nodes) != 1 || m.Nodes[0].Memory != 1<<30 || m.All().String() != "0,2" || m.CPUs[2].Core != 2 {
		t.Errorf("got %+v, want one node with processors 0 and 2", m)
	}
	if _, err := numa.Read(t.TempDir(), 0); err == nil || !strings.Contains(err.Error(), "look which processors there are") {
		t.Errorf("no machine at all: got %v, want an error", err)
	}
}

// This machine is read, too.
func TestThisMachineIsRead(t *testing.T) {
	t.Parallel()
	m, err := numa.Read(numa.Top, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.CPUs) == 0 || len(m.Nodes) == 0 || m.Nodes[0].Memory == 0 || m.PerCore() == 0 {
		t.Errorf("got %+v, want processors and memory", m)
	}
}

func TestSetsOfNodes(t *testing.T) {
	t.Parallel()
	var got []string
	for m := range numa.Masks([]int{0, 1, 3}) {
		got = append(got, "{"+m.String()+"}")
	}
	if want := "{0} {1} {3} {0,1} {0,3} {1,3} {0,1,3}"; strings.Join(got, " ") != want {
		t.Errorf("got %s, want %s", strings.Join(got, " "), want)
	}
	if m := numa.MaskOf(-1, 64, 63, 2); m.String() != "2,63" || m.Has(-1) || m.Has(64) || !m.Has(63) {
		t.Errorf("got %s, want 2,63", m)
	}
}

func TestBadOptionsOfPoliciesAreRefused(t *testing.T) {
	t.Parallel()
	for option, want := range map[string]string{
		"x=true":                          `unknown Topology Manager Policy option: "x"`,
		"prefer-closest-numa-nodes=maybe": `bad value for option "prefer-closest-numa-nodes"`,
		"max-allowable-numa-nodes=7":      `the minimum value of "max-allowable-numa-nodes" should not be less than 8`,
		"max-allowable-numa-nodes=many":   `unable to convert policy option to integer "max-allowable-numa-nodes"`,
	} {
		name, value, _ := strings.Cut(option, "=")
		if err := numa.CheckOptions(map[string]string{name: value}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", option, err, want)
		}
	}
	large := fakemachine.New(t, fakemachine.Shape{Sockets: 3, Nodes: 3, Cores: 1})
	if _, err := numa.NewPolicy(numa.BestEffort, nil, large); err == nil || err.Error() != "unsupported on machines with more than 8 NUMA Nodes" {
		t.Errorf("nine nodes: got %v, want it refused", err)
	}
	if _, err := numa.NewPolicy(numa.BestEffort, map[string]string{"max-allowable-numa-nodes": "9"}, large); err != nil {
		t.Errorf("nine nodes that are allowed: %v", err)
	}
}

// TestHintsAreMerged runs the scripts of testdata/merge.txt: lines of hints of one resource each, and what policies make of them on
// a machine with four nodes, two on each of two sockets.
func TestHintsAreMerged(t *testing.T) {
	t.Parallel()
	m := fakemachine.New(t, fakemachine.Shape{Sockets: 2, Nodes: 2, Cores: 1})
	texttest.Run(t, "testdata/merge.txt", func(t *testing.T, file, text string) string {
		var all []numa.Hints
		lines := strings.Split(text, "\n")
		for i, line := range lines {
			if line == "" {
				all = nil
			}
			if resource, list, ok := strings.Cut(line, ": "); ok && !strings.Contains(resource, " ") {
				all = append(all, numa.Hints{resource: parseHints(t, list)})
			}
			name, _, ok := strings.Cut(line, " -> ")
			if !ok {
				continue
			}
			name, closest := strings.CutSuffix(name, ", closest")
			options := map[string]string{}
			if closest {
				options["prefer-closest-numa-nodes"] = "true"
			}
			p, err := numa.NewPolicy(name, options, m)
			if err != nil {
				t.Fatal(err)
			}
			best, admit := p.Merge(all)
			before, _, _ := strings.Cut(line, " -> ")
			lines[i] = before + " -> " + textOf(best, admit)
		}
		return strings.Join(lines, "\n")
	})
}

func textOf(h numa.Hint, admit bool) string {
	nodes, verdict := "any", "no"
	if h.Nodes != 0 {
		nodes = h.Nodes.String()
	}
	if admit {
		verdict = "yes"
	}
	if h.Preferred {
		nodes += "!"
	}
	return fmt.Sprintf("%s: %s", verdict, nodes)
}

// parseHints reads hints: "0! 0,1 any!", where ! says preferred; "none" is a list without any, "-" no list.
func parseHints(t *testing.T, text string) []numa.Hint {
	t.Helper()
	switch text {
	case "-":
		return nil
	case "none":
		return []numa.Hint{}
	}
	var out []numa.Hint
	for field := range strings.FieldsSeq(text) {
		var h numa.Hint
		field, h.Preferred = strings.CutSuffix(field, "!")
		if field != "any" {
			for id := range strings.SplitSeq(field, ",") {
				h.Nodes |= numa.MaskOf(slices.Index([]string{"0", "1", "2", "3"}, id))
			}
		}
		out = append(out, h)
	}
	return out
}
