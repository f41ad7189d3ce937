package users

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// dirs makes a directory of pods and one with the system's files.
func dirs(t *testing.T, subuid, subgid string) (pods, etc string) {
	t.Helper()
	pods, etc = t.TempDir(), t.TempDir()
	for name, text := range map[string]string{"subuid": subuid, "subgid": subgid} {
		if text == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(etc, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return pods, etc
}

func open(t *testing.T, pods, etc string) *Ranges {
	t.Helper()
	r, err := Open(pods, etc)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func of(t *testing.T, r *Ranges, pod types.UID) uint32 {
	t.Helper()
	got, err := r.Of(pod)
	if err != nil {
		t.Fatal(err)
	}
	return got.First
}

func TestEveryPodHasARangeOfItsOwnAcrossRestarts(t *testing.T) {
	t.Parallel()
	pods, etc := dirs(t, "", "")
	r := open(t, pods, etc)
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			if _, err := r.Of(types.UID(fmt.Sprint("pod-", i))); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	again := open(t, pods, etc)
	owners := map[uint32]types.UID{}
	for i := range 200 {
		pod := types.UID(fmt.Sprint("pod-", i))
		first := of(t, again, pod)
		if other, taken := owners[first]; taken || first%Size != 0 || first < Size {
			t.Errorf("%s has IDs from %d, as %q has", pod, first, other)
		}
		if before := of(t, r, pod); first != before {
			t.Errorf("%s after a restart: IDs from %d, want %d", pod, first, before)
		}
		owners[first] = pod
	}
	freed := of(t, again, "pod-7")
	if got := of(t, again, "new"); owners[got] != "" {
		t.Errorf("a new pod got the IDs of %s", owners[got])
	}
	if err := again.Release("pod-7"); err != nil {
		t.Fatal(err)
	}
	if err := again.Release("pod-7"); err != nil {
		t.Errorf("Release of a pod that has none: %v", err)
	}
	if got := of(t, again, "newer"); got != freed {
		t.Errorf("after a release: got IDs from %d, want those released, from %d", got, freed)
	}
	if got := of(t, open(t, pods, etc), "newer"); got != freed {
		t.Errorf("after a release and a restart: got IDs from %d, want %d", got, freed)
	}
}

func TestIDsOfOthersAreLeftAlone(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, subuid, subgid string
		want                 []uint32 // of the first pods; 0: there is none
	}{
		{"no files", "", "", []uint32{65536, 131072}},
		{"somebody's users", "ann:100000:65536\n", "ann:100000:65536\n", []uint32{196608, 262144}},
		{"somebody's groups", "", "ann:65536:1\n", []uint32{131072}},
		{"IDs for this agent", "kubelet:655360:131072\n", "kubelet:655360:131072\n", []uint32{655360, 720896, 0}},
		{"IDs for this agent, not aligned", "kubelet:655361:131072\n", "kubelet:655361:131072\n", []uint32{720896, 0}},
		{"IDs for this agent in two pieces", "kubelet:655360:65536\nbob:1:1\nkubelet:131072:65536\n", "", []uint32{131072, 655360, 0}},
		{"lines that say nothing", "# ann\nann:x:1\nann:65536\nann:65536:0\n\n", "", []uint32{65536}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := open2(t, tc.subuid, tc.subgid)
			for i, want := range tc.want {
				got, err := r.Of(types.UID(fmt.Sprint(i)))
				if got.First != want || (err != nil) != (want == 0) {
					t.Errorf("pod %d: got %d, %v; want %d", i, got.First, err, want)
				}
			}
		})
	}
}

func open2(t *testing.T, subuid, subgid string) *Ranges {
	t.Helper()
	pods, etc := dirs(t, subuid, subgid)
	return open(t, pods, etc)
}

func TestDamagedFilesAreNotGuessedAt(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"no JSON":        "x",
		"no range":       "{}",
		"the node's own": `{"uidMappings":[{"hostId":0,"containerId":0,"length":65536}],"gidMappings":[{"hostId":0,"containerId":0,"length":65536}]}`,
		"two kinds":      `{"uidMappings":[{"hostId":65536,"containerId":0,"length":65536}],"gidMappings":[{"hostId":131072,"containerId":0,"length":65536}]}`,
		"a short one":    `{"uidMappings":[{"hostId":65536,"containerId":0,"length":1}],"gidMappings":[{"hostId":65536,"containerId":0,"length":1}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pods, etc := dirs(t, "", "")
			path := filepath.Join(pods, "p", File)
			if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := Open(pods, etc); err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("Open: got %v, want an error that names %s", err, path)
			}
		})
	}
	t.Run("two pods with the same IDs", func(t *testing.T) {
		t.Parallel()
		pods, etc := dirs(t, "", "")
		for _, pod := range []string{"a", "b"} {
			if err := write(filepath.Join(pods, pod, File), 3); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := Open(pods, etc); err == nil {
			t.Error("Open: got no error")
		}
	})
}
