package cgroup

import (
	"maps"
	"os"
	"path/filepath"
	"testing"
)

func TestNumbersOfACgroupAreRead(t *testing.T) {
	t.Parallel()
	tree := Tree{top: t.TempDir(), v2: true}
	dir := filepath.Join(tree.top, "pods/pod1")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{
		"cpu.stat": "usage_usec 10\nnr_throttled 2\n", "cpu.max": "max 100000\n", "memory.max": "max\n", "memory.current": "4096\n", "memory.swap.max": "0\n",
		"io.stat": "8:0 rbytes=1 wbytes=2 rios=3 wios=4\n8:16 rbytes=5\n", "memory.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=77\n",
		"cgroup.procs": "42\n43\n", "memory.stat": "file 9\nodd\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want := Values{
		"cpu.stat usage_usec": 10, "cpu.stat nr_throttled": 2, "cpu.max period": 100000, "memory.current": 4096, "memory.swap.max": 0,
		"io.stat 8:0 rbytes": 1, "io.stat 8:0 wbytes": 2, "io.stat 8:0 rios": 3, "io.stat 8:0 wios": 4, "io.stat 8:16 rbytes": 5,
		"memory.pressure some total": 77, "memory.stat file": 9,
	}
	if got := tree.Read("/pods/pod1"); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := tree.FirstProcess("/pods/pod1"); got != "42" {
		t.Errorf("got process %q, want 42", got)
	}
	if got := tree.Read("/pods/gone"); len(got) != 0 || tree.FirstProcess("/pods/gone") != "" {
		t.Errorf("of one that is gone: got %v", got)
	}
}
