package machine

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Processes is how many processes and threads there are, and how many there may be: what
// the kernel has numbers for, or what it takes at all.
func Processes() (are, most int64, err error) {
	for i, file := range []string{"/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"} {
		text, err := os.ReadFile(file)
		if err != nil {
			return 0, 0, fmt.Errorf("read how many processes there may be: %w", err)
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("read how many processes there may be: %s: %w", file, err)
		}
		if i == 0 || n < most {
			most = n
		}
	}
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0, 0, fmt.Errorf("count processes: %w", err)
	}
	are, err = countProcesses(string(text))
	return are, most, err
}

// countProcesses reads /proc/loadavg, whose fourth word has how many run and how many
// there are.
func countProcesses(loadavg string) (int64, error) {
	words := strings.Fields(loadavg)
	if len(words) < 4 {
		return 0, errProc
	}
	_, all, _ := strings.Cut(words[3], "/")
	n, err := strconv.ParseInt(all, 10, 64)
	if err != nil {
		return 0, errProc
	}
	return n, nil
}
