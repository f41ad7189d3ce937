package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSurvivesAFullDisk has no room for an image: importing it fails clearly and
// leaves nothing, objects are refused as clearly and read as before, and with room
// again all is well.
func TestSurvivesAFullDisk(t *testing.T) {
	t.Parallel()
	c := &cluster{machine: newMachine(t)}
	if err := os.MkdirAll(c.DataDir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", c.DataDir, "tmpfs", 0, "size=600m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.kill(unix.SIGTERM)
		o := c.run(context.Background(), nil, c.bin, "reset", "--data-dir", c.DataDir, "--run-dir", c.RunDir, "--kubeconfig", "")
		if o.code != 0 || !strings.Contains(o.stdout, "nothing is left") {
			t.Errorf("reset of a mount point: got %+v", o)
		}
		unmount(t, c.DataDir)
	})
	c.serve(t)
	c.connect(t)
	var small, large string
	for _, file := range c.images {
		switch filepath.Base(file) {
		case "busybox-1.tar":
			small = file
		case "agnhost-1.tar":
			large = file
		}
	}
	c.importImages(t, small)
	filler := filepath.Join(c.DataDir, "filler")
	leave(t, c.DataDir, filler, 4<<20)
	o := c.run(t.Context(), nil, c.bin, "image", "import", "--data-dir", c.DataDir, "--run-dir", c.RunDir, large)
	if o.code != 1 || !strings.Contains(o.stderr, "no space left on device") {
		t.Errorf("import without room: got %+v", o)
	}
	if o := c.run(t.Context(), nil, c.bin, "image", "ls", "--data-dir", c.DataDir, "--run-dir", c.RunDir); o.code != 0 || strings.Contains(o.stdout, "agnhost") {
		t.Errorf("images after that: got %+v", o)
	}
	k := c.kubectl()
	if o := k.try(t, "", "create", "configmap", "full"); o.code == 0 || !strings.Contains(o.stderr, "free some space") {
		t.Errorf("write without room: got %+v", o)
	}
	k.wants(t, []string{" Ready "}, "get", "nodes") // reads go on
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	k.do(t, "create", "configmap", "full")
	c.importImages(t, large)
	c.create(t, "default", "metadata: {name: after}\nspec: {terminationGracePeriodSeconds: 0, containers: [{name: c, image: kemudi.local/agnhost:1}]}\n")
	c.await(t, "default", "after", isReady)
}

// leave fills the disk below dir except for some bytes.
func leave(t *testing.T, dir, file string, bytes uint64) {
	t.Helper()
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		t.Fatal(err)
	}
	free := fs.Bavail * uint64(fs.Bsize)
	if free < bytes {
		t.Fatalf("only %d bytes are free", free)
	}
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Fallocate(int(f.Fd()), 0, 0, int64(free-bytes)); err != nil {
		t.Fatal(fmt.Errorf("fill the disk: %w", err))
	}
}
