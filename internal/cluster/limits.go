package cluster

import (
	"fmt"
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

// raiseFileLimit makes room for open files where the shell that started the
// server left little. Go itself raises the soft limit to the hard one.
func raiseFileLimit() error {
	var have unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &have); err != nil {
		return fmt.Errorf("find the limit of open files: %w", err)
	}
	if have.Max >= manyFiles {
		return nil
	}
	// Only root may. The syscall package must do it: it then no longer gives
	// programs that are started the limit of before.
	err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: manyFiles, Max: manyFiles})
	if err != nil && have.Max < fewFiles {
		return fmt.Errorf("only %d files may be open at once, which is too few: raise it with ulimit -n %d (%w)", have.Max, manyFiles, err)
	}
	return nil
}

// checkNodeName says what is wrong with a name before the node tries in vain to
// register with it: most often it is the machine's host name.
func checkNodeName(name string) error {
	wrong := append(validation.IsDNS1123Subdomain(name), validation.IsValidLabelValue(name)...)
	if len(wrong) == 0 {
		return nil
	}
	return fmt.Errorf("a node cannot be called %q: %s; say another name with --node-name, or give the machine another host name", name, strings.Join(wrong, "; "))
}
