package cgroup

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// old is a number of version 1: which word of which file it is (empty: its only one), what Values call it, and how many of
// its unit are one of version 2's.
type old struct {
	file, word, key string
	per             uint64
}

var oldNumbers = []old{
	{"cpu/cpu.stat", "nr_periods", "cpu.stat nr_periods", 1},
	{"cpu/cpu.stat", "nr_throttled", "cpu.stat nr_throttled", 1},
	{"cpu/cpu.stat", "throttled_time", "cpu.stat throttled_usec", 1000},
	{"cpu/cpu.cfs_quota_us", "", "cpu.max quota", 1},
	{"cpu/cpu.cfs_period_us", "", "cpu.max period", 1},
	{"cpu/cpu.shares", "", "cpu.shares", 1},
	{"cpuacct/cpuacct.usage", "", "cpu.stat usage_usec", 1000},
	{"cpuacct/cpuacct.usage_user", "", "cpu.stat user_usec", 1000},
	{"cpuacct/cpuacct.usage_sys", "", "cpu.stat system_usec", 1000},
	{"memory/memory.usage_in_bytes", "", "memory.current", 1},
	{"memory/memory.limit_in_bytes", "", "memory.max", 1},
	{"memory/memory.max_usage_in_bytes", "", "memory.peak", 1},
	{"memory/memory.soft_limit_in_bytes", "", "memory.low", 1},
	{"memory/memory.failcnt", "", "memory.events max", 1},
	{"memory/memory.kmem.usage_in_bytes", "", "memory.stat kernel", 1},
	{"memory/memory.oom_control", "oom_kill", "memory.events oom_kill", 1},
	{"memory/memory.stat", "total_rss", "memory.stat anon", 1},
	{"memory/memory.stat", "total_cache", "memory.stat file", 1},
	{"memory/memory.stat", "total_mapped_file", "memory.stat file_mapped", 1},
	{"memory/memory.stat", "total_active_file", "memory.stat active_file", 1},
	{"memory/memory.stat", "total_inactive_file", "memory.stat inactive_file", 1},
	{"memory/memory.stat", "total_pgfault", "memory.stat pgfault", 1},
	{"memory/memory.stat", "total_pgmajfault", "memory.stat pgmajfault", 1},
	{"memory/memory.stat", "total_swap", "memory.swap.current", 1},
	{"pids/pids.current", "", "pids.current", 1},
	{"pids/pids.max", "", "pids.max", 1},
}

// unlimited is more than any limit: version 1 has such a number in its place.
const unlimited = 1 << 62

// readOld is Read of version 1, in which there is no pressure.
func (t Tree) readOld(path string) Values {
	v, files := Values{}, map[string]string{}
	text := func(file string) string {
		if _, known := files[file]; !known {
			controller, name, _ := strings.Cut(file, "/")
			data, _ := os.ReadFile(filepath.Join(t.top, controller, path, name)) // what is not there has no numbers
			files[file] = string(data)
		}
		return files[file]
	}
	for _, o := range oldNumbers {
		for line := range strings.Lines(text(o.file)) {
			words := strings.Fields(line)
			if len(words) == 0 || o.word != "" && words[0] != o.word {
				continue
			}
			if n, err := strconv.ParseUint(words[len(words)-1], 10, 64); err == nil && n < unlimited {
				v[o.key] = n / o.per
			}
		}
	}
	if procs := text("memory/cgroup.procs"); procs != "" {
		v.add("cgroup.procs", procs)
	}
	for file, short := range map[string]string{"blkio/blkio.throttle.io_service_bytes_recursive": "bytes", "blkio/blkio.throttle.io_serviced_recursive": "ios"} {
		for line := range strings.Lines(text(file)) { // a device, "Read" or "Write" among others, and how much
			words := strings.Fields(line)
			if len(words) != 3 || words[1] != "Read" && words[1] != "Write" {
				continue
			}
			if n, err := strconv.ParseUint(words[2], 10, 64); err == nil {
				v["io.stat "+words[0]+" "+strings.ToLower(words[1][:1])+short] = n
			}
		}
	}
	return v
}
