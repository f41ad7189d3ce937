package cluster

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kemudi/kemudi/internal/simulate"
	"github.com/kemudi/kemudi/internal/store/etcd"
	"github.com/kemudi/kemudi/internal/store/mem"
	"github.com/kemudi/kemudi/internal/task"
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
		"--nodes -1 is negative":                                                        {Nodes: -1},
		"--profile: open /nowhere: no such file or directory":                           {Profile: "/nowhere"},
		"--profile " + file + ": pools[0].count: -1 is negative":                        {Profile: file},
		"read a cluster: look for a snapshot: open /nowhere: no such file or directory": {From: "/nowhere"},
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

// TestSnapshotOfAnEtcdIsACluster reads the database of an etcd that has ended, which is what a
// snapshot is.
func TestSnapshotOfAnEtcdIsACluster(t *testing.T) {
	want, err := simulate.ReadObjects([]byte("apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Node, metadata: {name: one}}\n- {apiVersion: v1, kind: Service, metadata: {namespace: a, name: s}}\n"))
	if err != nil || len(want) != 2 {
		t.Fatalf("got %v, %v", want, err)
	}
	dir := t.TempDir()
	st, err := etcd.New(etcd.Options{Dir: dir, Name: "test", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	g := task.NewGroup(t.Context())
	g.Go("etcd", st.Run)
	select {
	case <-st.Ready():
		err = simulate.Copy(t.Context(), st, want)
	case <-g.Context().Done():
	}
	g.Cancel(context.Canceled)
	if err := errors.Join(err, g.Wait()); err != nil {
		t.Fatal(err)
	}
	got, err := Objects(t.Context(), filepath.Join(dir, "etcd", "member", "snap", "db"))
	if err != nil || len(got) != 2 || got[0].Object.GetName()+got[1].Object.GetName() != "ones" && got[0].Object.GetName()+got[1].Object.GetName() != "sone" {
		t.Errorf("got %v, %v, want the node and the service", got, err)
	}
}
