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
	At, Booted  time.Time

	Available, Free, Anonymous float64 // of memory
	SwapTotal, SwapFree        float64
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
	line, rest, _ := strings.Cut(stat, "\n")
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
	for line := range strings.Lines(rest) {
		if text, ok := strings.CutPrefix(line, "btime "); ok {
			if n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64); err == nil {
				s.Booted = time.Unix(n, 0)
			}
		}
	}
	bytes := map[string]float64{}
	for line := range strings.Lines(meminfo) {
		var name string
		var n float64
		if _, err := fmt.Sscan(line, &name, &n); err == nil {
			bytes[name] = n * 1024
		}
	}
	if bytes["MemTotal:"] == 0 {
		return nil, errProc
	}
	s.Available, s.Free, s.Anonymous = bytes["MemAvailable:"], bytes["MemFree:"], bytes["AnonPages:"]
	s.SwapTotal, s.SwapFree = bytes["SwapTotal:"], bytes["SwapFree:"]
	s.Memory = bytes["MemTotal:"] - s.Available
	return s, nil
}
