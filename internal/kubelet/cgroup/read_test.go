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
		"io.stat": "8:0 rbytes=1 wbytes=2 rios=3 wios=4\n8:16 rbytes=5\n", "memory.pressure": "some avg10=1.07 avg60=0.00 avg300=0.00 total=77\n",
		"cgroup.procs": "42\n43\n", "memory.stat": "file 9\nodd\n", "cpu.weight": "59\n", "memory.low": "8192\n", "memory.events": "max 6\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want := Values{
		"cpu.stat usage_usec": 10, "cpu.stat nr_throttled": 2, "cpu.max period": 100000, "memory.current": 4096, "memory.swap.max": 0,
		"io.stat 8:0 rbytes": 1, "io.stat 8:0 wbytes": 2, "io.stat 8:0 rios": 3, "io.stat 8:0 wios": 4, "io.stat 8:16 rbytes": 5,
		"memory.pressure some avg10": 107, "memory.pressure some avg60": 0, "memory.pressure some avg300": 0, "memory.pressure some total": 77, "memory.stat file": 9,
		"cgroup.procs": 2, "cpu.shares": 1522, "memory.low": 8192, "memory.events max": 6,
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

func TestNumbersOfVersion1HaveTheNamesOfVersion2(t *testing.T) {
	t.Parallel()
	tree := Tree{top: t.TempDir()}
	for file, text := range map[string]string{
		"cpu/p/cpu.stat": "nr_periods 4\nnr_throttled 2\nthrottled_time 5000\n", "cpu/p/cpu.cfs_quota_us": "-1\n", "cpu/p/cpu.cfs_period_us": "100000\n",
		"cpuacct/p/cpuacct.usage": "7000\n", "memory/p/memory.limit_in_bytes": "9223372036854771712\n", "memory/p/memory.usage_in_bytes": "4096\n",
		"memory/p/memory.stat": "cache 1\ntotal_cache 9\n", "memory/p/memory.oom_control": "under_oom 0\noom_kill 3\n", "pids/p/pids.max": "max\n",
		"blkio/p/blkio.throttle.io_service_bytes_recursive": "8:0 Read 10\n8:0 Write 20\n8:0 Total 30\nTotal 30\n", "blkio/p/blkio.throttle.io_serviced_recursive": "8:0 Read 1\n",
		"memory/p/cgroup.procs": "7\n", "cpu/p/cpu.shares": "512\n", "memory/p/memory.failcnt": "8\n", "memory/p/memory.soft_limit_in_bytes": "9223372036854771712\n",
	} {
		path := filepath.Join(tree.top, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want := Values{
		"cpu.stat nr_periods": 4, "cpu.stat nr_throttled": 2, "cpu.stat throttled_usec": 5, "cpu.max period": 100000, "cpu.stat usage_usec": 7, "memory.current": 4096,
		"memory.stat file": 9, "memory.events oom_kill": 3, "io.stat 8:0 rbytes": 10, "io.stat 8:0 wbytes": 20, "io.stat 8:0 rios": 1,
		"cgroup.procs": 1, "cpu.shares": 512, "memory.events max": 8,
	}
	if got := tree.Read("/p"); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := tree.FirstProcess("/p"); got != "7" {
		t.Errorf("got process %q, want 7", got)
	}
}
