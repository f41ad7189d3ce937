package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/backup"
	"github.com/kemudi/kemudi/test/port"
	"github.com/kemudi/kemudi/test/wait"
)

// backups are those in a directory.
func backups(t *testing.T, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "kemudi-*.tgz"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestAServerGoesOnFromABackupThatItMadeByItself(t *testing.T) {
	t.Parallel()
	o, dir := planeOnly(t), filepath.Join(t.TempDir(), "backups")
	o.Backup = backup.Options{Dir: dir, Schedule: "@every 2s", Keep: 1}
	api, stop := runServer(t, o)
	before := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "before"}}
	if _, err := api.CoreV1().ConfigMaps("default").Create(t.Context(), before, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	wait.Until(t, func() error { // that each is there alone is what is waited for, not when
		for _, name := range backups(t, dir) {
			seen[name] = true
		}
		if len(seen) < 3 {
			return fmt.Errorf("saw %d backups, want 3", len(seen))
		}
		return nil
	})
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	kept := backups(t, dir)
	if len(kept) != 1 {
		t.Fatalf("got %q, want one", kept)
	}
	old := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "tar", "-C", old, "-xzf", kept[0]).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.RemoveAll(o.DataDir); err != nil {
		t.Fatal(err)
	}
	o.Backup, o.SecurePort = backup.Options{}, port.Reserve(t)
	o.Takeover = Takeover{Etcd: filepath.Join(old, backup.StoreName), PKI: filepath.Join(old, backup.KeysName)}
	api, _ = runServer(t, o)
	if _, err := api.CoreV1().ConfigMaps("default").Get(t.Context(), "before", metav1.GetOptions{}); err != nil {
		t.Errorf("after all was lost: %v", err)
	}
	if _, err := api.CoreV1().ConfigMaps("default").Get(t.Context(), "never", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("of what there never was: got %v", err)
	}
}

func TestOnlyAStoreOnDiskIsBackedUp(t *testing.T) {
	t.Parallel()
	for what, set := range map[string]func(o *Options){
		"in memory": func(o *Options) { o.Ephemeral = true },
		"elsewhere": func(o *Options) { o.Etcd.Servers = []string{"http://192.0.2.1:2379"} },
	} {
		o := planeOnly(t)
		o.Backup = backup.Options{Dir: t.TempDir()}
		set(&o)
		if err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "--backup-dir: this server keeps no store on its disk") {
			t.Errorf("a store %s: got %v", what, err)
		}
	}
}
