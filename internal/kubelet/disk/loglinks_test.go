package disk

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/kubelet/cri"
)

func TestLogsHaveLinksByTheNamesOfTheirContainers(t *testing.T) {
	root := t.TempDir()
	d := &Disk{o: Options{PodLogsDir: filepath.Join(root, "pods"), LogLinksDir: filepath.Join(root, "containers")}}
	pod := func(name string) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name[:1])}}
	}
	start := func(p *v1.Pod, container, id string, attempt int) (log string) {
		t.Helper()
		log = filepath.Join(cri.PodLogDir(d.o.PodLogsDir, p.Namespace, p.Name, string(p.UID)), cri.LogPath(container, attempt))
		if err := os.MkdirAll(filepath.Dir(log), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(log, []byte("hello"), 0o644); err != nil {
			t.Fatal(err)
		}
		for range 2 { // a second time is harmless
			if err := d.LinkLog(p, container, id, attempt); err != nil {
				t.Fatal(err)
			}
		}
		return log
	}
	want := func(when string, names ...string) {
		t.Helper()
		entries, err := os.ReadDir(d.o.LogLinksDir)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range entries {
			got = append(got, e.Name())
		}
		if !slices.Equal(got, names) {
			t.Errorf("%s: got %q, want %q", when, got, names)
		}
	}
	a, b := pod("a"), pod("a.b")
	long := pod(strings.Repeat("n", 200))
	if err := d.LinkLog(a, "quiet", "id0", 0); err != nil {
		t.Fatal(err)
	}
	first, second := start(a, "main", "id1", 0), start(a, "main", "id2", 1)
	start(b, "main", "id3", 0)
	start(long, "main", strings.Repeat("4", 64), 0)
	cut := long.Name + "_ns_main-" + strings.Repeat("4", 42) + ".log"
	want("all run", "a.b_ns_main-id3.log", "a_ns_main-id1.log", "a_ns_main-id2.log", cut)
	link := filepath.Join(d.o.LogLinksDir, "a_ns_main-id2.log")
	if target, err := os.Readlink(link); err != nil || target != second {
		t.Errorf("got a link to %q (%v), want to %q", target, err, second)
	}
	if text, err := os.ReadFile(link); err != nil || string(text) != "hello" {
		t.Errorf("got log %q, %v", text, err)
	}

	// What others have there stays.
	if err := os.Symlink("/elsewhere", filepath.Join(d.o.LogLinksDir, "others")); err != nil {
		t.Fatal(err)
	}
	if err := d.RemoveLog(first); err != nil {
		t.Fatal(err)
	}
	want("a container is removed", "a.b_ns_main-id3.log", "a_ns_main-id2.log", cut, "others")
	if err := d.RemovePodLogs(a); err != nil {
		t.Fatal(err)
	}
	if err := d.RemovePodLogs(long); err != nil {
		t.Fatal(err)
	}
	want("pods are gone", "a.b_ns_main-id3.log", "others")
}
