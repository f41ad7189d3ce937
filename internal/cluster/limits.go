package cluster

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/validation"
)

// fewFiles and manyFiles are how many files a server must and should be able to
// have open: each client, container and watch takes some.
const (
	fewFiles  = 1024
	manyFiles = 65536
)

// settleProcess gives this process, and the programs that it starts, what they
// need of the kernel whatever the shell is set to that started it. limit is the memory that it is told to
// make do with; 0: it is not.
func settleProcess(limit int64) error {
	// Users of containers read files that are made here, such as resolv.conf; what
	// is secret is made with a mode of its own.
	unix.Umask(0o022)
	most := memoryLimit("/")
	if limit > 0 {
		most = min(most, limit)
	}
	if most < debug.SetMemoryLimit(-1) { // GOMEMLIMIT may have said less
		debug.SetMemoryLimit(most)
	}
	return raiseFileLimit()
}

// memoryShare is how much of the memory that there is the process may fill with
// what it works on, in percent. Its code, files that are being written and the
// containers' shims need some too.
const memoryShare = 75

// memoryLimit is up to where the collector lets the memory of the process grow,
// and above which the API server takes on no more requests: a share of what the machine
// has, or of what its cgroup or one above allows. root is the root directory.
func memoryLimit(root string) int64 {
	most := int64(math.MaxInt64)
	lower := func(file string, read func(text string) string) {
		data, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return
		}
		if n, err := strconv.ParseInt(strings.TrimSpace(read(string(data))), 10, 64); err == nil && n > 0 {
			most = min(most, n)
		}
	}
	// after reads the number that follows a word of a file.
	after := func(word string, unit string) func(string) string {
		return func(text string) string {
			for line := range strings.Lines(text) {
				if fields := strings.Fields(line); len(fields) > 1 && fields[0] == word {
					return fields[1] + unit
				}
			}
			return ""
		}
	}
	lower("proc/meminfo", after("MemTotal:", "000")) // kB, a little less than they are
	self, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return most / 100 * memoryShare
	}
	for line := range strings.Lines(string(self)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		path := filepath.Clean("/" + parts[2])
		switch {
		case parts[1] == "":
			for ; path != "/"; path = filepath.Dir(path) {
				lower(filepath.Join("sys/fs/cgroup", path, "memory.max"), strings.TrimSpace)
			}
			lower("sys/fs/cgroup/memory.max", strings.TrimSpace) // of a container that sees itself at the top
		case slices.Contains(strings.Split(parts[1], ","), "memory"):
			limit := after("hierarchical_memory_limit", "")
			lower(filepath.Join("sys/fs/cgroup/memory", path, "memory.stat"), limit)
			lower("sys/fs/cgroup/memory/memory.stat", limit)
		}
	}
	return most / 100 * memoryShare
}

// raiseFileLimit makes room for open files where the shell left little. Go itself
// raises the soft limit to the hard one.
func raiseFileLimit() error {
	var have unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &have); err != nil {
		return fmt.Errorf("find the limit of open files: %w", err)
	}
	want := uint64(manyFiles)
	if data, err := os.ReadFile("/proc/sys/fs/nr_open"); err == nil {
		if most, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64); err == nil {
			want = min(want, most)
		}
	}
	if have.Max >= want {
		return nil
	}
	// Only root may. The syscall package must do it: it then no longer gives
	// programs that are started the limit of before.
	err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: want, Max: want})
	if err != nil && have.Max < fewFiles {
		return fmt.Errorf("only %d files may be open at once, which is too few: raise it with ulimit -n %d (%w)", have.Max, want, err)
	}
	return nil
}

// checkNodeName says what is wrong with a name before the node tries in vain to
// register with it: most often it is the machine's host name.
func checkNodeName(name string) error {
	if len(validation.IsDNS1123Subdomain(name)) == 0 && len(validation.IsValidLabelValue(name)) == 0 {
		return nil
	}
	return fmt.Errorf("a node cannot be called %q: want at most 63 letters, digits, - and ., beginning and ending with a letter or a digit; say another name with --node-name, or give the machine another host name", name)
}
