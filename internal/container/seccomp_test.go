package container

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestSandboxProfileIsTheDefaultOfOneInstructionSet(t *testing.T) {
	o := Options{DataDir: t.TempDir()}
	for range 2 { // the second finds it there
		if err := writeSandboxSeccomp(o); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(o.sandboxSeccomp())
	if err != nil {
		t.Fatal(err)
	}
	var profile struct {
		DefaultAction string
		Architectures []string
		Syscalls      []struct{ Names []string }
	}
	if err := json.Unmarshal(data, &profile); err != nil {
		t.Fatal(err)
	}
	allowed := func(name string) bool {
		for _, s := range profile.Syscalls {
			if slices.Contains(s.Names, name) {
				return true
			}
		}
		return false
	}
	if len(profile.Architectures) != 1 || profile.DefaultAction != "SCMP_ACT_ERRNO" || !allowed("execve") || allowed("mount") || allowed("bpf") {
		t.Errorf("got %s, want one instruction set, execve, and neither mount nor bpf", data)
	}
	if list, _ := filepath.Glob(filepath.Join(o.rootDir(), "*")); len(list) != 1 {
		t.Errorf("left: got %v, want the profile alone", list)
	}
}
