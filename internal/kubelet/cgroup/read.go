package cgroup

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Values are numbers that the kernel counts for a cgroup: by the name of the file of version 2 ("pids.current"), with the word of the line
// where it has several ("cpu.stat nr_periods"), and the device before that for what is read and written
// ("io.stat 8:0 rbytes"). Averages are in hundredths of a percent ("cpu.pressure some avg10"). Of "cgroup.procs" it is how many processes the
// cgroup itself has; "cpu.shares" is the weight as version 1 has it. What is not limited, or not counted, is not among them.
type Values map[string]uint64

// WorkingSet is what a cgroup holds in memory that it is likely to need, in bytes; false: the kernel does not tell.
func (v Values) WorkingSet() (uint64, bool) {
	n, ok := v["memory.current"]
	return n - min(n, v["memory.stat inactive_file"]), ok
}

// counted are the files that Read reads.
var counted = []string{
	"cgroup.procs", "cpu.stat", "cpu.max", "cpu.pressure", "cpu.weight", "io.pressure", "io.stat", "memory.current", "memory.events", "memory.low", "memory.max",
	"memory.peak", "memory.pressure", "memory.stat", "memory.swap.current", "memory.swap.max", "pids.current", "pids.max",
}

// Read reads what the kernel says of a cgroup and those below it; of one that is not there, there is nothing.
func (t Tree) Read(path string) Values {
	if !t.v2 {
		return t.readOld(path)
	}
	v := Values{}
	for _, file := range counted {
		if text, err := os.ReadFile(filepath.Join(t.top, path, file)); err == nil {
			v.add(file, string(text))
		}
	}
	if weight, ok := v["cpu.weight"]; ok && weight > 0 { // 1 to 10000 are 2 to 262144
		v["cpu.shares"] = 2 + (weight-1)*262142/9999
		delete(v, "cpu.weight")
	}
	return v
}

// add adds the numbers of a file.
func (v Values) add(file, text string) {
	note := func(key, number string) {
		if n, err := strconv.ParseUint(number, 10, 64); err == nil {
			v[key] = n
		}
	}
	if file == "cgroup.procs" {
		v[file] = uint64(strings.Count(text, "\n"))
		return
	}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		switch {
		case file == "cpu.max" && len(words) == 2: // a quota, or "max", of a period
			note("cpu.max quota", words[0])
			note("cpu.max period", words[1])
		case len(words) == 1:
			note(file, words[0])
		case len(words) == 2 && !strings.Contains(words[1], "="):
			note(file+" "+words[0], words[1])
		case len(words) > 1: // a device, or "some" or "full", and what is counted of it
			for _, w := range words[1:] {
				what, number, _ := strings.Cut(w, "=")
				note(file+" "+words[0]+" "+what, strings.Replace(number, ".", "", 1)) // averages have two places
			}
		}
	}
}

// FirstProcess is one of the processes of a cgroup itself; empty: it has none.
func (t Tree) FirstProcess(path string) string {
	if !t.v2 {
		path = filepath.Join("memory", path)
	}
	text, err := os.ReadFile(filepath.Join(t.top, path, "cgroup.procs"))
	if err != nil {
		return ""
	}
	pid, _, _ := strings.Cut(string(text), "\n")
	return pid
}
