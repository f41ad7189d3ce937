package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kemudi/kemudi/internal/simulate"
	"github.com/kemudi/kemudi/internal/store/mem"
)

func TestPodToFitIsFoundInWhatHasOne(t *testing.T) {
	const spec = `spec: {containers: [{name: c, image: i}]}`
	for text, want := range map[string]string{
		"kind: Pod\nmetadata: {labels: {a: b}}\n" + spec:                                                     "b",
		"---\nkind: Pod\nmetadata: {labels: {a: first}}\n" + spec + "\n---\nkind: Pod\n":                     "first",
		"kind: Deployment\nspec: {template: {metadata: {labels: {a: t}}, " + spec + "}}":                     "t",
		"kind: CronJob\nspec: {jobTemplate: {spec: {template: {metadata: {labels: {a: j}}, " + spec + "}}}}": "j",
		"kind: ConfigMap\ndata: {a: b}":                                                                      "error: it is neither a pod nor has it a template of one",
	} {
		pod, err := podOf([]byte(text))
		got := ""
		if err != nil {
			got = "error: " + err.Error()
		} else {
			got = pod.Labels["a"]
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

func TestSimulationThatCannotBeIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pools.yaml")
	if err := os.WriteFile(file, []byte("pools: [{name: a, count: -1}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, s := range map[string]Simulation{
		"--nodes -1 is negative":                                   {Nodes: -1},
		"--profile: open /nowhere: no such file or directory":      {Profile: "/nowhere"},
		"--profile " + file + ": pools[0].count: -1 is negative":   {Profile: file},
		"read a cluster: open /nowhere: no such file or directory": {From: "/nowhere"},
	} {
		err := Simulate(t.Context(), Options{}, s)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want %s", s, err, want)
		}
	}
}

func TestCopyOfAClusterGoesIntoAnEmptyStoreAlone(t *testing.T) {
	objects, err := simulate.ReadObjects([]byte("apiVersion: v1\nkind: Node\nmetadata: {name: one}\n"))
	if err != nil || len(objects) != 1 {
		t.Fatalf("got %v, %v", objects, err)
	}
	st := mem.New(mem.Options{})
	if err := seed(t.Context(), st, objects); err != nil {
		t.Fatal(err)
	}
	if kv, _, err := st.Get(t.Context(), "/registry/minions/one"); err != nil || kv.Rev == 0 {
		t.Errorf("got %v, %v, want the node", kv, err)
	}
	if err := seed(t.Context(), st, objects); err == nil || !strings.HasPrefix(err.Error(), "--from: the data directory has a cluster already") {
		t.Errorf("of a store that has something: got %v", err)
	}
}
