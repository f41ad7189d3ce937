package container

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/containerd/containerd/v2/pkg/oci"

	"github.com/kemudi/kemudi/internal/wholefile"
)

// SandboxSeccomp is the file of the seccomp profile for sandboxes: it allows what
// the runtime's default profile does, in this machine's own instruction set
// alone. Compiling the default one, for two more, takes half as long as all else
// that makes a sandbox.
func (e *Embedded) SandboxSeccomp() string { return e.o.sandboxSeccomp() }

func (o Options) sandboxSeccomp() string { return filepath.Join(o.rootDir(), "sandbox-seccomp.json") }

// nativeArch are the instruction sets as seccomp names them.
var nativeArch = map[string]string{"amd64": "SCMP_ARCH_X86_64", "arm64": "SCMP_ARCH_AARCH64"}

// writeSandboxSeccomp writes the profile, which depends on the kernel, unless it is there.
func writeSandboxSeccomp(o Options) error {
	var powerless oci.Spec // capabilities would be allowed more
	if err := json.Unmarshal([]byte(`{"process": {"capabilities": {}}}`), &powerless); err != nil {
		return fmt.Errorf("make the seccomp profile of sandboxes: %w", err)
	}
	profile := seccomp.DefaultProfile(&powerless)
	for i, arch := range profile.Architectures {
		if string(arch) == nativeArch[runtime.GOARCH] {
			profile.Architectures = profile.Architectures[i : i+1]
			break
		}
	}
	data, err := json.Marshal(profile)
	if err != nil {
		return fmt.Errorf("encode the seccomp profile of sandboxes: %w", err)
	}
	path := o.sandboxSeccomp()
	if has, err := os.ReadFile(path); err == nil && bytes.Equal(has, data) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o711); err != nil {
		return fmt.Errorf("write the seccomp profile of sandboxes: %w", err)
	}
	if err := wholefile.Write(path, data, 0o600); err != nil {
		return fmt.Errorf("write the seccomp profile of sandboxes: %w", err)
	}
	return nil
}
