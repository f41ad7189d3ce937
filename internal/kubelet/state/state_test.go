package state

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Checksums are those that agents of others have written.
func TestFilesOfOtherAgentsAreRead(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{"policyName":"none","defaultCpuSet":"","checksum":1353318690}`,
		`{"policyName":"static","defaultCpuSet":"0-3","checksum":611748604}`,
	} {
		path := filepath.Join(t.TempDir(), CPUFile)
		policy := "none"
		if strings.Contains(text, "static") {
			policy = "static"
		}
		c, err := ReadCPUs(put(t, path, text), policy)
		if err != nil {
			t.Errorf("read %s: %v", text, err)
			continue
		}
		if err := c.Write(path); err != nil {
			t.Fatal(err)
		}
		if got := contents(t, path); got != text {
			t.Errorf("written again: got %s, want %s", got, text)
		}
	}
	text := `{"policyName":"None","machineState":{},"checksum":4236770233}`
	path := filepath.Join(t.TempDir(), MemoryFile)
	m, err := ReadMemory(put(t, path, text), "None")
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Write(path); err != nil {
		t.Fatal(err)
	}
	if got := contents(t, path); got != text {
		t.Errorf("written again: got %s, want %s", got, text)
	}
}

func TestFilesThatDoNotFitAreRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), CPUFile)
	if c, err := ReadCPUs(path, "static"); c != nil || err != nil {
		t.Errorf("no file: got %v, %v, want nothing", c, err)
	}
	for name, tc := range map[string]struct{ text, want string }{
		"another policy":   {`{"policyName":"none","defaultCpuSet":"","checksum":1353318690}`, `configured policy "static" differs from state checkpoint policy "none"`},
		"another checksum": {`{"policyName":"static","defaultCpuSet":"0-4","checksum":611748604}`, "checkpoint is corrupted"},
		"not JSON":         {`{"policyName`, "checkpoint is corrupted"},
	} {
		_, err := ReadCPUs(put(t, path, tc.text), "static")
		want := "could not restore state from checkpoint: " + tc.want
		if err == nil || !strings.HasPrefix(err.Error(), want) || !strings.HasSuffix(err.Error(), `please drain this node and delete the CPU manager checkpoint file "`+path+`" before restarting Kubelet`) {
			t.Errorf("%s: got %v, want %s ...", name, err, want)
		}
	}
	path = filepath.Join(t.TempDir(), MemoryFile)
	_, err := ReadMemory(put(t, path, `{"policyName":"None","machineState":{},"checksum":4236770233}`), "Static")
	if err == nil || !strings.Contains(err.Error(), "delete the memory manager checkpoint file") {
		t.Errorf("memory of another policy: got %v, want it refused", err)
	}
}

func put(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func contents(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
