package podnet

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestNetworkConfigurationDoesNotSurviveAMoveOfItsDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := Options{CNIConfDir: filepath.Join(dir, "one/net.d"), DataDir: filepath.Join(dir, "one/podnet"), PodCIDRs: mustPrefixes("10.244.1.0/24")}
	if err := DropMoved(o); err != nil {
		t.Errorf("without a configuration: %v", err)
	}
	full, err := o.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	conf, err := confBytes(&full, 1500)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.MkdirAll(o.CNIConfDir, 0o755), os.WriteFile(full.confFile(), conf, 0o644)); err != nil {
		t.Fatal(err)
	}
	if err := DropMoved(o); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(full.confFile()); err != nil {
		t.Errorf("configuration where it belongs: %v", err)
	}
	if err := os.Rename(filepath.Join(dir, "one"), filepath.Join(dir, "two")); err != nil {
		t.Fatal(err)
	}
	o.CNIConfDir, o.DataDir = filepath.Join(dir, "two/net.d"), filepath.Join(dir, "two/podnet")
	if err := DropMoved(o); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(o.CNIConfDir); err != nil || len(left) != 0 {
		t.Errorf("configuration that was moved: got %v, %v, want none", left, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "one")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the old directory: got %v", err)
	}
}
