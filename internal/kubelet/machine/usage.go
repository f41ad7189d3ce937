package machine

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Usage is what the whole machine has used of its CPUs until a time, in seconds, and
// uses of its memory, in bytes.
type Usage struct {
	CPU, Memory float64
	At          time.Time
}

// Used reads what the machine uses now.
func Used() (*Usage, error) {
	cpu, err := os.ReadFile("/proc/stat")
	if err != nil {
		return nil, fmt.Errorf("read what the node uses: %w", err)
	}
	memory, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return nil, fmt.Errorf("read what the node uses: %w", err)
	}
	return parseUsage(string(cpu), string(memory), time.Now())
}

// ticks is how many units of /proc/stat are a second, on every architecture of Linux.
const ticks = 100

var errProc = errors.New("read what the node uses: /proc is not as expected")

// parseUsage reads /proc/stat, of which idle time and what is counted in other
// columns already do not count, and /proc/meminfo.
func parseUsage(stat, meminfo string, now time.Time) (*Usage, error) {
	s := &Usage{At: now}
	line, _, _ := strings.Cut(stat, "\n")
	f := strings.Fields(line)
	if len(f) < 9 || f[0] != "cpu" {
		return nil, errProc
	}
	for _, i := range []int{1, 2, 3, 6, 7, 8} { // user, nice, system, irq, softirq, steal
		n, err := strconv.ParseUint(f[i], 10, 64)
		if err != nil {
			return nil, errProc
		}
		s.CPU += float64(n) / ticks
	}
	kib := map[string]float64{}
	for line := range strings.Lines(meminfo) {
		var name string
		var n float64
		if _, err := fmt.Sscan(line, &name, &n); err == nil {
			kib[name] = n
		}
	}
	if kib["MemTotal:"] == 0 {
		return nil, errProc
	}
	s.Memory = (kib["MemTotal:"] - kib["MemAvailable:"]) * 1024
	return s, nil
}
