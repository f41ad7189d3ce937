package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// usage is what processes use.
type usage struct {
	rss     int64         // bytes
	cpu     time.Duration // since each started
	written int64         // bytes caused to be written to disk since each started
}

func (u *usage) add(v usage) {
	u.rss += v.rss
	u.cpu += v.cpu
	u.written += v.written
}

// used returns what the server's own process uses, and what its shims and pause
// containers use. Other containers are not ours.
func (s *server) used() (own, pods usage, err error) {
	if own, err = usageOf(s.cmd.Process.Pid); err != nil {
		return own, pods, err
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return own, pods, fmt.Errorf("list processes: %w", err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || !s.helper(pid) {
			continue
		}
		u, err := usageOf(pid)
		if errors.Is(err, os.ErrNotExist) {
			continue
		} else if err != nil {
			return own, pods, err
		}
		pods.add(u)
	}
	return own, pods, nil
}

// helper says whether a process is a shim or a pause of this server.
func (s *server) helper(pid int) bool {
	exe, err := os.Readlink(procFile(pid, "exe"))
	if err != nil {
		return false
	}
	if strings.HasPrefix(exe, s.data) {
		return true
	}
	if exe != "/pause" {
		return false
	}
	cgroup, err := os.ReadFile(procFile(pid, "cgroup"))
	return err == nil && bytes.Contains(cgroup, []byte("/kemudi-"+filepath.Base(s.run)+"/"))
}

func procFile(pid int, name string) string { return filepath.Join("/proc", strconv.Itoa(pid), name) }

// usageOf reads what one process uses.
func usageOf(pid int) (u usage, err error) {
	if u.cpu, err = cpuTime(pid); err != nil {
		return u, fmt.Errorf("read processor time of process %d: %w", pid, err)
	}
	if u.rss, err = field(procFile(pid, "status"), "VmRSS:"); err != nil {
		return u, err
	}
	u.rss <<= 10
	if u.written, err = field(procFile(pid, "io"), "write_bytes:"); err != nil {
		return u, err
	}
	return u, nil
}

// A footprint is the memory of a process in several ways of counting, in bytes.
type footprint struct{ rss, pss, anon int64 }

// footprintOf reads the footprint of a process.
func footprintOf(pid int) (f footprint, err error) {
	for name, to := range map[string]*int64{"Rss:": &f.rss, "Pss:": &f.pss, "Anonymous:": &f.anon} {
		kib, err := field(procFile(pid, "smaps_rollup"), name)
		if err != nil {
			return f, err
		}
		*to = kib << 10
	}
	return f, nil
}

// load is how many processes wanted a processor in the last minute.
func load() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return err.Error()
	}
	first, _, _ := strings.Cut(string(data), " ")
	return first
}

// cpuTime is the time in user and kernel mode of a process with all its threads, by the
// clock of its own: /proc counts in steps of 10 ms, and a list takes less than ten.
func cpuTime(pid int) (time.Duration, error) {
	const whole = 2 // of the process, and what the scheduler measured: clock_getcpuclockid(3)
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|whole), &t); errors.Is(err, unix.EINVAL) {
		return 0, os.ErrNotExist
	} else if err != nil {
		return 0, err
	}
	return time.Duration(t.Nano()), nil
}

// field is the number behind a name in a file of lines "name number ...".
func field(file, name string) (int64, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", name, err)
	}
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == name {
			return strconv.ParseInt(fields[1], 10, 64)
		}
	}
	return 0, nil // a process that has just ended
}
