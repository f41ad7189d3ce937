package texttest

import (
	"os/exec"
	"strings"
	"sync"
	"testing"
)

var moduleDirs sync.Map // by module: func() (string, error)

// ModuleDir is the folder of a module that the program is built with, for files
// that travel in it: the modules of the API types have serialized objects. The go
// command says where it is, since a test that is built with -trimpath does not know
// where Go itself is.
func ModuleDir(t testing.TB, module string) string {
	t.Helper()
	find, _ := moduleDirs.LoadOrStore(module, sync.OnceValues(func() (string, error) {
		dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
		return strings.TrimSpace(string(dir)), err
	}))
	dir, err := find.(func() (string, error))()
	if err != nil || dir == "" {
		t.Fatalf("find module %s: %v", module, err)
	}
	return dir
}
